"""Jobs over HTTP: submit, read, list, cancel, retry, answer, move, events, logs, tokens."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from millpond import ids, values, webhooks, wire
from millpond.api import endpoints, principals, problems
from millpond.api.calls import EVENT_STREAM, JSON, REPLAYED, Reply, cursor, encode, reply
from millpond.api.parameters import WAIT_MAX
from millpond.api.principals import OPERATORS
from millpond.engine import views
from millpond.errors import ConflictError, ForbiddenError, InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.api.calls import Call, Headers
    from millpond.engine.estimates import Estimate
    from millpond.engine.jobs import Submitted
    from millpond.engine.views import JobView

_PREFER_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?:$|[,;\s])", re.IGNORECASE)
FIRST: Final = "Leave it out to begin with the first event."
_POLL_SECONDS_MAX: Final = 30
_SOON: Final = (b"retry-after", b"1")
_RUNNING: Final = (b"cache-control", b"private, no-cache")
_FOREVER: Final = (b"cache-control", b"private, max-age=31536000, immutable")
_SEQ_DIGITS: Final = 10  # no event has a longer number, and no longer one need be read
STREAM: Final[Headers] = [
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would hold frames back
]


# Submit


async def submit(call: Call) -> Reply:
    if (closed := _closed(call, call.body.kind)) is not None:
        raise closed
    tenant = principals.one_tenant(call, call.query.tenant)
    options = _options(call, tenant, call.body, key=_key(call, call.body))
    submitted = await call.engine.submit(call.body.kind, call.body.input, **options)
    call.desk.metrics.submitted[call.body.kind] += 1
    if _is_by_hand(call) and not submitted.is_replay:
        await _audit(call, tenant, "submitted", submitted.id, {"kind": submitted.kind})
    return _accepted(call, submitted, await _secret(call, submitted, call.body, options))


async def submit_many(call: Call) -> Reply:
    if call.headers.get(b"idempotency-key") is not None:
        raise InvalidError(
            "Many jobs cannot share a key.", field="Idempotency-Key", hint="Give each job its own idempotency_key."
        )
    tenant = principals.one_tenant(call, call.query.tenant)
    jobs: list[wire.Submit] = call.body.jobs
    refusals = [_refusal(call, job) for job in jobs]
    taken = [job for job, refusal in zip(jobs, refusals, strict=True) if refusal is None]
    requests = [
        {"kind": job.kind, "input": job.input, **_options(call, tenant, job, job.idempotency_key)} for job in taken
    ]
    outcomes = await call.engine.submit_many(requests)
    made = [outcome for outcome in outcomes if not isinstance(outcome, Exception) and not outcome.is_replay]
    if _is_by_hand(call) and made:
        kinds = sorted({each.kind for each in made})
        await _audit(call, tenant, "submitted", None, {"kinds": kinds, "count": len(made)})
    secrets = [await _secret(call, *one) for one in zip(outcomes, taken, requests, strict=True)]
    answers = zip(outcomes, secrets, strict=True)
    results = [_result(call, *next(answers)) if refusal is None else _result(call, refusal) for refusal in refusals]
    accepted = sum(result.job is not None for result in results)
    return reply(wire.Results(accepted=accepted, refused=len(results) - accepted, results=results))


async def retry(call: Call) -> Reply:
    job = await _view(call)
    if (closed := _closed(call, job.kind)) is not None:
        raise closed
    key = call.header(b"idempotency-key")
    retried = await call.engine.retry(job.tenant, job.job_id, idempotency_key=key)
    if call.principal.scope in OPERATORS and not retried.is_replay:
        made = None if retried.job_id == job.job_id else {"job_id": retried.id}
        await _audit(call, job.tenant, "retried", job.id, made)
    return _accepted(call, retried)


def _closed(call: Call, kind: str) -> ForbiddenError | None:
    """The refusal of a kind whose jobs only its own product makes: their input is trusted."""
    found = call.engine.app.kinds.get(kind)
    if found is None or found.is_open:
        return None
    return ForbiddenError(f"Jobs of kind {kind!r} are made by their own product alone.", field="kind")


def _refusal(call: Call, job: wire.Submit) -> MillpondError | None:
    """What is wrong with one of many before any of them is sent."""
    try:
        if job.webhook is not None:
            _hook(call, job.webhook)
    except InvalidError as error:
        return error
    return _closed(call, job.kind)


def _options(call: Call, tenant: str, body: wire.Submit, key: str | None) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "account": principals.one_account(call, body.account),
        "idempotency_key": key,
        "priority": body.priority,
        "run_at": body.run_at,
        "expires_in": body.expires_in,
        **({} if body.webhook is None else {"hook": _hook(call, body.webhook)}),
    }


def _hook(call: Call, given: wire.JobWebhook) -> webhooks.Hook:
    """The job's own webhook; one without a secret gets one."""
    secret = webhooks.new_secret() if given.secret is None else given.secret
    webhooks.check_secret(secret, field="webhook.secret")
    chosen = None
    if given.events is not None:
        chosen = endpoints.moments(given.events, wire.JOB_EVENTS, field="webhook.events")
    hook = webhooks.Hook(url=given.url, secret=secret, moments=chosen, is_secret_chosen=given.secret is not None)
    if call.desk.inbox is not None:
        call.desk.inbox.learn(hook.secret)
    return hook


