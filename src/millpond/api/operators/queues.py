"""Queues over HTTP: status, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, wire
from millpond.api import principals
from millpond.api.calls import copied, reply
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.reads.health import QueueHealth


async def list_queues(call: Call) -> Reply:
    return reply(wire.Queues(data=[_queue(queue) for queue in await call.engine.queue_health()]))


async def pause(call: Call) -> Reply:
    principals.check_all_tenants(call)
    await call.engine.pause(call.params["queue"])
    return await _changed(call, "queue.paused")


async def resume(call: Call) -> Reply:
    principals.check_all_tenants(call)
    await call.engine.resume(call.params["queue"])
    return await _changed(call, "queue.resumed")


async def _changed(call: Call, action: str) -> Reply:
    name = call.params["queue"]
    await call.engine.access.audit(call.principal.actor, action, subject=name)
    (queue,) = [queue for queue in await call.engine.queue_health() if queue.queue == name]
    return reply(_queue(queue))


def _queue(queue: QueueHealth) -> wire.QueueInfo:
    return copied(wire.QueueInfo, queue)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/queues",
        handle=list_queues,
        summary="List the queues with their status.",
        who=READERS,
        answers={200: wire.Queues},
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/pause",
        handle=pause,
        summary="Pause a queue: its jobs do not start, running jobs continue.",
        who=OPERATORS,
        answers={200: wire.QueueInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/resume",
        handle=resume,
        summary="Resume a paused queue.",
        who=OPERATORS,
        answers={200: wire.QueueInfo},
        errors=(errors.NotFoundError,),
    ),
)
