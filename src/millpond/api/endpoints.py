"""Endpoints over HTTP: the URLs that are told of a tenant's jobs. What operators do with them is audited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from millpond import ids, values, webhooks, wire
from millpond.api import deliveries, principals
from millpond.api.calls import Reply, copied, cursor, reply
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.engine.endpoints import EndpointRecord

_OF_A_JOB: Final = "job."


async def make(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    body: wire.MakeEndpoint = call.body
    made, secret = await call.engine.endpoints.make(
        tenant,
        url=body.url,
        moments=webhooks.ENDS if body.events is None else moments(body.events, wire.ENDPOINT_EVENTS, field="events"),
        kinds=tuple(body.kinds),
        description=body.description,
        secret=body.secret,
        limit=body.limit,
    )
    await _audit(call, made, "endpoint.made", {"url": _audited(made)})
    return _told_new(call, made, secret)


async def list_endpoints(call: Call) -> Reply:
    """Those of a tenant; to an operator of all who names none, those of every tenant."""
    tenant, limit = principals.tenant(call, call.query.tenant), call.query.limit
    after, endpoints = cursor("ep", call.query.cursor), call.engine.endpoints
    if tenant is None:
        found = await endpoints.list_all(after=after, limit=limit)
    else:
        found = await endpoints.list(tenant, after=after, limit=limit)
    data = [told(call, endpoint) for endpoint in found]
    return reply(wire.Endpoints(data=data, next_cursor=data[-1].id if len(data) == limit else None))


async def read(call: Call) -> Reply:
    return reply(told(call, await call.engine.endpoints.read(*await _which(call))))


async def change(call: Call) -> Reply:
    body: wire.ChangeEndpoint = call.body
    given = {name: getattr(body, name) for name in ("url", "kinds", "description", "limit")}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
    if body.kinds is not UNSET:
        changes["kinds"] = tuple(body.kinds)
    if body.events is not UNSET:
        changes["moments"] = moments(body.events, wire.ENDPOINT_EVENTS, field="events")
    try:
        changed = await call.engine.endpoints.change(*await _which(call), **changes)
    except InvalidError as error:
        error.field = "events" if error.field == "moments" else error.field
        raise
    await _audit(call, changed, "endpoint.changed", {"changed": sorted(changes), "url": _audited(changed)})
    return reply(told(call, changed))


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
    return _told_new(call, rotated, secret)


async def disable(call: Call) -> Reply:
    disabled = await call.engine.endpoints.disable(*await _which(call), call.body.reason)
    await _audit(call, disabled, "endpoint.disabled", {"reason": call.body.reason})
    return reply(told(call, disabled))


async def enable(call: Call) -> Reply:
    enabled = await call.engine.endpoints.enable(*await _which(call))
    await _audit(call, enabled, "endpoint.enabled")
    return reply(told(call, enabled))


async def trigger(call: Call) -> Reply:
    """Tell an endpoint of something that has not happened."""
    (moment,) = moments([call.body.event], wire.ENDPOINT_EVENTS[:-1], field="event")
    which = await _which(call)
    made = await call.engine.endpoints.test(*which, moment)
    await _audit(call, await call.engine.endpoints.read(*which), "endpoint.tested", {"event": call.body.event})
    return reply(deliveries.told(made), 202)


async def resend(call: Call) -> Reply:
    """Send everything since a time once more, or what of it failed."""
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
    parcels = await call.engine.deliveries.pull(*await _which(call), call.body.most)
    data = [wire.Parcel(id=parcel.id, headers=parcel.headers, body=parcel.body.decode()) for parcel in parcels]
    return reply(wire.Parcels(data=data))


def moments(names: Iterable[str], known: tuple[str, ...], *, field: str) -> tuple[str, ...]:
    """The moments that events of these names tell of."""
    for name in names:
        if name not in known:
            raise InvalidError(f"There is no event {name[:60]!r}.", field=field, hint=f"Events: {', '.join(known)}.")
    return tuple(dict.fromkeys(name.removeprefix(_OF_A_JOB) for name in names))


def told(call: Call, endpoint: EndpointRecord, shape: Any = wire.EndpointInfo, **more: Any) -> Any:
    events = [deliveries.event(moment) for moment in endpoint.moments]
    return copied(shape, endpoint, url=deliveries.shown(call, endpoint.url), events=events, **more)


def _told_new(call: Call, endpoint: EndpointRecord, secret: str) -> Reply:
    """The secret goes out this once; the inbox of development knows it from here."""
    if call.desk.inbox is not None:
        call.desk.inbox.learn(secret)
    return reply(told(call, endpoint, wire.NewEndpoint, secret=secret), 201)


async def _which(call: Call) -> tuple[str, UUID]:
    """The endpoint that the path names, and whose it must be; who may act for all and names none, whose it is."""
    endpoint_id = ids.parse("ep", call.params["id"])
    tenant = principals.tenant(call, call.query.tenant)
    return tenant or await call.engine.endpoints.owner(endpoint_id), endpoint_id


def _audited(endpoint: EndpointRecord) -> str | None:
    """Its URL as the audit keeps it, for good and for every operator: without what may be a secret."""
    return None if endpoint.url is None else webhooks.shown_url(endpoint.url)


async def _audit(call: Call, endpoint: EndpointRecord, action: str, data: Any = None) -> None:
    await call.engine.access.audit(call.principal.actor, action, tenant=endpoint.tenant, subject=endpoint.id, data=data)