async def _secret(
    call: Call, outcome: Submitted | Exception, body: wire.Submit, options: dict[str, Any]
) -> str | UnsetType:
    """What the job's webhook is signed with, where that was made here; a replay tells that of the first answer."""
    if isinstance(outcome, Exception) or body.webhook is None or body.webhook.secret is not None:
        return UNSET
    if outcome.is_replay:
        return await call.engine.hook_secret(options["tenant"], outcome.job_id)
    return options["hook"].secret


def _key(call: Call, body: wire.Submit) -> str | None:
    """The idempotency key of the header or of the body; where both are given they must agree."""
    header = call.header(b"idempotency-key")
    if header is None:
        return body.idempotency_key
    if body.idempotency_key is not None and body.idempotency_key != header:
        raise InvalidError("The header and the body name different keys.", field="idempotency_key")
    return values.check_key(header)


def _accepted(call: Call, submitted: Submitted, secret: str | UnsetType = UNSET) -> Reply:
    told = _told_accepted(call, submitted, secret)
    headers: Headers = [
        (b"content-type", JSON),
        (b"cache-control", b"no-store"),
        (b"location", told.links.self.encode("latin-1")),
        _SOON,
    ]
    if submitted.is_replay:
        headers.append(REPLAYED)
    return Reply(202, encode(told), headers)


def _told_accepted(call: Call, submitted: Submitted, secret: str | UnsetType = UNSET) -> wire.Accepted:
    job_id = submitted.id
    return wire.Accepted(
        id=job_id,
        kind=submitted.kind,
        state=submitted.state,
        price=submitted.price,
        available=submitted.available,
        created_at=submitted.created_at,
        expires_at=submitted.expires_at,
        links=views.links(call.root, job_id),
        webhook_secret=secret,
    )


def _result(call: Call, outcome: Submitted | Exception, secret: str | UnsetType = UNSET) -> wire.Result:
    if isinstance(outcome, Exception):
        if not isinstance(outcome, MillpondError):
            raise outcome
        problem = problems.told(outcome, request_id=call.request_id, root=call.root)
        return wire.Result(status=problem["status"], problem=msgspec.convert(problem, wire.Problem))
    return wire.Result(status=202, job=_told_accepted(call, outcome, secret))


# Read


async def read(call: Call) -> Reply:
    return await answered(call, await _view(call), lambda view, estimate: encode(_told(call, view, estimate)))


async def answered(call: Call, view: JobView, told: Callable[[JobView, Estimate | None], bytes]) -> Reply:
    """A job, in the words that this makes; where the caller can wait, once it has ended or the time is up."""
    asked, headers = _wait(call)
    if asked and view.outcome is None:
        view = await _when_ended(call, view, asked)
    estimate = await _estimate(call, view)
    body = told(view, estimate)
    tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
    headers += [(b"etag", tag), *_freshness(call, view, estimate)]
    if _is_known(call, tag):
        return Reply(304, headers=headers)
    return Reply(200, body, [(b"content-type", JSON), *headers])


