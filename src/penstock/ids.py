"""Identifiers: time-ordered UUIDs inside, prefixed text outside (``job_01k9…``).

The text is a TypeID: the prefix says what a thing is, and 26 Crockford base-32 characters sort by time.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from uuid_utils import uuid7

from penstock.errors import NotFoundError

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_LENGTH: Final = 26


def new() -> UUID:
    return UUID(bytes=uuid7().bytes)


def text(prefix: str, value: UUID) -> str:
    number, letters = value.int, ""
    for _ in range(_LENGTH):
        number, rest = divmod(number, 32)
        letters = _ALPHABET[rest] + letters
    return f"{prefix}_{letters}"


def parse(prefix: str, given: str | UUID) -> UUID:
    """Read an id; one that cannot be ours is simply not found."""
    if isinstance(given, UUID):
        return given
    start, _, letters = str(given).lower().rpartition("_")
    if start != prefix or len(letters) != _LENGTH or not _VALUES.keys() >= set(letters):
        raise _unknown(prefix, given)
    number = 0
    for letter in letters:
        number = number * 32 + _VALUES[letter]
    if number >> 128:
        raise _unknown(prefix, given)
    return UUID(int=number)


def _unknown(prefix: str, given: object) -> NotFoundError:
    return NotFoundError(f"{str(given)[:60]!r} is not the id of a {prefix}.", field="id")
