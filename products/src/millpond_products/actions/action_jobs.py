"""The jobs of the contract. Each is an engine job, and the lines of its log are the job's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.errors import CancelUnavailableError, ConflictError, UnknownKindError
from millpond.product import (
    FIRST,
    STREAM,
    Reply,
    accept,
    accept_retry,
    cursor,
    event_number,
    job_text,
    own_job,
    owner,
    reply,
    report_denied,
)
from millpond_products.actions import checks, frames, wire
from millpond_products.actions.kinds import ACTIONS, actions_of, name_of

if TYPE_CHECKING:
    from millpond.kinds import Kind
    from millpond.product import Call, JobView, Submitted
    from millpond_products.settings import ProductSettings

_LOCATION: Final = "/api/jobs/{id}"
_CANCELED: Final = "canceled"
"""The engine's error code of a canceled job. The contract reports no error for such a job."""


# Submitting


async def list_actions(call: Call) -> Reply:
    found = actions_of(call.engine.app.kinds)
    data = [wire.Action(name=name, summary=kind.summary, input_schema=kind.json_schema) for name, kind in found.items()]
    return reply(wire.Actions(data=data))


async def submit(call: Call) -> Reply:
    kind = _action(call, call.body.action)

    async def build() -> Any:
        await checks.check(call.engine, cast("ProductSettings", call.state.settings), kind, call.body.input)
        return call.body.input

    def shape(made: Submitted) -> wire.Accepted:
        return wire.Accepted(id=made.id, state=cast("wire.State", made.state), created_at=made.created_at)

    return await accept(
        call, kind.name, call.body.input, build=build, shape=shape, location=_LOCATION, owner=owner(call)
    )


async def retry(call: Call) -> Reply:
    view = await own_job(call)

    def shape(made: Submitted) -> wire.Job:
        return wire.Job(
            id=made.id,
            action=name_of(view.kind),
            state=cast("wire.State", made.state),
            input=_raw(view.input),
            output=None,
            error=None,
            created_at=made.created_at,
            started_at=None,
            completed_at=None,
            retry_of=view.id,
        )

    # The contract has one retry, of any job that has ended.
    return await accept_retry(call, view, shape=shape, location=_LOCATION, even_if_succeeded=True)


def _action(call: Call, name: str) -> Kind:
    known = actions_of(call.engine.app.kinds)
    if name not in known:
        raise UnknownKindError(
            f"There is no action {name!r}.",
            field="action",
            hint=f"Known actions: {', '.join(known)}.",
            actions=list(known),
        )
    return known[name]


# Reading


async def read(call: Call) -> Reply:
    return reply(_to_wire(await own_job(call)))


async def list_jobs(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.jobs_of(
        ACTIONS.name,
        *owner(call),
        kind=f"{ACTIONS.name}.{query.action}" if query.action else None,
        state=query.state or None,
        before=cursor("job", query.cursor),
        limit=query.limit,
    )
    return reply(wire.Jobs(data=[_to_wire(view) for view in page.data], next_cursor=job_text(page.before)))


async def logs(call: Call) -> Reply:
    view, query = await own_job(call), call.query
    page = await call.engine.views.logs(view.tenant, view.account, view.job_id, after=query.after, limit=query.limit)
    data = [frames.to_wire(event.seq, event.at, event.data) for event in page.data]
    return reply(wire.Logs(data=data, next=page.after))


async def stream(call: Call) -> Reply:
    """Send past lines, live lines and the end. A client that already has the end gets 204, so it does not reconnect."""
    view = await own_job(call)
    header = call.header(b"last-event-id")
    field, given = ("Last-Event-ID", header) if header else ("lastEventId", call.query.last_event_id)
    after = event_number(given, field) if given else 0
    if after:
        await _check_seen(call, view, field, after)
    if view.outcome is not None and after == view.events:
        return Reply(204)
    lines = call.state.hub.stream(view.tenant, view.job_id, after, form=frames.FORM)
    return Reply(200, headers=STREAM.copy(), frames=lines, owner=(view.tenant, view.account))


async def _check_seen(call: Call, view: JobView, field: str, seen: int) -> None:
    """Refuse an event number that was never sent: it is another job's, and resuming from it would skip lines."""
    if seen > view.events:
        raise ConflictError(
            f"The event number is too high: the last event of this job is {view.events}.", field=field, hint=FIRST
        )
    page = await call.engine.views.logs(view.tenant, view.account, view.job_id, after=seen - 1, limit=1)
    is_line = bool(page.data) and page.data[0].seq == seen
    if not is_line and not (view.outcome is not None and seen == view.events):
        raise ConflictError(f"Event {seen} of this job is not a log line.", field=field, hint=FIRST)


# Canceling


async def cancel(call: Call) -> Reply:
    """Cancel a job. A pending job ends at once; a running one ends when its worker reacts."""
    view = await own_job(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.state.settings.grace)
    if not answer.is_accepted and answer.state != "cancelled":
        refusal = CancelUnavailableError(f"The job is {answer.state} and cannot be cancelled.", state=answer.state)
        report_denied(view.job_id, answer.state, "cancelled", refusal)
        raise refusal
    ended = await own_job(call)
    return reply(_to_wire(ended), 202 if ended.outcome is None else 200)


# As JSON


def _to_wire(view: JobView) -> wire.Job:
    retry_of = job_text(view.retry_of)
    return wire.Job(
        id=view.id,
        action=name_of(view.kind),
        state=cast("wire.State", view.state),
        input=_raw(view.input),
        output=_raw(view.output),
        error=_error(view),
        created_at=view.created_at,
        started_at=view.started_at,
        completed_at=view.finished_at,
        retry_of=msgspec.UNSET if retry_of is None else retry_of,
    )


def _error(view: JobView) -> Any:
    """The error of an ended job. While a job is running, the error of an earlier attempt is not reported."""
    if view.outcome is None or view.error is None:
        return None
    return None if msgspec.json.decode(view.error).get("code") == _CANCELED else _raw(view.error)


def _raw(text: str | None) -> Any:
    """Stored JSON is returned unchanged."""
    return None if text is None else msgspec.Raw(text)
