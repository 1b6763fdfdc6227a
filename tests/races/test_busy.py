"""An account that somebody's own transaction holds on to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millpond.errors import UnavailableError

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

KIND = "brief"


async def test_a_held_account_keeps_no_other_waiting(engine: Engine) -> None:
    for account in ("held", "free"):
        await engine.grant("acme", account, 100)
    async with engine.db.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from millpond.accounts where account = 'held' for update")
        outcomes = await asyncio.gather(
            *[engine.submit(KIND, tenant="acme", account=account) for account in ("held", "free", "held", "free")],
            return_exceptions=True,
        )
        await transaction.rollback()
    busy = [outcome for outcome in outcomes if isinstance(outcome, UnavailableError)]
    assert [error.code for error in busy] == ["busy", "busy"]
    assert (await engine.balance("acme", "free")).active == 2
    assert (await engine.balance("acme", "held")).active == 0
    assert (await engine.submit(KIND, tenant="acme", account="held")).price >= 0
