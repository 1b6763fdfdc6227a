"""Deliveries over HTTP: what was told to whom, what came of each try, and telling it once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from penstock import ids, wire
from penstock.api import principals
from penstock.api.calls import Reply, copied, cursor, job_text, reply
from penstock.engine.deliveries import Result
from penstock.webhooks import MOMENTS

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.api.calls import Call
    from penstock.engine.deliveries import DeliveryRecord

_OTHERS: Final = {"test": "endpoint.test"}


async def list_deliveries(call: Call) -> Reply:
    query = call.query
    found = await call.engine.deliveries.list(
        principals.one_tenant(call, query.tenant),
        endpoint=None if query.endpoint is None else ids.parse("ep", query.endpoint),
        job_id=None if query.job is None else ids.parse("job", query.job),
        state=query.state or None,
        before=cursor("msg", query.cursor),
        limit=query.limit,
    )
    data = [told(delivery) for delivery in found]
    return reply(wire.Deliveries(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read(call: Call) -> Reply:
    found = await call.engine.deliveries.read(*_which(call))
    log = [copied(wire.DeliveryTry, each) for each in found.log]
    return reply(wire.DeliveryLog(**_fields(found), url=found.url, log=log))


async def resend(call: Call) -> Reply:
    tenant, delivery_id = _which(call)
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
    await call.engine.deliveries.report(*_which(call), result)
    return Reply(204)


def event(moment: str) -> str:
    """What a moment is called towards customers."""
    return f"job.{moment}" if moment in MOMENTS else _OTHERS.get(moment, moment)


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


def _which(call: Call) -> tuple[str, UUID]:
    """The delivery that the path names, and whose it must be."""
    return principals.one_tenant(call, call.query.tenant), ids.parse("msg", call.params["id"])
