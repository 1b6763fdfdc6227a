"""A set of rules, compiled for one direction, and its decision about a text.

Block takes precedence over the other actions. A redacted match is replaced by its label in brackets, and overlapping
matches become one. A rule that only monitors is reported and changes nothing. Verdicts contain the position in the
original text, and the match masked: they are stored and logged, and must not reveal what they stop.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

import msgspec

from millpond import logs
from millpond.errors import InputError
from millpond_products.rules import classifiers, keywords, patterns, pii, profanity, secrets, urls
from millpond_products.rules.folding import TextViews
from millpond_products.rules.keywords import Lexicon
from millpond_products.rules.patterns import Sieve, WorkBudget
from millpond_products.rules.rule import (
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

    from millpond_products.rules.classifiers import Classifier
    from millpond_products.rules.folding import View
    from millpond_products.rules.keywords import Literals
    from millpond_products.rules.shapes import Shape

VERDICTS_MAX: Final = 100
"""The maximum number of verdicts in one decision, which states how many more there are."""
TEXTS_MAX: Final = 2_000
"""The maximum number of different texts in one value."""
FAILED: Final = "classifier_failed"
"""The label of the verdict on a classifier that failed."""
UNDONE: Final = "too_much_work"
"""The label of the verdict on a pattern that was not searched, because text and patterns are too long together."""
_INLINE_MAX: Final = 16_384
"""Characters up to which a decision is faster than starting a thread."""
_INLINE_WORK: Final = 2_000_000
"""The same in characters times steps of the patterns in rules."""
_INLINE_HITS: Final = 1_000
_QUICK_WORK: Final = 50_000_000
"""Characters times steps up to which a decision does not delay those that wait for the same threads."""
_PATH_MAX: Final = 200
# Separate thread pools, so that no other work waits for long texts, and short texts do not wait for long ones.
_QUICK: Final = ThreadPoolExecutor(4, "millpond-rules")
_LONG: Final = ThreadPoolExecutor(2, "millpond-rules-long")
_EXCERPT_MAX: Final = 40
_ASKED_AT_ONCE: Final = 8
_HIDDEN: Final = (Secrets, Classified)
"""In the excerpts of these matchers, signs and spaces are masked too."""


_Made = TypeVar("_Made")


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rule found, and its position in characters of the original text."""

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
    """The path of the text in a JSON value."""


class Decision(msgspec.Struct, frozen=True):
    """The decision about a text."""

    outcome: Literal["passed", "blocked"]
    text: str
    """The text with redactions; empty if it is blocked."""
    verdicts: list[Verdict]
    more: int = 0
    """The number of verdicts beyond those in the list."""


class Judged(msgspec.Struct, frozen=True):
    """The decision about a JSON value."""

    outcome: Literal["passed", "blocked"]
    value: Any
    """The value with redactions; null if it is blocked."""
    verdicts: list[Verdict]
    more: int = 0


class Hit(NamedTuple):
    """A match of a rule."""

    rule: int
    start: int
    end: int
    label: str
    action: Action | None = None
    """None: that of the rule."""


class _Probe(NamedTuple):
    """A search, and a pattern that must match to make it worthwhile."""

    pattern: str
    find: Callable[[View, WorkBudget], Iterator[Hit]]
    about: Sequence[tuple[int, str]]
    """The rules that it is for, each with its label."""


class _Group(NamedTuple):
    """Probes of the same view of a text, and the sieve that selects the worthwhile ones."""

    view: str
    probes: Sequence[_Probe]
    steps: int
    """The steps of patterns in rules; 0 for built-in patterns, whose cost depends on the text alone."""
    sieve: Sieve


class _Place(NamedTuple):
    """Where a text is in a value. Its path is only built for a verdict: names can be long, with many texts below."""

    above: _Place | None
    step: str | int


class _Asked(NamedTuple):
    """A classifier, and the matcher that says which of its findings count."""

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
    """Compile the rules of this direction; raises an error for the first invalid rule."""
    if len(rules) > RULES_MAX:
        raise InputError(f"There are {len(rules):,} rules; the limit is {RULES_MAX:,}.", field=field)
    return RuleSet(rules, direction, classifiers or {}, field)


