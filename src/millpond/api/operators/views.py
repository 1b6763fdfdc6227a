"""Operator views over HTTP: job detail, search, fleet, wallets and system."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, settings, wire
from millpond.api import parameters, principals
from millpond.api.calls import copied, cursor, job_text, reply
from millpond.api.credits import wallets
from millpond.api.fleet import workers
from millpond.api.jobs import artifacts, jobs, kinds, questions
from millpond.api.principals import check_all_tenants
from millpond.api.routes import Route
from millpond.api.scopes import READERS
from millpond.api.webhooks import deliveries
from millpond.engine.credits import holds
from millpond.engine.reads import details, fleet, search, system
from millpond.errors import InvalidError, NotFoundError, StorageUnavailableError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.fleet.scaling import RouteLoad
    from millpond.engine.reads.details import JobComposition, JobDetail
    from millpond.engine.reads.fleet import FleetView

_BETWEEN: Final = "~"
"""Separates tenant and account in a cursor; names cannot contain it."""


# One job


async def detail(call: Call) -> Reply:
    tenant = principals.tenant(call, call.query.tenant)
    found = await details.read(call.engine, tenant, principals.job_id(call), call.principal.account)
    kind = call.engine.app.kinds.get(found.job.kind)
    return reply(
        wire.JobDetail(
            job=await jobs.to_wire_now(call, found.job),
            **_worker(found, found.holder),
            attempts=[_attempt(found, attempt) for attempt in found.timeline.attempts],
            spans=[copied(wire.Span, span) for span in found.timeline.spans],
            events_left_out=found.timeline.left_out,
            entries=[copied(wire.Entry, entry, job_id=job_text(entry.job_id)) for entry in found.entries],
            deliveries=[deliveries.to_wire(delivery) for delivery in found.deliveries],
            files=[artifacts.to_wire(call, record, wire.Artifact) for record in found.files],
            predictions=[copied(wire.PredictionInfo, each) for each in found.predictions],
            key=None,
            retries=list(found.retries),
            lifecycle=None if kind is None else kinds.lifecycle_to_wire(kind.lifecycle),
            composition=_composition(found.composition),
        )
    )


def _composition(found: JobComposition | None) -> wire.JobComposition | None:
    if found is None:
        return None
    return wire.JobComposition(
        counts=copied(wire.ChildCounts, found.counts),
        budget=None if found.budget is None else copied(wire.Budget, found.budget),
        questions=[questions.to_wire(question) for question in found.questions],
        wakes_at=found.wakes_at,
    )


def _attempt(found: JobDetail, attempt: Any) -> wire.Attempt:
    traceback = found.tracebacks.get(attempt.number)
    more = {"error_code": attempt.code, "traceback": traceback}
    return copied(wire.Attempt, attempt, **_worker(found, attempt.worker), **more)


def _worker(found: JobDetail, worker: str | None) -> dict[str, str | None]:
    """The worker by name, and by id if it belongs to the fleet; a worker that has left is known by id only."""
    is_fleet = worker is not None and (worker in found.names or worker.startswith("worker_"))
    return {"worker": found.names.get(worker, worker) if worker else None, "worker_id": worker if is_fleet else None}


# Search


async def search_everything(call: Call) -> Reply:
    found = await search.search(call.engine, principals.tenant_for_all_accounts(call, None), call.query.q)
    return reply(wire.SearchResults(data=[copied(wire.SearchResult, item) for item in found]))


# Credits


async def list_wallets(call: Call) -> Reply:
    query = call.query
    page = await holds.wallets(
        call.engine,
        principals.tenant_for_all_accounts(call, query.tenant),
        prefix=query.prefix or "",
        after=_place(query.cursor),
        limit=query.limit,
    )
    next_cursor = None if page.after is None else _BETWEEN.join(page.after)
    return reply(wire.Wallets(data=[wallets.to_wire(wallet) for wallet in page.data], next_cursor=next_cursor))


def _place(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    tenant, between, account = given.partition(_BETWEEN)
    if not between or not given.isascii() or not given.isprintable():
        raise InvalidError("The value is not a cursor of this list.", field="cursor")
    return tenant, account


async def list_holds(call: Call) -> Reply:
    query = call.query
    tenant = principals.tenant_for_all_accounts(call, query.tenant)
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
            workers.to_wire(worker),
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
            workers.other_to_wire(worker),
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
    running = [copied(wire.FleetJob, job, id=ids.text("job", job.job_id)) for job in held]
    return copied(wire.FleetWorker, worker, held=worker.jobs, jobs=running, **more)


# The system


async def show_system(call: Call) -> Reply:
    check_all_tenants(call)
    seen = await system.look(call.engine)
    checks = [
        wire.CheckInfo(check=finding.name, verdict="ok" if finding.is_well else "failed", detail=finding.detail)
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
            is_development=call.state.inbox is not None,
            database=wire.DatabaseInfo(**facts, oldest_transaction_seconds=seen.oldest_transaction_seconds),
            tenant_databases=[
                wire.TenantDatabaseInfo(tenants=tenants, is_up=is_up) for tenants, is_up in seen.tenant_databases
            ],
            pools=[copied(wire.PoolInfo, pool) for pool in seen.pools],
            tables=[wire.TableInfo(**row) for row in seen.tables],
            migrations=[wire.MigrationInfo(**row) for row in seen.migrations],
            slow=[wire.SlowQuery(**each) for each in seen.slow],
            slow_reason=seen.slow_reason,
            running=[wire.RunningQuery(**each) for each in seen.running],
            configuration=[copied(wire.SettingInfo, each) for each in settings.shown(call.state.settings)],
            checks=checks,
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/board/jobs/{id}",
        handle=detail,
        summary="Get the details of a job.",
        description="Includes its timeline, attempts, ledger entries, deliveries, files and provider predictions.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.JobDetail},
        errors=(NotFoundError, StorageUnavailableError),
    ),
    Route(
        method="GET",
        path="/v1/search",
        handle=search_everything,
        summary="Search for objects by id, prefix of an id, or name.",
        description="Accepts ids of any type, also in upper case or as a bare UUID, the prediction ids of "
        "providers, idempotency keys, and prefixes of the names of kinds, queues, tenants, accounts "
        "and workers.",
        group="board",
        who=READERS,
        query=parameters.Search,
        answers={200: wire.SearchResults},
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
        summary="List credit holds, oldest first.",
        group="wallet",
        who=READERS,
        query=parameters.ListHolds,
        answers={200: wire.Holds},
    ),
    Route(
        method="GET",
        path="/v1/board/fleet",
        handle=fleet_board,
        summary="Get the workers, their jobs and the capacity of the fleet.",
        who=READERS,
        answers={200: wire.FleetBoard},
    ),
    Route(
        method="GET",
        path="/v1/system",
        handle=show_system,
        summary="Get the status of this process and its database.",
        description="Versions, sizes, connections, migrations, slow statements, settings without secrets, findings.",
        group="server",
        who=READERS,
        answers={200: wire.System},
    ),
)
