"""The jobs of the contract, in its words. The job is the engine's, and its log the engine's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.api.calls import REPLAYED, Reply, cursor, job_text, reply
from millpond.api.jobs import FIRST, STREAM, event_number
from millpond.api.principals import owner
from millpond.blueprints.actions import checks, frames, wire
from millpond.blueprints.actions.kinds import ACTIONS, actions_of, name_of
from millpond.engine.jobs import report_denied
from millpond.errors import CancelUnavailableError, ConflictError, InvalidError, NotFoundError, UnknownKindError
from millpond.values import check_key

if TYPE_CHECKING:
    from millpond.api.calls import Call
    from millpond.engine.jobs import Submitted
    from millpond.engine.views import JobView
    from millpond.kinds import Kind

_WANTED: Final = "canceled"
"""The code of the error of a job that ended because somebody wanted it so: that is no error of the contract."""


# Making them


async def list_actions(call: Call) -> Reply:
    found = actions_of(call.engine.app.kinds)
    data = [wire.Action(name=name, summary=kind.summary, input_schema=kind.json_schema) for name, kind in found.items()]
    return reply(wire.Actions(data=data))


async def submit(call: Call) -> Reply:
    kind = _action(call, call.body.action)
    tenant, account = owner(call)
    key = _key(call)
    asked = {"tenant": tenant, "account": account, "idempotency_key": key}
    try:
        await checks.check(call.engine, call.desk.settings, kind, call.body.input)
    except InvalidError:  # a key that was answered is answered as before, whatever has changed since
        if key is None or await call.engine.replay(kind.name, call.body.input, **asked) is None:
            raise
    submitted = await call.engine.submit(kind.name, call.body.input, **asked)
    call.desk.metrics.submitted[kind.name] += 1
    told = wire.Accepted(id=submitted.id, state=cast("wire.State", submitted.state), created_at=submitted.created_at)
    return _accepted(call, submitted, told)


async def retry(call: Call) -> Reply:
    view = await _own(call)
    submitted = await call.engine.retry(view.tenant, view.job_id, idempotency_key=_key(call))
    told = wire.Job(
        id=submitted.id,
        action=name_of(view.kind),
        state=cast("wire.State", submitted.state),
        input=_raw(view.input),
        output=None,
        error=None,
        created_at=submitted.created_at,
        started_at=None,
        completed_at=None,
        retry_of=view.id,
    )
    return _accepted(call, submitted, told)


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


def _key(call: Call) -> str | None:
    key = call.header(b"idempotency-key")
    return None if key is None else check_key(key)


def _accepted(call: Call, submitted: Submitted, told: wire.Accepted | wire.Job) -> Reply:
    location = (b"location", f"{call.root}/api/jobs/{submitted.id}".encode("latin-1"))
    return reply(told, 202, location, *([REPLAYED] if submitted.is_replay else []))


# Reading them


async def read(call: Call) -> Reply:
    return reply(_told(await _own(call)))


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
    return reply(wire.Jobs(data=[_told(view) for view in page.data], next_cursor=job_text(page.before)))


async def logs(call: Call) -> Reply:
    view, query = await _own(call), call.query
    page = await call.engine.views.logs(view.tenant, view.account, view.job_id, after=query.after, limit=query.limit)
    data = [frames.told(event.seq, event.at, event.data) for event in page.data]
    return reply(wire.Logs(data=data, next=page.after))


async def stream(call: Call) -> Reply:
    """Past lines, then live ones, then how it ended. A reader that has all of that is told not to come again."""
    view = await _own(call)
    header = call.header(b"last-event-id")
    field, given = ("Last-Event-ID", header) if header else ("lastEventId", call.query.last_event_id)
    after = event_number(given, field) if given else 0
    if after:
        await _check_seen(call, view, field, after)
    if view.outcome is not None and after == view.events:
        return Reply(204)
    hub = call.desk.hub
    return Reply(200, headers=STREAM.copy(), frames=hub.stream(view.tenant, view.job_id, after, form=frames.FORM))


async def _check_seen(call: Call, view: JobView, field: str, seen: int) -> None:
    """Refuse the number of something that was never sent: whoever says it has another job's, and would miss lines."""
    if seen > view.events:
        raise ConflictError(f"The last event of this job is {view.events}.", field=field, hint=FIRST)
    page = await call.engine.views.logs(view.tenant, view.account, view.job_id, after=seen - 1, limit=1)
    is_line = bool(page.data) and page.data[0].seq == seen
    if not is_line and not (view.outcome is not None and seen == view.events):
        raise ConflictError(f"Event {seen} of this job is no line of its log.", field=field, hint=FIRST)


# Ending them


async def cancel(call: Call) -> Reply:
    """One that waits ends at once; one that a worker is at ends when that has heard of it."""
    view = await _own(call)
    answer = await call.engine.cancel(view.tenant, view.job_id, grace=call.desk.settings.grace)
    if not answer.is_accepted and answer.state != "cancelled":
        refusal = CancelUnavailableError(f"The job is {answer.state} and cannot be cancelled.", state=answer.state)
        report_denied(view.job_id, answer.state, "cancelled", refusal)
        raise refusal
    ended = await _own(call)
    return reply(_told(ended), 202 if ended.outcome is None else 200)


# Whose they are, and how they are told


async def _own(call: Call) -> JobView:
    """A job of ours, if it is theirs; a browser's token is for one job, whoever's."""
    principal = call.principal
    view = await call.engine.views.job(principal.tenant, principal.account, call.params["id"])
    if view.lifecycle != ACTIONS.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="id")
    return view


def _told(view: JobView) -> wire.Job:
    repeated = job_text(view.retry_of)
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
        retry_of=msgspec.UNSET if repeated is None else repeated,
    )


def _error(view: JobView) -> Any:
    """Why it ended as it did; while it runs, what an earlier attempt stumbled over is nobody's matter."""
    if view.outcome is None or view.error is None:
        return None
    return None if msgspec.json.decode(view.error).get("code") == _WANTED else _raw(view.error)


def _raw(text: str | None) -> Any:
    """Stored JSON goes out as it is."""
    return None if text is None else msgspec.Raw(text)
