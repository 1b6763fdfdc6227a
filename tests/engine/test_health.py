"""Health: a verdict for each queue with its reason, and who works."""

from __future__ import annotations

from datetime import timedelta

from millpond.engine.reads import health
from millpond.engine.reads.health import QueueHealth
from millpond.store.db import Database
from tests.factories import HOUR, MINUTE, Factory, attempt

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


async def of(db: Database, queue: str = "free") -> QueueHealth:
    (found,) = [one for one in await health.queues(db) if one.queue == queue]
    return found


async def test_every_queue_has_a_verdict(db: Database) -> None:
    found = await health.queues(db)
    assert {"free", "fair", "priced"} <= {one.queue for one in found}
    assert {one.verdict for one in found} == {"ok"}
    assert found == sorted(found, key=lambda one: one.queue)


async def test_an_idle_queue_is_ok(db: Database) -> None:
    assert await of(db) == QueueHealth(
        "free",
        "ok",
        "No jobs wait; no jobs are leased.",
        0,
        0,
        0,
        0,
        oldest_wait_seconds=None,
        workers=0,
        paused_at=None,
    )


async def test_a_job_that_came_just_now_is_ok(db: Database, make: Factory) -> None:
    await make.submitted()
    found = await of(db)
    assert (found.verdict, found.ready) == ("ok", 1)
    assert found.oldest_wait_seconds is not None


async def test_a_job_that_nobody_claims_is_unserved(db: Database, make: Factory) -> None:
    await make.submitted()
    await make.clock.advance(3 * MINUTE)
    await make.submitted(priority=5)
    found = await of(db)
    assert found.verdict == "unserved"
    assert found.reason.startswith("2 jobs wait, the oldest for 3 min, and no worker serves this queue.")


async def test_jobs_that_wait_long_while_others_run_make_it_busy(db: Database, make: Factory) -> None:
    await make.leased()
    await make.submitted()
    await make.clock.advance(50 * SECOND)
    found = await of(db)
    assert found.verdict == "busy"
    assert found.reason == "1 job waits, the oldest for 50 s; 1 job is leased by 1 worker."


async def test_the_wait_of_a_job_that_went_back_begins_again(db: Database, make: Factory) -> None:
    lease = await make.leased()
    await make.clock.advance(50 * SECOND)
    await make.engine.give_back(attempt(lease))
    found = await of(db)
    assert (found.verdict, found.ready) == ("ok", 1)
    assert found.oldest_wait_seconds is not None
    assert found.oldest_wait_seconds < 10


async def test_jobs_that_run_much_longer_than_usual_make_it_stuck(db: Database, make: Factory) -> None:
    for _ in range(6):
        await make.submitted()
        await make.serve("free")
    await make.engine.estimates.learn()
    await make.submitted()
    await make.claimed("free", duration=DAY)
    await make.clock.advance(2 * MINUTE)
    assert (await of(db)).verdict == "ok"
    await make.clock.advance(10 * MINUTE)
    found = await of(db)
    assert found.verdict == "stuck"
    assert "the last one 12 min ago; 90 % of them usually end within" in found.reason


async def test_jobs_of_unknown_length_have_an_hour(db: Database, make: Factory) -> None:
    await make.submitted()
    (lease,) = await make.claimed("free", duration=DAY)
    await make.clock.advance(40 * MINUTE)
    assert (await of(db)).verdict == "ok"
    await make.clock.advance(HOUR)
    assert (await of(db)).verdict == "stuck"
    await make.finish(lease)
    assert (await of(db)).verdict == "ok"


async def test_a_lease_that_nobody_takes_back_makes_it_stuck(db: Database, make: Factory) -> None:
    lease = await make.leased()
    await make.clock.advance(3 * MINUTE)
    found = await of(db)
    assert (found.verdict, found.reason) == (
        "stuck",
        "A lease expired 2 min ago and was not taken back. Check that a process runs the services.",
    )
    await make.clock.advance(-3 * MINUTE)
    await make.finish(lease)


async def test_a_paused_queue_is_paused_whatever_else_it_is(db: Database, make: Factory) -> None:
    await make.submitted()
    await make.engine.pause("free")
    await make.clock.advance(HOUR)
    found = await of(db)
    assert found.verdict == "paused"
    assert found.reason == "Paused for 60 min. 1 job waits, the oldest for 60 min."
    assert found.paused_at is not None


async def test_jobs_are_counted_by_what_they_wait_for(db: Database, make: Factory) -> None:
    await make.parked()
    await make.submitted("brief", run_at=await make.clock.now() + MINUTE)
    await make.submitted("brief")
    await make.submitted("brief")
    await make.claimed("brief")
    found = await of(db, "brief")
    assert (found.ready, found.waiting, found.leased, found.parked, found.workers) == (1, 1, 1, 1, 1)


async def test_no_line_is_counted_to_its_end(db: Database, make: Factory) -> None:
    for _ in range(3):
        await make.submitted()
    rows = await db.run(health.SQL["queues"], 2)
    assert {row["queue"]: row["ready"] for row in rows}["free"] == 2


async def test_workers_are_those_who_hold_leases(db: Database, make: Factory) -> None:
    for _ in range(3):
        await make.submitted()
    await make.claimed("free", want=2, worker="one")
    (held,) = await make.claimed("free", worker="two")
    await make.clock.advance(20 * SECOND)
    one, two = await health.workers(db)
    now = await make.clock.now()
    assert (one.worker, one.leases, one.jobs) == ("one", 1, 2)
    assert (two.worker, two.leases, two.jobs) == ("two", 1, 1)
    assert now - one.granted_at >= 20 * SECOND
    assert one.expires_at > now
    await make.finish(held)
    assert [(worker.worker, worker.jobs) for worker in await health.workers(db)] == [("one", 2), ("two", 0)]
