"""``millpond limits``: how many jobs run at once and start per period, and which jobs wait for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit, optional

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show limits, and the jobs that wait for them; change, close and open them.")

Name = Annotated[str, typer.Argument(metavar="LIMIT", help="The name of the limit.", show_default=False)]
Value = Annotated[
    str, optional("--value", text="The value of the key, as `millpond limits keys` shows it.", default="none")
]


@command(app, "list")
async def list_(api: ApiConnection) -> wire.Limits:
    """List the limits, with the jobs that run and wait under them."""
    from millpond import wire

    return await api.get("/limits", wire.Limits)


@command(app, "get")
async def get(api: ApiConnection, limit: Name) -> wire.LimitInfo:
    """Show a limit, with the jobs that run and wait under it."""
    return await api.client.limit(limit)


@command(app, "keys")
async def keys(api: ApiConnection, name: Name, cursor: Cursor = None, limit: Limit = 50) -> wire.LimitKeys:
    """List the keys of a limit that were used lately, by value."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/limits/{segment(name)}/keys", wire.LimitKeys, cursor=cursor, limit=limit)


@command(app, "change")
async def change(
    api: ApiConnection,
    limit: Name,
    at_once: Annotated[int | None, optional("--at-once", text="How many jobs may run at once.", default="any")] = None,
    starts: Annotated[int | None, optional("--starts", text="How many may start per period.", default="any")] = None,
    per: Annotated[str | None, optional("--per", text="The length of the period, for example 1m.")] = None,
) -> wire.LimitInfo:
    """Change the numbers of a limit, until the app declares others. Running jobs are not stopped."""
    return await api.client.change_limit(limit, at_once=at_once, starts=starts, per=per)


@command(app, "reset")
async def reset(api: ApiConnection, limit: Name) -> wire.LimitInfo:
    """Reset a limit to the numbers that the app declares."""
    return await api.client.reset_limit(limit)


@command(app, "close")
async def close(
    api: ApiConnection,
    limit: Name,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="How long, for example 5m.", show_default=False)],
    value: Value = "",
) -> dict[str, str]:
    """Let no job start under a key of a limit for a while. Running jobs continue."""
    await api.client.close_limit(limit, duration, value=value)
    return {"limit": limit, "value": value, "closed_for": duration}


@command(app, "open")
async def open_(api: ApiConnection, limit: Name, value: Value = "") -> wire.LimitInfo:
    """Let jobs start under a key that was closed."""
    await api.client.open_limit(limit, value=value)
    return await api.client.limit(limit)
