"""Webhook endpoints over HTTP: URLs that receive events of a tenant's jobs. Operator changes are audited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from millpond import errors, ids, values, webhooks, wire
from millpond.api import parameters, principals
from millpond.api.calls import Reply, copied, cursor, reply
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS
from millpond.api.webhooks import deliveries
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.engine.webhooks.endpoints import EndpointRecord

_OF_A_JOB: Final = "job."


async def make(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    body: wire.MakeEndpoint = call.body
    made, secret = await call.engine.endpoints.make(
        tenant,
        url=body.url,
        events=webhooks.ENDS
        if body.events is None
        else lifecycle_events(body.events, wire.ENDPOINT_EVENTS, field="events"),
        kinds=tuple(body.kinds),
        description=body.description,
        secret=body.secret,
        limit=body.limit,
    )
    await _audit(call, made, "endpoint.made", {"url": _audited(made)})
    return _new_to_wire(call, made, secret)


async def list_endpoints(call: Call) -> Reply:
    """The endpoints of a tenant; for an operator key without tenant, those of all tenants."""
    tenant, limit = principals.tenant(call, call.query.tenant), call.query.limit
    after, endpoints = cursor("ep", call.query.cursor), call.engine.endpoints
    if tenant is None:
        found = await endpoints.list_all(after=after, limit=limit)
    else:
        found = await endpoints.list(tenant, after=after, limit=limit)
    data = [to_wire(call, endpoint) for endpoint in found]
    return reply(wire.Endpoints(data=data, next_cursor=data[-1].id if len(data) == limit else None))


async def read(call: Call) -> Reply:
    return reply(to_wire(call, await call.engine.endpoints.read(*await _which(call))))


async def change(call: Call) -> Reply:
    body: wire.ChangeEndpoint = call.body
    given = {name: getattr(body, name) for name in ("url", "kinds", "description", "limit")}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
    if body.kinds is not UNSET:
        changes["kinds"] = tuple(body.kinds)
    if body.events is not UNSET:
        changes["events"] = lifecycle_events(body.events, wire.ENDPOINT_EVENTS, field="events")
    try:
        changed = await call.engine.endpoints.change(*await _which(call), **changes)
    except InvalidError as error:
        error.field = "events" if error.field == "events" else error.field
        raise
    await _audit(call, changed, "endpoint.changed", {"changed": sorted(changes), "url": _audited(changed)})
    return reply(to_wire(call, changed))


async def delete(call: Call) -> Reply:
    tenant, endpoint_id = await _which(call)
    await call.engine.endpoints.delete(tenant, endpoint_id)
    subject = ids.text("ep", endpoint_id)
    await call.engine.access.audit(call.principal.actor, "endpoint.deleted", tenant=tenant, subject=subject)
    return Reply(204)


async def rotate(call: Call) -> Reply:
    which = await _which(call)
    secret = await call.engine.endpoints.rotate(*which, overlap=values.duration(call.body.overlap, field="overlap"))
    rotated = await call.engine.endpoints.read(*which)
    await _audit(call, rotated, "endpoint.rotated")
    return _new_to_wire(call, rotated, secret)


async def disable(call: Call) -> Reply:
    disabled = await call.engine.endpoints.disable(*await _which(call), call.body.reason)
    await _audit(call, disabled, "endpoint.disabled", {"reason": call.body.reason})
    return reply(to_wire(call, disabled))


async def enable(call: Call) -> Reply:
    enabled = await call.engine.endpoints.enable(*await _which(call))
    await _audit(call, enabled, "endpoint.enabled")
    return reply(to_wire(call, enabled))


async def trigger(call: Call) -> Reply:
    """Send a test event to an endpoint."""
    (lifecycle_event,) = lifecycle_events([call.body.event], wire.ENDPOINT_EVENTS[:-1], field="event")
    which = await _which(call)
    made = await call.engine.endpoints.test(*which, lifecycle_event)
    await _audit(call, await call.engine.endpoints.read(*which), "endpoint.tested", {"event": call.body.event})
    return reply(deliveries.to_wire(made), 202)


async def resend(call: Call) -> Reply:
    """Resend the failed deliveries since a time, or all of them."""
    which, body = await _which(call), call.body
    count = await call.engine.deliveries.resend_since(*which, body.since, only_failed=body.only_failed)
    endpoint = await call.engine.endpoints.read(*which)
    await _audit(call, endpoint, "endpoint.resent", {"since": body.since.isoformat(), "count": count})
    return reply(wire.Resent(count=count), 202)


async def stats(call: Call) -> Reply:
    since = datetime.now(UTC) - values.duration(call.query.since, field="since")
    tenant, endpoint_id = await _which(call)
    found = await call.engine.endpoints.stats(tenant, endpoint_id, since)
    return reply(copied(wire.EndpointStats, found, endpoint_id=ids.text("ep", endpoint_id), since=since))


async def pull(call: Call) -> Reply:
    requests = await call.engine.deliveries.pull(*await _which(call), call.body.limit)
    data = [
        wire.SignedRequest(id=request.id, headers=request.headers, body=request.body.decode()) for request in requests
    ]
    return reply(wire.SignedRequests(data=data))


def lifecycle_events(names: Iterable[str], known: tuple[str, ...], *, field: str) -> tuple[str, ...]:
    """The lifecycle events with these public names."""
    for name in names:
        if name not in known:
            raise InvalidError(f"There is no event {name[:60]!r}.", field=field, hint=f"Events: {', '.join(known)}.")
    return tuple(dict.fromkeys(name.removeprefix(_OF_A_JOB) for name in names))


def to_wire(call: Call, endpoint: EndpointRecord, shape: Any = wire.EndpointInfo, **more: Any) -> Any:
    events = [deliveries.event(lifecycle_event) for lifecycle_event in endpoint.events]
    return copied(shape, endpoint, url=deliveries.shown(call, endpoint.url), events=events, **more)


def _new_to_wire(call: Call, endpoint: EndpointRecord, secret: str) -> Reply:
    """The secret is returned only here; the development inbox learns it too."""
    if call.state.inbox is not None:
        call.state.inbox.learn(secret)
    return reply(to_wire(call, endpoint, wire.NewEndpoint, secret=secret), 201)


async def _which(call: Call) -> tuple[str, UUID]:
    """The endpoint named in the path, and its tenant."""
    endpoint_id = ids.parse("ep", call.params["id"])
    tenant = principals.tenant(call, call.query.tenant)
    return tenant or await call.engine.endpoints.owner(endpoint_id), endpoint_id


def _audited(endpoint: EndpointRecord) -> str | None:
    """The URL as stored in the audit log, which every operator can read: without parts that may be secret."""
    return None if endpoint.url is None else webhooks.shown_url(endpoint.url)


async def _audit(call: Call, endpoint: EndpointRecord, action: str, data: Any = None) -> None:
    await call.engine.access.audit(call.principal.actor, action, tenant=endpoint.tenant, subject=endpoint.id, data=data)


_WEBHOOK: Final = (errors.OutboundRefusedError, errors.VaultError)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/endpoints",
        handle=make,
        summary="Create a webhook endpoint for events of the tenant's jobs.",
        description="Requests are signed according to Standard Webhooks with the secret in the response, which "
        "is shown only once. An endpoint without a URL receives no requests; its deliveries are "
        "pulled.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.MakeEndpoint,
        answers={201: wire.NewEndpoint},
        errors=(errors.ConflictError, *_WEBHOOK),
    ),
    Route(
        method="GET",
        path="/v1/endpoints",
        handle=list_endpoints,
        summary="List webhook endpoints, oldest first, without their secrets.",
        description="Lists the endpoints of a tenant, or of all tenants for a key without tenant.",
        who=READERS,
        query=parameters.ListEndpoints,
        answers={200: wire.Endpoints},
    ),
    Route(
        method="GET",
        path="/v1/endpoints/{id}",
        handle=read,
        summary="Get a webhook endpoint.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.EndpointInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="PATCH",
        path="/v1/endpoints/{id}",
        handle=change,
        summary="Update a webhook endpoint; omitted fields are not changed.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ChangeEndpoint,
        answers={200: wire.EndpointInfo},
        errors=(errors.NotFoundError, errors.ConflictError, *_WEBHOOK),
    ),
    Route(
        method="DELETE",
        path="/v1/endpoints/{id}",
        handle=delete,
        summary="Delete a webhook endpoint; its pending deliveries are not sent.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={204: None},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/rotate",
        handle=rotate,
        summary="Rotate the secret of a webhook endpoint. The new secret is shown only once.",
        description="During the overlap, requests are signed with both secrets.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.RotateEndpoint,
        answers={201: wire.NewEndpoint},
        errors=(errors.NotFoundError, errors.VaultError),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/disable",
        handle=disable,
        summary="Disable a webhook endpoint; nothing is sent until it is enabled.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.DisableEndpoint,
        answers={200: wire.EndpointInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/enable",
        handle=enable,
        summary="Enable a disabled webhook endpoint.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={200: wire.EndpointInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/test",
        handle=trigger,
        summary="Send a test event of a fictitious job to a webhook endpoint.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.TriggerEvent,
        answers={202: wire.Delivery},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/resend",
        handle=resend,
        summary="Resend the failed deliveries of a webhook endpoint since a time, or all of them.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ResendSince,
        answers={202: wire.Resent},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/endpoints/{id}/stats",
        handle=stats,
        summary="Get the delivery statistics of a webhook endpoint.",
        who=READERS,
        query=parameters.EndpointSince,
        answers={200: wire.EndpointStats},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/pull",
        handle=pull,
        summary="Pull the pending deliveries of an endpoint without a URL.",
        description="Send each request as given, and report its result; deliveries without a reported result "
        "are returned again. A response ends at 4 MiB: pull again for the rest. An endpoint that is not pulled for an "
        "hour is removed.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.PullDeliveries,
        answers={200: wire.SignedRequests},
        errors=(errors.NotFoundError, errors.ConflictError, errors.VaultError),
    ),
)
