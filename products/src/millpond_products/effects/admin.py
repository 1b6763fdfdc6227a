"""The operator endpoints for workers, dispatches, jobs and the audit log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids
from millpond.errors import InvalidError, NotFoundError
from millpond.product import Reply, cursor, principals, reply
from millpond_products.effects import ai_jobs, outcomes, wire, worker
from millpond_products.effects.kinds import ATTEMPTS_MAX, KIND, route, workflow_of
from millpond_products.effects.operators import check_all_tenants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from millpond.product import Call, JobHistory, JobPage, JobView, LeasedJob, WorkerView

_EVENTS: Final = {
    "worker.registered": "register",
    "worker.deregistered": "deregister",
    "job.leased": "poll",
    "job.completed": "complete",
    "job.failed": "fail",
    "job.requeued": "requeue",
}
"""The contract's names of the actions in the engine's audit."""


# Workers


async def list_workers(call: Call) -> Reply:
    check_all_tenants(call)
    return reply(wire.Workers(data=[to_wire(view) for view in await _fleet(call)]))


async def read_worker(call: Call) -> Reply:
    check_all_tenants(call)
    return reply(to_wire(await _named(call)))


async def approve(call: Call) -> Reply:
    return await _order(call, call.engine.workers.approve)


async def revoke(call: Call) -> Reply:
    return await _order(call, call.engine.workers.revoke)


async def drain(call: Call) -> Reply:
    return await _order(call, call.engine.workers.drain)


async def resume(call: Call) -> Reply:
    return await _order(call, call.engine.workers.resume)


async def rotate_token(call: Call) -> Reply:
    check_all_tenants(call)
    view, token = await call.engine.workers.rotate((await _named(call)).id, **_who(call))
    return reply(wire.NewToken(**msgspec.structs.asdict(to_wire(view)), token=token))


async def assign_workflows(call: Call) -> Reply:
    check_all_tenants(call)
    body: wire.AssignWorkflows = call.body
    view = await _named(call)
    providers = body.providers or sorted({workflow_of(name)[1] for name in _routes(view)}) or ["self_hosted"]
    slugs = await worker.assignable(call, body.workflow_slugs)
    others = [name for name in view.routes if name not in _routes(view)]
    routes = [*others, *(route(slug, provider) for slug in slugs for provider in providers)]
    return reply(to_wire(await call.engine.workers.assign(view.id, routes, **_who(call))))


async def _order(call: Call, act: Any) -> Reply:
    check_all_tenants(call)
    return reply(to_wire(await act((await _named(call)).id, **_who(call))))


def _who(call: Call) -> dict[str, str]:
    return {"actor": call.principal.actor, "address": principals.address(call)}


async def _fleet(call: Call) -> list[WorkerView]:
    """The workers that serve workflows."""
    return [view for view in await call.engine.workers.list() if _routes(view)]


async def _named(call: Call) -> WorkerView:
    """The worker with this id or name."""
    given = call.params["worker"]
    for view in await _fleet(call):
        if given in (view.id, view.worker):
            return view
    raise NotFoundError(f"There is no worker {given[:60]!r}.", field="worker")


def _routes(view: WorkerView) -> list[str]:
    return [name for name in view.routes if name.startswith(f"{KIND.queue}:")]


def to_wire(view: WorkerView) -> wire.Worker:
    served = [workflow_of(name) for name in _routes(view)]
    return wire.Worker(
        id=view.id,
        worker_id=view.worker,
        registration_source="fleet",
        status=view.status,
        is_approved=view.approved_at is not None,
        is_draining=view.draining_at is not None,
        is_revoked=view.revoked_at is not None,
        workflows=sorted({slug for slug, _ in served}),
        providers=sorted({provider for _, provider in served}),
        max_concurrency=view.slots,
        active_dispatches=view.jobs,
        capabilities=view.capabilities,
        last_seen_at=view.heard_at,
        created_at=view.registered_at,
    )


# Jobs and dispatches


async def list_jobs(call: Call) -> Reply:
    page = await _page(call, state=call.query.status or None)
    made = [
        wire.AdminJob(**given, tenant_id=view.tenant, user_id=view.account)
        for view, given in await _to_wire(call, page)
    ]
    return reply(wire.AdminJobs(data=made, next_cursor=_next(page)))


async def read_job(call: Call) -> Reply:
    view = await ai_jobs.find(call.engine, call.principal.tenant, None, call.params["job_id"])
    given = await ai_jobs.members(call, view)
    return reply(wire.AdminJob(**given, tenant_id=view.tenant, user_id=view.account))


async def cancel_job(call: Call) -> Reply:
    view = await ai_jobs.find(call.engine, call.principal.tenant, None, call.params["job_id"])
    await call.engine.cancel(view.tenant, view.job_id, grace=call.state.settings.grace)
    await call.engine.access.audit(
        call.principal.actor,
        "effects.job.canceled",
        tenant=view.tenant,
        subject=view.id,
        data={"address": principals.address(call)},
    )
    return await read_job(call)


async def list_dispatches(call: Call) -> Reply:
    """List jobs as dispatches. A dispatch combines the engine's job, its dispatch and its lease."""
    page = await _page(call, phase=_PHASES.get(call.query.status or ""))
    views = [view for view in page.data if call.query.status in (msgspec.UNSET, _status(view))]
    job_ids = [view.job_id for view in views]
    held = await call.engine.held(job_ids)
    names = {view.id: view.worker for view in await call.engine.workers.list()}
    histories = await _histories(call, views)
    data = [_dispatch(view, held.get(view.job_id), histories.get(view.job_id), names) for view in views]
    return reply(wire.Dispatches(data=data, next_cursor=_next(page)))


