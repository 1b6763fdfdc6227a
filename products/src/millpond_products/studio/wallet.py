"""The wallet: a user's credits and their changes. Both come from the engine's ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millpond.product import job_text, owner, reply, wallets
from millpond_products.studio import wire

if TYPE_CHECKING:
    from typing import Any

    from millpond.product import Call, Entry, Reply


async def read(call: Call) -> Reply:
    tenant, account = owner(call)
    query = call.query
    wallet = await call.engine.views.wallet(tenant, account)
    page = await call.engine.views.entries(tenant, account, before=wallets.place(query.cursor), limit=query.limit)
    return reply(
        wire.Credits(
            balance=wallet.available,
            held=wallet.held,
            entries=[_entry(entry) for entry in page.data],
            next_cursor=None if page.before is None else str(page.before),
        )
    )


def _entry(entry: Entry) -> wire.Entry:
    return wire.Entry(
        id=str(entry.seq),
        type=cast("Any", entry.type),
        amount=entry.available,
        balance_after=entry.available_after,
        job_id=job_text(entry.job_id),
        reason=entry.reason,
        created_at=entry.at,
    )
