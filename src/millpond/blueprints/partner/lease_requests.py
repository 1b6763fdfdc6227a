"""Lease requests: wishes for TikTok accounts. No job is made of them: an operator fulfils or rejects each, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.api import principals
from millpond.api.calls import REPLAYED, reply
from millpond.blueprints.partner import envelopes, identifiers, projects, wire
from millpond.errors import ConflictError, IdempotencyConflictError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.api.calls import Call, Reply
    from millpond.engine.engine import Engine

SQL: Final = queries("millpond.blueprints.partner", "lease_requests")


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A request as it stands."""

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
    """A request; a key that has made one answers with that, as it was then."""
    tenant, account = principals.owner(call)
    key, home = identifiers.key(call), call.engine.home(tenant)
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    wish = msgspec.to_builtins(call.body)
    asked = None if key is None else values.encode({"project": str(project_id), "wish": wish}, field="request")
    known = None if key is None else await home.run(SQL["keyed"], tenant, account, key, asked)
    if known is None:
        await projects.find(call.engine, tenant, account, project_id)
        told = values.encode(wish, field="body")
        row = await home.run(SQL["make"], ids.new(), tenant, account, project_id, told, call.root, key, asked)
        if row is not None:
            return _accepted(LeaseRequest(*row))
        known = await home.run(SQL["keyed"], tenant, account, key, asked)
    *kept, is_same = known
    if not is_same:
        raise IdempotencyConflictError(field="Idempotency-Key")
    return _accepted(LeaseRequest(*kept), REPLAYED)


def _accepted(request: LeaseRequest, *headers: tuple[bytes, bytes]) -> Reply:
    told = _told(request)
    return reply(told, 202, (b"location", told.location_url.encode("latin-1")), *headers)


async def read(call: Call) -> Reply:
    project = await projects.named(call)
    return reply(_told(await _find(call, project.tenant, project.project_id)))


async def list_requests(call: Call) -> Reply:
    project = await projects.named(call)
    before, limit = identifiers.cursor("lse", call.query.cursor), call.query.limit
    rows = await call.engine.home(project.tenant).read(
        SQL["list"], project.tenant, project.project_id, before, limit + 1
    )
    return _page(rows, limit)


# What operators do


async def list_all(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    before, limit = identifiers.cursor("lse", call.query.cursor), call.query.limit
    rows = await call.engine.home(tenant).run(SQL["list_of_status"], tenant, call.query.status, before, limit + 1)
    return _page(rows, limit)


async def fulfil(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    request, handle = await _find(call, tenant), "@" + call.body.handle.removeprefix("@")
    if request.status == "pending" and await call.engine.homes.gather(SQL["given"], handle):
        raise _given(handle)
    arguments = (tenant, request.lease_id, ids.new(), handle, call.body.display_name)
    settled = await call.engine.home(tenant).run(SQL["fulfil"], *arguments)
    if settled is not None and not settled["is_given"]:
        raise _given(handle)
    return await _settled(call, request, settled, "fulfilled", handle=handle)


def _given(handle: str) -> ConflictError:
    return ConflictError(f"The account {handle!r} is given to a project already.", field="handle")


async def reject(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    request, reason = await _find(call, tenant), call.body.reason
    settled = await call.engine.home(tenant).run(SQL["reject"], tenant, request.lease_id, reason)
    return await _settled(call, request, settled, "rejected", reason=reason)


async def _settled(call: Call, request: LeaseRequest, settled: object, how: str, **data: Any) -> Reply:
    """What has become of it, written down for good."""
    found = await _find(call, request.tenant)
    if settled is None:
        raise ConflictError(f"The lease request was {found.status} before.", state=found.status)
    await call.engine.access.audit(
        call.principal.actor,
        f"partner.lease.{how}",
        tenant=request.tenant,
        subject=identifiers.text("lse", request.lease_id),
        data={"address": principals.address(call), **data},
    )
    return reply(_told(found))


async def _find(call: Call, tenant: str, project_id: UUID | None = None) -> LeaseRequest:
    given = call.params["leaseId"]
    lease_id = identifiers.parse("lse", given, field="leaseId")
    return await find(call.engine, tenant, lease_id, project_id)


async def find(engine: Engine, tenant: str, lease_id: UUID, project_id: UUID | None) -> LeaseRequest:
    row = await engine.home(tenant).read(SQL["read"], tenant, lease_id, project_id)
    if row is None:
        raise identifiers.absent("lse", lease_id, field="leaseId")
    return LeaseRequest(*row)


def _page(rows: Any, limit: int) -> Reply:
    found = [LeaseRequest(*row) for row in rows[:limit]]
    following = identifiers.text("lse", found[-1].lease_id) if len(rows) > limit else None
    return reply(wire.Leases(data=[_told(request) for request in found], next_cursor=following))


def _told(request: LeaseRequest) -> wire.Lease:
    project_id = identifiers.text("prj", request.project_id)
    lease_id = identifiers.text("lse", request.lease_id)
    made = wire.Lease(
        lease_id=lease_id,
        project_id=project_id,
        status=cast("wire.LeaseStatus", request.status),
        location_url=f"{request.base}/v1/projects/{project_id}/tiktok-leases/{lease_id}",
        requested_at=envelopes.moment(request.created_at),
        **{name: value for name, value in msgspec.json.decode(request.wish).items() if value is not None},
    )
    if request.settled_at is not None:
        made.settled_at = envelopes.moment(request.settled_at)
    if request.reason is not None:
        made.reason = request.reason
    if request.social_account_id is not None:
        made.social_account_id = identifiers.text("sac", request.social_account_id)
    return made
