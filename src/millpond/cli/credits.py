"""``millpond credits``: credits of accounts, and the ledger that explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Account, Cursor, Limit, Tenant, optional
from millpond.cli.output import UsageError
from millpond.cli.verify import status
from millpond.cli.verify import verify as check

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show and change the credits of accounts.")

Reference = Annotated[
    str | None, optional("--reference", text="An idempotency reference: the same reference is posted only once.")
]


@command(app, "list")
async def list_(
    api: ApiConnection,
    tenant: Tenant = None,
    prefix: Annotated[
        str | None,
        optional("--prefix", text="Only accounts whose name starts with this; without --tenant, tenants."),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Wallets:
    """List the credits of all accounts, or of the accounts of one tenant."""
    from millpond import wire

    return await api.get("/wallets", wire.Wallets, tenant=tenant, prefix=prefix, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, tenant: Tenant = None, account: Account = None) -> wire.Wallet:
    """Show the available and held credits of an account."""
    from millpond import wire

    return await api.get("/wallet", wire.Wallet, **api.owner(tenant, account))


@command(app, "grant")
async def grant(
    api: ApiConnection,
    amount: Annotated[int, typer.Option(help="The number of credits to grant.", min=1)],
    tenant: Tenant = None,
    account: Account = None,
    reference: Reference = None,
    reason: Annotated[str | None, optional("--reason", text="The reason, recorded in the ledger.")] = None,
) -> wire.Wallet:
    """Grant credits to an account."""
    return await _post(api, "/grants", tenant, account, amount=amount, reference=reference, reason=reason)


@command(app, "adjust")
async def adjust(
    api: ApiConnection,
    amount: Annotated[int, typer.Option(help="The number of credits to add; negative to subtract.")],
    reason: Annotated[str, typer.Option(help="The reason, recorded in the ledger.")],
    tenant: Tenant = None,
    account: Account = None,
    reference: Reference = None,
) -> wire.Wallet:
    """Correct the credits of an account, up or down, but never below zero."""
    return await _post(api, "/adjustments", tenant, account, amount=amount, reference=reference, reason=reason)


@command(app, "ledger")
async def ledger(
    api: ApiConnection, tenant: Tenant = None, account: Account = None, cursor: Cursor = None, limit: Limit = 50
) -> wire.Entries:
    """List the ledger entries of an account, newest first."""
    from millpond import wire

    return await api.get("/wallet/entries", wire.Entries, **api.owner(tenant, account), cursor=cursor, limit=limit)


@command(app, "holds")
async def holds(api: ApiConnection, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 50) -> wire.Holds:
    """List the credits held for jobs, oldest first."""
    from millpond import wire

    return await api.get("/holds", wire.Holds, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "verify", status=status)
async def verify(api: ApiConnection) -> wire.Verification:
    """Check the ledger and all other invariants.

    The exit status is 0 if all invariants hold, and 1 if not.
    """
    return await check(api)


async def _post(api: ApiConnection, path: str, tenant: str | None, account: str | None, **given: Any) -> wire.Wallet:
    from millpond import wire

    owner = api.owner(tenant, account)
    if None in owner.values():
        raise UsageError("The tenant and the account are missing.", hint="Use --tenant and --account.")
    body = owner | {name: value for name, value in given.items() if value is not None}
    return await api.send("POST", path, wire.Wallet, body)
