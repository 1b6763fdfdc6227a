"""Commands: the programs that the setting allows, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.errors import InputError, InvalidError, SettingsError
from millpond_products import allowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Commands = Mapping[str, Sequence[str]]


def read(text: str) -> Commands:
    """Parse the setting. An empty setting allows nothing."""
    try:
        return allowed.commands(text)
    except InvalidError as error:
        raise SettingsError(error.message, field="commands", hint=error.hint) from None


def find(commands: Commands, name: str) -> Sequence[str]:
    """The program of a command with its arguments. The error for an unknown command lists the allowed ones."""
    if name in commands:
        return commands[name]
    hint = (
        f"Allowed commands: {', '.join(sorted(commands))}."
        if commands
        else ("No commands are allowed; an operator can set MILLPOND_COMMANDS.")
    )
    raise InputError(f"The command {name[:100]!r} is not allowed.", field="input.command", hint=hint)
