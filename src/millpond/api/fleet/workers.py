"""Workers over HTTP, for operators: list, approve, revoke, drain, assign routes, scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors, values, wire
from millpond.api import parameters
from millpond.api.calls import copied, reply
from millpond.api.principals import address, check_all_tenants
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS
from millpond.engine.reads import health
from millpond.scaling import Policy

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.fleet.scaling import RouteLoad
    from millpond.engine.fleet.workers import WorkerView
    from millpond.engine.reads.health import WorkerHealth


async def list_workers(call: Call) -> Reply:
    """The workers by name, followed by those that hold leases and are not registered."""
    registered = await call.engine.workers.list()
    known = {worker.id for worker in registered}
    others = [worker for worker in await health.workers(call.engine.db) if worker.worker not in known]
    return reply(wire.Workers(data=[*map(to_wire, registered), *map(other_to_wire, others)]))


async def read(call: Call) -> Reply:
    return reply(to_wire(await call.engine.workers.get(call.params["id"])))


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
    return reply(copied(wire.NewWorkerToken, worker, token=token), 201)


async def _order(call: Call, verb: Any, *arguments: Any) -> Reply:
    check_all_tenants(call)
    worker = await verb(call.params["id"], *arguments, actor=call.principal.actor, address=address(call))
    return reply(to_wire(worker))


def to_wire(worker: WorkerView) -> wire.WorkerInfo:
    return copied(wire.WorkerInfo, worker)


def other_to_wire(worker: WorkerHealth) -> wire.WorkerInfo:
    return wire.WorkerInfo(
        id=None,
        worker=worker.worker,
        is_fleet=False,
        version=None,
        routes=[],
        queues=[],
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
        unready_at=None,
        unready_reason=None,
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


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/workers",
        handle=list_workers,
        summary="List the workers.",
        who=READERS,
        answers={200: wire.Workers},
    ),
    Route(
        method="GET",
        path="/v1/workers/{id}",
        handle=read,
        summary="Get a worker.",
        who=READERS,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/approve",
        handle=approve,
        summary="Approve a worker that waits for approval or was revoked.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/revoke",
        handle=revoke,
        summary="Revoke a worker immediately; its jobs return to the queue.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/drain",
        handle=drain,
        summary="Drain a worker: it finishes its jobs and receives no new ones.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/resume",
        handle=resume,
        summary="Resume a draining worker.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/rotate",
        handle=rotate,
        summary="Rotate the token of a worker. The new token is shown only once.",
        description="The old token is rejected immediately, or when the overlap ends.",
        who=OPERATORS,
        body=wire.RotateWorker,
        answers={201: wire.NewWorkerToken},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="PUT",
        path="/v1/workers/{id}/routes",
        handle=assign,
        summary="Assign routes to a worker; it finishes the jobs that it holds.",
        who=OPERATORS,
        body=wire.AssignRoutes,
        answers={200: wire.WorkerInfo},
        errors=(errors.NotFoundError, errors.ConflictError, errors.UnknownRouteError),
    ),
    Route(
        method="GET",
        path="/v1/routes",
        handle=list_routes,
        summary="List the routes with their load and workers.",
        who=READERS,
        answers={200: wire.Routes},
    ),
    Route(
        method="GET",
        path="/v1/scaling",
        handle=scale_all,
        summary="Get the desired number of workers of every route.",
        who=READERS,
        query=parameters.Scale,
        answers={200: wire.Scalings},
    ),
    Route(
        method="GET",
        path="/v1/scaling/{route}",
        handle=scale,
        summary="Get the desired number of workers of a route.",
        description="For autoscalers: the metrics-api scaler of KEDA reads desired_workers. Running jobs are "
        "included, so that scaling to this number does not remove busy workers.",
        who=READERS,
        query=parameters.Scale,
        answers={200: wire.Scaling},
        errors=(errors.NotFoundError,),
    ),
)
