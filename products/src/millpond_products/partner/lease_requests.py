"""Lease requests: requests for TikTok accounts. They are not jobs: an operator fulfils or rejects each of them once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.errors import ConflictError, IdempotencyConflictError
from millpond.product import REPLAYED, principals, queries, reply
from millpond_products.partner import envelopes, identifiers, projects, wire

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.product import Call, Engine, Reply

SQL: Final = queries("millpond_products.partner", "lease_requests")


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """The current state of a request."""

    lease_id: UUID
    tenant: str
    project_id: UUID
    status: str
    wish: str
    base: str
    reason: str | None
    created_at: datetime
    settled_at: datetime | None
    social_account_id: UUID | None


async def make(call: Call) -> Reply:
    """Make a request. If its key has made one already, answer with that, in its first state."""
    tenant, account = principals.owner(call)
    key, database = identifiers.key(call), call.engine.database(tenant)
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    wish = msgspec.to_builtins(call.body)
    request = None if key is None else values.encode({"project": str(project_id), "wish": wish}, field="request")
    known = None if key is None else await database.run(SQL["keyed"], tenant, account, key, request)
    if known is None:
        await projects.find(call.engine, tenant, account, project_id)
        body = values.encode(wish, field="body")
        row = await database.run(SQL["make"], ids.new(), tenant, account, project_id, body, call.root, key, request)
        if row is not None:
            return _accepted(LeaseRequest(*row))
        known = await database.run(SQL["keyed"], tenant, account, key, request)
    *kept, is_same = known
    if not is_same:
        raise IdempotencyConflictError(field="Idempotency-Key")
    return _accepted(LeaseRequest(*kept), REPLAYED)


def _accepted(request: LeaseRequest, *headers: tuple[bytes, bytes]) -> Reply:
    lease = _to_wire(request)
    return reply(lease, 202, (b"location", lease.location_url.encode("latin-1")), *headers)


async def read(call: Call) -> Reply:
    project = await projects.named(call)
    return reply(_to_wire(await _find(call, project.tenant, project.project_id)))


async def list_requests(call: Call) -> Reply:
    project = await projects.named(call)
    before, limit = identifiers.cursor("lse", call.query.cursor), call.query.limit
    rows = await call.engine.database(project.tenant).read(
        SQL["list"], project.tenant, project.project_id, before, limit + 1
    )
    return _page(rows, limit)


# For operators


async def list_all(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    before, limit = identifiers.cursor("lse", call.query.cursor), call.query.limit
    rows = await call.engine.database(tenant).run(SQL["list_of_status"], tenant, call.query.status, before, limit + 1)
    return _page(rows, limit)


async def fulfil(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    request, handle = await _find(call, tenant), "@" + call.body.handle.removeprefix("@")
    if request.status == "pending" and await call.engine.tenant_databases.gather(SQL["given"], handle):
        raise _assigned(handle)
    arguments = (tenant, request.lease_id, ids.new(), handle, call.body.display_name)
    settled = await call.engine.database(tenant).run(SQL["fulfil"], *arguments)
    if settled is not None and not settled["is_given"]:
        raise _assigned(handle)
    return await _settled(call, request, settled, "fulfilled", handle=handle)


def _assigned(handle: str) -> ConflictError:
    return ConflictError(f"The account {handle!r} is already assigned to a project.", field="handle")


async def reject(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    request, reason = await _find(call, tenant), call.body.reason
    settled = await call.engine.database(tenant).run(SQL["reject"], tenant, request.lease_id, reason)
    return await _settled(call, request, settled, "rejected", reason=reason)


async def _settled(call: Call, request: LeaseRequest, settled: object, how: str, **data: Any) -> Reply:
    """The settled request, after an entry in the audit."""
    found = await _find(call, request.tenant)
    if settled is None:
        raise ConflictError(f"The lease request is already {found.status}.", state=found.status)
    await call.engine.access.audit(
        call.principal.actor,
        f"partner.lease.{how}",
        tenant=request.tenant,
        subject=identifiers.text("lse", request.lease_id),
        data={"address": principals.address(call), **data},
    )
    return reply(_to_wire(found))


async def _find(call: Call, tenant: str, project_id: UUID | None = None) -> LeaseRequest:
    given = call.params["leaseId"]
    lease_id = identifiers.parse("lse", given, field="leaseId")
    return await find(call.engine, tenant, lease_id, project_id)


async def find(engine: Engine, tenant: str, lease_id: UUID, project_id: UUID | None) -> LeaseRequest:
    row = await engine.database(tenant).read(SQL["read"], tenant, lease_id, project_id)
    if row is None:
        raise identifiers.absent("lse", lease_id, field="leaseId")
    return LeaseRequest(*row)


def _page(rows: Any, limit: int) -> Reply:
    found = [LeaseRequest(*row) for row in rows[:limit]]
    following = identifiers.text("lse", found[-1].lease_id) if len(rows) > limit else None
    return reply(wire.Leases(data=[_to_wire(request) for request in found], next_cursor=following))


def _to_wire(request: LeaseRequest) -> wire.LeaseRequest:
    project_id = identifiers.text("prj", request.project_id)
    lease_id = identifiers.text("lse", request.lease_id)
    made = wire.LeaseRequest(
        lease_id=lease_id,
        project_id=project_id,
        status=cast("wire.LeaseStatus", request.status),
        location_url=f"{request.base}/v1/projects/{project_id}/tiktok-leases/{lease_id}",
        requested_at=envelopes.timestamp(request.created_at),
        **{name: value for name, value in msgspec.json.decode(request.wish).items() if value is not None},
    )
    if request.settled_at is not None:
        made.settled_at = envelopes.timestamp(request.settled_at)
    if request.reason is not None:
        made.reason = request.reason
    if request.social_account_id is not None:
        made.social_account_id = identifiers.text("sac", request.social_account_id)
    return made
