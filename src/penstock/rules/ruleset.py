"""A set of rules, compiled for one direction, and what it decides about a text.

Block wins over everything. What is redacted becomes its label in brackets, and places that overlap become one. A rule
that only monitors is told of and changes nothing. Verdicts say where something was found in the original text, and
show it masked: they are stored and logged, and must not carry on what they were to stop.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import msgspec

from penstock import logs
from penstock.errors import InputError
from penstock.rules import classifiers, keywords, patterns, pii, profanity, secrets, urls
from penstock.rules.folding import Views
from penstock.rules.keywords import Lexicon
from penstock.rules.patterns import Budget, Sieve
from penstock.rules.rule import (
    RULES_MAX,
    TEXT_MAX,
    Action,
    Classified,
    Direction,
    Keywords,
    Length,
    Mode,
    Pattern,
    Pii,
    Profanity,
    Rule,
    Secrets,
    Urls,
    check,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.rules.classifiers import Classifier
    from penstock.rules.folding import View
    from penstock.rules.keywords import Literals
    from penstock.rules.shapes import Shape

VERDICTS_MAX: Final = 100
"""Verdicts of one decision; it says how many more there would be."""
TEXTS_MAX: Final = 2_000
"""Different texts in one value."""
FAILED: Final = "classifier_failed"
"""The label of the verdict on a classifier that failed."""
_INLINE_MAX: Final = 16_384
"""Characters up to which a decision is quicker than a thread."""
_EXCERPT_MAX: Final = 40
_ASKED_AT_ONCE: Final = 8
_HIDDEN: Final = (Secrets, Classified)
"""Of what these find, not even signs and spaces are shown."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rule found, and where: characters of the original text."""

    rule: str | None
    name: str
    action: Action
    mode: Mode
    matcher: str
    label: str
    start: int
    end: int
    excerpt: str
    field: str | None = None
    """In which text of a value."""


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a text."""

    outcome: Literal["passed", "blocked"]
    text: str
    """As it may go on; empty where it may not."""
    verdicts: list[Verdict]
    more: int = 0
    """Verdicts beyond those that are told."""


class Judged(msgspec.Struct, frozen=True):
    """What becomes of a JSON value."""

    outcome: Literal["passed", "blocked"]
    value: Any
    """As it may go on; null where it may not."""
    verdicts: list[Verdict]
    more: int = 0


class Hit(NamedTuple):
    """A place that a rule is about."""

    rule: int
    start: int
    end: int
    label: str
    action: Action | None = None
    """Where it is not the rule's own."""


class _Probe(NamedTuple):
    """A pattern that tells whether it is worth to look for something, and how it is then looked for."""

    pattern: str
    find: Callable[[View, Budget], Iterator[Hit]]


class _Asked(NamedTuple):
    """A classifier, and what of its answer counts."""

    rule: int
    classifier: Classifier
    matcher: Classified


def compile(  # noqa: A001 - the verb that it is
    rules: Sequence[Rule],
    direction: Direction,
    *,
    classifiers: Mapping[str, Classifier] | None = None,
    field: str = "rules",
) -> RuleSet:
    """Make a set of those rules that are about this direction, or refuse the first that cannot work."""
    if len(rules) > RULES_MAX:
        raise InputError(f"There are {len(rules):,} rules; the limit is {RULES_MAX:,}.", field=field)
    return RuleSet(rules, direction, classifiers or {}, field)


