"""``penstock workers``: who works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command import command, group

if TYPE_CHECKING:
    from penstock import wire
    from penstock.cli.reach import Api

app = group("Who works.")


@command(app, "list")
async def list_(api: Api) -> wire.Workers:
    """List the workers that hold leases now."""
    from penstock import wire

    return await api.get("/workers", wire.Workers)
