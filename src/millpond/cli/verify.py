"""``millpond verify``: check every invariant of a live database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from millpond.cli.command import command, single
from millpond.cli.options import optional

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = single()

_TIMEOUT_SECONDS = 3600.0


def status(found: Any) -> int:
    return 0 if found.ok else 1


@command(app, "verify", status=status)
async def verify(
    api: ApiConnection,
    newest: Annotated[
        str | None, optional("--newest", text="Only jobs created within this time, for example 24h.", default="all")
    ] = None,
) -> wire.Verification:
    """Check every invariant of the ledger, jobs, leases and events.

    The exit status is 0 if all invariants hold, and 1 if not.
    """
    from millpond import wire

    return await api.client.request(
        "GET", "/v1/verify", params={"newest": newest}, type=wire.Verification, timeout=_TIMEOUT_SECONDS
    )
