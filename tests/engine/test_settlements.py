"""Settlements of several jobs at once: each entry states the balance after it, and accounts are locked by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.work import End
from tests.factories import ACCOUNT, MINUTE, TENANT
from tests.races.rivals import held

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

LOCK = "select available from millpond.accounts where tenant = $1 and account = $2 for update"


async def leased(engine: Engine, make: Factory, *accounts: str) -> list[leases.Lease]:
    """A leased job of each of these accounts."""
    for account in accounts:
        await make.submitted("priced", account=account)
    return await engine.claim(Lanes(["priced"]), len(accounts), worker="w", duration=MINUTE)


async def test_entries_of_jobs_that_end_in_one_batch_state_the_balance_after_each(
    db: Database, engine: Engine, make: Factory
) -> None:
    ends = [End(lease, "succeeded", "{}", captured=2) for lease in await leased(engine, make, *[ACCOUNT] * 3)]
    assert await leases.finish(db, ends) == ["succeeded"] * 3
    entries = await engine.entries(TENANT, ACCOUNT, limit=3)
    assert [(entry.available_after, entry.held_after) for entry in entries] == [(9, 0), (6, 5), (3, 10)]


async def test_ends_lock_accounts_in_the_order_of_their_names(db: Database, engine: Engine, make: Factory) -> None:
    """As submits do: in any other order the two could wait for each other."""
    ends = [End(lease, "succeeded", "{}") for lease in await leased(engine, make, "ann", "zoe")]
    async with held(db) as first:
        await first.connection.fetchval(LOCK, TENANT, "ann")
        ending = await first.meet(leases.finish(db, ends))
        async with db.transaction() as other:
            await other.fetchval(f"{LOCK} nowait", TENANT, "zoe")  # the end, which waits for ann, has not locked it
        await first.commit()
        assert await ending == ["succeeded"] * 2


async def test_no_more_than_the_price_is_captured_whatever_is_stated(
    db: Database, engine: Engine, make: Factory
) -> None:
    """The statement bounds it itself: callers do, too, but not all of them have to be known here."""
    (lease,) = await leased(engine, make, ACCOUNT)
    assert await leases.finish(db, [End(lease, "succeeded", "{}", captured=100)]) == ["succeeded"]
    assert (await make.read(lease.job_id)).captured == lease.price