async def list_jobs(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.jobs(
        principals.tenant(call, query.tenant),
        principals.account(call, query.account),
        before=cursor("job", query.cursor),
        kind=query.kind,
        state=query.state,
        phase=query.phase or None,
        limit=query.limit,
    )
    estimates = await call.engine.estimates.of([view for view in page.data if view.outcome is None])
    data = [_told(call, view, estimates.get(view.job_id)) for view in page.data]
    return reply(wire.Jobs(data=data, next_cursor=None if page.before is None else ids.text("job", page.before)))


async def _view(call: Call) -> JobView:
    """The job that the path names, if it is the caller's."""
    tenant = principals.tenant(call, call.query.tenant)
    return await call.engine.views.job(tenant, call.principal.account, principals.job_id(call))


async def _when_ended(call: Call, view: JobView, seconds: float) -> JobView:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while view.outcome is None and call.desk.hub.is_open and (left := until - loop.time()) > 0:
        await call.desk.hub.wait(view.tenant, view.job_id, seen=view.events, seconds=left)
        view = await call.engine.views.job(view.tenant, call.principal.account, view.job_id)
    return view


async def _estimate(call: Call, view: JobView) -> Estimate | None:
    if view.outcome is not None:
        return None
    return (await call.engine.estimates.of([view])).get(view.job_id)


def _wait(call: Call) -> tuple[float, Headers]:
    """How long the caller would wait, by the query or by a preference; the latter is told to be applied."""
    if call.query.wait:
        return call.query.wait, []
    prefer = call.header(b"prefer")
    found = None if prefer is None else _PREFER_WAIT.search(prefer)
    if found is None:
        return 0, []
    seconds = min(int(found[1]), WAIT_MAX)
    return seconds, [(b"preference-applied", b"wait=%d" % seconds)]


def _freshness(call: Call, view: JobView, estimate: Estimate | None) -> Headers:
    """How long the answer stays true: forever once nothing can change it."""
    if view.outcome is None:
        return [_RUNNING, (b"retry-after", b"%d" % _pause(estimate))]
    return [_FOREVER if _is_final(call, view) else _RUNNING]


def _pause(estimate: Estimate | None) -> int:
    """When to look again: about when half of such jobs have ended, soon if that is not known."""
    if estimate is None or estimate.p50 is None:
        return 1
    return max(1, min(_POLL_SECONDS_MAX, int((estimate.p50 - datetime.now(UTC)).total_seconds())))


def _is_final(call: Call, view: JobView) -> bool:
    """Whether no arrow leads out of its state: some lifecycles retry a job in place."""
    kind = call.engine.app.kinds.get(view.kind)
    if kind is None:
        return False
    return not any(move.source == view.state for move in kind.lifecycle.moves)


def _is_known(call: Call, tag: bytes) -> bool:
    known = call.headers.get(b"if-none-match")
    return known is not None and (
        known == b"*" or tag in (part.strip().removeprefix(b"W/") for part in known.split(b","))
    )


async def told_now(call: Call, view: JobView) -> wire.Job:
    """A job with its place in line, for who tells more of it."""
    return _told(call, view, await _estimate(call, view))


def _told(call: Call, view: JobView, estimate: Estimate | None) -> wire.Job:
    return views.told(
        view,
        root=call.root,
        position=None if estimate is None else estimate.position,
        eta=_eta(estimate),
        shows_input=_shows_input(call, view),
    )


def _eta(estimate: Estimate | None) -> wire.Eta | None:
    if estimate is None or estimate.p50 is None or estimate.p90 is None:
        return None
    return wire.Eta(p50=estimate.p50, p90=estimate.p90)


def _shows_input(call: Call, view: JobView) -> bool:
    """Whether what the job was given is told. Where its product made that, the product says it to its clients."""
    return call.principal.scope in principals.READERS or _closed(call, view.kind) is None


# Act


async def cancel(call: Call) -> Reply:
    job = await _view(call)
    answer = await call.engine.cancel(job.tenant, job.job_id, grace=call.desk.settings.grace)
    if call.principal.scope in OPERATORS and answer.is_accepted:
        await _audit(call, job.tenant, "canceled", job.id)
    told = wire.Canceled(
        id=ids.text("job", job.job_id), is_accepted=answer.is_accepted, state=answer.state, stage=answer.stage
    )
    return reply(told, 202 if answer.is_accepted and not _is_end(call, job, answer.state) else 200)


def _is_end(call: Call, job: JobView, state: str) -> bool:
    kind = call.engine.app.kinds.get(job.kind)
    return state != job.state if kind is None else kind.lifecycle.states[state].outcome is not None


async def answer(call: Call) -> Reply:
    job = await _view(call)
    state = await call.engine.answer(job.tenant, job.job_id, call.body.answer)
    if call.principal.scope in OPERATORS:
        await _audit(call, job.tenant, "answered", job.id)
    return reply(wire.State(id=ids.text("job", job.job_id), state=state))


async def refund(call: Call) -> Reply:
    job = await _view(call)
    key = call.header(b"idempotency-key")
    told = await call.engine.refund(
        job.tenant,
        job.job_id,
        amount=call.body.amount,
        key=key,
        reason=call.body.reason,
        actor=call.principal.actor,
    )
    answer = wire.Refund(job_id=ids.text("job", job.job_id), amount=told.amount, available=told.available)
    return reply(answer, 200, *([REPLAYED] if told.is_replay else ()))


async def prioritize(call: Call) -> Reply:
    job = await _view(call)
    told = await call.engine.prioritize(job.tenant, job.job_id, call.body.priority)
    if told.is_changed:
        await _audit(call, job.tenant, "prioritized", job.id, {"from": told.before, "to": call.body.priority})
    return reply(wire.State(id=job.id, state=told.state))


async def move(call: Call) -> Reply:
    job = await _view(call)
    state = await call.engine.move(job.tenant, job.job_id, call.body.state)
    await _audit(call, job.tenant, "moved", job.id, {"from_state": job.state, "to_state": state})
    return reply(wire.State(id=job.id, state=state))


async def _audit(call: Call, tenant: str, verb: str, subject: str | None, data: dict[str, Any] | None = None) -> None:
    await call.engine.access.audit(call.principal.actor, f"job.{verb}", tenant=tenant, subject=subject, data=data)


def _is_by_hand(call: Call) -> bool:
    """Whether somebody does it in the dashboard. A backend that submits all day writes no line for each job."""
    return call.desk.admit is not None


async def make_token(call: Call) -> Reply:
    job = await _view(call)
    scopes: Sequence[wire.TokenScope] = sorted(set(call.body.scopes), reverse=True)
    lifetime = values.duration(call.body.expires_in, field="expires_in")
    token, expires_at = await call.engine.access.make_token(job.tenant, job.job_id, scopes, lifetime)
    told = wire.Token(token=token, job_id=ids.text("job", job.job_id), scopes=list(scopes), expires_at=expires_at)
    return reply(told, 201)


# Events and logs


async def events(call: Call) -> Reply:
    """What happened, as a page, or as a stream for those who ask for one."""
    if call.form == EVENT_STREAM:
        return await stream(call)
    job = await _view(call)
    _, after = _resume(call)
    page = await call.engine.views.events(
        job.tenant, job.account, job.job_id, after=min(after, job.events), limit=call.query.limit
    )
    data = [
        wire.Event(seq=event.seq, at=event.at, type=event.type, state=event.state, data=views.raw(event.data))
        for event in page.data
    ]
    return reply(wire.Events(data=data, next=page.after))


async def stream(call: Call) -> Reply:
    job = await _view(call)
    field, after = _resume(call)
    if after > job.events:
        raise ConflictError(f"The last event of this job is {job.events}.", field=field, hint=FIRST)
    return Reply(200, headers=STREAM.copy(), frames=call.desk.hub.stream(job.tenant, job.job_id, after))


async def logs(call: Call) -> Reply:
    query, job = call.query, await _view(call)
    page = await call.engine.views.logs(job.tenant, job.account, job.job_id, after=query.after, limit=query.limit)
    data = [
        wire.LogLine(seq=event.seq, at=event.at, text=line["text"], level=line.get("level"))
        for event in page.data
        for line in (msgspec.json.decode(event.data or "{}"),)
    ]
    return reply(wire.Logs(data=data, next=page.after))


def _resume(call: Call) -> tuple[str, int]:
    """The event after which to go on, and who says so: what the browser saw last, or else the address."""
    header = call.header(b"last-event-id")
    field, given = ("last_event_id", call.query.last_event_id) if not header else ("Last-Event-ID", header)
    if not given:
        return "after", call.query.after
    return field, event_number(given, field)


def event_number(given: str, field: str) -> int:
    """The number of an event, as whoever has seen it says it."""
    if not given.isascii() or not given.isdigit() or len(given) > _SEQ_DIGITS:
        raise InvalidError(f"{given[:40]!r} is not the number of an event.", field=field, hint=FIRST)
    return int(given)
