"""Estimates: a place in line, and a time that holds for as many jobs as it says."""

from __future__ import annotations

import asyncio
import heapq
import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from millpond.engine.engine import Engine
from millpond.engine.jobs.jobs import JobRecord, SubmitRequest
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Lease
from millpond.engine.reads import estimates
from millpond.engine.reads.estimates import Estimate, Estimates
from millpond.store.db import Database
from tests.clocks import Clock
from tests.factories import ACCOUNT, HOUR, STRANGER, TENANT, Factory

SECOND = timedelta(seconds=1)


@pytest.fixture
def fresh(engine: Engine) -> Estimates:
    """Estimates that look again each time: a test turns the clock."""
    engine.estimates = Estimates(engine.db, fresh=0)
    return engine.estimates


async def ran(make: Factory, kind: str, *seconds: float) -> None:
    """Jobs of a kind that took so long."""
    for length in seconds:
        lease = await make.leased(kind)
        await make.clock.advance(timedelta(seconds=length))
        await make.finish(lease)
    await make.engine.estimates.learn()


async def one(fresh: Estimates, job: JobRecord) -> Estimate:
    return (await fresh.of([job]))[job.job_id]


# Places


async def test_the_line_is_counted_from_one(fresh: Estimates, make: Factory) -> None:
    jobs = [await make.read((await make.submitted()).job_id) for _ in range(3)]
    described = await fresh.of(jobs)
    assert [described[job.job_id].position for job in jobs] == [1, 2, 3]


async def test_a_higher_priority_stands_before_a_lower_one(fresh: Estimates, make: Factory) -> None:
    low = await make.read((await make.submitted(priority=-5)).job_id)
    high = await make.read((await make.submitted(priority=5)).job_id)
    described = await fresh.of([low, high])
    assert (described[high.job_id].position, described[low.job_id].position) == (1, 2)


async def test_in_a_fair_queue_a_newcomer_does_not_stand_behind_a_crowd(fresh: Estimates, make: Factory) -> None:
    for _ in range(5):
        await make.submitted("fair")
    late = await make.engine.submit("fair", tenant=STRANGER, account=ACCOUNT)
    record = await make.engine.read(STRANGER, late.job_id)
    assert (await one(fresh, record)).position == 2


async def test_a_job_that_is_not_in_line_has_no_place(fresh: Estimates, make: Factory) -> None:
    running = await make.read((await make.leased()).job_id)
    ended = await make.ended()
    later = await make.read((await make.submitted(run_at=await make.clock.now() + HOUR)).job_id)
    described = await fresh.of([running, ended, later])
    assert {estimate.position for estimate in described.values()} == {None}


async def test_a_job_that_joins_a_line_just_seen_is_counted_at_its_end(make: Factory) -> None:
    shared = Estimates(make.engine.db, fresh=60)
    first = await make.read((await make.submitted()).job_id)
    assert (await one(shared, first)).position == 1
    second = await make.read((await make.submitted()).job_id)
    assert (await one(shared, second)).position == 2
    urgent = await make.read((await make.submitted(priority=9)).job_id)
    assert (await one(shared, urgent)).position == 1


async def test_no_line_is_counted_beyond_a_thousand(fresh: Estimates, make: Factory) -> None:
    requests: list[SubmitRequest] = [
        {"kind": "free", "tenant": TENANT, "account": ACCOUNT} for _ in range(estimates.POSITION_MAX + 5)
    ]
    await make.engine.submit_many(requests)
    last = await make.read((await make.submitted()).job_id)
    assert await one(fresh, last) == Estimate(estimates.POSITION_MAX)


# Times


async def test_where_no_job_of_its_kind_has_ended_no_time_is_estimated(fresh: Estimates, make: Factory) -> None:
    await make.leased()
    job = await make.read((await make.submitted()).job_id)
    assert await one(fresh, job) == Estimate(1)


async def test_where_nobody_works_no_time_is_estimated(fresh: Estimates, make: Factory) -> None:
    await ran(make, "free", *[10] * 6)
    job = await make.read((await make.submitted()).job_id)
    assert await one(fresh, job) == Estimate(1)


async def test_in_a_paused_queue_no_time_is_estimated(fresh: Estimates, make: Factory) -> None:
    await ran(make, "free", *[10] * 6)
    await make.leased()
    job = await make.read((await make.submitted()).job_id)
    await make.engine.pause("free")
    assert await one(fresh, job) == Estimate(1)


async def test_a_job_that_runs_ends_when_such_jobs_do(fresh: Estimates, make: Factory) -> None:
    await ran(make, "free", 10, 20, 30, 40, 50)
    job = await make.read((await make.leased()).job_id)
    estimate = await one(fresh, job)
    assert job.started_at is not None
    assert estimate.p50 is not None
    assert estimate.p90 is not None
    assert abs(estimate.p50 - job.started_at - 30 * SECOND) < 5 * SECOND
    assert abs(estimate.p90 - job.started_at - 50 * SECOND) < 5 * SECOND


async def test_a_job_that_runs_long_is_compared_with_those_that_did(fresh: Estimates, make: Factory) -> None:
    await ran(make, "free", 10, 20, 30, 40, 50)
    job = await make.read((await make.leased()).job_id)
    await make.clock.advance(35 * SECOND)
    estimate = await one(fresh, job)
    assert job.started_at is not None
    assert estimate.p50 is not None
    assert 39 * SECOND < estimate.p50 - job.started_at < 51 * SECOND
    await make.clock.advance(20 * SECOND)
    assert await one(fresh, job) == Estimate()  # none has run that long


