"""``millpond queues``: the queues and their health; pause and resume them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group, one_of

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show the health of queues; pause and resume them.")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False)]


@command(app, "list")
async def list_(api: ApiConnection) -> wire.Queues:
    """List the queues, each with its health and the reason for it."""
    from millpond import wire

    return await api.get("/queues", wire.Queues)


@command(app, "get")
async def get(api: ApiConnection, queue: Name) -> wire.QueueInfo:
    """Show a queue, with its health and the reason for it."""
    from millpond import wire

    found: wire.Queues = await api.get("/queues", wire.Queues)
    return one_of(found.data, "queue", queue)


@command(app, "pause")
async def pause(api: ApiConnection, queue: Name) -> wire.QueueInfo:
    """Stop starting the jobs of a queue. Running jobs continue."""
    return await _set(api, queue, "pause")


@command(app, "resume")
async def resume(api: ApiConnection, queue: Name) -> wire.QueueInfo:
    """Start the jobs of a paused queue again."""
    return await _set(api, queue, "resume")


async def _set(api: ApiConnection, queue: str, verb: str) -> wire.QueueInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.send("POST", f"/queues/{segment(queue)}/{verb}", wire.QueueInfo)
