"""Deliveries over HTTP: what was told to whom, what came of each try, and telling it once more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from millpond import ids, logs, webhooks, wire
from millpond.api import principals
from millpond.api.calls import Reply, copied, cursor, job_text, reply
from millpond.engine.deliveries import Result, body_of

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.engine.deliveries import DeliveryRecord

_OTHERS: Final = {"test": "endpoint.test"}
_URL: Final = re.compile(r"https?://[^\s\"\\]+", re.IGNORECASE)


async def list_deliveries(call: Call) -> Reply:
    """Those of a tenant; to an operator of all who names none, those of every tenant."""
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
    return reply(wire.Deliveries(data=[told(delivery) for delivery in found], next_cursor=next_cursor))


async def read(call: Call) -> Reply:
    found = await call.engine.deliveries.read(*await _which(call))
    log = [copied(wire.DeliveryTry, each, url=shown(call, each.url)) for each in found.log]
    body = _body(call, found)
    if found.job_id is None:  # it tells of an endpoint, and so of its URL
        body = shown(call, body)
    return reply(wire.DeliveryLog(**_fields(found), url=shown(call, found.url), body=body, log=log))


def shown(call: Call, text: str | None) -> str | None:
    """A URL, or what one stands in: who only looks sees it without what may be a secret."""
    if text is None or call.principal.scope != "viewer":
        return text
    return _URL.sub(lambda found: webhooks.shown_url(found[0]), text)


def _body(call: Call, delivery: DeliveryRecord) -> str | None:
    """What is sent, made anew as the courier makes it: nothing of it is kept but what it is made of."""
    try:
        return body_of(call.engine.app.kinds, delivery)[0].decode()
    except Exception as error:  # noqa: BLE001 - the words are those of whoever declared the kind
        logs.emit("request.failed", request_id=call.request_id, path=call.scope["path"], error=repr(error))
        return None


async def resend(call: Call) -> Reply:
    tenant, delivery_id = await _which(call)
    resent = await call.engine.deliveries.resend(tenant, delivery_id)
    await call.engine.access.audit(call.principal.actor, "delivery.resent", tenant=tenant, subject=resent.id)
    return reply(told(resent), 202)


async def report(call: Call) -> Reply:
    """What came of a delivery that was pulled."""
    body: wire.ReportDelivery = call.body
    result = Result(
        status=body.status,
        error=body.error,
        seconds=body.seconds,
        headers=body.headers,
        body=body.body.encode(),
    )
    await call.engine.deliveries.report(*await _which(call), result)
    return Reply(204)


def event(moment: str) -> str:
    """What a moment is called towards customers."""
    return f"job.{moment}" if moment in webhooks.MOMENTS else _OTHERS.get(moment, moment)


def told(delivery: DeliveryRecord) -> wire.Delivery:
    return wire.Delivery(**_fields(delivery))


def _fields(delivery: DeliveryRecord) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "tenant": delivery.tenant,
        "endpoint_id": None if delivery.endpoint_id is None else ids.text("ep", delivery.endpoint_id),
        "job_id": job_text(delivery.job_id),
        "event": event(delivery.moment),
        "state": cast("wire.DeliveryState", delivery.state),
        "tries": delivery.tries,
        "created_at": delivery.at,
        "due_at": delivery.due_at,
        "settled_at": delivery.settled_at,
    }


async def _which(call: Call) -> tuple[str, UUID]:
    """The delivery that the path names, and whose it must be; who may act for all and names none, whose it is."""
    delivery_id = ids.parse("msg", call.params["id"])
    tenant = principals.tenant(call, call.query.tenant)
    return tenant or await call.engine.deliveries.owner(delivery_id), delivery_id