class RuleSet:
    """Compiled rules. They can be used concurrently."""

    def __init__(
        self, rules: Sequence[Rule], direction: Direction, known: Mapping[str, Classifier], field: str
    ) -> None:
        self.direction = direction
        self.rules: list[Rule] = []
        self._probes: dict[str, list[_Probe]] = {"clean": [], "bare": [], "folded": []}
        self._given: dict[str, list[_Probe]] = {"plain": [], "folded": []}
        self._lexicon = Lexicon()
        self._shapes: dict[Shape, list[int]] = {}
        self._urls: list[tuple[int, str, frozenset[str], frozenset[str], frozenset[str]]] = []
        self._lengths: list[tuple[int, Length]] = []
        self._asked: list[_Asked] = []
        self._steps = {"plain": 0, "folded": 0}
        self._letters = 0
        for place, rule in enumerate(rules):
            self._add(rule, f"{field}[{place}]", known)
        self._close(field)

    @property
    def size(self) -> int:
        """An estimate of the memory it takes, in rules, words, domains and steps."""
        lists = sum(len(allow) + len(deny) for _, _, allow, deny, _ in self._urls)
        return len(self.rules) + self._lexicon.size + lists + self._letters + sum(self._steps.values())

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
        """Finish the checks, also of a rule for the other direction. Returns a function that adds the rule."""
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
                        f"The classifier {m.name[:80]!r} does not exist.",
                        field=f"{where}.name",
                        hint=f"Known: {names}.",
                    )
                return lambda: self._asked.append(_Asked(number, known[m.name], m))

    def _add_profanity(self, number: int, m: Profanity, where: str) -> None:
        allowed = {word.casefold() for word in m.allow}
        words = [word for word in profanity.WORDS if word not in allowed and word.removesuffix("*") not in allowed]
        self._lexicon.add(number, words, whole_words=True, leet=True, field="profanity", is_builtin=True)
        self._lexicon.add(number, m.extra, whole_words=True, leet=True, field=f"{where}.extra")

    def _add_pattern(self, number: int, m: Pattern, expression: Any, where: str) -> None:
        view = "folded" if m.folded else "plain"
        self._steps[view] += expression.programsize
        _check_steps(sum(self._steps.values()), patterns.PROGRAMS_MAX, f"{where}.pattern")
        label = m.label or "pattern"

        def find(view: View, budget: WorkBudget) -> Iterator[Hit]:
            for start, end in patterns.places(expression, view.data, budget):
                yield Hit(number, *view.span(start, end), label)

        self._given[view].append(_Probe(m.pattern, find, [(number, label)]))

    def _add_shapes(self, number: int, shapes: Iterable[Shape]) -> None:
        for shape in shapes:
            self._shapes.setdefault(shape, []).append(number)

    def _close(self, field: str) -> None:
        """Make one sieve for each view, now that all rules are added."""
        self._labels = {
            n: _label(rule) for n, rule in enumerate(self.rules) if isinstance(rule.matcher, Keywords | Profanity)
        }
        for pattern, find in self._lexicon.close():
            self._probes["folded"].append(_Probe(pattern, partial(self._find_words, find), list(self._labels.items())))
        for literals in self._lexicon.literals:
            expression = patterns.expression(
                literals.expression, field=field, limit=keywords.LITERALS_MAX, is_longest=True
            )
            self._letters += expression.programsize
            _check_steps(self._letters, keywords.LITERALS_MAX, field)
            self._probes["folded"].append(_literal_probe(literals, expression, self._labels[literals.rule]))
        for shape, numbers in self._shapes.items():
            self._probes[shape.view].append(_shape_probe(shape, numbers))
        if self._urls:
            expression = patterns.expression(urls.PATTERN)
            about = [(number, label) for number, label, *_ in self._urls]
            self._probes["clean"].append(_Probe(urls.PATTERN, partial(self._find_urls, expression), about))
        self._groups = [
            _group(name, probes, steps.get(name, 0), field)
            for kept, steps in ((self._probes, dict[str, int]()), (self._given, self._steps))
            for name, probes in kept.items()
            if probes
        ]

    # Deciding

    async def decide(self, text: str) -> Decision:
        """Decide about a text. Raises :class:`~millpond.errors.InputError` if it is too long."""
        _check_size(text)
        hits = await _run(lambda: self._find(text, WorkBudget()), self._lane(len(text)))
        hits += await self._ask(text)
        return await _run(lambda: self._decision(text, hits), None if len(hits) <= _INLINE_HITS else _QUICK)

    async def decide_value(self, value: Any, *, field: str = "input") -> Judged:
        """Decide about a JSON value by all texts in it, including the names of members.

        Numbers are not text and pass. Length rules do not apply to names.
        """
        found = list(_texts(value, field))
        distinct = list(dict.fromkeys(text for _, text, _ in found))
        if len(distinct) > TEXTS_MAX:
            message = f"The value has {len(distinct):,} different texts; the limit is {TEXTS_MAX:,}."
            raise InputError(message, field=field)
        size = 0
        for text in distinct:
            size += len(text)
            _check_size(text, field)
        budget = WorkBudget()
        lane = self._lane(size + 64 * len(distinct))
        hits = await _run(lambda: {text: self._find(text, budget) for text in distinct}, lane)
        if self._asked:
            for start in range(0, len(distinct), _ASKED_AT_ONCE):
                some = distinct[start : start + _ASKED_AT_ONCE]
                for text, more in zip(some, await asyncio.gather(*map(self._ask, some)), strict=True):
                    hits[text] += more
        lane = None if len(found) + sum(map(len, hits.values())) <= _INLINE_HITS else _QUICK
        return await _run(lambda: self._judged(value, found, hits), lane)

    def _lane(self, size: int) -> ThreadPoolExecutor | None:
        """The thread pool for a text of this many characters; None if the event loop can process it without delay."""
        work = size * sum(self._steps.values())
        if size <= _INLINE_MAX and work <= _INLINE_WORK:
            return None
        return _QUICK if work <= _QUICK_WORK else _LONG

    def _find(self, text: str, budget: WorkBudget) -> list[Hit]:
        views = TextViews(text)
        hits = [Hit(number, 0, len(text), "length") for number, m in self._lengths if _is_beyond(text, m)]
        for group in self._groups:
            view: View = getattr(views, group.view)
            if group.steps and not budget.take(group.steps * len(view.data)):
                hits += (self._undone(probe, len(text)) for probe in group.probes)
                continue
            for number in group.sieve.sift(view.data):
                hits += _bounded(group.probes[number], view, budget, len(text))
        return hits

    def _undone(self, probe: _Probe, size: int) -> Hit:
        """The hit for a pattern that was not searched: it blocks, unless the rule only flags."""
        ((number, _),) = probe.about
        return Hit(number, 0, size, UNDONE, "flag" if self.rules[number].action == "flag" else "block")

    def _find_words(self, find: Callable[[View], Iterator[keywords.Hit]], view: View, _: WorkBudget) -> Iterator[Hit]:
        labels = self._labels
        for rule, start, end in find(view):
            yield Hit(rule, *view.origin(start, end), labels[rule])

    def _find_urls(self, expression: Any, view: View, _: WorkBudget) -> Iterator[Hit]:
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
        """What a classifier finds. If it fails, the text counts as a match, unless the rule says otherwise."""
        m = asked.matcher
        try:
            found = await classifiers.ask(asked.classifier, text, m.seconds)
            return [
                Hit(asked.rule, *_within(text, finding.start, finding.end), _word(finding.label))
                for finding in found
                if finding.score >= m.threshold and (m.labels is None or finding.label in m.labels)
            ]
        except Exception as error:  # noqa: BLE001 - external code may raise anything
            logs.emit("classifier.failed", classifier=m.name, error=type(error).__name__)
            is_open = m.on_error == "open" and self.direction == "inbound"
            is_mild = is_open or self.rules[asked.rule].action == "flag"
            return [Hit(asked.rule, 0, len(text), FAILED, "flag" if is_mild else "block")]

    # Reporting

    def _decision(self, text: str, hits: Sequence[Hit]) -> Decision:
        ordered = _in_order(hits)
        verdicts = [self._verdict(text, hit) for hit in ordered[:VERDICTS_MAX]]
        more = len(ordered) - len(verdicts)
        if self._is_blocked(ordered):
            return Decision("blocked", "", verdicts, more)
        return Decision("passed", self._redacted(text, ordered), verdicts, more)

    def _judged(self, value: Any, found: Iterable[tuple[_Place, str, bool]], hits: Mapping[str, list[Hit]]) -> Judged:
        verdicts: list[Verdict] = []
        total, is_blocked = 0, False
        kept: dict[tuple[str, bool], list[Hit]] = {}
        become: dict[tuple[str, bool], str] = {}
        for place, text, is_name in found:
            ordered = kept.get((text, is_name))
            if ordered is None:
                ordered = _in_order(hit for hit in hits[text] if not (is_name and self._is_length(hit)))
                kept[text, is_name] = ordered
                is_blocked = is_blocked or self._is_blocked(ordered)
                become[text, is_name] = self._redacted(text, ordered)
            total += len(ordered)
            room = max(0, VERDICTS_MAX - len(verdicts))
            if ordered and room:
                where = self._path(place, hits)
                verdicts += [self._verdict(text, hit, where) for hit in ordered[:room]]
        more = total - len(verdicts)
        if is_blocked:
            return Judged("blocked", None, verdicts, more)
        return Judged(
            "passed", _rebuilt(value, become) if any(k[0] != v for k, v in become.items()) else value, verdicts, more
        )

    def _path(self, place: _Place, hits: Mapping[str, list[Hit]]) -> str:
        """The path of a place. Names of members are texts too, so what rules match in them is replaced as well."""
        steps: list[str] = []
        here: _Place | None = place
        while here is not None:
            step = here.step
            if isinstance(step, int):
                steps.append(f"[{step}]")
            elif here.above is None:
                steps.append(step)
            else:
                about = _in_order(hit for hit in hits[step] if not self._is_length(hit))
                steps.append(f".{_labelled(step, about)[:_PATH_MAX]}")
            here = here.above
        return "".join(reversed(steps))[:_PATH_MAX]

    def _is_length(self, hit: Hit) -> bool:
        return isinstance(self.rules[hit.rule].matcher, Length)

    def _is_enforced(self, hit: Hit, action: Action) -> bool:
        rule = self.rules[hit.rule]
        return rule.mode == "enforce" and (hit.action or rule.action) == action

    def _is_blocked(self, hits: Iterable[Hit]) -> bool:
        return any(self._is_enforced(hit, "block") for hit in hits)

    def _redacted(self, text: str, hits: Iterable[Hit]) -> str:
        """The text with redactions."""
        return _labelled(text, (hit for hit in hits if self._is_enforced(hit, "redact")))

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


