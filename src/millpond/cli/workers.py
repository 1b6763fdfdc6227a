"""``millpond workers``: the workers; drain and resume them; approve, revoke and reassign those of the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Yes, optional
from millpond.cli.output import confirm, report

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show, approve, revoke, drain and reassign workers.")

WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="The ID of the worker: worker_…", show_default=False)]


@command(app, "list")
async def list_(api: ApiConnection) -> wire.Workers:
    """List the workers."""
    from millpond import wire

    return await api.get("/workers", wire.Workers)


@command(app, "get")
async def get(api: ApiConnection, worker: WorkerId) -> wire.WorkerInfo:
    """Show a worker."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/workers/{segment(worker)}", wire.WorkerInfo)


@command(app, "approve")
async def approve(api: ApiConnection, worker: WorkerId) -> wire.WorkerInfo:
    """Approve a worker that waits for approval or was revoked."""
    return await _order(api, worker, "approve")


@command(app, "revoke")
async def revoke(api: ApiConnection, worker: WorkerId, yes: Yes = False) -> wire.WorkerInfo:
    """Revoke a worker immediately. Its jobs return to the queue."""
    confirm(f"Revoke {worker}?", yes=yes)
    return await _order(api, worker, "revoke")


@command(app, "drain")
async def drain(api: ApiConnection, worker: WorkerId) -> wire.WorkerInfo:
    """Stop giving jobs to a worker. It finishes the jobs it has."""
    return await _order(api, worker, "drain")


@command(app, "resume")
async def resume(api: ApiConnection, worker: WorkerId) -> wire.WorkerInfo:
    """Give jobs to a draining worker again."""
    return await _order(api, worker, "resume")


@command(app, "rotate")
async def rotate(
    api: ApiConnection,
    worker: WorkerId,
    overlap: Annotated[
        str | None,
        optional("--overlap", text="How long the old token stays valid, for example 10m.", default="not at all"),
    ] = None,
) -> wire.NewWorkerToken:
    """Create a new token for a worker. The token is shown only once."""
    from millpond import wire
    from millpond.client.requests import segment

    body = wire.RotateWorker(overlap=overlap)
    made: wire.NewWorkerToken = await api.send("POST", f"/workers/{segment(worker)}/rotate", wire.NewWorkerToken, body)
    report("Store the token now: it is shown only once.")
    return made


@command(app, "assign")
async def assign(
    api: ApiConnection,
    worker: WorkerId,
    routes: Annotated[
        list[str], typer.Argument(metavar="ROUTE…", help="All routes of the worker.", show_default=False)
    ],
) -> wire.WorkerInfo:
    """Assign a worker to other routes. It finishes the jobs it has."""
    from millpond import wire
    from millpond.client.requests import segment

    body = wire.AssignRoutes(routes=routes)
    return await api.send("PUT", f"/workers/{segment(worker)}/routes", wire.WorkerInfo, body)


async def _order(api: ApiConnection, worker: str, verb: str) -> wire.WorkerInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.send("POST", f"/workers/{segment(worker)}/{verb}", wire.WorkerInfo)
