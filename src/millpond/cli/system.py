"""``millpond system``: how a server and its database are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = single()


@command(app, "system")
async def system(api: Api) -> wire.System:
    """Show versions, sizes and connections, what runs long, and what the doctor finds; as JSON, much more."""
    from millpond import wire

    return await api.get("/system", wire.System)
