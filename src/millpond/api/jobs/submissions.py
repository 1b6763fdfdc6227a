"""Submissions: the only way in which jobs are submitted over HTTP, by the native API and by every product.

A route provides the kind, the input and the shape of the response. What all of them share is here: the idempotency key,
the owner of the job, the check for closed kinds, the secret of the webhook, the metric, the audit and the headers.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from millpond import values, webhooks
from millpond.api import principals
from millpond.api.calls import REPLAYED, Reply, reply
from millpond.api.scopes import OPERATORS
from millpond.api.webhooks import endpoints
from millpond.engine.jobs.jobs import Submitted
from millpond.errors import ForbiddenError, IdempotencyConflictError, InvalidError, MillpondError
from millpond.wire import JOB_EVENTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from millpond import wire
    from millpond.api.calls import Call
    from millpond.engine.jobs.jobs import JobOptions, SubmitRequest
    from millpond.engine.reads.views import JobView

    Shape = Callable[[Submitted], Any]
    """Makes the body of the response. It may be a coroutine function."""
    Location = str | Callable[[Submitted], str]
    """The path of the job, relative to the API or product, with ``{id}`` for its id; or a function that returns it."""

IDEMPOTENCY_HEADERS: Final = ("Idempotency-Key",)
"""The header that a route with :func:`accept` reads, unless its contract has the key in the body."""
JOB_HEADERS: Final = ("Location", "Retry-After", "Idempotency-Replayed")
"""The response headers of a route with :func:`accept`."""
_SOON: Final = (b"retry-after", b"1")


async def accept(
    call: Call,
    kind: str,
    input: Any = None,
    *,
    shape: Shape,
    location: Location,
    status: int = 202,
    replay_status: int | None = None,
    owner: tuple[str, str] | None = None,
    key: str | UnsetType | None = UNSET,
    compare_key_only: bool = False,
    build: Callable[[], Awaitable[Any]] | None = None,
    webhook: wire.JobWebhook | None = None,
    **options: Unpack[JobOptions],
) -> Reply:
    """Submit a job and respond with ``shape``'s body; ``options`` are those of ``Engine.submit``.

    ``owner`` is the tenant and the account; by default, those of the caller's API key. ``key`` is the idempotency key,
    if the contract does not have it in the header; with ``compare_key_only`` a request with a known key is a replay
    even if the rest of it differs. ``build`` creates or checks the input; it is called only if the key has no job yet.
    If it does not return ``input`` unchanged, pass ``request``, with which a repeated request is compared.
    """
    tenant, account = owner or (principals.one_tenant(call, None), principals.one_account(call, None))
    key = header_key(call) if isinstance(key, UnsetType) else key
    request = _request(call, kind, input, tenant, account, key, webhook, options)
    submitted = await _submit(call, request, build, compare_key_only=compare_key_only)
    _count(call, submitted)
    if is_by_hand(call) and not submitted.is_replay:
        await audit(call, tenant, "job.submitted", submitted.id, {"kind": submitted.kind})
    submitted = await _with_secret(call, request, submitted)
    if submitted.is_replay and replay_status is not None:
        status = replay_status
    return await _answer(call, submitted, shape, location, status)


async def accept_many(call: Call, tenant: str, jobs: Sequence[wire.Submit]) -> list[Submitted | Exception]:
    """Submit many jobs; each is accepted or refused separately, and has its own idempotency key."""
    if call.headers.get(b"idempotency-key") is not None:
        raise InvalidError(
            "The Idempotency-Key header does not apply to bulk submits.",
            field="Idempotency-Key",
            hint="Give each job its own idempotency_key.",
        )
    asked = [_request_or_refusal(call, tenant, job) for job in jobs]
    requests = [request for request in asked if not isinstance(request, MillpondError)]
    outcomes = await call.engine.submit_many(requests)
    new = [outcome for outcome in outcomes if not isinstance(outcome, Exception) and _count(call, outcome)]
    if is_by_hand(call) and new:
        kinds = sorted({each.kind for each in new})
        await audit(call, tenant, "job.submitted", None, {"kinds": kinds, "count": len(new)})
    results = iter(
        [
            outcome if isinstance(outcome, Exception) else await _with_secret(call, request, outcome)
            for request, outcome in zip(requests, outcomes, strict=True)
        ]
    )
    return [request if isinstance(request, MillpondError) else next(results) for request in asked]


async def accept_retry(
    call: Call,
    job: JobView,
    *,
    shape: Shape,
    location: Location,
    key: str | UnsetType | None = UNSET,
    even_if_succeeded: bool = False,
    action: str = "job.retried",
    details: Mapping[str, Any] | None = None,
) -> Reply:
    """Retry an ended job in place or as a new job, depending on its lifecycle.

    A job that succeeded is retried only ``even_if_succeeded``. A retry by an operator is audited as ``action``, with
    ``details``.
    """
    if (closed := refusal(call, job.kind)) is not None:
        raise closed
    key = header_key(call) if isinstance(key, UnsetType) else key
    retried = await call.engine.retry(job.tenant, job.job_id, even_if_succeeded=even_if_succeeded, idempotency_key=key)
    more = dict(details or {})
    if retried.job_id != job.job_id:
        _count(call, retried)
        more["job_id"] = retried.id
    if call.principal.scope in OPERATORS and not retried.is_replay:
        await audit(call, job.tenant, action, job.id, more or None)
    return await _answer(call, retried, shape, location, 202)


def refusal(call: Call, kind: str) -> ForbiddenError | None:
    """The error to raise if only its product may submit jobs of this kind, because their input is trusted."""
    found = call.engine.app.kinds.get(kind)
    product = call.state.product
    if found is None or found.is_open or (product is not None and product.name == found.lifecycle.name):
        return None
    return ForbiddenError(f"Jobs of kind {kind!r} can be submitted only through their product.", field="kind")


def header_key(call: Call) -> str | None:
    """The idempotency key of the header."""
    key = call.header(b"idempotency-key")
    return None if key is None else values.check_key(key)


def one_key(call: Call, member: str | None) -> str | None:
    """The idempotency key from the header or from a member of the body; if both are given, they must be equal."""
    key = header_key(call)
    if key is not None and member is not None and member != key:
        raise InvalidError("The header and the body name different keys.", field="idempotency_key")
    return member if key is None else key


async def audit(
    call: Call, tenant: str, action: str, subject: str | None, data: Mapping[str, Any] | None = None
) -> None:
    await call.engine.access.audit(call.principal.actor, action, tenant=tenant, subject=subject, data=data)


# The steps


def _request(  # noqa: PLR0917 - what a request is made of
    call: Call,
    kind: str,
    input: Any,
    tenant: str,
    account: str,
    key: str | None,
    webhook: wire.JobWebhook | None,
    options: JobOptions,
) -> SubmitRequest:
    if (closed := refusal(call, kind)) is not None:
        raise closed
    made: SubmitRequest = {
        "kind": kind,
        "input": input,
        "tenant": tenant,
        "account": account,
        "idempotency_key": key,
        **options,
    }
    if key is None:
        made.pop("request", None)  # it is stored only together with a key
    if webhook is not None:
        made["hook"] = _hook(call, webhook)
    return made


def options_of(job: wire.Submit) -> JobOptions:
    """The options of a submitted job besides its kind and input."""
    return {"priority": job.priority, "run_at": job.run_at, "expires_in": job.expires_in, "tags": job.tags}


def _request_or_refusal(call: Call, tenant: str, job: wire.Submit) -> SubmitRequest | MillpondError:
    """The request for one of many jobs, or its error, before any job is submitted."""
    try:
        account = principals.one_account(call, job.account)
        return _request(call, job.kind, job.input, tenant, account, job.idempotency_key, job.webhook, options_of(job))
    except MillpondError as error:
        return error


async def _submit(
    call: Call, request: SubmitRequest, build: Callable[[], Awaitable[Any]] | None, *, compare_key_only: bool
) -> Submitted:
    """The new job, or the one that was created with the key before.

    Looking the key up first only saves the work of ``build``; the engine resolves concurrent requests.
    """
    try:
        if build is not None:
            if (known := await _known(call, request)) is not None:
                return known
            request["input"] = await build()
        return await call.engine.submit(**request)
    except IdempotencyConflictError as conflict:
        if not compare_key_only:
            raise
        return await _same_key(call, request, conflict)


async def _known(call: Call, request: SubmitRequest) -> Submitted | None:
    key = request.get("idempotency_key")
    if key is None:
        return None
    return await call.engine.replay(
        request["kind"],
        request.get("input"),
        tenant=request["tenant"],
        account=request["account"],
        idempotency_key=key,
        scope=request.get("scope"),
        request=request.get("request"),
    )


async def _same_key(call: Call, request: SubmitRequest, conflict: IdempotencyConflictError) -> Submitted:
    """The product's job that a different request with this key has created, in its current state."""
    view = await call.engine.views.job(request["tenant"], request["account"], conflict.details["job_id"])
    if view.lifecycle != call.engine.app.kinds[request["kind"]].lifecycle.name:
        raise conflict
    return Submitted(
        view.job_id, view.kind, view.state, view.price, None, view.created_at, view.expires_at, is_replay=True
    )


