"""Counters of jobs that change together: each is counted where it was and where it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from tests.factories import HOUR, MINUTE, OWNER

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

PHASES = """
select phase, sum(n)::integer from millpond.counted(array(select t from millpond.counter_changes t)) group by phase
"""
LENGTHS = "select waits, runs from millpond.lengths where kind = 'free'"


async def counted(db: Database) -> dict[str, int]:
    """How many jobs are in each phase, by the changes that are not merged yet."""
    async with db.transaction() as tx:
        return {phase: n for phase, n in await tx.fetch(PHASES) if n}


async def test_jobs_that_start_in_one_claim_are_all_counted_as_started(db: Database, make: Factory) -> None:
    for _ in range(3):
        await make.submitted("free")
    assert await counted(db) == {"ready": 3}
    started = await make.claimed("free", want=3)
    assert await counted(db) == {"leased": 3}
    await make.finish(started[0])
    assert await counted(db) == {"leased": 2, "ended": 1}


async def test_jobs_of_several_phases_that_expire_together_leave_each_its_own(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.parked("brief")
    await make.leased("brief")
    await make.submitted("brief")
    await make.credits(5)
    await engine.submit("brief", **OWNER, run_at=await make.clock.now() + 2 * HOUR)
    assert await counted(db) == {"parked": 1, "leased": 1, "ready": 1, "waiting": 1}
    await make.clock.advance(4 * HOUR)
    assert await jobs.expire(db, 10) == 4
    assert await counted(db) == {"ended": 4}
    assert await leases.lapse(db, 10) == set()


async def test_the_time_that_jobs_wait_is_distinguished_from_that_for_which_they_run(
    db: Database, make: Factory
) -> None:
    await make.submitted("free")
    await make.clock.advance(HOUR)
    (lease,) = await make.claimed("free", duration=HOUR)
    await make.clock.advance(MINUTE)
    await make.finish(lease)
    async with db.transaction() as tx:
        await tx.execute("select millpond.merge_counter_changes(100)")
        (row,) = await tx.fetch(LENGTHS)
        buckets = [await tx.fetchval("select millpond.bucket(make_interval(mins => $1))", n) for n in (60, 1)]
    assert ([each % 64 for each in row["waits"]], [each % 64 for each in row["runs"]]) == ([buckets[0]], [buckets[1]])
