"""``millpond errands``: what is done to many jobs in the background; and how an errand is ordered and followed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit, Tenant, Yes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond import wire
    from millpond.cli.reach import Api

app = group("What is done to many jobs in the background.")

ErrandId = Annotated[str, typer.Argument(metavar="ERRAND", help="The errand's id: errand_…", show_default=False)]
_OVER: Final = ("done", "aborted", "failed")
_CODES: Final = {"done": 0, "failed": 10, "aborted": 11}
_EVERY: Final = 1.0
_PATIENCE: Final = 10


def status(followed: Any) -> int:
    """How it ended, in the words of jobs: 10 where it failed, 11 where it was aborted; 0 where it goes on."""
    return _CODES.get(getattr(followed, "state", ""), 0)


@command(app, "list")
async def list_(api: Api, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 50) -> wire.Errands:
    """List errands, the newest first."""
    from millpond import wire

    return await api.get("/errands", wire.Errands, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "show")
async def show(api: Api, errand: ErrandId) -> wire.Errand:
    """Show how far an errand has come, and what came of it."""
    return await read(api, errand)


@command(app, "abort")
async def abort(api: Api, errand: ErrandId, yes: Yes = False) -> wire.Errand:
    """Stop an errand before its next job. What is done stays done."""
    from millpond import wire
    from millpond.cli.output import confirm
    from millpond.client.requests import segment

    confirm(f"Stop {errand}?", yes=yes)
    return await api.send("POST", f"/errands/{segment(errand)}/abort", wire.Errand)


@command(app, "watch", status=status)
async def watch(api: Api, errand: ErrandId) -> AsyncGenerator[wire.Errand]:
    """Follow an errand until it is over. The exit status tells how: 0 done, 10 failed, 11 aborted."""
    async for seen in follow(api, await read(api, errand)):
        yield seen


async def read(api: Api, errand_id: str) -> wire.Errand:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/errands/{segment(errand_id)}", wire.Errand)


async def follow(api: Api, errand: wire.Errand) -> AsyncGenerator[wire.Errand]:
    """An errand whenever it has come further, until it is over."""
    from millpond.cli.output import say

    told: Any = None
    looks = 0
    while errand.state not in _OVER:
        looks += 1
        if looks == _PATIENCE and errand.state == "waiting":
            say("Nobody has begun it. Does a server run that has the services?")
        seen = errand.state, errand.matched, errand.done, errand.refused
        if seen != told:
            of = "" if errand.estimate is None else f" of about {errand.estimate:,}"
            say(f"{errand.state}: {errand.done:,} done, {errand.refused:,} refused{of}")
            told = seen
        await asyncio.sleep(_EVERY)
        errand = await read(api, errand.id)
    yield errand