class RuleSet:
    """Rules that are ready to be applied. May be used by many at once."""

    def __init__(
        self, rules: Sequence[Rule], direction: Direction, known: Mapping[str, Classifier], field: str
    ) -> None:
        self.direction = direction
        self.rules: list[Rule] = []
        self._probes: dict[str, list[_Probe]] = {"plain": [], "clean": [], "folded": []}
        self._lexicon = Lexicon()
        self._shapes: dict[Shape, list[int]] = {}
        self._urls: list[tuple[int, str, frozenset[str], frozenset[str], frozenset[str]]] = []
        self._lengths: list[tuple[int, Length]] = []
        self._asked: list[_Asked] = []
        self._steps = 0
        for place, rule in enumerate(rules):
            self._add(rule, f"{field}[{place}]", known)
        self._close(field)

    # Compiling

    def _add(self, rule: Rule, field: str, known: Mapping[str, Classifier]) -> None:
        check(rule, field=field)
        number, where = len(self.rules), f"{field}.matcher"
        add = self._adder(rule, number, where, known)
        if rule.direction in ("both", self.direction):
            add()
            self.rules.append(rule)

    def _adder(  # noqa: PLR0911 - one for each sort of matcher
        self, rule: Rule, number: int, where: str, known: Mapping[str, Classifier]
    ) -> Callable[[], None]:
        """Check what is left to check, also of a rule for the other direction; what it returns puts it in its place."""
        match rule.matcher:
            case Keywords() as m:
                return lambda: self._lexicon.add(
                    number, m.words, whole_words=m.whole_words, leet=m.leet, field=f"{where}.words"
                )
            case Profanity() as m:
                return lambda: self._add_profanity(number, m, where)
            case Pattern() as m:
                expression = patterns.expression(m.pattern, field=f"{where}.pattern")
                return lambda: self._add_pattern(number, m, expression, where)
            case Pii() as m:
                shapes = [shape for shape in pii.SHAPES if shape.label in m.labels]
                return lambda: self._add_shapes(number, shapes)
            case Secrets() as m:
                shapes = _secrets(m, f"{where}.labels")
                return lambda: self._add_shapes(number, shapes)
            case Urls() as m:
                allow, deny = (
                    frozenset(urls.domain(name, f"{where}.{lst}[{n}]") for n, name in enumerate(getattr(m, lst)))
                    for lst in ("allow", "deny")
                )
                label = m.label or "url"
                return lambda: self._urls.append((number, label, allow, deny, urls.alikes(sorted(deny))))
            case Length() as m:
                return lambda: self._lengths.append((number, m))
            case Classified() as m:
                if m.name not in known:
                    names = ", ".join(sorted(known)) or "none"
                    raise InputError(
                        f"There is no classifier {m.name[:80]!r}.", field=f"{where}.name", hint=f"Known: {names}."
                    )
                return lambda: self._asked.append(_Asked(number, known[m.name], m))

    def _add_profanity(self, number: int, m: Profanity, where: str) -> None:
        allowed = {word.casefold() for word in m.allow}
        words = [word for word in profanity.WORDS if word not in allowed and word.removesuffix("*") not in allowed]
        self._lexicon.add(number, words, whole_words=True, leet=True, field="profanity")
        self._lexicon.add(number, m.extra, whole_words=True, leet=True, field=f"{where}.extra")

    def _add_pattern(self, number: int, m: Pattern, expression: Any, where: str) -> None:
        self._count(expression, f"{where}.pattern")
        label = m.label or "pattern"

        def find(view: View, budget: Budget) -> Iterator[Hit]:
            for start, end in patterns.places(expression, view.data, budget):
                yield Hit(number, *view.span(start, end), label)

        self._probes["folded" if m.folded else "plain"].append(_Probe(m.pattern, find))

    def _add_shapes(self, number: int, shapes: Iterable[Shape]) -> None:
        for shape in shapes:
            self._shapes.setdefault(shape, []).append(number)

    def _count(self, expression: Any, field: str) -> None:
        self._steps += expression.programsize
        if self._steps > patterns.PROGRAMS_MAX:
            raise InputError(
                f"All patterns together come to more than {patterns.PROGRAMS_MAX:,} steps.",
                field=field,
                hint="Use fewer or shorter ones.",
            )

    def _close(self, field: str) -> None:
        """Make one sieve of each view, now that all is known that it must let through."""
        for pattern, find in self._lexicon.close():
            self._probes["folded"].append(_Probe(pattern, partial(self._find_words, find)))
        self._labels = {
            n: _label(rule) for n, rule in enumerate(self.rules) if isinstance(rule.matcher, Keywords | Profanity)
        }
        for literals in self._lexicon.literals:
            expression = patterns.expression(
                literals.expression, field=field, most=patterns.PROGRAMS_MAX, is_longest=True
            )
            self._count(expression, field)
            self._probes["folded"].append(_literal_probe(literals, expression, self._labels[literals.rule]))
        for shape, numbers in self._shapes.items():
            self._probes[shape.view].append(_shape_probe(shape, numbers))
        if self._urls:
            expression = patterns.expression(urls.PATTERN)
            self._probes["clean"].append(_Probe(urls.PATTERN, partial(self._find_urls, expression)))
        self._sieves = {
            name: Sieve([probe.pattern for probe in probes], field=field)
            for name, probes in self._probes.items()
            if probes
        }

    # Deciding

    async def decide(self, text: str) -> Decision:
        """What becomes of a text. Raises :class:`~penstock.errors.InputError` for one that is too long."""
        _check_size(text)
        hits = await self._off_loop([text], len(text))
        hits[0] += await self._ask(text)
        return self._decision(text, hits[0])

    async def decide_value(self, value: Any, *, field: str = "input") -> Judged:
        """What becomes of a JSON value: every text in it is looked at, the names of members too.

        Numbers are not text and pass. A length is not asked of names.
        """
        found = list(_texts(value, field))
        distinct = list(dict.fromkeys(text for _, text, _ in found))
        if len(distinct) > TEXTS_MAX:
            raise InputError(f"It has {len(distinct):,} different texts; the limit is {TEXTS_MAX:,}.", field=field)
        size = 0
        for text in distinct:
            size += len(text)
            _check_size(text, field)
        hits = dict(zip(distinct, await self._off_loop(distinct, size, each=64), strict=True))
        if self._asked:
            for start in range(0, len(distinct), _ASKED_AT_ONCE):
                some = distinct[start : start + _ASKED_AT_ONCE]
                for text, more in zip(some, await asyncio.gather(*map(self._ask, some)), strict=True):
                    hits[text] += more
        return self._judged(value, found, hits)

    async def _off_loop(self, texts: list[str], size: int, *, each: int = 0) -> list[list[Hit]]:
        """Look for everything; in a thread, where it would keep the loop waiting."""
        if size + each * len(texts) <= _INLINE_MAX:
            return [self._find(text) for text in texts]
        return await asyncio.to_thread(lambda: [self._find(text) for text in texts])

    def _find(self, text: str) -> list[Hit]:
        views, budget = Views(text), Budget()
        hits = [Hit(number, 0, len(text), "length") for number, m in self._lengths if _is_beyond(text, m)]
        for name, sieve in self._sieves.items():
            view, probes = getattr(views, name), self._probes[name]
            for number in sieve.sift(view.data):
                hits += probes[number].find(view, budget)
        return hits

    def _find_words(self, find: Callable[[View], Iterator[keywords.Hit]], view: View, _: Budget) -> Iterator[Hit]:
        labels = self._labels
        for rule, start, end in find(view):
            yield Hit(rule, *view.origin(start, end), labels[rule])

    def _find_urls(self, expression: Any, view: View, _: Budget) -> Iterator[Hit]:
        for address in urls.find(expression, view):
            for number, label, allow, deny, alike in self._urls:
                if urls.is_meant(address, allow, deny, alike):
                    yield Hit(number, address.start, address.end, label)

    async def _ask(self, text: str) -> list[Hit]:
        if not self._asked:
            return []
        answers = await asyncio.gather(*(self._ask_one(asked, text) for asked in self._asked))
        return [hit for answer in answers for hit in answer]

    async def _ask_one(self, asked: _Asked, text: str) -> list[Hit]:
        """What a classifier finds. One that fails is as good as one that found something, unless the rule says not."""
        m = asked.matcher
        try:
            found = await classifiers.ask(asked.classifier, text, m.seconds)
            return [
                Hit(asked.rule, *_within(text, finding.start, finding.end), _word(finding.label))
                for finding in found
                if finding.score >= m.threshold and (m.labels is None or finding.label in m.labels)
            ]
        except Exception as error:  # noqa: BLE001 - it is somebody else's code
            logs.emit("classifier.failed", classifier=m.name, error=type(error).__name__)
            is_open = m.on_error == "open" and self.direction == "inbound"
            is_mild = is_open or self.rules[asked.rule].action == "flag"
            return [Hit(asked.rule, 0, len(text), FAILED, "flag" if is_mild else "block")]

    # What is told of it

    def _decision(self, text: str, hits: Sequence[Hit]) -> Decision:
        ordered = _in_order(hits)
        verdicts = [self._verdict(text, hit) for hit in ordered[:VERDICTS_MAX]]
        more = len(ordered) - len(verdicts)
        if self._is_blocked(ordered):
            return Decision("blocked", "", verdicts, more)
        return Decision("passed", self._redacted(text, ordered), verdicts, more)

    def _judged(self, value: Any, found: Iterable[tuple[str, str, bool]], hits: Mapping[str, list[Hit]]) -> Judged:
        verdicts: list[Verdict] = []
        total, is_blocked = 0, False
        become: dict[tuple[str, bool], str] = {}
        for where, text, is_name in found:
            ordered = _in_order(hit for hit in hits[text] if not (is_name and self._is_length(hit)))
            is_blocked = is_blocked or self._is_blocked(ordered)
            total += len(ordered)
            room = max(0, VERDICTS_MAX - len(verdicts))
            verdicts += [self._verdict(text, hit, where[:200]) for hit in ordered[:room]]
            become[text, is_name] = self._redacted(text, ordered)
        more = total - len(verdicts)
        if is_blocked:
            return Judged("blocked", None, verdicts, more)
        return Judged(
            "passed", _rebuilt(value, become) if any(k[0] != v for k, v in become.items()) else value, verdicts, more
        )

    def _is_length(self, hit: Hit) -> bool:
        return isinstance(self.rules[hit.rule].matcher, Length)

    def _is_enforced(self, hit: Hit, action: Action) -> bool:
        rule = self.rules[hit.rule]
        return rule.mode == "enforce" and (hit.action or rule.action) == action

    def _is_blocked(self, hits: Iterable[Hit]) -> bool:
        return any(self._is_enforced(hit, "block") for hit in hits)

    def _redacted(self, text: str, hits: Iterable[Hit]) -> str:
        """The text with labels in the place of what must not be read; places that overlap become one."""
        spans = sorted((hit.start, -hit.end, hit.rule, hit.label) for hit in hits if self._is_enforced(hit, "redact"))
        if not spans:
            return text
        parts: list[str] = []
        here = 0
        for start, end, _, label in spans:
            if start >= here:
                parts += (text[here:start], f"[{label.upper()}]")
            here = max(here, -end)
        return "".join((*parts, text[here:]))

    def _verdict(self, text: str, hit: Hit, field: str | None = None) -> Verdict:
        rule = self.rules[hit.rule]
        return Verdict(
            rule=rule.id,
            name=rule.name,
            action=hit.action or rule.action,
            mode=rule.mode,
            matcher=str(rule.matcher.__struct_config__.tag),
            label=hit.label,
            start=hit.start,
            end=hit.end,
            excerpt=_masked(text[hit.start : hit.end], is_hidden=isinstance(rule.matcher, _HIDDEN)),
            field=field,
        )


