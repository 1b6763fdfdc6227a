"""The jobs of the contract, in its words. The job is the engine's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.api.calls import cursor, job_text, reply
from millpond.api.principals import address, owner
from millpond.blueprints.studio import wire
from millpond.blueprints.studio.kinds import KINDS, STUDIO, type_of
from millpond.engine.jobs import report_denied
from millpond.errors import CancelUnavailableError, NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from millpond.api.calls import Call, Reply
    from millpond.blueprints.studio.kinds import Type
    from millpond.engine.engine import Engine
    from millpond.engine.views import JobView

SQL: Final = queries("millpond.blueprints.studio", "studio_jobs")

EXPIRED: Final = "No answer came before the deadline. The credits were given back."
LATE: Final = "It was not begun before its deadline. The credits were given back."
FAILED: Final = "It failed. The credits were given back."


class _Error(msgspec.Struct):
    message: str = ""


_read_error: Final = msgspec.json.Decoder(_Error).decode


# Reading


async def read(call: Call) -> Reply:
    return reply(await told(call, await _own(call)))


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
    return reply(wire.Jobs(data=await _told(call, page.data), next_cursor=job_text(page.before)))


async def cancel(call: Call) -> Reply:
    """One that waits ends at once; one that a worker is at ends when that has heard of it."""
    view = await _own(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.desk.settings.grace)
    if not answer.is_accepted and answer.state != "canceled":
        raise _denied(view.job_id, answer.state)
    return reply(await told(call, await _own(call)))


def _denied(job_id: UUID, state: str) -> CancelUnavailableError:
    refusal = CancelUnavailableError(f"The job is {state} and cannot be canceled.", state=state)
    report_denied(job_id, state, "canceled", refusal)
    return refusal


async def retry(call: Call) -> Reply:
    """An operator begins a job anew that has failed or expired: it is paid for once more."""
    view = await find(call.engine, call.principal.tenant, None, call.params["job_id"])
    submitted = await call.engine.retry(view.tenant, view.job_id)
    await call.engine.access.audit(
        call.principal.actor,
        "studio.job.retried",
        tenant=view.tenant,
        subject=view.id,
        data={"address": address(call)},
    )
    return reply(
        wire.Accepted(
            job_id=view.id,
            status=cast("wire.Status", submitted.state),
            credits_cost=submitted.price,
            credits_remaining=submitted.available or 0,
        ),
        202,
    )


async def _own(call: Call) -> JobView:
    return await find(call.engine, *owner(call), call.params["job_id"])


async def find(engine: Engine, tenant: str | None, account: str | None, job_id: str | UUID) -> JobView:
    """A job of ours, if it is theirs."""
    view = await engine.views.job(tenant, account, job_id)
    if type_of(view.kind) is None:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


async def keyed(engine: Engine, tenant: str, account: str, key: str) -> JobView | None:
    """The job that a user's key has made."""
    row = await engine.home(tenant).run(SQL["keyed"], tenant, account, key)
    return None if row is None else await engine.views.job(tenant, account, row["job_id"])


# In the words of the contract


async def told(call: Call, view: JobView) -> wire.Job:
    return (await _told(call, [view]))[0]


async def _told(call: Call, views: Sequence[JobView]) -> list[wire.Job]:
    history: dict[UUID, Any] = {}
    for tenant in {view.tenant for view in views}:
        job_ids = [view.job_id for view in views if view.tenant == tenant]
        history |= {row["job_id"]: row for row in await call.engine.home(tenant).run(SQL["told"], job_ids)}
    outputs = await asyncio.gather(*(_output(call, view) for view in views))
    return [_job(view, history[view.job_id], output) for view, output in zip(views, outputs, strict=True)]


def _job(view: JobView, history: Any, output: dict[str, Any] | None) -> wire.Job:
    return wire.Job(
        id=view.id,
        type=cast("Type", type_of(view.kind)),
        status=cast("wire.Status", view.state),
        credits_cost=view.price,
        input=msgspec.json.decode(view.input),
        output=output,
        error=_error(view),
        attempts=max(0, history["attempts"]),
        created_at=view.created_at,
        updated_at=history["updated_at"],
        started_at=view.started_at,
        completed_at=view.finished_at,
    )


def _error(view: JobView) -> str | None:
    """Why it did not work out; what went wrong on the way to something else is not told."""
    if view.state == "expired":
        return EXPIRED
    if view.state != "failed":
        return None
    said = _read_error(view.error).message if view.error else ""
    return said or (LATE if view.started_at is None else FAILED)


async def _output(call: Call, view: JobView) -> dict[str, Any] | None:
    """What came of it; each of its files with where to get it."""
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
    except NotFoundError:  # swept, since it has reached its age
        return {**file, "url": None}
    return {**file, "url": call.engine.artifacts.sign_get(record, call.desk.settings.download_lifetime).url}