async def _run(work: Callable[[], _Made], lane: ThreadPoolExecutor | None) -> _Made:
    return work() if lane is None else await asyncio.get_running_loop().run_in_executor(lane, work)


def _bounded(probe: _Probe, view: View, budget: WorkBudget, size: int) -> list[Hit]:
    """What a probe finds. If that is more than the budget allows, each of its rules matches the whole text."""
    found = list(islice(probe.find(view, budget), budget.hits + 1))
    if len(found) > budget.hits:
        return [Hit(number, 0, size, label) for number, label in probe.about]
    budget.hits -= len(found)
    return found


def _labelled(text: str, hits: Iterable[Hit]) -> str:
    """The text with labels in place of the hits; overlapping hits become one."""
    spans = sorted((hit.start, -hit.end, hit.rule, hit.label) for hit in hits)
    parts: list[str] = []
    here = 0
    for start, end, _, label in spans:
        if start >= here:
            parts += (text[here:start], f"[{label.upper()}]")
        here = max(here, -end)
    return "".join((*parts, text[here:]))


def _check_steps(steps: int, limit: int, field: str) -> None:
    if steps > limit:
        raise InputError(
            f"All patterns together compile to more than {limit:,} steps.",
            field=field,
            hint="Use fewer or shorter patterns.",
        )


