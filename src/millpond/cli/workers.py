"""``millpond workers``: who works; let workers of the fleet in, throw them out, drain and bind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Yes
from millpond.cli.output import confirm, say

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("Who works; approve, revoke, drain and bind workers.")

WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id: worker_…", show_default=False)]


@command(app, "list")
async def list_(api: Api) -> wire.Workers:
    """List the fleet, and the other workers that hold leases now."""
    from millpond import wire

    return await api.get("/workers", wire.Workers)


@command(app, "get")
async def get(api: Api, worker: WorkerId) -> wire.WorkerInfo:
    """Show a worker of the fleet."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/workers/{segment(worker)}", wire.WorkerInfo)


@command(app, "approve")
async def approve(api: Api, worker: WorkerId) -> wire.WorkerInfo:
    """Let a worker in that waits, or one that was revoked."""
    return await _order(api, worker, "approve")


@command(app, "revoke")
async def revoke(api: Api, worker: WorkerId, yes: Yes = False) -> wire.WorkerInfo:
    """Throw a worker out, at once; what it holds goes back."""
    confirm(f"Revoke {worker}?", yes=yes)
    return await _order(api, worker, "revoke")


@command(app, "drain")
async def drain(api: Api, worker: WorkerId) -> wire.WorkerInfo:
    """Give a worker no more jobs; it finishes what it has."""
    return await _order(api, worker, "drain")


@command(app, "resume")
async def resume(api: Api, worker: WorkerId) -> wire.WorkerInfo:
    """Give a worker that drains jobs again."""
    return await _order(api, worker, "resume")


@command(app, "rotate")
async def rotate(
    api: Api,
    worker: WorkerId,
    overlap: Annotated[
        str | None, typer.Option(help="How long the old token stays good, e.g. 10m.", show_default=False)
    ] = None,
) -> wire.NewWorkerToken:
    """Make a new token for a worker; the old one is refused from now on."""
    from millpond import wire
    from millpond.client.requests import segment

    body = wire.RotateWorker(overlap=overlap)
    made: wire.NewWorkerToken = await api.send("POST", f"/workers/{segment(worker)}/rotate", wire.NewWorkerToken, body)
    say("Keep the token: it is told this once.")
    return made


@command(app, "assign")
async def assign(
    api: Api,
    worker: WorkerId,
    routes: Annotated[list[str], typer.Argument(metavar="ROUTE…", help="All its routes.", show_default=False)],
) -> wire.WorkerInfo:
    """Bind a worker to these routes instead; what it holds it finishes."""
    from millpond import wire
    from millpond.client.requests import segment

    body = wire.AssignRoutes(routes=routes)
    return await api.send("PUT", f"/workers/{segment(worker)}/routes", wire.WorkerInfo, body)


async def _order(api: Api, worker: str, verb: str) -> wire.WorkerInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.send("POST", f"/workers/{segment(worker)}/{verb}", wire.WorkerInfo)