def _count(call: Call, submitted: Submitted) -> bool:
    """Count a new job in the metrics, and return whether it is new."""
    if not submitted.is_replay:
        call.state.metrics.submitted[submitted.kind] += 1
    return not submitted.is_replay


def is_by_hand(call: Call) -> bool:
    """Whether the request comes from the dashboard: the submits of a backend are not audited."""
    return call.state.admit is not None


def _hook(call: Call, given: wire.JobWebhook) -> webhooks.Hook:
    """The job's own webhook; its secret is generated if none is given."""
    secret = webhooks.new_secret() if given.secret is None else given.secret
    webhooks.check_secret(secret, field="webhook.secret")
    chosen = None
    if given.events is not None:
        chosen = endpoints.lifecycle_events(given.events, JOB_EVENTS, field="webhook.events")
    learn(call, secret)
    return webhooks.Hook(url=given.url, secret=secret, events=chosen, is_secret_chosen=given.secret is not None)


async def _with_secret(call: Call, request: SubmitRequest, submitted: Submitted) -> Submitted:
    """The job with the secret of its webhook if that was generated; a replay has the secret of the first response."""
    hook = request.get("hook")
    if hook is None or hook.is_secret_chosen:
        return submitted
    secret = hook.secret
    if submitted.is_replay:
        secret = await call.engine.hook_secret(request["tenant"], submitted.job_id)
        learn(call, secret)
    return msgspec.structs.replace(submitted, webhook_secret=secret)


def learn(call: Call, secret: str) -> None:
    """Add the secret to the development inbox, which verifies signatures with it."""
    if call.state.inbox is not None:
        call.state.inbox.learn(secret)


async def _answer(call: Call, submitted: Submitted, shape: Shape, location: Location, status: int) -> Reply:
    """The response for a new job or a replay; only their ``Idempotency-Replayed`` header differs."""
    body = shape(submitted)
    if inspect.isawaitable(body):
        body = await body
    path = location.replace("{id}", submitted.id) if isinstance(location, str) else location(submitted)
    place = (b"location", f"{call.root}{path}".encode("latin-1"))
    return reply(body, status, place, _SOON, *((REPLAYED,) if submitted.is_replay else ()))
