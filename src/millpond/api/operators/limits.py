"""Limits over HTTP: read what runs and waits under them, change their numbers, close and open their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, values, wire
from millpond.api import parameters, principals
from millpond.api.calls import Reply, copied, reply
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call
    from millpond.engine.queue.limits import LimitRecord

_CURSOR: Final = ":"
"""Before the value in a cursor, because a value may be empty."""


async def list_limits(call: Call) -> Reply:
    return reply(wire.Limits(data=[_to_wire(limit) for limit in await call.engine.limits.list()]))


async def read(call: Call) -> Reply:
    return reply(_to_wire(await call.engine.limits.read(call.params["name"])))


async def keys(call: Call) -> Reply:
    principals.check_all_tenants(call)
    query = call.query
    after = None if query.cursor is None else query.cursor.removeprefix(_CURSOR)
    found = await call.engine.limits.keys(call.params["name"], after=after, limit=query.limit)
    data = [copied(wire.LimitKey, key) for key in found]
    more = len(data) == query.limit
    return reply(wire.LimitKeys(data=data, next_cursor=f"{_CURSOR}{data[-1].value}" if more else None))


async def change(call: Call) -> Reply:
    principals.check_all_tenants(call)
    body: wire.ChangeLimit = call.body
    changed = await call.engine.limits.change(
        call.params["name"], at_once=body.at_once, starts=body.starts, per=body.per, actor=call.principal.actor
    )
    return reply(_to_wire(changed))


async def reset(call: Call) -> Reply:
    principals.check_all_tenants(call)
    return reply(_to_wire(await call.engine.limits.reset(call.params["name"], actor=call.principal.actor)))


async def close(call: Call) -> Reply:
    principals.check_all_tenants(call)
    body: wire.CloseLimit = call.body
    duration = values.duration(body.duration, field="duration")
    await call.engine.limits.close(call.params["name"], body.value, duration, actor=call.principal.actor)
    return Reply(204)


async def open_(call: Call) -> Reply:
    principals.check_all_tenants(call)
    await call.engine.limits.open(call.params["name"], call.body.value, actor=call.principal.actor)
    return Reply(204)


def _to_wire(limit: LimitRecord) -> wire.LimitInfo:
    return copied(wire.LimitInfo, limit, per_seconds=None if limit.per is None else limit.per.total_seconds())


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/limits",
        handle=list_limits,
        summary="List the limits, with the jobs that run and wait under them.",
        who=READERS,
        answers={200: wire.Limits},
    ),
    Route(
        method="GET",
        path="/v1/limits/{name}",
        handle=read,
        summary="Get a limit, with the jobs that run and wait under it.",
        who=READERS,
        answers={200: wire.LimitInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/limits/{name}/keys",
        handle=keys,
        summary="List the keys of a limit that were used lately, by value.",
        who=READERS,
        query=parameters.ListLimitKeys,
        answers={200: wire.LimitKeys},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="PATCH",
        path="/v1/limits/{name}",
        handle=change,
        summary="Change the numbers of a limit, until the app declares others.",
        description="Both numbers are replaced. Jobs that run already are not stopped.",
        who=OPERATORS,
        body=wire.ChangeLimit,
        answers={200: wire.LimitInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/limits/{name}/reset",
        handle=reset,
        summary="Reset a limit to the numbers that the app declares.",
        who=OPERATORS,
        answers={200: wire.LimitInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/limits/{name}/close",
        handle=close,
        summary="Close a key of a limit: no job starts under it for a while.",
        description="A longer closure stays as it is. Running jobs continue.",
        who=OPERATORS,
        body=wire.CloseLimit,
        answers={204: None},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/limits/{name}/open",
        handle=open_,
        summary="Open a closed key of a limit.",
        who=OPERATORS,
        body=wire.OpenLimit,
        answers={204: None},
        errors=(errors.NotFoundError,),
    ),
)
