"""``millpond system``: the state of a server and its database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = single()


@command(app, "system")
async def system(api: ApiConnection) -> wire.System:
    """Show the versions, sizes and connections of a server and its database.

    Long-running statements and the checks of the database are shown too. --json shows more.
    """
    from millpond import wire

    return await api.get("/system", wire.System)
