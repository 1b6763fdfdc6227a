"""``millpond routes``: the queues of the fleet, and how many workers each should have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("The fleet's queues, and how many workers each should have.")


@command(app, "list")
async def list_(api: Api) -> wire.Routes:
    """List the routes, with their load and their workers."""
    from millpond import wire

    return await api.get("/routes", wire.Routes)


@command(app, "scaling")
async def scaling(
    api: Api,
    jobs_per_worker: Annotated[int, typer.Option(help="How many jobs a worker runs at once.", min=1, max=1_000)] = 1,
    least: Annotated[int, typer.Option("--min", help="Never fewer workers.", min=0, max=100_000)] = 0,
    most: Annotated[int, typer.Option("--max", help="No more, unless more are busy.", min=0, max=100_000)] = 50,
    target_wait: Annotated[float, typer.Option(help="Seconds that the last in line may wait.", min=0)] = 60.0,
) -> wire.Scalings:
    """Tell how many workers each route should have now."""
    from millpond import wire

    return await api.get(
        "/scaling", wire.Scalings, jobs_per_worker=jobs_per_worker, min=least, max=most, target_wait=target_wait
    )
