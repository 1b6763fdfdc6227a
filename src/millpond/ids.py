"""Identifiers: time-ordered UUIDs inside, prefixed text outside (``job_01k9…``).

The text is a TypeID: the prefix names the type of the object, and 26 Crockford base-32 characters sort by time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from millpond.errors import NotFoundError

try:
    from uuid_utils import uuid7
except ModuleNotFoundError:  # the SDK makes no ids, it only reads them
    uuid7 = None

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_TO_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # as int() reads base 32
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_SIXTY_BITS: Final = (1 << 60) - 1
_LETTERS: Final = re.compile(f"[0-7][{_ALPHABET}]{{25}}")  # 26 letters hold 130 bits: the first one holds three


def new() -> UUID:
    if uuid7 is None:
        raise ModuleNotFoundError("Generating ids requires uuid_utils: run pip install 'millpond[server]'.")
    return UUID(bytes=uuid7().bytes)


def text(prefix: str, value: UUID) -> str:
    """Format an id. Fast, because every response contains ids: two letters at a time, from two smaller integers."""
    number = value.int
    pairs, high, low = _PAIRS, number >> 70, number >> 10 & _SIXTY_BITS
    return (
        f"{prefix}_{pairs[high >> 50]}{pairs[high >> 40 & 1023]}{pairs[high >> 30 & 1023]}{pairs[high >> 20 & 1023]}"
        f"{pairs[high >> 10 & 1023]}{pairs[high & 1023]}{pairs[low >> 50]}{pairs[low >> 40 & 1023]}"
        f"{pairs[low >> 30 & 1023]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
        f"{pairs[number & 1023]}"
    )


def parse(prefix: str, given: str | UUID) -> UUID:
    """Parse an id; raises NotFoundError if the text is not an id with this prefix. Each id has one spelling."""
    if isinstance(given, UUID):
        return given
    start, _, letters = str(given).rpartition("_")
    if start != prefix or not _LETTERS.fullmatch(letters):
        raise _unknown(prefix, given)
    return UUID(int=int(letters.translate(_TO_DIGITS), 32))


def first(born: datetime) -> UUID:
    """The smallest id of an object created at this time."""
    return UUID(int=max(0, (born - _EPOCH) // timedelta(milliseconds=1)) << 80)


def born(value: UUID) -> datetime:
    """The time of creation, which the id contains."""
    return _EPOCH + timedelta(milliseconds=value.int >> 80)


def _unknown(prefix: str, given: object) -> NotFoundError:
    return NotFoundError(f"{str(given)[:60]!r} is not the id of a {prefix}.", field="id")
