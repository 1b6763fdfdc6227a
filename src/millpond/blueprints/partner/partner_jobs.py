"""The jobs of the contract, in its words. The job is the engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millpond import ids
from millpond.api import jobs, principals
from millpond.api.calls import cursor, encode, reply
from millpond.blueprints.partner import envelopes, identifiers, wire
from millpond.blueprints.partner.kinds import KINDS, PARTNER
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.blueprints.partner.orders import Name
    from millpond.engine.views import JobView


async def read(call: Call) -> Reply:
    return await jobs.answered(call, await _own(call), lambda view, _: encode(envelopes.told(view)))


async def list_jobs(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.jobs_of(
        PARTNER.name,
        *principals.owner(call),
        kind=KINDS[cast("Name", query.kind)].name if query.kind else None,
        state=query.status or None,
        before=cursor("job", query.cursor),
        limit=query.limit,
    )
    following = None if page.before is None else identifiers.job_text(page.before)
    return reply(wire.Jobs(data=[envelopes.told(view) for view in page.data], next_cursor=following))


async def cancel(call: Call) -> Reply:
    """One that waits ends at once; one that a worker is at leaves at its next checkpoint."""
    view = await _own(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.desk.settings.grace)
    told = wire.Canceled(job_id=identifiers.job_text(view.job_id), accepted=answer.is_accepted)
    if answer.is_accepted:
        return reply(told, 202)
    told.reason = cast("Any", f"ALREADY_{answer.state.upper()}")
    if answer.stage is not None:
        told.stage = answer.stage
    return reply(told)


async def _own(call: Call) -> JobView:
    given = call.params["jobId"]
    view = await call.engine.views.job(*principals.owner(call), ids.parse("job", given))
    if view.lifecycle != PARTNER.name:
        raise NotFoundError(f"There is no job {given[:60]!r}.", field="jobId")
    return view
