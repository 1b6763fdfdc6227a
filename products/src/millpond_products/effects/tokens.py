"""Tokens: the wallet of a user and its transactions, read from the engine's ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from millpond.product import Reply, job_text, owner, principals, reply, wallets
from millpond_products.effects import wire
from millpond_products.effects.operators import note

if TYPE_CHECKING:
    from millpond.product import Balance, Call, Entry

_TYPES: Final = {
    "hold": "JOB_RESERVE",
    "capture": "JOB_CONSUME",
    "release": "JOB_REFUND",
    "grant": "PAYMENT_CREDIT",
    "adjust": "ADJUSTMENT",
}
"""The contract's type of each entry of the ledger. The amount of a transaction is the entry's change of `available`."""


async def wallet(call: Call) -> Reply:
    return reply(_wallet(await call.engine.views.wallet(*owner(call))))


async def list_transactions(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.entries(*owner(call), before=wallets.place(query.cursor), limit=query.limit)
    data = [_transaction(entry) for entry in page.data]
    return reply(wire.Transactions(data=data, next_cursor=None if page.before is None else str(page.before)))


async def grant(call: Call) -> Reply:
    body: wire.GrantTokens = call.body
    tenant = principals.one_tenant(call, body.tenant_id, field="tenant_id")
    await call.engine.grant(
        tenant, body.user_id, body.amount, reference=body.provider_transaction_id, reason=body.description
    )
    await note(
        call,
        "effects.tokens.granted",
        body.user_id,
        tenant=tenant,
        amount=body.amount,
        provider_transaction_id=body.provider_transaction_id,
    )
    return reply(_wallet(await call.engine.balance(tenant, body.user_id)))


def _wallet(balance: Balance) -> wire.Wallet:
    return wire.Wallet(
        tenant_id=balance.tenant,
        user_id=balance.account,
        balance=balance.available,
        reserved=balance.held,
        active_jobs=balance.active,
        active_jobs_max=balance.active_max,
    )


def _transaction(entry: Entry) -> wire.Transaction:
    return wire.Transaction(
        id=str(entry.seq),
        type=cast("wire.TransactionType", _TYPES[entry.type]),
        amount=entry.available,
        balance_after=entry.available_after,
        job_id=job_text(entry.job_id),
        provider_transaction_id=entry.reference,
        description=entry.reason,
        created_at=entry.at,
    )
