"""Boundaries of time: leases, deadlines and pauses end at their microsecond, not at a second near it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.errors import LeaseLostError
from millpond.work import End
from tests.checks import refused
from tests.engine.test_leases import WRITES
from tests.engine.test_workers import held as held_by_fleet
from tests.factories import HOUR, MINUTE, TENANT, attempt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.clocks import Clock
    from tests.factories import Factory
    from tests.post import Post

TICK = timedelta(microseconds=1)


@asynccontextmanager
async def frozen(clock: Clock, at: datetime) -> AsyncIterator[None]:
    """A block in which the database's clock stands still."""
    async with clock.db.transaction() as tx:
        await tx.execute(
            "create or replace function millpond.clock() returns timestamptz language sql volatile parallel safe as"
            f" 'select timestamptz ''{at.isoformat()}'''"
        )
    try:
        yield
    finally:
        await clock.advance(timedelta(0))


async def end_of(engine: Engine, lease: Any) -> datetime:
    return (await engine.held([lease.job_id]))[lease.job_id].expires_at


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_lease_ends_at_its_very_microsecond(db: Database, engine: Engine, make: Factory, write: Any) -> None:
    lease = await make.leased("brief")
    end = await end_of(engine, lease)
    async with frozen(make.clock, end), refused(db, LeaseLostError):
        await write(engine, lease)
    async with frozen(make.clock, end - TICK):
        await write(engine, lease)


async def test_a_heartbeat_extends_a_lease_until_its_very_microsecond(engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    end = await end_of(engine, lease)
    async with frozen(make.clock, end):
        assert (await engine.extend([lease], HOUR)).lost == {lease.job_id}
    async with frozen(make.clock, end - TICK):
        assert (await engine.extend([lease], HOUR)).lost == frozenset()


async def test_the_reaper_takes_a_job_back_at_the_very_microsecond(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    end = await end_of(engine, lease)
    async with frozen(make.clock, end - TICK):
        assert await leases.lapse(db, 10) == set()
    async with frozen(make.clock, end):
        assert await leases.lapse(db, 10) == {"brief"}


async def test_a_lease_of_the_fleet_ends_at_its_very_microsecond(db: Database, engine: Engine, make: Factory) -> None:
    _, lease = await held_by_fleet(engine, make)
    end = await end_of(engine, lease)
    async with frozen(make.clock, end), refused(db, LeaseLostError):
        await engine.finish(End(lease, "succeeded", "{}", origin="10.0.0.1"))
    async with frozen(make.clock, end - TICK):
        assert await engine.finish(End(lease, "succeeded", "{}", origin="10.0.0.1")) == "succeeded"


async def test_a_job_whose_end_waits_for_its_webhook_is_not_completed_late(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    end = await end_of(post.engine, lease)
    async with frozen(post.make.clock, end):
        with pytest.raises(LeaseLostError):
            await post.make.finish(lease)
    async with frozen(post.make.clock, end - TICK):
        assert await post.make.finish(lease) == "delivering"


async def test_a_job_expires_at_the_very_microsecond_of_its_deadline(db: Database, make: Factory) -> None:
    job = await make.read((await make.submitted("brief")).job_id)
    assert job.expires_at is not None
    async with frozen(make.clock, job.expires_at - TICK):
        assert await jobs.expire(db, 10) == 0
    async with frozen(make.clock, job.expires_at):
        assert await jobs.expire(db, 10) == 1


async def test_a_job_starts_at_the_very_microsecond_of_its_start_time(db: Database, make: Factory) -> None:
    run_at = (await make.clock.now() + MINUTE).replace(microsecond=500_000)
    await make.submitted("free", run_at=run_at)
    async with frozen(make.clock, run_at - TICK):
        assert await jobs.promote(db, 10) == set()
    async with frozen(make.clock, run_at):
        assert await jobs.promote(db, 10) == {"free"}


async def test_a_pause_of_less_than_a_second_is_a_pause(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    async with frozen(make.clock, await make.clock.now()):
        await engine.give_back(attempt(lease, timedelta(milliseconds=300)))
        assert (await make.read(lease.job_id)).phase == "waiting"
        assert await jobs.promote(db, 10) == set()
    await make.clock.advance(MINUTE)
    assert await jobs.promote(db, 10) == {"brief"}
    assert (await engine.read(TENANT, lease.job_id)).phase == "ready"


@pytest.mark.parametrize("hours", [1, 100_000])
async def test_a_job_of_any_length_is_counted_as_one_job(db: Database, hours: int) -> None:
    """The last bucket of a histogram contains everything longer, so the number beside it stays what it is."""
    async with db.transaction() as tx:
        counted = await tx.fetchval(
            "select millpond.histogram(array[millpond.bucket(make_interval(hours => $1))], array[1::bigint])", hours
        )
    (number,) = counted
    assert number // 64 == 1
