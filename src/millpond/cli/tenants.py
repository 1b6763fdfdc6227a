"""``millpond tenants``: the customers, their accounts and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("The customers, their accounts and limits.")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name.", show_default=False)]


@command(app, "list")
async def list_(api: Api, cursor: Cursor = None, limit: Limit = 50) -> wire.Tenants:
    """List the tenants by name."""
    from millpond import wire

    return await api.get("/tenants", wire.Tenants, cursor=cursor, limit=limit)


@command(app, "create")
async def create(api: Api, tenant: Name) -> wire.TenantInfo:
    """Make a tenant."""
    from millpond import wire

    return await api.send("POST", "/tenants", wire.TenantInfo, wire.MakeTenant(tenant=tenant))


@command(app, "accounts")
async def accounts(api: Api, tenant: Name, cursor: Cursor = None, limit: Limit = 50) -> wire.Wallets:
    """List a tenant's accounts with what they have."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/tenants/{segment(tenant)}/accounts", wire.Wallets, cursor=cursor, limit=limit)


@command(app, "limits")
async def limits(
    api: Api,
    tenant: Name,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="One of its accounts.", show_default=False)],
    active_max: Annotated[
        int | None,
        typer.Option(help="How many of its jobs may be active at once; none without it.", min=0, show_default=False),
    ] = None,
) -> wire.Wallet:
    """Limit how many jobs of an account may be active at once, or lift the limit."""
    from millpond import wire
    from millpond.client.requests import segment

    path = f"/tenants/{segment(tenant)}/accounts/{segment(account)}/cap"
    return await api.send("PUT", path, wire.Wallet, wire.SetCap(active_max=active_max))
