"""Webhook endpoints: URLs that receive the ends of an account's jobs. The endpoints are those of the engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import msgspec

from millpond import ids, values, webhooks
from millpond.errors import NotFoundError
from millpond.product import Reply, principals, reply
from millpond_products.partner import envelopes, wire
from millpond_products.partner.kinds import EVENTS, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millpond.product import Call, EndpointRecord

_NO_JOB: Final = UUID(int=0)
_STATES: Final = {"job.completed": "completed", "job.failed": "failed", "job.canceled": "canceled"}


async def make(call: Call) -> Reply:
    tenant, account = principals.owner(call)
    body: wire.MakeEndpoint = call.body
    made, secret = await call.engine.endpoints.make(
        tenant,
        url=body.url,
        events=_lifecycle_events(body.events or _STATES),
        kinds=tuple(kind.name for kind in KINDS.values()),
        description=body.description,
        secret=body.secret,
        account=account,
        is_native=False,
    )
    await _audit(call, made, "made", url=webhooks.shown_url(body.url))
    return _new_to_wire(call, made, secret)


async def list_endpoints(call: Call) -> Reply:
    tenant, account = principals.owner(call)
    found = await call.engine.endpoints.list(tenant, account=account)
    return reply(wire.Endpoints(data=[_to_wire(endpoint) for endpoint in found if _is_own(endpoint, account)]))


async def read(call: Call) -> Reply:
    return reply(_to_wire(await _own(call)))


async def rotate(call: Call) -> Reply:
    found = await _own(call)
    overlap = values.duration(call.body.overlap, field="overlap")
    secret = await call.engine.endpoints.rotate(found.tenant, found.endpoint_id, overlap=overlap)
    await _audit(call, found, "rotated")
    return _new_to_wire(call, await _own(call), secret)


async def disable(call: Call) -> Reply:
    found = await _own(call)
    disabled = await call.engine.endpoints.disable(found.tenant, found.endpoint_id, "Disabled by you.")
    await _audit(call, found, "disabled")
    return reply(_to_wire(disabled))


async def enable(call: Call) -> Reply:
    found = await _own(call)
    enabled = await call.engine.endpoints.enable(found.tenant, found.endpoint_id)
    await _audit(call, found, "enabled")
    return reply(_to_wire(enabled))


async def delete(call: Call) -> Reply:
    found = await _own(call)
    await call.engine.endpoints.delete(found.tenant, found.endpoint_id)
    await _audit(call, found, "deleted")
    return Reply(204)


async def test(call: Call) -> Reply:
    """Send an event of a fictitious job, in exactly the form of a real one."""
    found, event = await _own(call), call.body.event
    (lifecycle_event, *_) = _lifecycle_events([event])
    made = await call.engine.endpoints.test(found.tenant, found.endpoint_id, lifecycle_event, body=example(event))
    await _audit(call, found, "tested", event=event)
    return reply(wire.Tested(delivery_id=made.id, event=event), 202)


def example(event: str) -> dict[str, Any]:
    """The body for a fictitious job that has ended so."""
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


def _lifecycle_events(events: Iterable[str]) -> tuple[str, ...]:
    """The lifecycle events of these events: a job that is blocked or expires has failed."""
    return tuple(
        lifecycle_event for event in dict.fromkeys(events) for lifecycle_event, name in EVENTS.items() if name == event
    )


def _events(lifecycle_events: Iterable[str]) -> Iterator[str]:
    """The contract's names of lifecycle events; those that have none are omitted."""
    return (EVENTS[lifecycle_event] for lifecycle_event in lifecycle_events if lifecycle_event in EVENTS)


async def _own(call: Call) -> EndpointRecord:
    """The endpoint that the path names, if it is the caller's. Those of operators do not exist for clients."""
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


def _to_wire(endpoint: EndpointRecord, shape: Any = wire.Endpoint, **more: Any) -> Any:
    return shape(
        endpoint_id=endpoint.id,
        url=endpoint.url,
        events=cast("list[wire.EventName]", list(dict.fromkeys(_events(endpoint.events)))),
        description=endpoint.description,
        status="enabled" if endpoint.disabled_at is None else "disabled",
        disabled_reason=endpoint.disabled_reason,
        created_at=envelopes.timestamp(endpoint.created_at),
        rotated_until=None if endpoint.rotated_until is None else envelopes.timestamp(endpoint.rotated_until),
        **more,
    )


def _new_to_wire(call: Call, endpoint: EndpointRecord, secret: str) -> Reply:
    """The answer with the secret, which is shown only once. The inbox of development learns it here."""
    if call.state.inbox is not None:
        call.state.inbox.learn(secret)
    return reply(_to_wire(endpoint, wire.NewEndpoint, secret=secret), 201)


async def _audit(call: Call, endpoint: EndpointRecord, what: str, **data: Any) -> None:
    await call.engine.access.audit(
        call.principal.actor, f"endpoint.{what}", tenant=endpoint.tenant, subject=endpoint.id, data=data or None
    )