def _label(rule: Rule) -> str:
    matcher: Any = rule.matcher
    return matcher.label or ("keyword" if isinstance(matcher, Keywords) else "profanity")


def _secrets(m: Secrets, field: str) -> list[Shape]:
    for place, label in enumerate(m.labels or ()):
        if label not in secrets.LABELS:
            known = ", ".join(secrets.LABELS)
            raise InputError(
                f"The secret type {label[:80]!r} does not exist.", field=f"{field}[{place}]", hint=f"Known: {known}."
            )
    return [shape for shape in secrets.SHAPES if m.labels is None or shape.label in m.labels]


def _group(view: str, probes: Sequence[_Probe], steps: int, field: str) -> _Group:
    memory = patterns.GIVEN_MEMORY if steps else patterns.SET_MEMORY
    return _Group(view, probes, steps, Sieve([probe.pattern for probe in probes], field=field, memory=memory))


def _literal_probe(literals: Literals, expression: Any, label: str) -> _Probe:
    def find(view: View, _: WorkBudget) -> Iterator[Hit]:
        for rule, start, end in keywords.find_literals(literals, expression, view):
            yield Hit(rule, *view.origin(start, end), label)

    return _Probe(literals.expression, find, [(literals.rule, label)])


def _shape_probe(shape: Shape, numbers: Sequence[int]) -> _Probe:
    def find(view: View, _: WorkBudget) -> Iterator[Hit]:
        for start, end in shape.find(view):
            for number in numbers:
                yield Hit(number, start, end, shape.label)

    return _Probe(shape.pattern, find, [(number, shape.label) for number in numbers])


