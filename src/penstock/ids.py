"""Identifiers: time-ordered UUIDs inside, prefixed text outside (``job_01k9…``).

The text is a TypeID: the prefix says what a thing is, and 26 Crockford base-32 characters sort by time.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from uuid_utils.compat import uuid7

from penstock.errors import NotFoundError

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_LENGTH: Final = 26


def new() -> UUID:
    return uuid7()


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
    start, _, letters = given.rpartition("_")
    if start != prefix or len(letters) != _LENGTH:
        raise NotFoundError(f"{given[:60]!r} is not the id of a {prefix}.", field="id")
    number = 0
    for letter in letters.lower():
        if letter not in _VALUES:
            raise NotFoundError(f"{given!r} is not the id of a {prefix}.", field="id")
        number = number * 32 + _VALUES[letter]
    if number >> 128:
        raise NotFoundError(f"{given!r} is not the id of a {prefix}.", field="id")
    return UUID(int=number)
