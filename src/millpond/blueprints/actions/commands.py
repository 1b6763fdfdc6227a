"""Commands: the programs that an operator lets run, by name, as the setting says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond import allowed
from millpond.errors import InputError, InvalidError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Commands = Mapping[str, Sequence[str]]


def read(text: str) -> Commands:
    """The list, or what is wrong with it. An empty setting allows nothing."""
    try:
        return allowed.commands(text)
    except InvalidError as error:
        raise SettingsError(error.message, field="commands", hint=error.hint) from None


def find(commands: Commands, name: str) -> Sequence[str]:
    """The words of a command, or the refusal that lists the known ones."""
    if name in commands:
        return commands[name]
    hint = (
        f"Allowed are: {', '.join(sorted(commands))}." if commands else "None is: an operator sets MILLPOND_COMMANDS."
    )
    raise InputError(f"The command {name[:100]!r} is not allowed.", field="input.command", hint=hint)
