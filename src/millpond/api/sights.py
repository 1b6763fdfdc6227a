"""Sights: what operators look at; one job with all that belongs to it, the fleet, wallets, the system."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, settings, wire
from millpond.api import artifacts, deliveries, jobs, kinds, parameters, principals, wallets, workers
from millpond.api.calls import copied, cursor, job_text, reply
from millpond.api.operators import check_all_tenants
from millpond.api.routes import READERS, Route
from millpond.engine import dossiers, finds, fleet, holds, system
from millpond.errors import InvalidError, NotFoundError, StorageUnavailableError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.dossiers import Dossier
    from millpond.engine.fleet import FleetView
    from millpond.engine.scaling import RouteLoad

_BETWEEN: Final = "~"
"""Stands between tenant and account in a cursor: no name has it."""


# One job


async def dossier(call: Call) -> Reply:
    tenant = principals.tenant(call, call.query.tenant)
    found = await dossiers.read(call.engine, tenant, principals.job_id(call), call.principal.account)
    kind = call.engine.app.kinds.get(found.job.kind)
    return reply(
        wire.Dossier(
            job=await jobs.told_now(call, found.job),
            **_worker(found, found.holder),
            attempts=[_attempt(found, attempt) for attempt in found.timeline.attempts],
            spans=[copied(wire.Span, span) for span in found.timeline.spans],
            events_left_out=found.timeline.left_out,
            entries=[copied(wire.Entry, entry, job_id=job_text(entry.job_id)) for entry in found.entries],
            deliveries=[deliveries.told(delivery) for delivery in found.deliveries],
            files=[artifacts.told(call, record, wire.Artifact) for record in found.files],
            submissions=[copied(wire.SubmissionInfo, each) for each in found.submissions],
            key=None,
            retries=list(found.retries),
            lifecycle=None if kind is None else kinds.told_lifecycle(kind.lifecycle),
        )
    )


def _attempt(found: Dossier, attempt: Any) -> wire.Attempt:
    return copied(wire.Attempt, attempt, **_worker(found, attempt.worker), error_code=attempt.code)


def _worker(found: Dossier, worker: str | None) -> dict[str, str | None]:
    """Who it was by name, and by id if it is of the fleet; one that has left is known by its id alone."""
    is_fleet = worker is not None and (worker in found.names or worker.startswith("worker_"))
    return {"worker": found.names.get(worker, worker) if worker else None, "worker_id": worker if is_fleet else None}


# Anything


async def find(call: Call) -> Reply:
    found = await finds.find(call.engine, principals.whole_tenant(call, None), call.query.q)
    return reply(wire.Found(data=[copied(wire.FoundItem, item) for item in found]))


# Money


async def list_wallets(call: Call) -> Reply:
    query = call.query
    page = await holds.wallets(
        call.engine,
        principals.whole_tenant(call, query.tenant),
        prefix=query.prefix or "",
        after=_place(query.cursor),
        limit=query.limit,
    )
    next_cursor = None if page.after is None else _BETWEEN.join(page.after)
    return reply(wire.Wallets(data=[wallets.told(wallet) for wallet in page.data], next_cursor=next_cursor))


def _place(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    tenant, between, account = given.partition(_BETWEEN)
    if not between or not given.isascii() or not given.isprintable():
        raise InvalidError("It is not a cursor of this list.", field="cursor")
    return tenant, account


async def list_holds(call: Call) -> Reply:
    query = call.query
    tenant = principals.whole_tenant(call, query.tenant)
    after = cursor("job", query.cursor)
    page = await holds.page(call.engine, tenant, after=after, limit=query.limit)
    ages, is_capped = await holds.ages(call.engine, tenant) if after is None else ((), False)
    return reply(
        wire.Holds(
            data=[copied(wire.Hold, hold, job_id=ids.text("job", hold.job_id)) for hold in page.data],
            next_cursor=job_text(page.after),
            ages=[copied(wire.HoldAge, age) for age in ages],
            is_capped=is_capped,
        )
    )


# The fleet


async def fleet_board(call: Call) -> Reply:
    check_all_tenants(call)
    seen = await fleet.look(call.engine)
    routes = [_route(load) for load in seen.routes]
    return reply(
        wire.FleetBoard(
            at=seen.at,
            desired=sum(route.desired for route in routes),
            ready=sum(route.idle + route.busy for route in routes),
            starting=sum(max(0, route.desired - route.idle - route.busy) for route in routes),
            routes=routes,
            workers=_workers(seen),
        )
    )


def _route(load: RouteLoad) -> wire.FleetRoute:
    return copied(wire.FleetRoute, load, desired=load.desired(fleet.POLICY))


def _workers(seen: FleetView) -> list[wire.FleetWorker]:
    own = [
        _shown(
            seen,
            workers.told(worker),
            polled_at=worker.polled_at,
            heartbeat_age_seconds=seen.age(worker.heard_at),
            claim_age_seconds=seen.age(fleet.claimed_at(worker)),
            is_deaf=fleet.is_deaf(worker, seen.routes, seen.at),
        )
        for worker in seen.workers
    ]
    others = [
        _shown(
            seen,
            workers.told_other(worker),
            polled_at=None,
            heartbeat_age_seconds=None,
            claim_age_seconds=seen.age(worker.granted_at),
            is_deaf=False,
        )
        for worker in seen.others
    ]
    return own + others


def _shown(seen: FleetView, worker: wire.WorkerInfo, **more: Any) -> wire.FleetWorker:
    held = seen.jobs.get(worker.id or worker.worker, ())
    told = [copied(wire.FleetJob, job, id=ids.text("job", job.job_id)) for job in held]
    return copied(wire.FleetWorker, worker, held=worker.jobs, jobs=told, **more)


# The system


async def show_system(call: Call) -> Reply:
    check_all_tenants(call)
    seen = await system.look(call.engine)
    checks = [
        wire.CheckInfo(check=finding.name, verdict="ok" if finding.is_well else "ill", detail=finding.detail)
        for finding in seen.findings
    ]
    facts = {name: value for name, value in seen.database.items() if name != "present"}
    return reply(
        wire.System(
            version=version("millpond"),
            python=platform.python_version(),
            started_at=system.STARTED,
            now=seen.database["present"],
            host=socket.gethostname(),
            pid=os.getpid(),
            is_development=call.desk.inbox is not None,
            database=wire.DatabaseInfo(**facts, oldest_transaction_seconds=seen.oldest_transaction_seconds),
            homes=[wire.HomeInfo(tenants=tenants, is_up=is_up) for tenants, is_up in seen.homes],
            pools=[copied(wire.PoolInfo, pool) for pool in seen.pools],
            tables=[wire.TableInfo(**row) for row in seen.tables],
            migrations=[wire.MigrationInfo(**row) for row in seen.migrations],
            slow=[wire.SlowQuery(**each) for each in seen.slow],
            slow_reason=seen.slow_reason,
            running=[wire.RunningQuery(**each) for each in seen.running],
            configuration=[copied(wire.SettingInfo, each) for each in settings.shown(call.desk.settings)],
            checks=checks,
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/board/jobs/{id}",
        handle=dossier,
        summary="Read a job with all that belongs to it.",
        told="How it spent its time and on whose hands, its money, deliveries, files and what providers were asked.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.Dossier},
        errors=(NotFoundError, StorageUnavailableError),
    ),
    Route(
        method="GET",
        path="/v1/find",
        handle=find,
        summary="Find anything by its id, the beginning of that, or its name.",
        told="An id of any sort, also in capitals or as a bare UUID, what a provider calls its part of a job, an"
        " idempotency key; kinds, queues, tenants, accounts and workers by the beginning of their names.",
        group="board",
        who=READERS,
        query=parameters.Find,
        answers={200: wire.Found},
    ),
    Route(
        method="GET",
        path="/v1/wallets",
        handle=list_wallets,
        summary="List wallets by tenant and account.",
        group="wallet",
        who=READERS,
        query=parameters.ListWallets,
        answers={200: wire.Wallets},
    ),
    Route(
        method="GET",
        path="/v1/holds",
        handle=list_holds,
        summary="List the credits that are held for jobs, the oldest first.",
        group="wallet",
        who=READERS,
        query=parameters.ListHolds,
        answers={200: wire.Holds},
    ),
    Route(
        method="GET",
        path="/v1/board/fleet",
        handle=fleet_board,
        summary="See who works at what, and whether that is enough.",
        who=READERS,
        answers={200: wire.FleetBoard},
    ),
    Route(
        method="GET",
        path="/v1/system",
        handle=show_system,
        summary="See how this process and its database are.",
        told="Versions, sizes, connections, migrations, slow statements, settings without secrets, findings.",
        group="server",
        who=READERS,
        answers={200: wire.System},
    ),
)
