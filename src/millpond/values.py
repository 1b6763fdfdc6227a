"""Validation of input: JSON values, names and amounts within limits.

PostgreSQL and Python disagree about the edges of JSON (NUL, NaN, numbers of a thousand digits, lone surrogates).
Values that one of them cannot store are rejected here, with their path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import msgspec

from millpond.errors import AmountError, IdempotencyKeyError, InputError, InvalidError

BYTES_MAX: Final = 256 * 1024
DEPTH_MAX: Final = 32
INTEGER_MAX: Final = 2**63 - 1
AMOUNT_MAX: Final = 10**12
PRICE_MAX: Final = 10**9
KEY_LENGTH_MAX: Final = 255
NAME_LENGTH_MAX: Final = 128
PRIORITY_MAX: Final = 100
TAGS_MAX: Final = 16
TAG_KEY_LENGTH_MAX: Final = 64
TAG_VALUE_LENGTH_MAX: Final = 256

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YEAR_MIN: Final = 1970
_YEAR_MAX: Final = 9000
_SECONDS_MAX: Final = 3650 * _UNITS["d"]
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NAME: Final = re.compile(r"[\w.:@+/-]+", re.ASCII)
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_TAG_KEY: Final = re.compile(r"[\w./-]+", re.ASCII)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line separators and halves of surrogate pairs; see millpond.check_tags."""
_BAD_CHARACTER: Final = re.compile("[\x00\ud800-\udfff]")
_PLACE_MAX: Final = 200
_STEP_MAX: Final = 60

_Place: TypeAlias = "tuple[_Place | None, str | int]"
"""The path of a node: its parent's path and one step. It is formatted only for an error: the paths of all nodes may
be thousands of times as long as the value.
"""


