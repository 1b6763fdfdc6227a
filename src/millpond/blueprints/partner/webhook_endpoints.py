"""Webhook endpoints: URLs that are told how the jobs of an account end. The endpoint is the engine's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import msgspec

from millpond import ids, values, webhooks
from millpond.api import principals
from millpond.api.calls import Reply, reply
from millpond.blueprints.partner import envelopes, wire
from millpond.blueprints.partner.kinds import EVENTS, KINDS
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millpond.api.calls import Call
    from millpond.engine.endpoints import EndpointRecord

_NO_JOB: Final = UUID(int=0)
_STATES: Final = {"job.completed": "completed", "job.failed": "failed", "job.canceled": "canceled"}


async def make(call: Call) -> Reply:
    tenant, account = principals.owner(call)
    body: wire.MakeEndpoint = call.body
    made, secret = await call.engine.endpoints.make(
        tenant,
        url=body.url,
        moments=_moments(body.events or _STATES),
        kinds=tuple(kind.name for kind in KINDS.values()),
        description=body.description,
        secret=body.secret,
        account=account,
        is_native=False,
    )
    await _audit(call, made, "made", url=webhooks.shown_url(body.url))
    return _told_new(call, made, secret)


async def list_endpoints(call: Call) -> Reply:
    tenant, account = principals.owner(call)
    found = await call.engine.endpoints.list(tenant, account=account)
    return reply(wire.Endpoints(data=[_told(endpoint) for endpoint in found if _is_own(endpoint, account)]))


async def read(call: Call) -> Reply:
    return reply(_told(await _own(call)))


async def rotate(call: Call) -> Reply:
    found = await _own(call)
    overlap = values.duration(call.body.overlap, field="overlap")
    secret = await call.engine.endpoints.rotate(found.tenant, found.endpoint_id, overlap=overlap)
    await _audit(call, found, "rotated")
    return _told_new(call, await _own(call), secret)


async def disable(call: Call) -> Reply:
    found = await _own(call)
    disabled = await call.engine.endpoints.disable(found.tenant, found.endpoint_id, "You disabled it.")
    await _audit(call, found, "disabled")
    return reply(_told(disabled))


async def enable(call: Call) -> Reply:
    found = await _own(call)
    enabled = await call.engine.endpoints.enable(found.tenant, found.endpoint_id)
    await _audit(call, found, "enabled")
    return reply(_told(enabled))


async def delete(call: Call) -> Reply:
    found = await _own(call)
    await call.engine.endpoints.delete(found.tenant, found.endpoint_id)
    await _audit(call, found, "deleted")
    return Reply(204)


async def test(call: Call) -> Reply:
    """Tell it of a job that does not exist: in the very form of one that does."""
    found, event = await _own(call), call.body.event
    (moment, *_) = _moments([event])
    made = await call.engine.endpoints.test(found.tenant, found.endpoint_id, moment, body=example(event))
    await _audit(call, found, "tested", event=event)
    return reply(wire.Tested(delivery_id=made.id, event=event), 202)


def example(event: str) -> dict[str, Any]:
    """What is told of a job that has ended so; this one is made up."""
    ended = datetime.now(UTC)
    job: dict[str, Any] = {
        "kind": KINDS["content_generate"].name,
        "state": _STATES[event],
        "created_at": ended - timedelta(minutes=3),
        "finished_at": ended,
        "expires_at": ended + timedelta(minutes=17),
        "input": {"base": "", "project_id": str(_NO_JOB), "container_id": str(_NO_JOB)},
        "output": {"isTest": True, "assets": []},
        "error": {"code": "permanent", "message": "This is a test."},
    }
    return msgspec.to_builtins(envelopes.ended(_NO_JOB, job))


def _moments(events: Iterable[str]) -> tuple[str, ...]:
    """The moments that these events tell of: a job that is blocked, or expires, has failed."""
    return tuple(moment for event in dict.fromkeys(events) for moment, name in EVENTS.items() if name == event)


def _events(moments: Iterable[str]) -> Iterator[str]:
    """What moments are called here; of what has no name here nothing is told."""
    return (EVENTS[moment] for moment in moments if moment in EVENTS)


async def _own(call: Call) -> EndpointRecord:
    """The endpoint that the path names, if it is the caller's. Those of operators are theirs alone."""
    tenant, account = principals.owner(call)
    given = call.params["endpointId"]
    try:
        found = await call.engine.endpoints.read(tenant, ids.parse("ep", given))
    except NotFoundError:
        found = None
    if found is None or not _is_own(found, account):
        raise NotFoundError(f"There is no webhook endpoint {given[:60]!r}.", field="endpointId")
    return found


def _is_own(endpoint: EndpointRecord, account: str) -> bool:
    return endpoint.account == account and not endpoint.is_native


def _told(endpoint: EndpointRecord, shape: Any = wire.Endpoint, **more: Any) -> Any:
    return shape(
        endpoint_id=endpoint.id,
        url=endpoint.url,
        events=cast("list[wire.EventName]", list(dict.fromkeys(_events(endpoint.moments)))),
        description=endpoint.description,
        status="enabled" if endpoint.disabled_at is None else "disabled",
        disabled_reason=endpoint.disabled_reason,
        created_at=envelopes.moment(endpoint.created_at),
        rotated_until=None if endpoint.rotated_until is None else envelopes.moment(endpoint.rotated_until),
        **more,
    )


def _told_new(call: Call, endpoint: EndpointRecord, secret: str) -> Reply:
    """The secret goes out this once; the inbox of development knows it from here."""
    if call.desk.inbox is not None:
        call.desk.inbox.learn(secret)
    return reply(_told(endpoint, wire.NewEndpoint, secret=secret), 201)


async def _audit(call: Call, endpoint: EndpointRecord, what: str, **data: Any) -> None:
    await call.engine.access.audit(
        call.principal.actor, f"endpoint.{what}", tenant=endpoint.tenant, subject=endpoint.id, data=data or None
    )
