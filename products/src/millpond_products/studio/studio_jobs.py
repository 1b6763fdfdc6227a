"""The jobs of the engine, in the terms of the contract."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.errors import CancelUnavailableError, NotFoundError
from millpond.product import OPERATORS, accept_retry, address, cursor, job_text, owner, reply, report_denied
from millpond_products.studio import wire
from millpond_products.studio.kinds import KINDS, STUDIO, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from millpond.product import Call, Engine, JobHistory, JobView, Reply, Submitted
    from millpond_products.studio.kinds import Type

LOCATION: Final = "/api/jobs/{id}"
EXPIRED: Final = "The job was not completed before its deadline. The credits were refunded."
LATE: Final = "The job was not started before its deadline. The credits were refunded."
FAILED: Final = "The job failed. The credits were refunded."


class _Error(msgspec.Struct):
    message: str = ""


_read_error: Final = msgspec.json.Decoder(_Error).decode


# Reading


async def read(call: Call) -> Reply:
    return reply(await to_wire(call, await _own(call)))


async def list_jobs(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.jobs_of(
        STUDIO.name,
        *owner(call),
        kind=KINDS[cast("Type", query.type)].name if query.type else None,
        state=query.status or None,
        before=cursor("job", query.cursor),
        limit=query.limit,
    )
    return reply(wire.Jobs(data=await _to_wire(call, page.data), next_cursor=job_text(page.before)))


async def cancel(call: Call) -> Reply:
    """Cancel a job. A waiting job ends at once; a running one ends when its worker has stopped it."""
    view = await _own(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.state.settings.grace)
    if not answer.is_accepted and answer.state != "canceled":
        raise _denied(view.job_id, answer.state)
    principal = call.principal
    if principal.scope in OPERATORS and answer.is_accepted:
        await call.engine.access.audit(
            principal.actor, "studio.job.canceled", tenant=view.tenant, subject=view.id, data={"address": address(call)}
        )
    return reply(await to_wire(call, await _own(call)))


def _denied(job_id: UUID, state: str) -> CancelUnavailableError:
    refusal = CancelUnavailableError(f"The job is {state} and cannot be canceled.", state=state)
    report_denied(job_id, state, "canceled", refusal)
    return refusal


async def retry(call: Call) -> Reply:
    """Restart a failed or expired job, for operators. It is paid for again."""
    view = await find(call.engine, call.principal.tenant, None, call.params["job_id"])
    return await accept_retry(
        call,
        view,
        shape=accepted,
        location=LOCATION,
        key=None,  # a retry in place stores no key
        action="studio.job.retried",
        details={"address": address(call)},
    )


def accepted(submitted: Submitted) -> wire.Accepted:
    return wire.Accepted(
        job_id=submitted.id,
        status=cast("wire.Status", submitted.state),
        credits_cost=submitted.price,
        credits_remaining=submitted.available or 0,
    )


async def _own(call: Call) -> JobView:
    """The job in the path: one of the user, or for an operator any job of the tenants that the key is for."""
    return await find(call.engine, call.principal.tenant, call.principal.account, call.params["job_id"])


async def find(engine: Engine, tenant: str | None, account: str | None, job_id: str | UUID) -> JobView:
    """A job of the studio, if it belongs to this tenant and account."""
    view = await engine.views.job(tenant, account, job_id)
    if type_of(view.kind) is None:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


# In the terms of the contract


async def to_wire(call: Call, view: JobView) -> wire.Job:
    return (await _to_wire(call, [view]))[0]


async def _to_wire(call: Call, views: Sequence[JobView]) -> list[wire.Job]:
    histories: dict[UUID, JobHistory] = {}
    for tenant in {view.tenant for view in views}:
        histories |= await call.engine.histories(tenant, [view.job_id for view in views if view.tenant == tenant])
    outputs = await asyncio.gather(*(_output(call, view) for view in views))
    return [_job(view, histories[view.job_id], output) for view, output in zip(views, outputs, strict=True)]


def _job(view: JobView, history: JobHistory, output: dict[str, Any] | None) -> wire.Job:
    return wire.Job(
        id=view.id,
        type=cast("Type", type_of(view.kind)),
        status=cast("wire.Status", view.state),
        credits_cost=view.price,
        input=msgspec.json.decode(view.input),
        output=output,
        error=_error(view),
        attempts=history.attempts_since_retry,
        created_at=view.created_at,
        updated_at=history.changed_at,
        started_at=view.started_at,
        completed_at=view.finished_at,
    )


def _error(view: JobView) -> str | None:
    """Why the job failed or expired. An error of a job that ended otherwise is not shown."""
    if view.state == "expired":
        return EXPIRED
    if view.state != "failed":
        return None
    message = _read_error(view.error).message if view.error else ""
    return message or (LATE if view.started_at is None else FAILED)


async def _output(call: Call, view: JobView) -> dict[str, Any] | None:
    """The output of a job, with a URL for each of its files."""
    if view.output is None:
        return None
    found: dict[str, Any] = msgspec.json.decode(view.output)
    if KINDS[cast("Type", type_of(view.kind))].runs == "provider":
        files = await asyncio.gather(*(_file(call, view, file) for file in found.get("files", ())))
        found["files"] = files
        found["url"] = files[0]["url"] if files else None
    return found


async def _file(call: Call, view: JobView, file: dict[str, Any]) -> dict[str, Any]:
    try:
        record = await call.engine.artifacts.read(view.tenant, file["id"], view.account)
    except NotFoundError:  # deleted at the end of its retention period
        return {**file, "url": None}
    return {**file, "url": call.engine.artifacts.sign_get(record, call.state.settings.download_lifetime).url}
