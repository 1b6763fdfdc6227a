"""Webhook deliveries over HTTP: list, read with all attempts, and resend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from millpond import errors, ids, logs, webhooks, wire
from millpond.api import parameters, principals
from millpond.api.calls import Reply, copied, cursor, job_text, reply
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS
from millpond.engine.webhooks.deliveries import TryResult, body_of

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.engine.webhooks.deliveries import DeliveryRecord

_OTHERS: Final = {"test": "endpoint.test"}
_URL: Final = re.compile(r"https?://[^\s\"\\]+", re.IGNORECASE)


async def list_deliveries(call: Call) -> Reply:
    """The deliveries of a tenant; for an operator key without tenant, those of all tenants."""
    query = call.query
    tenant = principals.tenant(call, query.tenant)
    filters: dict[str, Any] = {
        "endpoint": None if query.endpoint is None else ids.parse("ep", query.endpoint),
        "job_id": None if query.job is None else ids.parse("job", query.job),
        "state": query.state or None,
        "before": cursor("msg", query.cursor),
        "limit": query.limit,
    }
    if tenant is None:
        found, before = await call.engine.deliveries.list_all(**filters)
    else:
        found = await call.engine.deliveries.list(tenant, **filters)
        before = found[-1].delivery_id if len(found) == query.limit else None
    next_cursor = None if before is None else ids.text("msg", before)
    return reply(wire.Deliveries(data=[to_wire(delivery) for delivery in found], next_cursor=next_cursor))


async def read(call: Call) -> Reply:
    found = await call.engine.deliveries.read(*await _which(call))
    log = [copied(wire.DeliveryTry, each, url=shown(call, each.url)) for each in found.log]
    body = _body(call, found)
    if found.job_id is None:  # it is about an endpoint, and contains its URL
        body = shown(call, body)
    return reply(wire.DeliveryLog(**_fields(found), url=shown(call, found.url), body=body, log=log))


def shown(call: Call, text: str | None) -> str | None:
    """The text; for viewers, its URLs are without the parts that may be secret."""
    if text is None or call.principal.scope != "viewer":
        return text
    return _URL.sub(lambda found: webhooks.shown_url(found[0]), text)


def _body(call: Call, delivery: DeliveryRecord) -> str | None:
    """The request as the courier sends it, rendered again: only its data is stored."""
    try:
        return body_of(call.engine.app.kinds, delivery)[0].decode()
    except Exception as error:  # noqa: BLE001 - the body is made by code of the kind
        logs.emit("request.failed", request_id=call.request_id, path=call.scope["path"], error=repr(error))
        return None


async def resend(call: Call) -> Reply:
    tenant, delivery_id = await _which(call)
    resent = await call.engine.deliveries.resend(tenant, delivery_id)
    await call.engine.access.audit(call.principal.actor, "delivery.resent", tenant=tenant, subject=resent.id)
    return reply(to_wire(resent), 202)


async def report(call: Call) -> Reply:
    """The result of a pulled delivery."""
    body: wire.ReportDelivery = call.body
    result = TryResult(
        status=body.status,
        error=body.error,
        seconds=body.seconds,
        headers=body.headers,
        body=body.body.encode(),
    )
    await call.engine.deliveries.report(*await _which(call), result)
    return Reply(204)


def event(lifecycle_event: str) -> str:
    """The public name of a lifecycle event."""
    return (
        f"job.{lifecycle_event}"
        if lifecycle_event in webhooks.LIFECYCLE_EVENTS
        else _OTHERS.get(lifecycle_event, lifecycle_event)
    )


def to_wire(delivery: DeliveryRecord) -> wire.Delivery:
    return wire.Delivery(**_fields(delivery))


def _fields(delivery: DeliveryRecord) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "tenant": delivery.tenant,
        "endpoint_id": None if delivery.endpoint_id is None else ids.text("ep", delivery.endpoint_id),
        "job_id": job_text(delivery.job_id),
        "event": event(delivery.event),
        "state": cast("wire.DeliveryState", delivery.state),
        "tries": delivery.tries,
        "created_at": delivery.at,
        "due_at": delivery.due_at,
        "settled_at": delivery.settled_at,
        "batch_id": None if delivery.batch_id is None else ids.text("batch", delivery.batch_id),
    }


async def _which(call: Call) -> tuple[str, UUID]:
    """The delivery named in the path, and its tenant."""
    delivery_id = ids.parse("msg", call.params["id"])
    tenant = principals.tenant(call, call.query.tenant)
    return tenant or await call.engine.deliveries.owner(delivery_id), delivery_id


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/deliveries",
        handle=list_deliveries,
        summary="List deliveries, newest first.",
        description="Lists the deliveries of a tenant, or of all tenants for a key without tenant. A page can "
        "be short and still have a next page.",
        who=READERS,
        query=parameters.ListDeliveries,
        answers={200: wire.Deliveries},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/deliveries/{id}",
        handle=read,
        summary="Get a delivery with its attempts: request, response and duration.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.DeliveryLog},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/deliveries/{id}/resend",
        handle=resend,
        summary="Resend a delivery with the same id and body and a new signature.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={202: wire.Delivery},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/deliveries/{id}/report",
        handle=report,
        summary="Report the result of a pulled delivery.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ReportDelivery,
        answers={204: None},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
)