def _label(rule: Rule) -> str:
    matcher: Any = rule.matcher
    return matcher.label or ("keyword" if isinstance(matcher, Keywords) else "profanity")


def _secrets(m: Secrets, field: str) -> list[Shape]:
    for place, label in enumerate(m.labels or ()):
        if label not in secrets.LABELS:
            known = ", ".join(secrets.LABELS)
            raise InputError(f"There is no secret {label[:80]!r}.", field=f"{field}[{place}]", hint=f"Known: {known}.")
    return [shape for shape in secrets.SHAPES if m.labels is None or shape.label in m.labels]


def _literal_probe(literals: Literals, expression: Any, label: str) -> _Probe:
    def find(view: View, _: Budget) -> Iterator[Hit]:
        for rule, start, end in keywords.find_literals(literals, expression, view):
            yield Hit(rule, *view.origin(start, end), label)

    return _Probe(literals.expression, find)


def _shape_probe(shape: Shape, numbers: Sequence[int]) -> _Probe:
    def find(view: View, _: Budget) -> Iterator[Hit]:
        for start, end in shape.find(view):
            for number in numbers:
                yield Hit(number, start, end, shape.label)

    return _Probe(shape.pattern, find)


def _check_size(text: str, field: str = "text") -> None:
    if len(text) > TEXT_MAX or (len(text) * 4 > TEXT_MAX and len(text.encode("utf-8", "replace")) > TEXT_MAX):
        raise InputError(f"It is longer than {TEXT_MAX:,} bytes.", field=field)