def encode(value: Any, *, field: str, limit: int = BYTES_MAX) -> str:
    """A JSON value as text; raises an error that states the problem and its path."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        check(value, field=field)  # raises a more precise error, with the path
        raise InputError(f"The value is not a JSON value: {error}.", field=field) from error
    if len(encoded) > limit:  # checked first, so that a value that is too long is not searched
        raise InputError(
            f"The value has {len(encoded):,} bytes of JSON; the limit is {limit:,}.",
            field=field,
            hint="Store large data as an artifact and pass its id.",
        )
    check(value, field=field)
    return encoded.decode()


def check(value: Any, *, field: str) -> None:
    """Reject what JSON or PostgreSQL cannot store, and what exceeds the limits."""
    if not _is_plain(value):
        _search(value, field)


def _is_plain(value: Any) -> bool:
    """Whether the value is surely valid: a fast check of every node, without tracking paths."""
    texts: list[Any] = []
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for node in level:
            if type(node) is str:
                texts.append(node)
            elif type(node) is dict:
                members = cast("dict[Any, Any]", node)
                texts.extend(members)
                below.extend(members.values())
            elif type(node) is list:
                below.extend(cast("list[Any]", node))
            elif not _is_plain_leaf(node):
                return False
        if not below:
            return _are_plain_texts(texts)
        level = below
    return False


def _is_plain_leaf(leaf: Any) -> bool:
    if type(leaf) is int:
        return -INTEGER_MAX <= leaf <= INTEGER_MAX
    if type(leaf) is float:
        return math.isfinite(leaf)
    return leaf is None or type(leaf) is bool


def _are_plain_texts(texts: list[Any]) -> bool:
    try:
        joined = "".join(texts)
    except TypeError:  # a member name that is not text
        return False
    return joined.isascii() and "\0" not in joined


def _search(value: Any, field: str) -> None:
    """Find the problem and raise an error with its path; return if there is none."""
    pending: list[tuple[_Place, Any, int]] = [((None, field), value, 1)]
    while pending:
        where, node, depth = pending.pop()
        if isinstance(node, str):
            _check_text(node, where)
        elif isinstance(node, bool) or node is None:
            continue
        elif isinstance(node, int | float):
            _check_number(node, where)
        elif isinstance(node, dict):
            _check_depth(depth, where)
            for name, child in cast("dict[Any, Any]", node).items():
                if not isinstance(name, str):
                    raise InputError("Member names must be text.", field=_path(where))
                _check_text(name, where)
                pending.append(((where, name), child, depth + 1))
        elif isinstance(node, list | tuple):
            _check_depth(depth, where)
            children = enumerate(cast("list[Any]", node))
            pending.extend(((where, index), child, depth + 1) for index, child in children)
        else:  # a set, a date or a record: what is checked is its JSON form
            pending.append((where, _as_json(node, where), depth))


def check_name(given: Any, *, field: str) -> str:
    """The name of a tenant, account, queue or kind: short, printable, without spaces."""
    if type(given) is str and _is_name(given):
        return given
    if not isinstance(given, str) or not given:
        raise InvalidError("The value must be a non-empty text.", field=field)
    if len(given) > NAME_LENGTH_MAX:
        raise InvalidError(f"The value has {len(given)} characters; the limit is {NAME_LENGTH_MAX}.", field=field)
    if not _NAME.fullmatch(given):
        raise InvalidError("Only letters, digits and . _ : @ + / - are allowed.", field=field)
    return given


@lru_cache(4_096)
def _is_name(text: str) -> bool:
    """Cached because the same few names occur in every job."""
    return len(text) <= NAME_LENGTH_MAX and _NAME.fullmatch(text) is not None


def check_key(given: Any) -> str:
    field = "idempotency_key"
    if not isinstance(given, str) or not given:
        raise IdempotencyKeyError("The key must be a non-empty text.", field=field)
    if len(given) > KEY_LENGTH_MAX:
        raise IdempotencyKeyError(f"The key has {len(given)} characters; the limit is {KEY_LENGTH_MAX}.", field=field)
    if not _KEY.fullmatch(given):
        raise IdempotencyKeyError("The key must consist of printable ASCII characters without spaces.", field=field)
    return given


def check_amount(given: Any, *, field: str, minimum: int = 0, maximum: int = AMOUNT_MAX) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise AmountError("The amount must be a whole number of credits.", field=field)
    if not minimum <= given <= maximum:
        raise AmountError(f"The amount must be between {minimum:,} and {maximum:,}.", field=field)
    return given


def check_priority(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) > PRIORITY_MAX:
        raise InvalidError(
            f"The priority must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}.",
            field="priority",
        )
    return given


def check_tags(given: Any, *, field: str = "tags") -> dict[str, str]:
    """Up to 16 tags: short keys, each with a line of text. The error names the key."""
    if not isinstance(given, Mapping):
        raise InvalidError("It must be an object of keys and texts.", field=field)
    tags = cast("Mapping[Any, Any]", given)
    if len(tags) > TAGS_MAX:
        raise InvalidError(f"It has {len(tags)} tags; the limit is {TAGS_MAX}.", field=field)
    return {_check_tag_key(key, field): _check_tag_value(value, f"{field}.{key}") for key, value in tags.items()}


def _check_tag_key(key: Any, field: str) -> str:
    """Keys contain neither colons nor equals signs, because these separate a key from its value."""
    if not isinstance(key, str) or not 1 <= len(key) <= TAG_KEY_LENGTH_MAX or not _TAG_KEY.fullmatch(key):
        raise InvalidError(
            f"The key {str(key)[:80]!r} must be 1 to {TAG_KEY_LENGTH_MAX} letters, digits and . _ / - long.",
            field=field,
        )
    return key


def _check_tag_value(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidError("It must be text.", field=field)
    if len(value) > TAG_VALUE_LENGTH_MAX:
        raise InvalidError(f"It has {len(value)} characters; the limit is {TAG_VALUE_LENGTH_MAX}.", field=field)
    if _CONTROL.search(value):
        raise InvalidError("It must be one line of text without control characters.", field=field)
    return value


def read_tags(given: Iterable[str], *, separator: str = ":", field: str = "tag") -> dict[str, str]:
    """Tags that are each written as one word, such as team:ads."""
    tags: dict[str, str] = {}
    for word in given:
        key, found, value = word.partition(separator)
        if not found:
            message = f"{word[:80]!r} is not a key and a value."
            raise InvalidError(message, field=field, hint=f"Write team{separator}ads.")
        if tags.setdefault(key, value) != value:
            raise InvalidError(f"The key {key[:80]!r} is given twice, with different values.", field=field)
    if not tags:
        raise InvalidError("It names no tag.", field=field, hint=f"Write team{separator}ads.")
    return check_tags(tags, field=field)


def check_text(given: Any, *, field: str) -> int:
    """The size of a text, in bytes; rejects what cannot be stored."""
    if not isinstance(given, str):
        raise InputError(f"The value must be a text, not {type(given).__name__}.", field=field)
    if given.isascii() and "\0" not in given:
        return len(given)
    _check_text(given, (None, field))
    return len(given.encode())


def check_limit(given: Any, limit: int) -> int:
    """The number of items of a page."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= limit:
        raise InvalidError(f"The value must be a whole number from 1 to {limit:,}.", field="limit")
    return given


