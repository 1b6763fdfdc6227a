"""Errands: jobs found by what they have in common, and what an operator has done to many of them in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from millpond import errors, values, wire
from millpond.api import jobs, operators, parameters, principals
from millpond.api.calls import REPLAYED, copied, cursor, job_text, reply
from millpond.api.routes import ADMINS, OPERATORS, READERS, Route
from millpond.engine import lines
from millpond.engine.errands import FILE_KEPT
from millpond.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.errands import ErrandRecord
    from millpond.engine.lines import Line


# Jobs


async def find(call: Call) -> Reply:
    query = call.query
    named = {name: getattr(query, name) for name in _FIELDS}
    given = wire.JobFilter(**{name: value for name, value in named.items() if value not in {None, msgspec.UNSET}})
    given = _own(call, given)
    wanted = lines.sought(given, given.tenant, await call.engine.errands.present())
    page = await call.engine.lines.page(wanted, before=cursor("job", query.cursor), limit=query.limit)
    return reply(
        wire.JobLines(
            data=[_line(line) for line in page.data],
            next_cursor=job_text(page.before),
            searched_to=page.searched_to,
        )
    )


def _own(call: Call, given: wire.JobFilter) -> wire.JobFilter:
    """The filter within what the caller may see."""
    tenant, account = principals.tenant(call, given.tenant), principals.account(call, given.account)
    return msgspec.structs.replace(given, tenant=tenant, account=account)


def _whole(call: Call, given: wire.JobFilter) -> wire.JobFilter:
    """The filter of an errand, which is about jobs of all accounts: nobody who has one alone orders or sees any."""
    tenant = principals.whole_tenant(call, given.tenant, field="filter.tenant")
    account = None if given.account is None else values.check_name(given.account, field="filter.account")
    return msgspec.structs.replace(given, tenant=tenant, account=account)


def _line(line: Line) -> wire.JobLine:
    return copied(wire.JobLine, line)


# Errands


async def order(call: Call) -> Reply:
    body: wire.MakeErrand = call.body
    if body.action == "refund" and call.principal.scope not in ADMINS:
        raise ForbiddenError(
            f"A refund needs a key of scope admin; yours is {call.principal.scope}.",
            field="action",
            scope=call.principal.scope,
            needed="admin",
        )
    if body.action == "verify":
        operators.check_all_tenants(call)
    body = msgspec.structs.replace(body, filter=_whole(call, body.filter))
    made, is_replay = await call.engine.errands.order(
        body,
        tenant=body.filter.tenant,
        bound=call.principal.tenant,
        actor=call.principal.actor,
        key=call.header(b"idempotency-key"),
    )
    return reply(_told(call, made), 202, *([REPLAYED] if is_replay else ()))


async def preview(call: Call) -> Reply:
    given = _whole(call, call.body.filter)
    found = await call.engine.errands.preview(given, tenant=given.tenant)
    return reply(
        wire.ErrandPreview(
            matched=found.matched,
            is_capped=found.is_capped,
            searched_to=found.searched_to,
            sample=[_line(line) for line in found.sample],
        )
    )


async def list_errands(call: Call) -> Reply:
    query = call.query
    found = await call.engine.errands.list_errands(
        tenant=principals.whole_tenant(call, query.tenant), before=cursor("errand", query.cursor), limit=query.limit
    )
    data = [_told(call, errand) for errand in found]
    return reply(wire.Errands(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read(call: Call) -> Reply:
    tenant = principals.whole_tenant(call, None)
    return reply(_told(call, await call.engine.errands.read(call.params["id"], tenant=tenant)))


async def abort(call: Call) -> Reply:
    tenant = principals.whole_tenant(call, None)
    told = await call.engine.errands.abort(call.params["id"], tenant=tenant, actor=call.principal.actor)
    return reply(_told(call, told))


def _told(call: Call, errand: ErrandRecord) -> wire.Errand:
    result = None
    if errand.result is not None:
        signed = call.engine.errands.url(errand)
        result = msgspec.convert(errand.result, wire.ErrandResult)
        if signed is not None and errand.finished_at is not None:
            result = msgspec.structs.replace(result, url=signed.url, expires_at=errand.finished_at + FILE_KEPT)
    return copied(wire.Errand, errand, result=result)


_FIELDS: Final = tuple(name for name in wire.JobFilter.__struct_fields__ if name != "ids")

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/v1/board/jobs",
        handle=find,
        summary="Find jobs by what they have in common, the newest first.",
        told="However many jobs there are, a page looks at so many of them and no more: where that was not enough to"
        " fill it, searched_to says how far it has looked, and next_cursor goes on from there.",
        who=READERS,
        query=parameters.FindJobs,
        answers={200: wire.JobLines},
    ),
    Route(
        method="POST",
        path="/v1/errands",
        handle=order,
        summary="Have something done to many jobs, in the background.",
        told="Retry, cancel, refund, priority and export act on the jobs that fit the filter and were there when it was"
        " ordered; verify checks every invariant. Each job is treated as the single call would, and refusals are"
        " counted by their reason. A refund needs a key of scope admin. The same Idempotency-Key orders it once.",
        who=OPERATORS,
        heeds=("Idempotency-Key",),
        gives=("Idempotency-Replayed",),
        body=wire.MakeErrand,
        answers={202: wire.Errand},
        errors=(
            errors.UnknownKindError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.StorageUnavailableError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/errands/preview",
        handle=preview,
        summary="See which jobs an errand would be about.",
        who=READERS,
        body=wire.PreviewErrand,
        answers={200: wire.ErrandPreview},
        errors=(errors.UnknownKindError,),
    ),
    Route(
        method="GET",
        path="/v1/errands",
        handle=list_errands,
        summary="List errands, the newest first.",
        who=READERS,
        query=parameters.ListErrands,
        answers={200: wire.Errands},
    ),
    Route(
        method="GET",
        path="/v1/errands/{id}",
        handle=read,
        summary="See how far an errand has come, and what came of it.",
        told="That of an export has the URL of its file, signed anew each time; the file is kept for seven days.",
        who=READERS,
        answers={200: wire.Errand},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/errands/{id}/abort",
        handle=abort,
        summary="Stop an errand.",
        told="It stops before the next job. What is done stays done.",
        who=OPERATORS,
        answers={200: wire.Errand},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/refund",
        handle=jobs.refund,
        summary="Give back what an ended job has cost.",
        told="All that is left of it, or an amount; over all refunds never more than it has cost. The job stays as it"
        " ended. All that is left is given back once, however often this is sent; a part, once for each"
        " Idempotency-Key, or without one for each amount and reason.",
        who=ADMINS,
        heeds=("Idempotency-Key",),
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
        summary="Give a job that waits for its turn another priority.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.SetPriority,
        answers={200: wire.State},
        errors=(NotFoundError, errors.PriorityUnavailableError),
    ),
)
