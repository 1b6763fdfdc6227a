"""Jobs over HTTP: submit, read, list, cancel, retry, answer, transition, events, logs, tokens."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

import msgspec
from msgspec import UNSET

from millpond import errors, ids, values, wire
from millpond.api import parameters, principals, problems
from millpond.api.calls import EVENT_STREAM, JSON, REPLAYED, Reply, copied, cursor, encode, reply
from millpond.api.jobs import questions, submissions
from millpond.api.parameters import WAIT_MAX
from millpond.api.routes import BULK_BODY_MAX, Route
from millpond.api.scopes import CLIENTS, OPERATORS, READERS
from millpond.engine.jobs.jobs import JobFields
from millpond.engine.queue import registry
from millpond.engine.reads import summaries, views
from millpond.engine.reads.streams import Position
from millpond.engine.reads.views import JobPage
from millpond.errors import ConflictError, ForbiddenError, InvalidError, MillpondError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.api.calls import Call, Headers
    from millpond.engine.jobs.jobs import Submitted
    from millpond.engine.queue.limits import LimitWait
    from millpond.engine.reads.estimates import Estimate
    from millpond.engine.reads.views import JobView

_PREFER_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,9})\"?(?:$|[,;\s])", re.IGNORECASE)
PART_MAX: Final = 64 * 1024
"""The largest input or output that a list contains; larger ones are read one job at a time."""
_READ_AT_ONCE: Final = 10
"""How many jobs are read at once after their summaries; of the largest inputs and outputs they have a few megabytes."""
FIRST: Final = "Omit to start with the first event."
_LOCATION: Final = "/v1/jobs/{id}"
_POLL_SECONDS_MAX: Final = 30
_RUNNING: Final = (b"cache-control", b"private, no-cache")
_FOREVER: Final = (b"cache-control", b"private, max-age=31536000, immutable")
_SEQ_DIGITS: Final = 10  # no event has a longer number
STREAM: Final[Headers] = [
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers the frames
]


# Submit


async def submit(call: Call) -> Reply:
    body: wire.Submit = call.body
    return await submissions.accept(
        call,
        body.kind,
        body.input,
        shape=partial(_accepted_to_wire, call),
        location=_LOCATION,
        owner=(principals.one_tenant(call, call.query.tenant), principals.one_account(call, body.account)),
        key=submissions.one_key(call, body.idempotency_key),
        webhook=body.webhook,
        **submissions.options_of(body),
    )


async def submit_many(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    outcomes = await submissions.accept_many(call, tenant, call.body.jobs)
    results = [_result(call, outcome) for outcome in outcomes]
    accepted = sum(result.job is not None for result in results)
    return reply(wire.Results(accepted=accepted, refused=len(results) - accepted, results=results))


async def retry(call: Call) -> Reply:
    job = await view(call)
    return await submissions.accept_retry(
        call,
        job,
        shape=partial(_accepted_to_wire, call),
        location=_LOCATION,
        even_if_succeeded=call.body.even_if_succeeded,
    )


def _accepted_to_wire(call: Call, submitted: Submitted) -> wire.Accepted:
    job_id = submitted.id
    return wire.Accepted(
        id=job_id,
        kind=submitted.kind,
        state=submitted.state,
        price=submitted.price,
        available=submitted.available,
        created_at=submitted.created_at,
        expires_at=submitted.expires_at,
        links=_links(call.root, job_id),
        webhook_secret=UNSET if submitted.webhook_secret is None else submitted.webhook_secret,
    )


def _result(call: Call, outcome: Submitted | Exception) -> wire.Result:
    if isinstance(outcome, Exception):
        if not isinstance(outcome, MillpondError):
            raise outcome
        problem = problems.describe(outcome, request_id=call.request_id, root=call.root)
        return wire.Result(status=problem["status"], problem=msgspec.convert(problem, wire.Problem))
    return wire.Result(status=202, job=_accepted_to_wire(call, outcome))


# Read


async def read(call: Call) -> Reply:
    return await answered(call, await view(call), lambda view, estimate: encode(_to_wire(call, view, estimate)))


async def answered(call: Call, view: JobView, to_body: Callable[[JobView, Estimate | None], bytes]) -> Reply:
    """A job in the requested format; with `wait`, after the job has ended or the time has passed."""
    asked, headers = _wait(call)
    if asked and view.outcome is None:
        view = await principals.while_authorized(call, _when_ended(call, view, asked))
    estimate = await _estimate(call, view)
    body = to_body(view, estimate)
    tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
    headers += [(b"etag", tag), *_freshness(call, view, estimate)]
    if _is_known(call, tag):
        return Reply(304, headers=headers)
    return Reply(200, body, [(b"content-type", JSON), *headers])


async def list_jobs(call: Call) -> Reply:
    page = await _page(call, await filter_of(call))
    estimates = await call.engine.estimates.of([view for view in page.data if view.outcome is None])
    data = [listed(call, view, estimates.get(view.job_id)) for view in page.data]
    return reply(wire.Jobs(data=data, next_cursor=None if page.before is None else ids.text("job", page.before)))


async def filter_of(call: Call) -> wire.JobFilter:
    """The filters of a list of jobs, within what the caller may see."""
    query = call.query
    await registry.check_state(call.engine.db, query.state)
    named = {name: getattr(query, name) for name in _FILTERS}
    given = wire.JobFilter(**{name: value for name, value in named.items() if value is not None and value is not UNSET})
    tenant, account = principals.tenant(call, given.tenant), principals.account(call, given.account)
    return msgspec.structs.replace(given, tenant=tenant, account=account)


_FILTERS: Final = tuple(name for name in wire.JobFilter.__struct_fields__ if name != "ids")
_PLAIN_FILTERS: Final = frozenset({"tenant", "account", "kind", "state", "phase", "tag"})
"""The filters that ``views.jobs`` supports. With any other filter, the jobs are first found through their summaries."""


async def _page(call: Call, given: wire.JobFilter) -> JobPage:
    query, before = call.query, cursor("job", call.query.cursor)
    is_given = {name for name in _FILTERS if getattr(given, name) is not None}
    if is_given <= _PLAIN_FILTERS and not (given.kind or "").endswith("*"):
        plain: dict[str, str | None] = {"kind": given.kind, "state": given.state, "phase": given.phase}
        tags = None if given.tag is None else values.read_tags(given.tag)
        return await call.engine.views.jobs(
            given.tenant, given.account, before=before, limit=query.limit, tags=tags, **plain
        )
    wanted = summaries.sought(given, given.tenant, await call.engine.bulk_operations.present())
    found = await call.engine.summaries.page(wanted, before=before, limit=query.limit)
    data: list[JobView] = []
    for start in range(0, len(found.data), _READ_AT_ONCE):
        lines = found.data[start : start + _READ_AT_ONCE]
        reads = [call.engine.views.job(line.tenant, given.account, line.job_id) for line in lines]
        read = await asyncio.gather(*reads, return_exceptions=True)
        data += [job for job in read if is_there(job)]
        fitting = views.fitting(data)
        if len(fitting) < len(data):
            return JobPage(fitting, fitting[-1].job_id)
    return JobPage(data, found.before)


def is_there(read: JobView | BaseException) -> TypeGuard[JobView]:
    """Whether a job was not pruned between its summary and its read; any other error is raised."""
    if isinstance(read, BaseException) and not isinstance(read, NotFoundError):
        raise read
    return not isinstance(read, BaseException)


async def view(call: Call) -> JobView:
    """The job named in the path, if the caller may read it."""
    tenant = principals.tenant(call, call.query.tenant)
    return await call.engine.views.job(tenant, call.principal.account, principals.job_id(call))


async def own_job(call: Call) -> JobView:
    """The job that the path of a product's route names as ``{id}``, if it is the caller's and of that product."""
    view = await call.engine.views.job(call.principal.tenant, call.principal.account, call.params["id"])
    if call.state.product is None or view.lifecycle != call.state.product.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="id")
    return view


async def _when_ended(call: Call, view: JobView, seconds: float) -> JobView:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while view.outcome is None and call.state.hub.is_open and (left := until - loop.time()) > 0:
        await call.state.hub.wait(view.tenant, view.job_id, seen=view.events, seconds=left)
        view = await call.engine.views.job(view.tenant, call.principal.account, view.job_id)
    return view


async def _estimate(call: Call, view: JobView) -> Estimate | None:
    if view.outcome is not None:
        return None
    return (await call.engine.estimates.of([view])).get(view.job_id)


def _wait(call: Call) -> tuple[float, Headers]:
    """How long to wait, from the query or the `Prefer` header; the latter is acknowledged in the response."""
    if call.query.wait:
        return call.query.wait, []
    prefer = call.header(b"prefer")
    found = None if prefer is None else _PREFER_WAIT.search(prefer)
    if found is None:
        return 0, []
    seconds = min(int(found[1]), WAIT_MAX)
    return seconds, [(b"preference-applied", b"wait=%d" % seconds)]


def _freshness(call: Call, view: JobView, estimate: Estimate | None) -> Headers:
    """How long the response may be cached: forever once the job can no longer change."""
    if view.outcome is None:
        return [_RUNNING, (b"retry-after", b"%d" % _pause(estimate))]
    return [_FOREVER if _is_final(call, view) else _RUNNING]


def _pause(estimate: Estimate | None) -> int:
    """When to poll again: about the median duration of such jobs, or soon if it is unknown."""
    if estimate is None or estimate.p50 is None:
        return 1
    return max(1, min(_POLL_SECONDS_MAX, int((estimate.p50 - datetime.now(UTC)).total_seconds())))


def _is_final(call: Call, view: JobView) -> bool:
    """Whether the state has no outgoing transition: some lifecycles retry a job in place."""
    kind = call.engine.app.kinds.get(view.kind)
    if kind is None:
        return False
    return not any(transition.source == view.state for transition in kind.lifecycle.transitions)


def _is_known(call: Call, tag: bytes) -> bool:
    known = call.headers.get(b"if-none-match")
    return known is not None and (
        known == b"*" or tag in (part.strip().removeprefix(b"W/") for part in known.split(b","))
    )


async def to_wire_now(call: Call, view: JobView) -> wire.Job:
    """A job with its position in the queue."""
    return _to_wire(call, view, await _estimate(call, view))


def _to_wire(call: Call, view: JobView, estimate: Estimate | None, *, part_max: int | None = None) -> wire.Job:
    return to_wire(
        view,
        root=call.root,
        position=None if estimate is None else estimate.position,
        eta=_eta(estimate),
        wait=None if estimate is None else estimate.wait,
        shows_input=_shows_input(call, view),
        part_max=part_max,
    )


def listed(call: Call, view: JobView, estimate: Estimate | None) -> wire.Job:
    """A job as lists show it."""
    return _to_wire(call, view, estimate, part_max=PART_MAX)


def export_line(view: JobView) -> bytes:
    """A job as a line of an export."""
    return encode(to_wire(view)) + b"\n"


def to_wire(
    view: JobView,
    *,
    root: str = "",
    position: int | None = None,
    eta: wire.Eta | None = None,
    wait: LimitWait | None = None,
    shows_input: bool = True,
    part_max: int | None = None,
) -> wire.Job:
    """A job in the format of the native API. Stored JSON is sent unchanged, or left out if larger than ``part_max``."""
    shared = {name: getattr(view, name) for name in _SHARED}
    parts: dict[Literal["input", "output"], str | None] = {
        "input": view.input if shows_input else "{}",
        "output": view.output,
    }
    omitted: list[Literal["input", "output"]] = [
        name for name, text in parts.items() if part_max is not None and len((text or "").encode()) > part_max
    ]
    return wire.Job(
        **shared,
        id=view.id,
        position=position,
        eta=eta,
        limit_wait=None if wait is None else copied(wire.LimitWait, wait),
        retry_of=None if view.retry_of is None else ids.text("job", view.retry_of),
        parent_id=None if view.parent_id is None else ids.text("job", view.parent_id),
        batch_id=None if view.batch_id is None else ids.text("batch", view.batch_id),
        input=None if "input" in omitted else _raw(parts["input"]),
        output=None if "output" in omitted else _raw(parts["output"]),
        omitted=omitted,
        error=_raw(view.error),
        links=_links(root, view.id),
    )


_IDS: Final = frozenset({"retry_of", "parent_id", "batch_id"})
_SHARED: Final = tuple(
    name for name in JobFields.__struct_fields__ if name in wire.Job.__struct_fields__ and name not in _IDS
)
"""The fields that are sent to clients as they are stored."""


def _links(root: str, job_id: str) -> wire.Links:
    """The URLs at which a job can be read, watched and canceled."""
    here = f"{root}/v1/jobs/{job_id}"
    return wire.Links(self=here, events=f"{here}/events", stream=f"{here}/stream", cancel=f"{here}/cancel")


def _raw(text: str | None) -> Any:
    """Stored JSON, which is sent unchanged."""
    return None if text is None else msgspec.Raw(text)


def _eta(estimate: Estimate | None) -> wire.Eta | None:
    if estimate is None or estimate.p50 is None or estimate.p90 is None:
        return None
    return wire.Eta(p50=estimate.p50, p90=estimate.p90)


def _shows_input(call: Call, view: JobView) -> bool:
    """Whether the input is returned. If a product created the input, the product returns it to its clients."""
    return call.principal.scope in READERS or submissions.refusal(call, view.kind) is None


# Act


async def cancel(call: Call) -> Reply:
    job = await view(call)
    answer = await call.engine.cancel(job.tenant, job.job_id, grace=call.state.settings.grace)
    if call.principal.scope in OPERATORS and answer.is_accepted:
        await submissions.audit(call, job.tenant, "job.canceled", job.id)
    body = wire.Canceled(
        id=ids.text("job", job.job_id), is_accepted=answer.is_accepted, state=answer.state, stage=answer.stage
    )
    return reply(body, 202 if answer.is_accepted and not _is_end(call, job, answer.state) else 200)


def _is_end(call: Call, job: JobView, state: str) -> bool:
    kind = call.engine.app.kinds.get(job.kind)
    return state != job.state if kind is None else kind.lifecycle.states[state].outcome is not None


async def answer(call: Call) -> Reply:
    job = await view(call)
    details: dict[str, Any] | None = None
    if await questions.is_asked(call, job):
        question, state = await questions.answer(call, job)
        details = {"question": question}
    else:
        _check_answerer(call, job)
        state = await call.engine.answer(job.tenant, job.job_id, call.body.answer)
    if call.principal.scope in OPERATORS:
        await submissions.audit(call, job.tenant, "job.answered", job.id, details)
    return reply(wire.State(id=ids.text("job", job.job_id), state=state))


def _check_answerer(call: Call, job: JobView) -> None:
    """Refuse a client whose job waits for an operator or a provider, and of a kind that this process does not know."""
    kind = call.engine.app.kinds.get(job.kind)
    if call.principal.scope in OPERATORS or (kind is not None and kind.answered_by == "client" and not kind.needs):
        return
    raise ForbiddenError(
        f"Jobs of kind {job.kind!r} are not answered by clients; this key has scope {call.principal.scope}.",
        scope=call.principal.scope,
        needed="operator",
    )


async def refund(call: Call) -> Reply:
    job = await view(call)
    key = call.header(b"idempotency-key")
    refunded = await call.engine.refund(
        job.tenant,
        job.job_id,
        amount=call.body.amount,
        key=key,
        reason=call.body.reason,
        actor=call.principal.actor,
    )
    body = wire.Refund(job_id=ids.text("job", job.job_id), amount=refunded.amount, available=refunded.available)
    return reply(body, 200, *([REPLAYED] if refunded.is_replay else ()))


async def prioritize(call: Call) -> Reply:
    job = await view(call)
    change = await call.engine.prioritize(job.tenant, job.job_id, call.body.priority)
    if change.is_changed:
        await submissions.audit(
            call, job.tenant, "job.prioritized", job.id, {"from": change.before, "to": call.body.priority}
        )
    return reply(wire.State(id=job.id, state=change.state))


async def transition(call: Call) -> Reply:
    job = await view(call)
    state = await call.engine.transition(job.tenant, job.job_id, call.body.state)
    await submissions.audit(call, job.tenant, "job.transitioned", job.id, {"from_state": job.state, "to_state": state})
    return reply(wire.State(id=job.id, state=state))


async def make_token(call: Call) -> Reply:
    job = await view(call)
    scopes: Sequence[wire.TokenScope] = sorted(set(call.body.scopes), reverse=True)
    lifetime = values.duration(call.body.expires_in, field="expires_in")
    token, expires_at = await call.engine.access.make_token(job.tenant, job.job_id, scopes, lifetime)
    body = wire.Token(token=token, job_id=ids.text("job", job.job_id), scopes=list(scopes), expires_at=expires_at)
    return reply(body, 201)


# Events and logs


async def events(call: Call) -> Reply:
    """The events as a page, or as a stream if the caller accepts one."""
    if call.form == EVENT_STREAM:
        return await stream(call)
    job = await view(call)
    _, (after, _) = _resume(call)
    page = await call.engine.views.events(
        job.tenant, job.account, job.job_id, after=min(after, job.events), limit=call.query.limit
    )
    data = [
        wire.Event(seq=event.seq, at=event.at, type=event.type, state=event.state, data=_raw(event.data))
        for event in page.data
    ]
    return reply(wire.Events(data=data, next=page.after))


async def stream(call: Call) -> Reply:
    job = await view(call)
    field, after = _resume(call)
    if after.seq > job.events:
        raise ConflictError(
            f"The event number is too high: the last event of this job is {job.events}.", field=field, hint=FIRST
        )
    if after.number:
        await _check_chunk(call, job, field, after)
    frames = call.state.hub.stream(job.tenant, job.job_id, after)
    return Reply(200, headers=STREAM.copy(), frames=frames, owner=(job.tenant, job.account))


async def _check_chunk(call: Call, job: JobView, field: str, after: Position) -> None:
    """Refuse a chunk that does not exist yet. Chunks that existed may be deleted; then the job has other events."""
    last = await call.engine.views.last_chunk(job.tenant, job.account, job.job_id) or (job.events, 0)
    if after.seq >= last[0] and after.number > last[1]:
        raise ConflictError(f"The job has no chunk {after}; its last one is {last[1]}.", field=field, hint=FIRST)


async def logs(call: Call) -> Reply:
    query, job = call.query, await view(call)
    page = await call.engine.views.logs(job.tenant, job.account, job.job_id, after=query.after, limit=query.limit)
    data = [
        wire.LogLine(seq=event.seq, at=event.at, text=line["text"], level=line.get("level"))
        for event in page.data
        for line in (msgspec.json.decode(event.data or "{}"),)
    ]
    return reply(wire.Logs(data=data, next=page.after))


async def read_text(call: Call) -> Reply:
    job = await view(call)
    text = await call.engine.views.text(job.tenant, job.account, job.job_id)
    position = str(Position(text.seq, text.number))
    return reply(wire.JobText(text=text.text, number=text.number, at=text.at, epoch=text.epoch, last_event_id=position))


def _resume(call: Call) -> tuple[str, Position]:
    """The position after which to continue, and its source: Last-Event-ID or the query."""
    header = call.header(b"last-event-id")
    field, given = ("last_event_id", call.query.last_event_id) if not header else ("Last-Event-ID", header)
    if not given:
        return "after", Position(call.query.after)
    seq, point, number = given.partition(".")
    return field, Position(event_number(seq, field), event_number(number, field) if point else 0)


def event_number(given: str, field: str) -> int:
    """The number of an event, as given by the caller."""
    if not given.isascii() or not given.isdigit() or len(given) > _SEQ_DIGITS:
        raise InvalidError(f"{given[:40]!r} is not an event number.", field=field, hint=FIRST)
    return int(given)


_WEBHOOK: Final = (errors.OutboundRefusedError, errors.VaultError)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        handle=submit,
        summary="Submit a job.",
        description="The idempotency key, the credit hold, the job and its dispatch are written in one "
        "transaction. A request with the same Idempotency-Key returns the first response byte for "
        "byte, with Idempotency-Replayed: true. With `webhook`, events of the job are sent to its "
        "URL, signed with `webhook_secret`, which is generated unless you provide one.",
        query=parameters.OfTenant,
        body=wire.Submit,
        answers={202: wire.Accepted},
        errors=(
            errors.UnknownKindError,
            errors.InputError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.InsufficientCreditsError,
            errors.TooManyActiveJobsError,
            *_WEBHOOK,
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/bulk",
        handle=submit_many,
        summary="Submit up to a thousand jobs.",
        description="Each job is accepted or rejected separately. A rejected job is reported with the problem "
        "that a single submit would return.",
        query=parameters.OfTenant,
        body=wire.SubmitMany,
        body_max=BULK_BODY_MAX,
        answers={200: wire.Results},
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        handle=list_jobs,
        summary="List jobs, newest first.",
        description="A page ends early when it has reached 4 MiB: follow `next_cursor` until it is null. An input or "
        "output of more than 64 KiB is null, and named in `omitted`; read the job at `links.self` to get it.",
        who=CLIENTS | READERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        handle=read,
        summary="Get a job.",
        description="With ?wait=SECONDS (or Prefer: wait=SECONDS), the response is sent when the job has ended "
        "or the time has passed; if the key is revoked or expires meanwhile, 401 within 5 seconds. "
        "Send the ETag as If-None-Match to get 304 if the job has not changed.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.ReadJob,
        answers={200: wire.Job, 304: None},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        handle=cancel,
        summary="Cancel a job.",
        description="Returns 200 if the job has ended, and 202 if its worker was asked to stop.",
        token="cancel",  # noqa: S106 - a permission, not a secret
        query=parameters.OfTenant,
        answers={200: wire.Canceled, 202: wire.Canceled},
        errors=(errors.NotFoundError, errors.CancelUnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/retry",
        handle=retry,
        summary="Retry a job that has ended.",
        description="The job runs again in place if its lifecycle allows it; otherwise a new job is created "
        "that names the old one. For a new job, a request with the same Idempotency-Key returns the "
        "first response, as with a submit. In place, a key is rejected. A job that succeeded is retried "
        "only with `even_if_succeeded`.",
        query=parameters.OfTenant,
        body=wire.RetryJob,
        answers={202: wire.Accepted},
        errors=(
            errors.NotFoundError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.RetryUnavailableError,
            errors.InsufficientCreditsError,
            errors.TooManyActiveJobsError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/answer",
        handle=answer,
        summary="Answer a parked job.",
        description="A question is answered by those whom it names: any key that may act on the job, a key of scope "
        "operator or admin, or one key. If the job is parked without a question, jobs of a kind that is declared with "
        "answered_by='operator' require a key of scope operator or admin, and so do jobs of a kind with `needs`, which "
        "wait for a provider.",
        query=parameters.OfTenant,
        body=wire.GiveAnswer,
        answers={200: wire.State},
        errors=(errors.NotFoundError, errors.AnswerUnavailableError, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/transition",
        handle=transition,
        summary="Apply a transition of the lifecycle to a job.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.MakeTransition,
        answers={200: wire.State},
        errors=(errors.NotFoundError, errors.TransitionDeniedError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/events",
        handle=events,
        summary="List the events of a job.",
        description="Returns a page of JSON, or with Accept: text/event-stream a stream that stays open until "
        "the job has ended.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.ReadEvents,
        offers=(JSON, EVENT_STREAM),
        answers={200: wire.Events},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/stream",
        handle=stream,
        summary="Stream the events of a job as server-sent events, and the text that it emits.",
        description="The id of each event is its number within the job. Text comes as events of type `chunk`, between "
        "the others; the chunk with number 1 restarts the text. Its id is the number of the event before it and its "
        "own: 4.17. To resume without loss after a disconnect, send the last id as Last-Event-ID (or "
        "?last_event_id=). The stream ends after the end of the job, and within 5 seconds after the key or token is "
        "revoked or expires.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.ReadEvents,
        offers=(EVENT_STREAM,),
        answers={200: None},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/text",
        handle=read_text,
        summary="Get the text that a running job has emitted so far.",
        description="For pages that show the text and then follow the stream of the job, and for clients that cannot "
        "use streams. The text is deleted five minutes after the end of the job, whose output is its result.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.OfTenant,
        answers={200: wire.JobText},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/logs",
        handle=logs,
        summary="Get the log of a job.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.ReadLogs,
        answers={200: wire.Logs},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/tokens",
        handle=make_token,
        summary="Create a token with which a browser can follow one job.",
        query=parameters.OfTenant,
        body=wire.MakeToken,
        answers={201: wire.Token},
        errors=(errors.NotFoundError,),
    ),
)
