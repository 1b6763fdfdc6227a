"""A rule as data: what to look for, in which direction, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from millpond.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

Direction = Literal["inbound", "outbound"]
Action = Literal["block", "redact", "flag"]
Mode = Literal["enforce", "monitor"]
PiiLabel = Literal["email", "phone", "iban", "card", "ip", "ssn"]

RULES_MAX: Final = 1_000
NAME_MAX: Final = 200
WORDS_MAX: Final = 5_000
"""Words of one rule."""
WORD_LENGTH_MAX: Final = 128
DOMAINS_MAX: Final = 5_000
DOMAIN_LENGTH_MAX: Final = 253
PATTERN_MAX: Final = 4_096
TEXT_MAX: Final = 1_048_576
"""Bytes of UTF-8 in a text that is looked at."""
SECONDS_MAX: Final = 60.0

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*?)`)?$", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _for_readers(**schema: Any) -> msgspec.Meta:
    """Bounds for readers of the schema; who goes beyond is told so in plain words."""
    return msgspec.Meta(extra_json_schema=schema)


Label = Annotated[str, _for_readers(pattern=f"^{_LABEL.pattern}$")]
Word = Annotated[str, _for_readers(maxLength=WORD_LENGTH_MAX, pattern=r"\S")]
Words = Annotated[tuple[Word, ...], _for_readers(maxItems=WORDS_MAX)]
Domain = Annotated[str, _for_readers(maxLength=DOMAIN_LENGTH_MAX, pattern=r"\S")]
Domains = Annotated[tuple[Domain, ...], _for_readers(maxItems=DOMAINS_MAX)]
_SOME: Final = _for_readers(minItems=1)
Bound = Annotated[int, _for_readers(minimum=0, maximum=TEXT_MAX)]


class _Matcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What to look for. Which one it is stands in ``type``."""


class Keywords(_Matcher, frozen=True, tag="keywords"):
    """Words and phrases, however they are dressed up. One that ends in ``*`` is the beginning of a word."""

    words: Annotated[Words, _SOME]
    whole_words: bool = True
    """Whether they must stand alone. Scripts that are written without spaces are always looked through."""
    leet: bool = False
    """Whether digits and signs are also read as the letters they look like: ``s3cr3t``."""
    label: Label | None = None


class Pattern(_Matcher, frozen=True, tag="pattern"):
    """A regular expression of RE2: it takes time in proportion to the text, whatever it says."""

    pattern: Annotated[str, _for_readers(minLength=1, maxLength=PATTERN_MAX)]
    folded: bool = False
    """Whether it sees the text in lower case, without accents, look-alikes and what cannot be seen."""
    label: Label | None = None


class Pii(_Matcher, frozen=True, tag="pii"):
    """What tells who somebody is, or where the money goes. Check digits are checked."""

    labels: Annotated[tuple[PiiLabel, ...], _SOME] = ("email", "phone", "iban", "card", "ip")


class Secrets(_Matcher, frozen=True, tag="secrets"):
    """Keys, tokens and passwords: by the form that their makers gave them, or by what stands before them."""

    labels: Annotated[tuple[str, ...], _SOME] | None = None
    """Only these; all if it is not said."""


class Urls(_Matcher, frozen=True, tag="urls"):
    """Addresses on the web: all of them, those of denied domains, or those that are not of allowed ones."""

    allow: Domains = ()
    deny: Domains = ()
    label: Label | None = None


class Length(_Matcher, frozen=True, tag="length"):
    """A text that is too short or too long."""

    min: Bound | None = None
    max: Bound | None = None
    unit: Literal["characters", "bytes"] = "characters"


class Profanity(_Matcher, frozen=True, tag="profanity"):
    """Bad language, by a list of words from many languages."""

    extra: Words = ()
    allow: Words = ()
    """Words of the list that are fine here."""
    label: Label | None = None


class Classified(_Matcher, frozen=True, tag="classifier"):
    """Whatever a classifier of this name finds."""

    name: Annotated[str, _for_readers(minLength=1)]
    threshold: Annotated[float, _for_readers(minimum=0, maximum=1)] = 0.5
    """The score from which a finding counts."""
    labels: Annotated[tuple[str, ...], _SOME] | None = None
    """Only these; all if it is not said."""
    seconds: Annotated[float, _for_readers(exclusiveMinimum=0, maximum=SECONDS_MAX)] = 2.0
    """How long it may take."""
    on_error: Literal["closed", "open"] = "closed"
    """What to do where it fails or takes longer. What goes out is never let pass for that."""


