"""``millpond tenants``: the tenants, their accounts and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit, optional

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show and create tenants; limit their accounts.")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The name of the tenant.", show_default=False)]


@command(app, "list")
async def list_(api: ApiConnection, cursor: Cursor = None, limit: Limit = 50) -> wire.Tenants:
    """List the tenants by name."""
    from millpond import wire

    return await api.get("/tenants", wire.Tenants, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, tenant: Name) -> wire.TenantInfo:
    """Show a tenant."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/tenants/{segment(tenant)}", wire.TenantInfo)


@command(app, "create")
async def create(api: ApiConnection, tenant: Name) -> wire.TenantInfo:
    """Create a tenant."""
    from millpond import wire

    return await api.send("POST", "/tenants", wire.TenantInfo, wire.MakeTenant(tenant=tenant))


@command(app, "accounts")
async def accounts(api: ApiConnection, tenant: Name, cursor: Cursor = None, limit: Limit = 50) -> wire.Wallets:
    """List the accounts of a tenant with their credits."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/tenants/{segment(tenant)}/accounts", wire.Wallets, cursor=cursor, limit=limit)


@command(app, "limits")
async def limits(
    api: ApiConnection,
    tenant: Name,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The name of the account.", show_default=False)],
    active_max: Annotated[
        int | None,
        optional("--active-max", text="The maximum number of active jobs.", default="no limit", min=0),
    ] = None,
) -> wire.Wallet:
    """Set or remove the limit on the active jobs of an account."""
    from millpond import wire
    from millpond.client.requests import segment

    path = f"/tenants/{segment(tenant)}/accounts/{segment(account)}/cap"
    return await api.send("PUT", path, wire.Wallet, wire.SetCap(active_max=active_max))