def check_time(given: Any, *, field: str) -> datetime:
    """A point in time with a time zone, within the supported years."""
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidError("The time must have a time zone.", field=field, hint="Use an aware datetime.")
    if not _YEAR_MIN <= given.year <= _YEAR_MAX:
        raise InvalidError(f"The year must be from {_YEAR_MIN} to {_YEAR_MAX}.", field=field)
    return given


def duration(given: Any, *, field: str) -> timedelta:
    """A duration: a timedelta, a number of seconds, or text such as ``90s``, ``15m``, ``1h``."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given
    else:
        found = _DURATION.fullmatch(str(given))
        if found is None:
            text = repr(given)[:80]
            raise InvalidError(f"{text} is not a duration.", field=field, hint="Use a duration such as 90s, 15m or 1h.")
        seconds = float(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= _SECONDS_MAX:
        raise InvalidError("The duration must be positive and at most ten years.", field=field)
    return timedelta(seconds=seconds)


def duration_or_seconds(given: str, *, field: str) -> timedelta:
    """A duration as people type it: text such as ``15m``, or a plain number of seconds."""
    return duration(float(given) if _SECONDS.fullmatch(given) else given, field=field)


def printable(text: str, limit: int = 8_192) -> str:
    """Text from a worker or a library, made storable: no NUL, no lone surrogates, limited length."""
    clean = _BAD_CHARACTER.sub("\ufffd", text)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def _path(where: _Place) -> str:
    """The path as text, shortened if it is long."""
    steps: list[str] = []
    at: _Place | None = where
    while at is not None:
        at, step = at
        steps.append(
            f"[{step}]" if isinstance(step, int) else step[:_STEP_MAX] if at is None else f".{step[:_STEP_MAX]}"
        )
    return "".join(reversed(steps))[:_PLACE_MAX]


def _as_json(node: Any, where: _Place) -> Any:
    try:
        return msgspec.to_builtins(node)
    except (TypeError, OverflowError, ValueError) as error:
        raise InputError(f"The value is not a JSON value: {error}.", field=_path(where)) from error


def _check_text(text: str, where: _Place) -> None:
    if _BAD_CHARACTER.search(text):
        raise InputError("The text contains a NUL character or a lone surrogate.", field=_path(where))


def _check_number(number: float, where: _Place) -> None:
    if isinstance(number, int):
        if abs(number) > INTEGER_MAX:
            raise InputError("The number does not fit into 64 bits.", field=_path(where))
    elif not math.isfinite(number):
        raise InputError(f"{number} is not a JSON number.", field=_path(where))


def _check_depth(depth: int, where: _Place) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"The value is nested more than {DEPTH_MAX} levels deep.", field=_path(where))