def _check_size(text: str, field: str = "text") -> None:
    if len(text) > TEXT_MAX or (len(text) * 4 > TEXT_MAX and len(text.encode("utf-8", "replace")) > TEXT_MAX):
        raise InputError(f"The text is longer than {TEXT_MAX:,} bytes.", field=field)


def _is_beyond(text: str, m: Length) -> bool:
    size = len(text) if m.unit == "characters" else len(text.encode("utf-8", "replace"))
    return (m.min is not None and size < m.min) or (m.max is not None and size > m.max)


def _in_order(hits: Iterable[Hit]) -> list[Hit]:
    """The hits by rule, then by position. A hit within another one of the same rule is dropped."""
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
    """The range that a classifier named, limited to the text; the whole text if it named none."""
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


def _texts(value: Any, field: str) -> Iterator[tuple[_Place, str, bool]]:
    """Every text with its place, and whether it is the name of a member."""
    pending: list[tuple[_Place, Any]] = [(_Place(None, field), value)]
    while pending:
        place, node = pending.pop()
        if isinstance(node, str):
            yield place, node, False
        elif isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            for name in members:
                yield place, name, True
            pending.extend((_Place(place, name), child) for name, child in reversed(members.items()))
        elif isinstance(node, list | tuple):
            children = cast("Sequence[Any]", node)
            pending.extend((_Place(place, number), children[number]) for number in reversed(range(len(children))))


def _rebuilt(value: Any, become: Mapping[tuple[str, bool], str]) -> Any:
    """The same value with its texts replaced. Names that become equal are numbered."""
    if isinstance(value, str):
        return become[value, False]
    if isinstance(value, list | tuple):
        return [_rebuilt(child, become) for child in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        rebuilt: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, child in cast("dict[str, Any]", value).items():
            new = wanted = become[name, True]
            while new in rebuilt:
                numbers[wanted] = numbers.get(wanted, 1) + 1
                new = f"{wanted} {numbers[wanted]}"
            rebuilt[new] = _rebuilt(child, become)
        return rebuilt
    return value
