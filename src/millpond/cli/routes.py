"""``millpond routes``: the queues of the fleet, and how many workers each should have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group, one_of

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show the routes of the fleet and the workers they need.")


@command(app, "list")
async def list_(api: ApiConnection) -> wire.Routes:
    """List the routes with their load and their workers."""
    from millpond import wire

    return await api.get("/routes", wire.Routes)


@command(app, "get")
async def get(
    api: ApiConnection,
    route: Annotated[str, typer.Argument(metavar="ROUTE", help="The name of the route.", show_default=False)],
) -> wire.RouteInfo:
    """Show a route with its load and its workers."""
    from millpond import wire

    found: wire.Routes = await api.get("/routes", wire.Routes)
    return one_of(found.data, "route", route)


@command(app, "scaling")
async def scaling(
    api: ApiConnection,
    jobs_per_worker: Annotated[
        int, typer.Option(help="The number of jobs that a worker runs at the same time.", min=1, max=1_000)
    ] = 1,
    low: Annotated[
        int, typer.Option("--min", metavar="N", help="The minimum number of workers.", min=0, max=100_000)
    ] = 0,
    high: Annotated[
        int,
        typer.Option(
            "--max", metavar="N", help="The maximum number of workers, unless more are busy.", min=0, max=100_000
        ),
    ] = 50,
    target_wait: Annotated[
        float, typer.Option(help="The longest time that a job should wait for a worker, in seconds.", min=0)
    ] = 60.0,
) -> wire.Scalings:
    """Show how many workers each route should have now."""
    from millpond import wire

    return await api.get(
        "/scaling", wire.Scalings, jobs_per_worker=jobs_per_worker, min=low, max=high, target_wait=target_wait
    )
