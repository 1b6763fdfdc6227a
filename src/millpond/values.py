"""What may come in from outside: JSON values, names and amounts within sane limits.

PostgreSQL and Python disagree about the edges of JSON (NUL, NaN, numbers of a thousand digits, lone
surrogates): what one of them cannot hold is refused here, at the door, with the place where it stands.
"""

from __future__ import annotations

import math
import re
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

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YEAR_MIN: Final = 1970
_YEAR_MAX: Final = 9000
_SECONDS_MAX: Final = 3650 * _UNITS["d"]
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_NAME: Final = re.compile(r"[\w.:@+/-]+", re.ASCII)
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_BAD_CHARACTER: Final = re.compile("[\x00\ud800-\udfff]")
_PLACE_MAX: Final = 200
_STEP_MAX: Final = 60

_Place: TypeAlias = "tuple[_Place | None, str | int]"
"""Where a node stands: where its parent does, and the step from there. It is written out for an error alone: the paths
of all nodes may be thousands of times as long as the value.
"""


def encode(value: Any, *, field: str, most: int = BYTES_MAX) -> str:
    """A JSON value as text, or the refusal that says what in it is wrong and where."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        check(value, field=field)  # which knows better what it is, and where
        raise InputError(f"It is not a JSON value: {error}.", field=field) from error
    if len(encoded) > most:  # first of all: what is too long is not looked through
        raise InputError(
            f"It is {len(encoded):,} bytes of JSON; the limit is {most:,}.",
            field=field,
            hint="Store large data as an artifact and pass its id.",
        )
    check(value, field=field)
    return encoded.decode()


def check(value: Any, *, field: str) -> None:
    """Refuse what JSON, PostgreSQL or good sense cannot hold."""
    if not _is_plain(value):
        _search(value, field)


def _is_plain(value: Any) -> bool:
    """Whether it is surely sound: a quick look at every node, without keeping track of where it stands."""
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
    except TypeError:  # the name of a member is no text
        return False
    return joined.isascii() and "\0" not in joined


def _search(value: Any, field: str) -> None:
    """Find what is wrong with it and say where; come back if nothing is."""
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
                    raise InputError("The name of a member must be text.", field=_told(where))
                _check_text(name, where)
                pending.append(((where, name), child, depth + 1))
        elif isinstance(node, list | tuple):
            _check_depth(depth, where)
            children = enumerate(cast("list[Any]", node))
            pending.extend(((where, index), child, depth + 1) for index, child in children)
        else:  # a set, a date, a record: what it is written as is what is checked
            pending.append((where, _written(node, where), depth))


def check_name(given: Any, *, field: str) -> str:
    """A tenant, account, queue or kind: short, printable, without spaces."""
    if type(given) is str and _is_name(given):
        return given
    if not isinstance(given, str) or not given:
        raise InvalidError("It must be a non-empty text.", field=field)
    if len(given) > NAME_LENGTH_MAX:
        raise InvalidError(f"It has {len(given)} characters; the limit is {NAME_LENGTH_MAX}.", field=field)
    if not _NAME.fullmatch(given):
        raise InvalidError("Only letters, digits and . _ : @ + / - may stand in it.", field=field)
    return given


@lru_cache(4_096)
def _is_name(text: str) -> bool:
    """The same few names come with every job."""
    return len(text) <= NAME_LENGTH_MAX and _NAME.fullmatch(text) is not None


def check_key(given: Any) -> str:
    field = "idempotency_key"
    if not isinstance(given, str) or not given:
        raise IdempotencyKeyError("It must be a non-empty text.", field=field)
    if len(given) > KEY_LENGTH_MAX:
        raise IdempotencyKeyError(f"It has {len(given)} characters; the limit is {KEY_LENGTH_MAX}.", field=field)
    if not _KEY.fullmatch(given):
        raise IdempotencyKeyError("Only printable ASCII without spaces may stand in it.", field=field)
    return given


def check_amount(given: Any, *, field: str, least: int = 0, most: int = AMOUNT_MAX) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise AmountError("It must be a whole number of credits.", field=field)
    if not least <= given <= most:
        raise AmountError(f"It must be between {least:,} and {most:,}.", field=field)
    return given


def check_priority(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) > PRIORITY_MAX:
        raise InvalidError(
            f"It must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}; the highest goes first.",
            field="priority",
        )
    return given


def check_limit(given: Any, most: int) -> int:
    """How many things a page may have."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise InvalidError(f"It must be a whole number from 1 to {most:,}.", field="limit")
    return given


def check_moment(given: Any, *, field: str) -> datetime:
    """A point in time that says its zone, and that is not so far away that nothing could come after it."""
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidError("It must be a time that says its zone.", field=field, hint="Use an aware datetime.")
    if not _YEAR_MIN <= given.year <= _YEAR_MAX:
        raise InvalidError(f"Its year must be from {_YEAR_MIN} to {_YEAR_MAX}.", field=field)
    return given


def duration(given: Any, *, field: str) -> timedelta:
    """A length of time: a timedelta, a number of seconds, or text like ``90s``, ``15m``, ``1h``."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given
    else:
        found = _DURATION.fullmatch(str(given))
        if found is None:
            told = repr(given)[:80]
            raise InvalidError(f"{told} is not a length of time.", field=field, hint="Write 90s, 15m or 1h.")
        seconds = float(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= _SECONDS_MAX:
        raise InvalidError("It must be positive and at most ten years.", field=field)
    return timedelta(seconds=seconds)


def printable(text: str, limit: int = 8_192) -> str:
    """Text from a worker or a library, made storable: no NUL, no lone surrogate, not endless."""
    clean = _BAD_CHARACTER.sub("\ufffd", text)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def _told(where: _Place) -> str:
    """The path to a place, cut where it is long."""
    steps: list[str] = []
    at: _Place | None = where
    while at is not None:
        at, step = at
        steps.append(
            f"[{step}]" if isinstance(step, int) else step[:_STEP_MAX] if at is None else f".{step[:_STEP_MAX]}"
        )
    return "".join(reversed(steps))[:_PLACE_MAX]


def _written(node: Any, where: _Place) -> Any:
    try:
        return msgspec.to_builtins(node)
    except (TypeError, OverflowError, ValueError) as error:
        raise InputError(f"It is not a JSON value: {error}.", field=_told(where)) from error


def _check_text(text: str, where: _Place) -> None:
    if _BAD_CHARACTER.search(text):
        raise InputError("It contains a NUL character or half of a surrogate pair.", field=_told(where))


def _check_number(number: float, where: _Place) -> None:
    if isinstance(number, int):
        if abs(number) > INTEGER_MAX:
            raise InputError("The number does not fit into 64 bits.", field=_told(where))
    elif not math.isfinite(number):
        raise InputError(f"{number} is not a JSON number.", field=_told(where))


def _check_depth(depth: int, where: _Place) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"It is nested more than {DEPTH_MAX} levels deep.", field=_told(where))
