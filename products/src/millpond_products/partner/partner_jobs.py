"""The jobs of the engine, in the terms of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millpond.errors import NotFoundError
from millpond.product import answered, encode, principals, reply
from millpond_products.partner import envelopes, identifiers, wire
from millpond_products.partner.kinds import KINDS, PARTNER

if TYPE_CHECKING:
    from millpond.product import Call, JobView, Reply
    from millpond_products.partner.orders import Name


async def read(call: Call) -> Reply:
    return await answered(call, await _own(call), lambda view, _: encode(envelopes.to_wire(view)))


async def list_jobs(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.jobs_of(
        PARTNER.name,
        *principals.owner(call),
        kind=KINDS[cast("Name", query.kind)].name if query.kind else None,
        state=query.status or None,
        before=identifiers.job_cursor(query.cursor),
        limit=query.limit,
    )
    following = None if page.before is None else identifiers.job_text(page.before)
    return reply(wire.Jobs(data=[envelopes.to_wire(view) for view in page.data], next_cursor=following))


async def cancel(call: Call) -> Reply:
    """Cancel a job. A waiting job ends at once; a running one stops at its next checkpoint."""
    view = await _own(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.state.settings.grace)
    body = wire.Canceled(job_id=identifiers.job_text(view.job_id), accepted=answer.is_accepted)
    if answer.is_accepted:
        return reply(body, 202)
    body.reason = cast("Any", f"ALREADY_{answer.state.upper()}")
    if answer.stage is not None:
        body.stage = answer.stage
    return reply(body)


async def _own(call: Call) -> JobView:
    given = call.params["jobId"]
    view = await call.engine.views.job(*principals.owner(call), identifiers.parse_job(given))
    if view.lifecycle != PARTNER.name:
        raise NotFoundError(f"There is no job {given[:60]!r}.", field="jobId")
    return view
