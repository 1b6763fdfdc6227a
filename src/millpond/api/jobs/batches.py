"""Batches over HTTP: create them, add jobs, read, list and cancel them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from millpond import errors, ids, values, webhooks, wire
from millpond.api import parameters, principals
from millpond.api.calls import REPLAYED, Reply, copied, cursor, reply
from millpond.api.jobs import jobs, submissions
from millpond.api.routes import BULK_BODY_MAX, Route
from millpond.api.scopes import CLIENTS, OPERATORS, READERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.api.calls import Call
    from millpond.engine.composition.batches import Batch
    from millpond.engine.composition.client_batches import BatchJob, CreatedBatch

_JOB_FIELDS: Final = wire.BatchJob.__struct_fields__


async def make(call: Call) -> Reply:
    body: wire.MakeBatch = call.body
    created = await call.engine.batches.create(
        tenant=principals.one_tenant(call, call.query.tenant),
        account=principals.one_account(call, body.account),
        jobs=_asked(call, body.jobs),
        total=body.total,
        name=body.name,
        tags=body.tags,
        hook=None if body.webhook is None else _hook(call, body.webhook),
        key=submissions.one_key(call, body.idempotency_key),
    )
    batch = created.batch
    await _count(call, created, "batch.created")
    secret: Any = UNSET
    if body.webhook is not None and body.webhook.secret is None:
        secret = await call.engine.batches.secret(batch)
        submissions.learn(call, secret)
    place = (b"location", f"{call.root}/v1/batches/{batch.id}".encode("latin-1"))
    shown = to_wire(batch, wire.NewBatch, webhook_secret=secret)
    return reply(shown, 201, place, *([REPLAYED] if created.is_replay else ()))


async def add(call: Call) -> Reply:
    tenant = await _tenant(call)
    asked = _asked(call, call.body.jobs)
    added = await call.engine.batches.add(
        tenant, call.params["id"], call.body.first, asked, account=call.principal.account
    )
    await _count(call, added, "batch.extended")
    return reply(to_wire(added.batch), 200, *([REPLAYED] if added.is_replay else ()))


async def list_batches(call: Call) -> Reply:
    query = call.query
    found = await call.engine.batches.list(
        principals.tenant(call, query.tenant),
        principals.account(call, query.account),
        state=query.state or None,
        tags=None if query.tag is None else values.read_tags(query.tag),
        before=cursor("batch", query.cursor),
        limit=query.limit,
    )
    data = [to_wire(batch) for batch in found]
    return reply(wire.Batches(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read(call: Call) -> Reply:
    return reply(to_wire(await _batch(call)))


async def list_jobs(call: Call) -> Reply:
    batch, query = await _batch(call), call.query
    page = await call.engine.batches.jobs(
        batch,
        phase=query.phase or None,
        outcome=query.outcome or None,
        after=cursor("job", query.cursor),
        limit=query.limit,
    )
    reads = (call.engine.views.job(batch.tenant, batch.account, job_id) for job_id in page.data)
    views = [view for view in await asyncio.gather(*reads, return_exceptions=True) if jobs.is_there(view)]
    estimates = await call.engine.estimates.of([view for view in views if view.outcome is None])
    data = [jobs.listed(call, view, estimates.get(view.job_id)) for view in views]
    return reply(wire.BatchJobs(data=data, next_cursor=None if page.after is None else ids.text("job", page.after)))


async def cancel(call: Call) -> Reply:
    tenant, account = principals.tenant(call, call.query.tenant), call.principal.account
    batch, is_accepted = await call.engine.batches.cancel(tenant, call.params["id"], account=account)
    if call.principal.scope in OPERATORS and is_accepted:
        await submissions.audit(call, batch.tenant, "batch.canceled", batch.id)
    return reply(
        wire.CanceledBatch(is_accepted=is_accepted, batch=to_wire(batch)), 200 if batch.ended_at is not None else 202
    )


def to_wire(batch: Batch, shape: type[wire.Batch] = wire.Batch, **more: Any) -> Any:
    progress = batch.ended / batch.total if batch.total else 1.0
    parent = None if batch.parent_id is None else ids.text("job", batch.parent_id)
    return copied(shape, batch, name=batch.name or None, progress=progress, parent_id=parent, **more)


async def _batch(call: Call) -> Batch:
    """The batch named in the path, if the caller may read it."""
    tenant = principals.tenant(call, call.query.tenant)
    return await call.engine.batches.read(tenant, call.principal.account, call.params["id"])


async def _tenant(call: Call) -> str:
    """The tenant of the batch named in the path."""
    return principals.tenant(call, call.query.tenant) or (await _batch(call)).tenant


def _asked(call: Call, given: Sequence[wire.BatchJob]) -> list[BatchJob]:
    """The jobs of a request. Those of closed kinds are refused."""
    for position, job in enumerate(given):
        if (closed := submissions.refusal(call, job.kind)) is not None:
            closed.field = f"jobs[{position}].{closed.field}"
            raise closed
    return [{name: getattr(job, name) for name in _JOB_FIELDS} for job in given]  # pyright: ignore[reportReturnType] - the fields are the same


def _hook(call: Call, given: wire.BatchWebhook) -> webhooks.Hook:
    """The batch's own webhook; its secret is generated if none is given."""
    secret = webhooks.new_secret() if given.secret is None else given.secret
    webhooks.check_secret(secret, field="webhook.secret")
    if given.secret is not None:
        submissions.learn(call, secret)
    return webhooks.Hook(url=given.url, secret=secret, is_secret_chosen=given.secret is not None)