async def test_no_job_is_expected_to_outlive_its_deadline(fresh: Estimates, make: Factory) -> None:
    await ran(make, "brief", *[50] * 6)
    await make.leased("brief")
    job = await make.read((await make.submitted("brief", expires_in="20s")).job_id)
    estimate = await one(fresh, job)
    assert estimate.p50 == estimate.p90 == job.expires_at


async def test_only_runs_that_succeeded_are_learned_from(fresh: Estimates, make: Factory) -> None:
    for _ in range(6):
        lease = await make.leased()
        await make.finish(lease, "failed")
        fresh.saw(End(lease, "succeeded"))  # as it may look from here; the database knows better
    await fresh.learn()
    assert await fresh.durations() == {}


async def test_many_that_failed_do_not_keep_a_few_that_succeeded_from_being_learned(
    fresh: Estimates, make: Factory
) -> None:
    for _ in range(25):
        await make.finish(await make.leased(), "failed")
    await ran(make, "free", *[1] * estimates.RUNS_MIN)
    assert (await fresh.durations())["free"].jobs == estimates.RUNS_MIN


async def test_what_is_kept_of_a_kind_is_bounded(fresh: Estimates, make: Factory, db: Database) -> None:
    for _ in range(20):
        await make.engine.submit_many([{"kind": "free", "tenant": TENANT, "account": ACCOUNT} for _ in range(20)])
        for lease in await make.claimed("free", want=20):
            await make.finish(lease)
        await fresh.learn()
    kept = (await fresh.durations())["free"].jobs
    assert estimates.SLOTS / 2 < kept <= estimates.SLOTS


async def test_a_worker_that_closes_its_leases_has_learned(fresh: Estimates, make: Factory) -> None:
    for _ in range(estimates.RUNS_MIN):
        lease = await make.leased()
        await make.finish(lease)
        await make.engine.close_leases([lease.token])
    assert (await fresh.durations())["free"].jobs == estimates.RUNS_MIN


async def test_those_who_ask_at_once_share_a_look(make: Factory) -> None:
    asked: list[str] = []

    class Counted(Database):
        async def run(self, query: Any, *arguments: Any) -> Any:
            asked.append(query.name)
            return await super().run(query, *arguments)

    jobs = [await make.read((await make.submitted()).job_id) for _ in range(5)]
    counted = await Counted.open(make.engine.db.dsn, size=1)
    shared = Estimates(counted)
    await asyncio.gather(*(shared.of(jobs) for _ in range(10)))
    await counted.close()
    assert sorted(asked) == ["estimates.durations", "estimates.leased", "estimates.line"]


# Calibration


class Shop:
    """A queue with some hands, simulated on the database's clock: each job takes what chance says."""

    def __init__(self, make: Factory, chance: random.Random, remote_workers: int) -> None:
        self.make = make
        self.chance = chance
        self.hands = remote_workers
        self.now = 0.0
        self.running: list[tuple[float, UUID, Lease]] = []
        self.ends: dict[UUID, float] = {}

    def length(self) -> float:
        return 600 * self.chance.lognormvariate(0, 0.6)

    async def fill(self) -> None:
        free = self.hands - len(self.running)
        if free:
            for lease in await self.make.engine.claim(Lanes(["free"]), free, worker="w", duration=1000 * HOUR):
                heapq.heappush(self.running, (self.now + self.length(), lease.job_id, lease))

    async def step(self) -> None:
        """To the next end."""
        await self.fill()
        end, job_id, lease = heapq.heappop(self.running)
        await self.make.clock.advance(timedelta(seconds=end - self.now))
        self.now = end
        await self.make.finish(lease)
        await self.make.engine.estimates.learn()
        self.ends[job_id] = end


@pytest.mark.slow
async def test_half_of_all_jobs_end_by_p50_and_nine_of_ten_by_p90(fresh: Estimates, make: Factory) -> None:
    chance = random.Random(7)
    shops = [Shop(make, chance, remote_workers) for remote_workers in (2, 4, 9)]
    listed = [one for shop in shops for one in await opened(fresh, shop)]
    by_p50 = sum(end <= p50 for end, p50, _ in listed) / len(listed)
    by_p90 = sum(end <= p90 for end, _, p90 in listed) / len(listed)
    assert 0.38 < by_p50 < 0.62
    assert 0.82 < by_p90 < 0.96


async def opened(fresh: Estimates, shop: Shop) -> list[tuple[float, float, float]]:
    """A day of a shop: when jobs ended, and what was told of them at some moment before."""
    make = shop.make
    await make.engine.submit_many([{"kind": "free", "tenant": TENANT, "account": ACCOUNT} for _ in range(140)])
    for _ in range(120):
        await shop.step()
    reported: list[tuple[UUID, float, float]] = []
    for _ in range(200):
        await make.submitted()
        await shop.fill()
        listed = await make.engine.list_jobs(TENANT, ACCOUNT, limit=60)
        job = shop.chance.choice([job for job in listed if job.phase in {"ready", "leased"}])
        reported.append(await times(fresh, make.clock, shop, job))
        await shop.step()
    await shop.fill()
    while shop.running:
        await shop.step()
    return [(shop.ends[job_id], p50, p90) for job_id, p50, p90 in reported]


async def times(fresh: Estimates, clock: Clock, shop: Shop, job: JobRecord) -> tuple[UUID, float, float]:
    """What is told of a job, in the time of the simulation; infinite where nothing is."""
    estimate = await one(fresh, job)
    now = await clock.now()
    p50, p90 = (
        float("inf") if at is None else shop.now + (at - now).total_seconds() for at in (estimate.p50, estimate.p90)
    )
    return job.job_id, p50, p90
