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
"""The maximum size of a text in bytes of UTF-8."""
SECONDS_MAX: Final = 60.0

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*?)`)?$", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _for_readers(**schema: Any) -> msgspec.Meta:
    """Bounds that are only documented in the schema: :func:`check` enforces them, with better messages."""
    return msgspec.Meta(extra_json_schema=schema)


Label = Annotated[str, _for_readers(pattern=f"^{_LABEL.pattern}$")]
Word = Annotated[str, _for_readers(maxLength=WORD_LENGTH_MAX, pattern=r"\S")]
Words = Annotated[tuple[Word, ...], _for_readers(maxItems=WORDS_MAX)]
Domain = Annotated[str, _for_readers(maxLength=DOMAIN_LENGTH_MAX, pattern=r"\S")]
Domains = Annotated[tuple[Domain, ...], _for_readers(maxItems=DOMAINS_MAX)]
_SOME: Final = _for_readers(minItems=1)
Bound = Annotated[int, _for_readers(minimum=0, maximum=TEXT_MAX)]


class _Matcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What to look for. ``type`` names the matcher."""


class Keywords(_Matcher, frozen=True, tag="keywords"):
    """Words and phrases, however they are disguised. A word that ends in ``*`` matches any ending."""

    words: Annotated[Words, _SOME]
    whole_words: bool = True
    """Whether only whole words match. In scripts without spaces between words, parts of words always match."""
    leet: bool = False
    """Whether digits and signs are also read as the letters they look like: ``s3cr3t``."""
    label: Label | None = None


class Pattern(_Matcher, frozen=True, tag="pattern"):
    """A regular expression of RE2, which takes time proportional to the text."""

    pattern: Annotated[str, _for_readers(minLength=1, maxLength=PATTERN_MAX)]
    folded: bool = False
    """Whether it is applied to the text in lower case, without accents, look-alikes and invisible characters."""
    label: Label | None = None


class Pii(_Matcher, frozen=True, tag="pii"):
    """Data that identifies a person or a bank account. Check digits are verified."""

    labels: Annotated[tuple[PiiLabel, ...], _SOME] = ("email", "phone", "iban", "card", "ip")


class Secrets(_Matcher, frozen=True, tag="secrets"):
    """Keys, tokens and passwords, recognized by the format of their issuer, or by what precedes them."""

    labels: Annotated[tuple[str, ...], _SOME] | None = None
    """Only these types. None: all."""


class Urls(_Matcher, frozen=True, tag="urls"):
    """URLs: all of them, those of denied domains, or those that are not of allowed domains."""

    allow: Domains = ()
    deny: Domains = ()
    label: Label | None = None


class Length(_Matcher, frozen=True, tag="length"):
    """A text that is too short or too long."""

    min: Bound | None = None
    max: Bound | None = None
    unit: Literal["characters", "bytes"] = "characters"


class Profanity(_Matcher, frozen=True, tag="profanity"):
    """Profanity, by a list of words from many languages."""

    extra: Words = ()
    allow: Words = ()
    """Words of the list that are allowed."""
    label: Label | None = None


class Classified(_Matcher, frozen=True, tag="classifier"):
    """What the classifier of this name finds."""

    name: Annotated[str, _for_readers(minLength=1)]
    threshold: Annotated[float, _for_readers(minimum=0, maximum=1)] = 0.5
    """The score from which a finding counts."""
    labels: Annotated[tuple[str, ...], _SOME] | None = None
    """Only these labels. None: all."""
    seconds: Annotated[float, _for_readers(exclusiveMinimum=0, maximum=SECONDS_MAX)] = 2.0
    """Its time limit."""
    on_error: Literal["closed", "open"] = "closed"
    """``open``: inbound texts may pass if the classifier fails or takes too long. Outbound is always closed."""


Matcher = Keywords | Pattern | Pii | Secrets | Urls | Length | Profanity | Classified


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, in which direction, and what to do about it."""

    name: str
    matcher: Matcher
    direction: Literal["inbound", "outbound", "both"] = "both"
    action: Action = "block"
    mode: Mode = "enforce"
    """``monitor``: verdicts are reported, but nothing is blocked or redacted."""
    id: str | None = None


def read(given: Any, *, field: str = "rule") -> Rule:
    """A rule from JSON; raises an error that names the invalid field."""
    try:
        rule = msgspec.convert(given, Rule)
    except msgspec.ValidationError as error:
        place = _PLACE.fullmatch(str(error))
        path = place["path"] if place and place["path"] else ""
        raise InputError(f"{place['what'] if place else error}.", field=f"{field}{path}") from None
    check(rule, field=field)
    return rule


def check(rule: Rule, *, field: str = "rule") -> None:
    """Refuse an invalid rule. Errors that only compiling can find are raised there."""
    _require(0 < len(rule.name) <= NAME_MAX, f"{field}.name", f"The name must have 1 to {NAME_MAX} characters.")
    _require(not _CONTROL.search(rule.name), f"{field}.name", "The name must not contain control characters.")
    where, matcher = f"{field}.matcher", rule.matcher
    label = getattr(matcher, "label", None)
    if label is not None:
        hint = "It must be a lower-case word of letters, digits and _, at most 40 long."
        _require(_LABEL.fullmatch(label), f"{where}.label", hint)
    match matcher:
        case Keywords(words=words):
            _require(words, f"{where}.words", "At least one word is required.")
            _check_words(words, f"{where}.words")
        case Profanity(extra=extra, allow=allow):
            _check_words(extra, f"{where}.extra")
            _check_words(allow, f"{where}.allow")
        case Urls(allow=allow, deny=deny):
            _check_list(allow, f"{where}.allow", DOMAINS_MAX, DOMAIN_LENGTH_MAX)
            _check_list(deny, f"{where}.deny", DOMAINS_MAX, DOMAIN_LENGTH_MAX)
        case Pattern(pattern=pattern):
            _check_pattern(pattern, f"{where}.pattern")
        case Pii(labels=labels) | Secrets(labels=labels):  # compiling checks those of secrets
            _check_labels(labels, where)
        case Length():
            _check_length(rule, matcher, where)
        case Classified():
            _check_classified(matcher, where)


def _check_labels(labels: Sequence[str] | None, where: str) -> None:
    _require(labels is None or labels, f"{where}.labels", "At least one type is required.")


def _check_words(words: Sequence[str], field: str) -> None:
    _check_list(words, field, WORDS_MAX, WORD_LENGTH_MAX)


def _check_list(texts: Sequence[str], field: str, limit: int, longest: int) -> None:
    _require(len(texts) <= limit, field, f"The list has {len(texts):,} entries; the limit is {limit:,}.")
    for place, text in enumerate(texts):
        _require(text.strip(), f"{field}[{place}]", "The text must not be empty.")
        _require("\0" not in text, f"{field}[{place}]", "The text must not contain a NUL character.")
        _require(len(text) <= longest, f"{field}[{place}]", f"The text is longer than {longest} characters.")


def _check_pattern(pattern: str, field: str) -> None:
    _require(pattern, field, "The pattern must not be empty.")
    _require("\0" not in pattern, field, "The pattern must not contain a NUL character; write \\x00.")
    size = len(pattern.encode("utf-8", "replace"))
    _require(size <= PATTERN_MAX, field, f"The pattern has {size:,} bytes; the limit is {PATTERN_MAX:,}.")


def _check_length(rule: Rule, matcher: Length, where: str) -> None:
    _require(matcher.min is not None or matcher.max is not None, f"{where}.max", "min or max is required.")
    for name in ("min", "max"):
        bound = getattr(matcher, name)
        _require(
            bound is None or 0 <= bound <= TEXT_MAX, f"{where}.{name}", f"The value must be from 0 to {TEXT_MAX:,}."
        )
    if matcher.min is not None and matcher.max is not None:
        _require(matcher.min <= matcher.max, f"{where}.max", "max must not be less than min.")
    _require(rule.action != "redact", where, "A length rule cannot redact, because it matches no part of the text.")


def _check_classified(matcher: Classified, where: str) -> None:
    _require(matcher.name, f"{where}.name", "The classifier is required.")
    _check_labels(matcher.labels, where)
    _require(0 <= matcher.threshold <= 1, f"{where}.threshold", "The threshold must be from 0 to 1.")
    _require(
        0 < matcher.seconds <= SECONDS_MAX,
        f"{where}.seconds",
        f"The timeout must be greater than 0 and at most {SECONDS_MAX:g}.",
    )


def _require(holds: object, field: str, message: str) -> None:
    if not holds:
        raise InputError(message, field=field)
