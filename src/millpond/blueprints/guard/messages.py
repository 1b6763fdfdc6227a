"""Messages, and what a model says to them: the jobs of the contract. The job is the engine's; its words are here."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import ids, values, webhooks
from millpond.api import principals
from millpond.api.calls import REPLAYED, Reply, reply
from millpond.blueprints.guard import wire
from millpond.blueprints.guard.kinds import KIND, TEXT_MAX, Given, findings
from millpond.errors import InputError, NotFoundError, OutboundRefusedError
from millpond.store.queries import queries
from millpond.webhooks import Hook

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.api.calls import Call
    from millpond.engine.jobs import Submitted
    from millpond.engine.views import JobView

SQL: Final = queries("millpond.blueprints.guard", "messages")

METADATA_MAX: Final = 16 * 1024
ACCOUNT: Final = "guard"
"""Whose the jobs are that come with a key that is for no account."""


async def make(call: Call) -> Reply:
    """Take a message in. Its secret is told in this answer; with the same key, in the same answer again."""
    tenant, account = _owner(call)
    body: wire.MakeJob = call.body
    given = _given(body)
    lifetime = _lifetime(body.expires_in_seconds)
    key = call.header(b"idempotency-key")
    hook = Hook(url=body.webhook_url, secret=webhooks.new_secret())
    try:
        submitted = await call.engine.submit(
            KIND.name,
            msgspec.to_builtins(given),
            tenant=tenant,
            account=account,
            idempotency_key=key,
            request=None if key is None else _digest(body),
            expires_in=lifetime,
            hook=hook,
        )
    except OutboundRefusedError as refusal:  # of which the engine knows no better name
        raise OutboundRefusedError(refusal.message, field="webhook_url", hint=refusal.hint) from None
    secret = hook.secret
    if submitted.is_replay:
        secret = await call.engine.hook_secret(tenant, submitted.job_id)
    else:
        call.desk.metrics.submitted[KIND.name] += 1
    if call.desk.inbox is not None:  # where development shows what is signed with it
        call.desk.inbox.learn(secret)
    return _made(call, submitted, secret)


def _made(call: Call, submitted: Submitted, secret: str) -> Reply:
    job_id = ids.text("job", submitted.job_id)
    told = wire.MadeJob(
        job_id=job_id,
        status=cast("wire.Status", submitted.state),
        created_at=submitted.created_at,
        expires_at=cast("datetime", submitted.expires_at),
        webhook_secret=secret,
    )
    headers = [(b"location", f"{call.root}/v1/jobs/{job_id}".encode("latin-1"))]
    return reply(told, 202, *headers, *((REPLAYED,) if submitted.is_replay else ()))


async def read(call: Call) -> Reply:
    view = await _find(call)
    text = await call.engine.home(view.tenant).run(SQL["memo"], view.job_id, view.tenant)
    job = {name: _decoded(getattr(view, name)) for name in ("input", "output", "error")}
    job["memo"] = None if text is None else _decoded(text["memo"])
    metadata = job["input"].get("metadata")
    found = {way: msgspec.convert(one, wire.Filtered) for way, one in findings(job).items()}
    told = wire.Job(
        **_head(view),
        status=cast("wire.Status", view.state),
        inbound=found.get("inbound", msgspec.UNSET),
        outbound=found.get("outbound", msgspec.UNSET),
        metadata=msgspec.UNSET if metadata is None else metadata,
    )
    return reply(told)


async def respond(call: Call) -> Reply:
    """Give a message that waits for it what the model said; the same again is answered with the same."""
    view = await _find(call)
    text = check_text(call.body.message_output, "message_output")
    await call.engine.answer(view.tenant, view.job_id, {"message_output": text}, size_max=KIND.size_max)
    return reply(wire.Responded(**_head(view), status="processing_outbound"), 202)


# What came in


def _given(body: wire.MakeJob) -> Given:
    if body.message_input is not None and body.message is not None:
        raise InputError("It is the old name of message_input: give one of the two.", field="message")
    name, text = ("message", body.message) if body.message_input is None else ("message_input", body.message_input)
    if text is None:
        raise InputError("It is required.", field="message_input")
    return Given(
        message_input=check_text(text, name),
        message_output=None if body.message_output is None else check_text(body.message_output, "message_output"),
        metadata=_metadata(body.metadata),
    )


def check_text(given: str, field: str) -> str:
    if not given:
        raise InputError("It is empty.", field=field)
    size = len(given.encode("utf-8", "surrogatepass"))
    if size > TEXT_MAX:
        raise InputError(f"It has {size:,} bytes of UTF-8; the limit is {TEXT_MAX:,}.", field=field)
    values.check(given, field=field)
    return given


def _metadata(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is not None:
        values.encode(given, field="metadata", most=METADATA_MAX)
    return given


def _lifetime(seconds: int | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 1 <= seconds <= wire.SECONDS_MAX:
        raise InputError(f"It must be from 1 to {wire.SECONDS_MAX:,} seconds.", field="expires_in_seconds")
    return timedelta(seconds=seconds)


def _digest(body: wire.MakeJob) -> dict[str, str]:
    """What a request is known by when it comes again: all of it, and not as long."""
    return {"sha256": hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()}


# Whose


def _owner(call: Call) -> tuple[str, str]:
    return principals.one_tenant(call, call.query.tenant), call.principal.account or ACCOUNT


async def _find(call: Call) -> JobView:
    """The job that the path names, if it is ours and theirs."""
    tenant = principals.tenant(call, call.query.tenant)
    view = await call.engine.views.job(tenant, call.principal.account, call.params["job_id"])
    if view.kind != KIND.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


def _head(view: JobView) -> dict[str, Any]:
    return {"job_id": view.id, "created_at": view.created_at, "expires_at": cast("datetime", view.expires_at)}


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