Matcher = Keywords | Pattern | Pii | Secrets | Urls | Length | Profanity | Classified


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, in which direction, and what to do about it."""

    name: str
    matcher: Matcher
    direction: Literal["inbound", "outbound", "both"] = "both"
    action: Action = "block"
    mode: Mode = "enforce"
    """``monitor``: verdicts are told, and nothing is changed."""
    id: str | None = None


def read(given: Any, *, field: str = "rule") -> Rule:
    """A rule from JSON, or the refusal that names the field."""
    try:
        rule = msgspec.convert(given, Rule)
    except msgspec.ValidationError as error:
        place = _PLACE.fullmatch(str(error))
        path = place["path"] if place and place["path"] else ""
        raise InputError(f"{place['what'] if place else error}.", field=f"{field}{path}") from None
    check(rule, field=field)
    return rule


def check(rule: Rule, *, field: str = "rule") -> None:
    """Refuse a rule that cannot be meant so. What only compiling shows is refused there."""
    _require(0 < len(rule.name) <= NAME_MAX, f"{field}.name", f"It must have 1 to {NAME_MAX} characters.")
    _require(not _CONTROL.search(rule.name), f"{field}.name", "It must not have control characters.")
    where, matcher = f"{field}.matcher", rule.matcher
    label = getattr(matcher, "label", None)
    if label is not None:
        hint = "It must be a lower-case word of letters, digits and _, at most 40 long."
        _require(_LABEL.fullmatch(label), f"{where}.label", hint)
    match matcher:
        case Keywords(words=words):
            _require(words, f"{where}.words", "It must name a word.")
            _check_words(words, f"{where}.words")
        case Profanity(extra=extra, allow=allow):
            _check_words(extra, f"{where}.extra")
            _check_words(allow, f"{where}.allow")
        case Urls(allow=allow, deny=deny):
            _check_list(allow, f"{where}.allow", DOMAINS_MAX, DOMAIN_LENGTH_MAX)
            _check_list(deny, f"{where}.deny", DOMAINS_MAX, DOMAIN_LENGTH_MAX)
        case Pattern(pattern=pattern):
            _check_pattern(pattern, f"{where}.pattern")
        case Pii(labels=labels) | Secrets(labels=labels):  # those of secrets are known when it is compiled
            _check_labels(labels, where)
        case Length():
            _check_length(rule, matcher, where)
        case Classified():
            _check_classified(matcher, where)


def _check_labels(labels: Sequence[str] | None, where: str) -> None:
    _require(labels is None or labels, f"{where}.labels", "It must name something to look for.")


def _check_words(words: Sequence[str], field: str) -> None:
    _check_list(words, field, WORDS_MAX, WORD_LENGTH_MAX)


def _check_list(texts: Sequence[str], field: str, most: int, longest: int) -> None:
    _require(len(texts) <= most, field, f"It has {len(texts):,} entries; the limit is {most:,}.")
    for place, text in enumerate(texts):
        _require(text.strip(), f"{field}[{place}]", "It must not be empty.")
        _require("\0" not in text, f"{field}[{place}]", "It must not have the character NUL.")
        _require(len(text) <= longest, f"{field}[{place}]", f"It is longer than {longest} characters.")


def _check_pattern(pattern: str, field: str) -> None:
    _require(pattern, field, "It must not be empty.")
    _require("\0" not in pattern, field, "It must not have the character NUL: write it as \\x00.")
    size = len(pattern.encode("utf-8", "replace"))
    _require(size <= PATTERN_MAX, field, f"It is {size:,} bytes long; the limit is {PATTERN_MAX:,}.")


def _check_length(rule: Rule, matcher: Length, where: str) -> None:
    _require(matcher.min is not None or matcher.max is not None, f"{where}.max", "Either min or max must be given.")
    for name in ("min", "max"):
        bound = getattr(matcher, name)
        _require(bound is None or 0 <= bound <= TEXT_MAX, f"{where}.{name}", f"It must be from 0 to {TEXT_MAX:,}.")
    if matcher.min is not None and matcher.max is not None:
        _require(matcher.min <= matcher.max, f"{where}.max", "It must not be less than min.")
    _require(rule.action != "redact", where, "A length has no place in the text, and cannot be redacted.")


def _check_classified(matcher: Classified, where: str) -> None:
    _require(matcher.name, f"{where}.name", "It must name a classifier.")
    _check_labels(matcher.labels, where)
    _require(0 <= matcher.threshold <= 1, f"{where}.threshold", "It must be from 0 to 1.")
    _require(0 < matcher.seconds <= SECONDS_MAX, f"{where}.seconds", f"It must be above 0, at most {SECONDS_MAX:g}.")


def _require(holds: object, field: str, message: str) -> None:
    if not holds:
        raise InputError(message, field=field)