def _is_beyond(text: str, m: Length) -> bool:
    size = len(text) if m.unit == "characters" else len(text.encode("utf-8", "replace"))
    return (m.min is not None and size < m.min) or (m.max is not None and size > m.max)


def _in_order(hits: Iterable[Hit]) -> list[Hit]:
    """By rule, then by place. Of one rule's places that lie within another of its own, only the large one counts."""
    kept: list[Hit] = []
    number, reached = -1, -1
    for hit in sorted(hits, key=lambda hit: (hit.rule, hit.start, -hit.end)):
        if hit.rule != number:
            number, reached = hit.rule, -1
        if hit.end > reached:
            kept.append(hit)
            reached = hit.end
    return kept


def _within(text: str, start: int | None, end: int | None) -> tuple[int, int]:
    """A place that a classifier named, made to lie in the text; all of it, where it named none."""
    first = 0 if start is None else min(max(start, 0), len(text))
    last = len(text) if end is None else min(max(end, 0), len(text))
    return (first, last) if first < last else (0, len(text))


def _word(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")[:40] or "classifier"


def _masked(text: str, *, is_hidden: bool) -> str:
    shown = text[:_EXCERPT_MAX]
    masked = (
        "*" * len(shown)
        if is_hidden
        else "".join("*" if not letter.isascii() or letter.isalnum() else letter for letter in shown)
    )
    return masked + "…" * (len(text) > _EXCERPT_MAX)


def _texts(value: Any, field: str) -> Iterator[tuple[str, str, bool]]:
    """Every text with the place where it stands, and whether it is the name of a member."""
    pending: list[tuple[str, Any]] = [(field, value)]
    while pending:
        where, node = pending.pop()
        if isinstance(node, str):
            yield where, node, False
        elif isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            for name in members:
                yield where, name, True
            pending.extend((f"{where}.{name}", child) for name, child in reversed(members.items()))
        elif isinstance(node, list | tuple):
            children = cast("Sequence[Any]", node)
            pending.extend((f"{where}[{place}]", children[place]) for place in reversed(range(len(children))))


def _rebuilt(value: Any, become: Mapping[tuple[str, bool], str]) -> Any:
    """The same value with its texts as they have become. Names that have become the same are numbered."""
    if isinstance(value, str):
        return become[value, False]
    if isinstance(value, list | tuple):
        return [_rebuilt(child, become) for child in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        rebuilt: dict[str, Any] = {}
        for name, child in cast("dict[str, Any]", value).items():
            new = wanted = become[name, True]
            number = 1
            while new in rebuilt:
                number += 1
                new = f"{wanted} {number}"
            rebuilt[new] = _rebuilt(child, become)
        return rebuilt
    return value
