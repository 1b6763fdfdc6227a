"""What operators do with workers over HTTP: who works, let in, throw out, drain, bind; how many there should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond import values, wire
from millpond.api.calls import copied, reply
from millpond.api.operators import check_all_tenants
from millpond.api.principals import address
from millpond.engine import health
from millpond.scaling import Policy

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.health import WorkerHealth
    from millpond.engine.scaling import RouteLoad
    from millpond.engine.workers import WorkerView


async def list_workers(call: Call) -> Reply:
    """The fleet by name, and after it those beside the database that hold leases."""
    fleet = await call.engine.workers.list()
    known = {worker.id for worker in fleet}
    others = [worker for worker in await health.workers(call.engine.db) if worker.worker not in known]
    return reply(wire.Workers(data=[*map(told, fleet), *map(told_other, others)]))


async def read(call: Call) -> Reply:
    return reply(told(await call.engine.workers.get(call.params["id"])))


async def approve(call: Call) -> Reply:
    return await _order(call, call.engine.workers.approve)


async def revoke(call: Call) -> Reply:
    return await _order(call, call.engine.workers.revoke)


async def drain(call: Call) -> Reply:
    return await _order(call, call.engine.workers.drain)


async def resume(call: Call) -> Reply:
    return await _order(call, call.engine.workers.resume)


async def assign(call: Call) -> Reply:
    return await _order(call, call.engine.workers.assign, call.body.routes)


async def rotate(call: Call) -> Reply:
    check_all_tenants(call)
    overlap = None if call.body.overlap is None else values.duration(call.body.overlap, field="overlap")
    worker, token = await call.engine.workers.rotate(
        call.params["id"], overlap=overlap, actor=call.principal.actor, address=address(call)
    )
    return reply(copied(wire.NewWorkerToken, worker, is_fleet=True, token=token), 201)


async def _order(call: Call, verb: Any, *arguments: Any) -> Reply:
    check_all_tenants(call)
    worker = await verb(call.params["id"], *arguments, actor=call.principal.actor, address=address(call))
    return reply(told(worker))


def told(worker: WorkerView) -> wire.WorkerInfo:
    return copied(wire.WorkerInfo, worker, is_fleet=True)


def told_other(worker: WorkerHealth) -> wire.WorkerInfo:
    return wire.WorkerInfo(
        id=None,
        worker=worker.worker,
        is_fleet=False,
        routes=[],
        slots=None,
        status="busy" if worker.jobs else "idle",
        leases=worker.leases,
        jobs=worker.jobs,
        capabilities=None,
        hint=None,
        fleet=None,
        address=None,
        registered_at=None,
        heard_at=None,
        granted_at=worker.granted_at,
        expires_at=worker.expires_at,
    )


# Routes


async def list_routes(call: Call) -> Reply:
    return reply(wire.Routes(data=[_route(load) for load in await call.engine.scaling.routes()]))


async def scale_all(call: Call) -> Reply:
    policy = _policy(call)
    return reply(wire.Scalings(data=[_scaled(load, policy) for load in await call.engine.scaling.routes()]))


async def scale(call: Call) -> Reply:
    return reply(_scaled(await call.engine.scaling.route(call.params["route"]), _policy(call)))


def _policy(call: Call) -> Policy:
    query = call.query
    return Policy(query.min, query.max, query.jobs_per_worker, query.target_wait)


def _route(load: RouteLoad) -> wire.RouteInfo:
    return copied(wire.RouteInfo, load, workers=_workers(load))


def _scaled(load: RouteLoad, policy: Policy) -> wire.Scaling:
    return copied(wire.Scaling, load, workers=_workers(load), desired_workers=load.desired(policy))


def _workers(load: RouteLoad) -> wire.RouteWorkers:
    return wire.RouteWorkers(idle=load.idle, busy=load.busy, draining=load.draining)
