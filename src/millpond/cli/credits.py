"""``millpond credits``: what accounts have, and how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Account, Cursor, Limit, Tenant
from millpond.cli.output import UsageError
from millpond.cli.verify import status
from millpond.cli.verify import verify as check

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("What accounts have, and how it came about.")

Reference = Annotated[
    str | None, typer.Option(help="The same reference is posted once, however often.", show_default=False)
]


@command(app, "balance")
async def balance(api: Api, tenant: Tenant = None, account: Account = None) -> wire.Wallet:
    """Show what an account has available and held."""
    from millpond import wire

    return await api.get("/wallet", wire.Wallet, **api.owner(tenant, account))


@command(app, "grant")
async def grant(
    api: Api,
    amount: Annotated[int, typer.Option(help="How many credits.", min=1)],
    tenant: Tenant = None,
    account: Account = None,
    reference: Reference = None,
    reason: Annotated[str | None, typer.Option(help="Why.", show_default=False)] = None,
) -> wire.Wallet:
    """Give an account credits."""
    return await _post(api, "/grants", tenant, account, amount=amount, reference=reference, reason=reason)


@command(app, "adjust")
async def adjust(
    api: Api,
    amount: Annotated[int, typer.Option(help="How many credits; fewer than none to take some away.")],
    reason: Annotated[str, typer.Option(help="Why; it stays in the ledger.")],
    tenant: Tenant = None,
    account: Account = None,
    reference: Reference = None,
) -> wire.Wallet:
    """Put an account right, up or down; never below zero."""
    return await _post(api, "/adjustments", tenant, account, amount=amount, reference=reference, reason=reason)


@command(app, "ledger")
async def ledger(
    api: Api, tenant: Tenant = None, account: Account = None, cursor: Cursor = None, limit: Limit = 50
) -> wire.Entries:
    """List the entries of an account's ledger, the newest first."""
    from millpond import wire

    return await api.get("/wallet/entries", wire.Entries, **api.owner(tenant, account), cursor=cursor, limit=limit)


@command(app, "wallets")
async def wallets(
    api: Api,
    tenant: Tenant = None,
    prefix: Annotated[
        str | None,
        typer.Option(help="How the account's name begins; with no tenant, that one's.", show_default=False),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Wallets:
    """List wallets, of every tenant or of one."""
    from millpond import wire

    return await api.get("/wallets", wire.Wallets, tenant=tenant, prefix=prefix, cursor=cursor, limit=limit)


@command(app, "holds")
async def holds(api: Api, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 50) -> wire.Holds:
    """List the credits that are held for jobs, the oldest first."""
    from millpond import wire

    return await api.get("/holds", wire.Holds, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "verify", status=status)
async def verify(api: Api) -> wire.Verification:
    """Check that the ledger adds up, with every other invariant. Exit status 0 if all hold, 1 if not."""
    return await check(api)


async def _post(api: Api, path: str, tenant: str | None, account: str | None, **given: Any) -> wire.Wallet:
    from millpond import wire

    owner = api.owner(tenant, account)
    if None in owner.values():
        raise UsageError("Whose credits?", hint="Give --tenant and --account.")
    body = owner | {name: value for name, value in given.items() if value is not None}
    return await api.send("POST", path, wire.Wallet, body)
