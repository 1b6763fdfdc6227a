"""What operators do over HTTP: queues, tenants, accounts, keys, audit, verify. All of it is audited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millpond import ids, values, wire
from millpond.api import principals, wallets
from millpond.api.calls import copied, cursor, job_text, reply
from millpond.engine import health, lines
from millpond.errors import ForbiddenError, RateLimitedError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.access import KeyRecord
    from millpond.engine.health import QueueHealth

VERIFY_PAUSE: Final = 10
"""After how many seconds whoever finds another at it may ask again."""


# Queues


async def list_queues(call: Call) -> Reply:
    return reply(wire.Queues(data=[_queue(queue) for queue in await health.queues(call.engine.db, call.engine.homes)]))


async def pause(call: Call) -> Reply:
    check_all_tenants(call)
    await call.engine.pause(call.params["queue"])
    return await _changed(call, "queue.paused")


async def resume(call: Call) -> Reply:
    check_all_tenants(call)
    await call.engine.resume(call.params["queue"])
    return await _changed(call, "queue.resumed")


async def _changed(call: Call, action: str) -> Reply:
    name = call.params["queue"]
    await call.engine.access.audit(call.principal.actor, action, subject=name)
    (queue,) = [queue for queue in await health.queues(call.engine.db, call.engine.homes) if queue.queue == name]
    return reply(_queue(queue))


def _queue(queue: QueueHealth) -> wire.QueueInfo:
    return copied(wire.QueueInfo, queue)


# Tenants and accounts


async def list_tenants(call: Call) -> Reply:
    query = call.query
    found = await call.engine.access.list_tenants(tenant=call.principal.tenant, after=query.cursor, limit=query.limit)
    data = [wire.TenantInfo(tenant=tenant.tenant, created_at=tenant.created_at) for tenant in found]
    return reply(wire.Tenants(data=data, next_cursor=data[-1].tenant if len(data) == query.limit else None))


async def make_tenant(call: Call) -> Reply:
    check_all_tenants(call)
    made = await call.engine.access.make_tenant(call.body.tenant, actor=call.principal.actor)
    return reply(wire.TenantInfo(tenant=made.tenant, created_at=made.created_at), 201)


async def list_accounts(call: Call) -> Reply:
    query = call.query
    tenant = principals.one_tenant(call, call.params["tenant"])
    found = await call.engine.access.list_accounts(tenant, after=query.cursor, limit=query.limit)
    data = [wallets.told(account) for account in found]
    return reply(wire.Wallets(data=data, next_cursor=data[-1].account if len(data) == query.limit else None))


async def make_account(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.params["tenant"])
    made = await call.engine.access.make_account(
        tenant, call.body.account, active_max=call.body.active_max, actor=call.principal.actor
    )
    return reply(wallets.told(made), 201)


async def set_cap(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.params["tenant"])
    account, active_max = call.params["account"], call.body.active_max
    capped = await call.engine.set_cap(tenant, account, active_max)
    await call.engine.access.audit(
        call.principal.actor, "account.capped", tenant=tenant, subject=account, data={"active_max": active_max}
    )
    return reply(wallets.told(capped))


def check_all_tenants(call: Call) -> None:
    if call.principal.tenant is not None:
        raise ForbiddenError("The key is for one tenant; this is about all of them.", scope=call.principal.scope)


# Keys


async def list_keys(call: Call) -> Reply:
    query = call.query
    tenant = principals.tenant(call, query.tenant)
    found = await call.engine.access.list_keys(tenant=tenant, before=cursor("key", query.cursor), limit=query.limit)
    data = [_key(key) for key in found]
    return reply(wire.Keys(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def make_key(call: Call) -> Reply:
    body: wire.MakeKey = call.body
    made, secret = await call.engine.access.make_key(
        scope=body.scope,
        tenant=principals.tenant(call, body.tenant),
        account=principals.account(call, body.account),
        name=body.name,
        expires_in=None if body.expires_in is None else values.duration(body.expires_in, field="expires_in"),
        rate_limit=body.rate_limit,
        actor=call.principal.actor,
    )
    return reply(_new_key(made, secret), 201)


async def rotate_key(call: Call) -> Reply:
    overlap = values.duration(call.body.overlap, field="overlap")
    who = call.principal
    made, secret = await call.engine.access.rotate_key(
        call.params["id"], overlap=overlap, tenant=who.tenant, account=who.account, actor=who.actor
    )
    return reply(_new_key(made, secret), 201)


async def revoke_key(call: Call) -> Reply:
    who = call.principal
    revoked = await call.engine.access.revoke_key(
        call.params["id"], tenant=who.tenant, account=who.account, actor=who.actor
    )
    return reply(_key(revoked))


def _key(key: KeyRecord) -> wire.KeyInfo:
    return copied(wire.KeyInfo, key)


def _new_key(key: KeyRecord, secret: str) -> wire.NewKey:
    return copied(wire.NewKey, key, key=secret)


# Audit and verify


async def audit(call: Call) -> Reply:
    query = call.query
    page = await call.engine.access.search_audit(
        tenant=principals.tenant(call, query.tenant),
        actor=query.actor,
        action=query.action,
        subject=query.subject,
        since=None if query.since is None else lines.moment(query.since, datetime.now(UTC), field="since"),
        before=cursor("audit", query.cursor),
        limit=query.limit,
    )
    return reply(
        wire.Audit(
            data=[copied(wire.AuditEntry, entry) for entry in page.data],
            next_cursor=None if page.before is None else ids.text("audit", page.before),
            searched_to=page.searched_to,
        )
    )


async def verification(call: Call) -> Reply:
    check_all_tenants(call)
    newest = None if call.query.newest is None else values.duration(call.query.newest, field="newest")
    if call.desk.verifying.locked():
        raise RateLimitedError("Somebody has it verified just now.", hint="Wait for that.", retry_after=VERIFY_PAUSE)
    async with call.desk.verifying:
        violations = await call.engine.verify(newest=newest)
    found = [
        wire.Violation(
            invariant=violation.invariant,
            subject=violation.subject,
            job_id=job_text(violation.job_id),
            detail=violation.detail,
        )
        for violation in violations
    ]
    return reply(wire.Verification(ok=not found, violations=found))
