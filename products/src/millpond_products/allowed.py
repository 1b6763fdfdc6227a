"""Allow lists of an operator: the commands and the repositories that may be used. Anything else is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import values
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COMMANDS: Final = 'Write JSON: {"NAME": ["program", "first argument", …]}.'
_REPOSITORIES: Final = "Write owner/name or owner/*, with commas between them."
_REPOSITORY: Final = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,99}/(?:\*|(?!\.{1,2}$)[a-z0-9_.-]{1,100})", re.ASCII)


def commands(text: str) -> Mapping[str, Sequence[str]]:
    """The allowed commands by name, each with its program and first arguments."""
    if not text.strip():
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, list[str]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"The value cannot be parsed: {error}.", hint=_COMMANDS) from None
    for name, words in found.items():
        _check(name, words)
    return found


def _check(name: str, words: Sequence[str]) -> None:
    try:
        values.check_name(name, field="commands")
    except InvalidError as error:
        raise InvalidError(f"{name[:100]!r} is not a valid name: {error.message}", hint=_COMMANDS) from None
    if not words or not words[0]:
        raise InvalidError(f"The command {name!r} has no program.", hint=_COMMANDS)
    if any("\0" in word for word in words):
        raise InvalidError(f"An argument of the command {name!r} contains a NUL character.")


@dataclass(frozen=True, slots=True)
class Repositories:
    """The repositories for which the operator's token is used: ``owner/name`` or ``owner/*``. Case does not matter."""

    names: frozenset[str]

    @classmethod
    def read(cls, text: str) -> Repositories:
        names = frozenset(filter(None, (part.strip().lower() for part in text.split(","))))
        for name in sorted(names):
            if not _REPOSITORY.fullmatch(name):
                raise InvalidError(f"{name[:100]!r} is not a valid repository.", hint=_REPOSITORIES)
        return cls(names)

    def has(self, name: str) -> bool:
        known = name.lower()
        return known in self.names or f"{known.partition('/')[0]}/*" in self.names