async def _count(call: Call, added: CreatedBatch, action: str) -> None:
    """Count new jobs in the metrics; audit those that were submitted in the dashboard."""
    if added.is_replay:
        return
    _count_kinds(call, added.kinds)
    if submissions.is_by_hand(call):
        batch = added.batch
        await submissions.audit(call, batch.tenant, action, batch.id, {"count": len(added.kinds)})


def _count_kinds(call: Call, kinds: Iterable[str]) -> None:
    for kind in kinds:
        call.state.metrics.submitted[kind] += 1


_JOBS: Final = (
    errors.UnknownKindError,
    errors.InputError,
    errors.InsufficientCreditsError,
    errors.TooManyActiveJobsError,
)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/batches",
        handle=make,
        summary="Create a batch of up to 100,000 jobs.",
        description="The jobs of this request, up to a thousand, are accepted together with the batch, in one "
        "transaction, or the request is rejected as a whole. If `total` is greater, the others are added with "
        "POST /v1/batches/{id}/jobs. A request with the same Idempotency-Key creates nothing again. When the last job "
        "has ended, `batch.completed` is sent to the endpoints that subscribe to it, and to the URL of `webhook`.",
        request_headers=submissions.IDEMPOTENCY_HEADERS,
        gives=("Location", "Idempotency-Replayed"),
        query=parameters.OfTenant,
        body=wire.MakeBatch,
        body_max=BULK_BODY_MAX,
        answers={201: wire.NewBatch},
        errors=(
            *_JOBS,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.OutboundRefusedError,
            errors.VaultError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/batches/{id}/jobs",
        handle=add,
        summary="Add up to a thousand jobs to a batch.",
        description="All jobs of the request are accepted in one transaction, or none. `first` is their position: a "
        "request that is repeated adds nothing again, and one that leaves a gap is rejected.",
        gives=("Idempotency-Replayed",),
        query=parameters.OfTenant,
        body=wire.AddJobs,
        body_max=BULK_BODY_MAX,
        answers={200: wire.Batch},
        errors=(*_JOBS, errors.NotFoundError, errors.ConflictError, errors.BatchClosedError),
    ),
    Route(
        method="GET",
        path="/v1/batches",
        handle=list_batches,
        summary="List batches, newest first.",
        who=CLIENTS | READERS,
        query=parameters.ListBatches,
        answers={200: wire.Batches},
    ),
    Route(
        method="GET",
        path="/v1/batches/{id}",
        handle=read,
        summary="Get a batch: its state, its counts and its cost.",
        description="Also the `batch_id` of a job's children can be read.",
        who=CLIENTS | READERS,
        query=parameters.OfTenant,
        answers={200: wire.Batch},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/batches/{id}/jobs",
        handle=list_jobs,
        summary="List the jobs of a batch, in the order of their positions.",
        description="A page ends early when it has reached 4 MiB: follow `next_cursor` until it is null.",
        who=CLIENTS | READERS,
        query=parameters.ListBatchJobs,
        answers={200: wire.BatchJobs},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/batches/{id}/cancel",
        handle=cancel,
        summary="Cancel a batch.",
        description="It accepts no more jobs, and those that have not ended are canceled, a few hundred at a time. "
        "Returns 200 if all have ended, and 202 while some have not.",
        query=parameters.OfTenant,
        answers={200: wire.CanceledBatch, 202: wire.CanceledBatch},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
)
