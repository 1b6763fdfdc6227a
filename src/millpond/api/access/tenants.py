"""Tenants and their accounts over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, wire
from millpond.api import parameters, principals
from millpond.api.calls import reply
from millpond.api.credits import wallets
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply


async def list_tenants(call: Call) -> Reply:
    query = call.query
    found = await call.engine.access.list_tenants(tenant=call.principal.tenant, after=query.cursor, limit=query.limit)
    data = [wire.TenantInfo(tenant=tenant.tenant, created_at=tenant.created_at) for tenant in found]
    return reply(wire.Tenants(data=data, next_cursor=data[-1].tenant if len(data) == query.limit else None))


async def read_tenant(call: Call) -> Reply:
    found = await call.engine.access.read_tenant(call.params["tenant"], own=call.principal.tenant)
    return reply(wire.TenantInfo(tenant=found.tenant, created_at=found.created_at))


async def make_tenant(call: Call) -> Reply:
    principals.check_all_tenants(call)
    made = await call.engine.access.make_tenant(call.body.tenant, actor=call.principal.actor)
    return reply(wire.TenantInfo(tenant=made.tenant, created_at=made.created_at), 201)


async def list_accounts(call: Call) -> Reply:
    query = call.query
    tenant = principals.one_tenant(call, call.params["tenant"])
    found = await call.engine.access.list_accounts(tenant, after=query.cursor, limit=query.limit)
    data = [wallets.to_wire(account) for account in found]
    return reply(wire.Wallets(data=data, next_cursor=data[-1].account if len(data) == query.limit else None))


async def make_account(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.params["tenant"])
    made = await call.engine.access.make_account(
        tenant, call.body.account, active_max=call.body.active_max, actor=call.principal.actor
    )
    return reply(wallets.to_wire(made), 201)


async def set_cap(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.params["tenant"])
    account, active_max = call.params["account"], call.body.active_max
    capped = await call.engine.set_cap(tenant, account, active_max)
    await call.engine.access.audit(
        call.principal.actor, "account.capped", tenant=tenant, subject=account, data={"active_max": active_max}
    )
    return reply(wallets.to_wire(capped))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tenants",
        handle=list_tenants,
        summary="List tenants by name.",
        who=READERS,
        query=parameters.Page,
        answers={200: wire.Tenants},
    ),
    Route(
        method="GET",
        path="/v1/tenants/{tenant}",
        handle=read_tenant,
        summary="Read a tenant.",
        who=READERS,
        answers={200: wire.TenantInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/tenants",
        handle=make_tenant,
        summary="Create a tenant. An existing tenant is not changed.",
        who=ADMINS,
        body=wire.MakeTenant,
        answers={201: wire.TenantInfo},
    ),
    Route(
        method="GET",
        path="/v1/tenants/{tenant}/accounts",
        handle=list_accounts,
        summary="List the accounts of a tenant by name.",
        who=READERS,
        query=parameters.Page,
        answers={200: wire.Wallets},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/tenants/{tenant}/accounts",
        handle=make_account,
        summary="Create an account. An existing account is not changed.",
        who=ADMINS,
        body=wire.MakeAccount,
        answers={201: wire.Wallet},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="PUT",
        path="/v1/tenants/{tenant}/accounts/{account}/cap",
        handle=set_cap,
        summary="Set the limit of active jobs of an account.",
        who=ADMINS,
        body=wire.SetCap,
        answers={200: wire.Wallet},
        errors=(errors.NotFoundError,),
    ),
)
