"""Messages and their responses: the jobs of the contract. Each is an engine job."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import InputError, NotFoundError, OutboundRefusedError
from millpond.product import Reply, accept, principals, reply
from millpond.wire import JobWebhook
from millpond_products.guard import wire
from millpond_products.guard.kinds import KIND, TEXT_MAX, Given, findings

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.product import Call, JobView, Submitted

METADATA_MAX: Final = 16 * 1024
ACCOUNT: Final = "guard"
"""The account of jobs that are submitted with a key without an account."""


async def make(call: Call) -> Reply:
    """Submit a message. Its secret is only in this response, and in its replays for the same idempotency key."""
    body: wire.MakeJob = call.body
    try:
        return await accept(
            call,
            KIND.name,
            msgspec.to_builtins(_given(body)),
            shape=_made,
            location="/v1/jobs/{id}",
            owner=_owner(call),
            webhook=JobWebhook(url=body.webhook_url),
            request=None if call.header(b"idempotency-key") is None else _digest(body),
            expires_in=_lifetime(body.expires_in_seconds),
        )
    except OutboundRefusedError as refusal:  # the engine does not know the name of the field
        raise OutboundRefusedError(refusal.message, field="webhook_url", hint=refusal.hint) from None


def _made(submitted: Submitted) -> wire.MadeJob:
    return wire.MadeJob(
        job_id=submitted.id,
        status=cast("wire.Status", submitted.state),
        created_at=submitted.created_at,
        expires_at=cast("datetime", submitted.expires_at),
        webhook_secret=submitted.webhook_secret or "",
    )


async def read(call: Call) -> Reply:
    view = await _find(call)
    memo = await call.engine.memo(view.tenant, view.job_id)
    job = {name: _decoded(getattr(view, name)) for name in ("input", "output", "error")}
    job["memo"] = _decoded(memo)
    metadata = job["input"].get("metadata")
    found = {way: msgspec.convert(one, wire.Filtered) for way, one in findings(job).items()}
    job_status = wire.Job(
        **_head(view),
        status=cast("wire.Status", view.state),
        inbound=found.get("inbound", msgspec.UNSET),
        outbound=found.get("outbound", msgspec.UNSET),
        metadata=msgspec.UNSET if metadata is None else metadata,
    )
    return reply(job_status)


async def respond(call: Call) -> Reply:
    """Submit the response to a waiting message. The same response again gets the same answer."""
    view = await _find(call)
    text = check_text(call.body.message_output, "message_output")
    await call.engine.answer(view.tenant, view.job_id, {"message_output": text}, size_max=KIND.size_max)
    return reply(wire.Responded(**_head(view), status="processing_outbound"), 202)


# Validation


def _given(body: wire.MakeJob) -> Given:
    if body.message_input is not None and body.message is not None:
        raise InputError("message is the legacy name of message_input; send only one of them.", field="message")
    name, text = ("message", body.message) if body.message_input is None else ("message_input", body.message_input)
    if text is None:
        raise InputError("The field is required.", field="message_input")
    return Given(
        message_input=check_text(text, name),
        message_output=None if body.message_output is None else check_text(body.message_output, "message_output"),
        metadata=_metadata(body.metadata),
    )


def check_text(given: str, field: str) -> str:
    if not given:
        raise InputError("The message is empty.", field=field)
    size = len(given.encode("utf-8", "surrogatepass"))
    if size > TEXT_MAX:
        raise InputError(f"The message has {size:,} bytes of UTF-8; the limit is {TEXT_MAX:,}.", field=field)
    values.check(given, field=field)
    return given


def _metadata(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is not None:
        values.encode(given, field="metadata", limit=METADATA_MAX)
    return given


def _lifetime(seconds: int | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 1 <= seconds <= wire.SECONDS_MAX:
        raise InputError(f"The value must be from 1 to {wire.SECONDS_MAX:,} seconds.", field="expires_in_seconds")
    return timedelta(seconds=seconds)


def _digest(body: wire.MakeJob) -> dict[str, str]:
    """What identifies a repeated request: a digest of the whole body, because the body may be long."""
    return {"sha256": hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()}


# Ownership


def _owner(call: Call) -> tuple[str, str]:
    return principals.one_tenant(call, call.query.tenant), call.principal.account or ACCOUNT


async def _find(call: Call) -> JobView:
    """The job that the path names, if it is a guard job and belongs to the caller."""
    tenant = principals.tenant(call, call.query.tenant)
    view = await call.engine.views.job(tenant, call.principal.account, call.params["job_id"])
    if view.kind != KIND.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


def _head(view: JobView) -> dict[str, Any]:
    return {"job_id": view.id, "created_at": view.created_at, "expires_at": cast("datetime", view.expires_at)}


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
