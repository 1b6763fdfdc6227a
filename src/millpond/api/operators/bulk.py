"""Bulk operations over HTTP: find jobs with a filter and change many of them in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from millpond import errors, values, wire
from millpond.api import parameters, principals
from millpond.api.calls import REPLAYED, copied, cursor, job_text, reply
from millpond.api.jobs import jobs
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, OPERATORS, READERS
from millpond.engine.bulk.operations import FILE_KEPT
from millpond.engine.queue import registry
from millpond.engine.reads import summaries
from millpond.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.bulk.operations import BulkOperationRecord
    from millpond.engine.reads.summaries import JobSummary


# Jobs


async def find(call: Call) -> Reply:
    query = call.query
    given = await jobs.filter_of(call)
    wanted = summaries.sought(given, given.tenant, await call.engine.bulk_operations.present())
    page = await call.engine.summaries.page(wanted, before=cursor("job", query.cursor), limit=query.limit)
    return reply(
        wire.JobSummaries(
            data=[_summary(summary) for summary in page.data],
            next_cursor=job_text(page.before),
            searched_to=page.searched_to,
        )
    )


async def _whole(call: Call, given: wire.JobFilter) -> wire.JobFilter:
    """The filter of a bulk operation. It covers jobs of all accounts, so a key for one account is refused."""
    await registry.check_state(call.engine.db, given.state, field="filter.state")
    tenant = principals.tenant_for_all_accounts(call, given.tenant, field="filter.tenant")
    account = None if given.account is None else values.check_name(given.account, field="filter.account")
    return msgspec.structs.replace(given, tenant=tenant, account=account)


def _summary(summary: JobSummary) -> wire.JobSummary:
    return copied(wire.JobSummary, summary)


# Bulk operations


async def order(call: Call) -> Reply:
    body: wire.MakeBulkOperation = call.body
    if body.action == "refund" and call.principal.scope not in ADMINS:
        raise ForbiddenError(
            f"A refund requires a key of scope admin; this key has scope {call.principal.scope}.",
            field="action",
            scope=call.principal.scope,
            needed="admin",
        )
    if body.action == "verify":
        principals.check_all_tenants(call)
    body = msgspec.structs.replace(body, filter=await _whole(call, body.filter))
    made, is_replay = await call.engine.bulk_operations.order(
        body,
        tenant=body.filter.tenant,
        bound=call.principal.tenant,
        actor=call.principal.actor,
        key=call.header(b"idempotency-key"),
    )
    return reply(_to_wire(call, made), 202, *([REPLAYED] if is_replay else ()))


async def preview(call: Call) -> Reply:
    given = await _whole(call, call.body.filter)
    found = await call.engine.bulk_operations.preview(given, tenant=given.tenant)
    return reply(
        wire.BulkOperationPreview(
            matched=found.matched,
            is_capped=found.is_capped,
            searched_to=found.searched_to,
            sample=[_summary(summary) for summary in found.sample],
        )
    )


async def list_bulk_operations(call: Call) -> Reply:
    query = call.query
    found = await call.engine.bulk_operations.list_operations(
        tenant=principals.tenant_for_all_accounts(call, query.tenant),
        state=query.state or None,
        before=cursor("bulk", query.cursor),
        limit=query.limit,
    )
    data = [_to_wire(call, operation) for operation in found]
    return reply(wire.BulkOperations(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read(call: Call) -> Reply:
    tenant = principals.tenant_for_all_accounts(call, None)
    return reply(_to_wire(call, await call.engine.bulk_operations.read(call.params["id"], tenant=tenant)))


async def abort(call: Call) -> Reply:
    tenant = principals.tenant_for_all_accounts(call, None)
    aborted = await call.engine.bulk_operations.abort(call.params["id"], tenant=tenant, actor=call.principal.actor)
    return reply(_to_wire(call, aborted))


def _to_wire(call: Call, operation: BulkOperationRecord) -> wire.BulkOperation:
    result = None
    if operation.result is not None:
        signed = call.engine.bulk_operations.url(operation)
        result = msgspec.convert(operation.result, wire.BulkOperationResult)
        if signed is not None and operation.finished_at is not None:
            result = msgspec.structs.replace(result, url=signed.url, expires_at=operation.finished_at + FILE_KEPT)
    return copied(wire.BulkOperation, operation, result=result)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/v1/board/jobs",
        handle=find,
        summary="Find jobs with a filter, newest first.",
        description="A page examines a limited number of jobs. If it could not be filled, `searched_to` states "
        "how far the search has reached, and `next_cursor` continues it.",
        who=READERS,
        query=parameters.ListJobs,
        answers={200: wire.JobSummaries},
    ),
    Route(
        method="POST",
        path="/v1/bulk",
        handle=order,
        summary="Start a bulk operation: change many jobs in the background.",
        description="Retry, cancel, refund, priority and export act on the jobs that match the filter and "
        "existed when the operation was created; verify checks every invariant. Each job is treated "
        "like a single call, and refused jobs are counted by reason. A refund requires a key of "
        "scope admin. Requests with the same Idempotency-Key create one operation.",
        who=OPERATORS,
        request_headers=("Idempotency-Key",),
        gives=("Idempotency-Replayed",),
        body=wire.MakeBulkOperation,
        answers={202: wire.BulkOperation},
        errors=(
            errors.UnknownKindError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.StorageUnavailableError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/bulk/preview",
        handle=preview,
        summary="Preview the jobs that a bulk operation would change.",
        who=READERS,
        body=wire.PreviewBulkOperation,
        answers={200: wire.BulkOperationPreview},
        errors=(errors.UnknownKindError,),
    ),
    Route(
        method="GET",
        path="/v1/bulk",
        handle=list_bulk_operations,
        summary="List bulk operations, newest first.",
        who=READERS,
        query=parameters.ListBulkOperations,
        answers={200: wire.BulkOperations},
    ),
    Route(
        method="GET",
        path="/v1/bulk/{id}",
        handle=read,
        summary="Get the progress and result of a bulk operation.",
        description="For an export, the result contains a signed URL of the file. The file is kept for seven days.",
        who=READERS,
        answers={200: wire.BulkOperation},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/bulk/{id}/abort",
        handle=abort,
        summary="Abort a bulk operation.",
        description="The operation stops before the next job. Changes already made are kept.",
        who=OPERATORS,
        answers={200: wire.BulkOperation},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/refund",
        handle=jobs.refund,
        summary="Refund an ended job.",
        description="Refunds the remaining charge, or an amount. The sum of all refunds never exceeds the "
        "charge, and the job does not change. A full refund is made once, however often the request "
        "is repeated. A partial refund is made once per Idempotency-Key, or without one, once per "
        "amount and reason.",
        who=ADMINS,
        request_headers=("Idempotency-Key",),
        gives=("Idempotency-Replayed",),
        query=parameters.OfTenant,
        body=wire.MakeRefund,
        answers={200: wire.Refund},
        errors=(NotFoundError, errors.IdempotencyKeyError, errors.ConflictError, errors.RefundUnavailableError),
    ),
    Route(
        method="PUT",
        path="/v1/jobs/{id}/priority",
        handle=jobs.prioritize,
        summary="Change the priority of a waiting job.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.SetPriority,
        answers={200: wire.State},
        errors=(NotFoundError, errors.PriorityUnavailableError),
    ),
)
