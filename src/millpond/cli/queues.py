"""``millpond queues``: how the lines are doing; stop one, let it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("How the queues are doing; pause and resume them.")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.", show_default=False)]


@command(app, "list")
async def list_(api: Api) -> wire.Queues:
    """List the queues, each with a verdict and its reason."""
    from millpond import wire

    return await api.get("/queues", wire.Queues)


@command(app, "pause")
async def pause(api: Api, queue: Name) -> wire.QueueInfo:
    """Hand out no more of a queue's jobs; what runs goes on."""
    return await _set(api, queue, "pause")


@command(app, "resume")
async def resume(api: Api, queue: Name) -> wire.QueueInfo:
    """Let a paused queue move again."""
    return await _set(api, queue, "resume")


async def _set(api: Api, queue: str, verb: str) -> wire.QueueInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.send("POST", f"/queues/{segment(queue)}/{verb}", wire.QueueInfo)
