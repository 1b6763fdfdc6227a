"""``millpond verify``: every invariant, on a live database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = single()

_PATIENCE = 3600.0


def status(found: Any) -> int:
    return 0 if found.ok else 1


@command(app, "verify", status=status)
async def verify(
    api: Api,
    newest: Annotated[
        str | None, typer.Option(help="Look only at jobs born within this time, e.g. 24h.", show_default=False)
    ] = None,
) -> wire.Verification:
    """Check every invariant of ledger, jobs, leases and events; name what breaks one.

    Exit status 0 if all hold, 1 if not.
    """
    from millpond import wire

    return await api.client.request(
        "GET", "/v1/verify", params={"newest": newest}, type=wire.Verification, timeout=_PATIENCE
    )