_PHASES: Final = {"queued": "ready", "leased": "leased", "completed": "ended", "failed": "ended"}


def _dispatch(
    view: JobView, lease: LeasedJob | None, history: JobHistory | None, names: dict[str, str]
) -> wire.Dispatch:
    part = outcomes.part_of(view)
    started_at = None if history is None else history.started_at
    lasted = None if started_at is None or view.finished_at is None else view.finished_at - started_at
    return wire.Dispatch(
        id=ids.text("dispatch", view.job_id),
        tenant_id=view.tenant,
        tenant_job_id=view.id,
        workflow_id=part.workflow_id,
        workflow=part.workflow,
        provider=part.provider,
        status=_status(view),
        lease_token=lease and str(lease.token),
        lease_expires_at=lease and lease.expires_at,
        worker_id=lease and names.get(lease.worker, lease.worker),
        attempts=0 if history is None else history.attempts,
        max_attempts=ATTEMPTS_MAX,
        priority=view.priority,
        duration_seconds=None if lasted is None else round(lasted.total_seconds(), 3),
        last_error=outcomes.last_error_of(view),
        created_at=view.created_at,
    )


def _status(view: JobView) -> wire.DispatchStatus:
    if view.outcome is not None:
        return "completed" if view.outcome == "succeeded" else "failed"
    return "leased" if view.phase == "leased" else "queued"


async def _page(call: Call, **filters: Any) -> JobPage:
    query = call.query
    tenant = principals.tenant(call, query.tenant_id, field="tenant_id")
    if tenant is None and query.user_id is not None:
        raise InvalidError("The user requires a tenant.", field="tenant_id")
    return await call.engine.views.jobs(
        tenant,
        principals.account(call, query.user_id),
        kind=KIND.name,
        before=cursor("job", query.cursor),
        limit=query.limit,
        **filters,
    )


async def _to_wire(call: Call, page: JobPage) -> Iterable[tuple[JobView, dict[str, Any]]]:
    made = await asyncio.gather(*(ai_jobs.members(call, view) for view in page.data))
    return zip(page.data, made, strict=True)


async def _histories(call: Call, views: Sequence[JobView]) -> dict[UUID, JobHistory]:
    found: dict[UUID, JobHistory] = {}
    for tenant in {view.tenant for view in views}:
        found |= await call.engine.histories(tenant, [view.job_id for view in views if view.tenant == tenant])
    return found


def _next(page: JobPage) -> str | None:
    return None if page.before is None else ids.text("job", page.before)


# The audit log


async def audit(call: Call) -> Reply:
    query = call.query
    tenant = principals.tenant(call, query.tenant_id, field="tenant_id")
    found = await call.engine.access.list_audit(tenant=tenant, before=cursor("audit", query.cursor), limit=query.limit)
    names = {view.id: view.worker for view in await call.engine.workers.list()}
    data = [
        wire.AuditEntry(
            id=entry.id,
            at=entry.at,
            actor=entry.actor,
            worker_id=names.get(entry.actor),
            event=_EVENTS.get(entry.action, entry.action),
            tenant_id=entry.tenant,
            subject=entry.subject,
            data=entry.data,
        )
        for entry in found
    ]
    return reply(wire.Audit(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))
