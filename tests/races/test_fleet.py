"""A crowd of workers at one line, through several engines: each job is one worker's at a time, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.access.access import Principal
from millpond.engine.engine import Engine
from millpond.engine.fleet.workers import SQL, FleetSettings
from millpond.engine.jobs.jobs import Submitted
from millpond.errors import BusyError, LeaseLostError, MillpondError
from millpond.services.reaper import reaper
from millpond.store.db import Database, fetch
from tests.checks import until
from tests.factories import ACCOUNT, ERROR, OWNER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from uuid import UUID

    from millpond.engine.fleet.workers import WorkerRecord
    from millpond.engine.queue.leases import Lease

FLEET = Principal("worker", None, None, "key_fleet")
KIND = "filmed"
ENGINES = 4
WORKERS = 40
JOBS = 160
BRIEF = timedelta(milliseconds=150)


@pytest.fixture
async def engines(engine: Engine, dsn: str) -> AsyncIterator[list[Engine]]:
    """As of several processes; the last one lends for so short a time that leases run out."""
    opened = [Engine(await Database.open(dsn, size=5), app) for _ in range(ENGINES)]
    for one in opened:
        one.workers.settings = FleetSettings(workers_max=1_000)
    opened[-1].workers.settings = replace(opened[-1].workers.settings, lease=BRIEF)
    yield opened
    for one in opened:
        await one.close()
    async with engine.db.transaction() as tx:
        assert await tx.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def patiently(verb: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
    """As a real worker: one who is told that the database is busy comes again."""
    while True:
        with contextlib.suppress(BusyError):
            return await verb(*arguments, **options)
        await asyncio.sleep(0.05)


@dataclass(slots=True)
class Floor:
    """What everybody is at."""

    ended: Counter[UUID] = field(default_factory=Counter)
    winners: dict[UUID, str] = field(default_factory=dict)
    held: dict[UUID, UUID] = field(default_factory=dict)
    stale: int = 0
    is_over: bool = False

    def take(self, lease: Lease) -> None:
        assert lease.job_id not in self.held, "it is leased twice at once"
        self.held[lease.job_id] = lease.token

    def leave(self, lease: Lease) -> None:
        if self.held.get(lease.job_id) == lease.token:
            del self.held[lease.job_id]


@dataclass(slots=True)
class Crew:
    """A crowd of workers at work, through several engines."""

    engines: list[Engine]
    floor: Floor = field(default_factory=Floor)
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # the same in every run

    async def work(self, n: int) -> None:
        engine = self.engines[n % ENGINES]
        record, _ = await patiently(
            engine.workers.register, worker=f"w{n}", routes=[KIND], slots=2, fleet=FLEET, address=f"10.0.0.{n}"
        )
        while not self.floor.is_over:
            leases = await patiently(engine.workers.poll, record, 2, 0.05)
            if engine is not self.engines[-1]:  # whose leases may run out before we hear of them
                for lease in leases:
                    self.floor.take(lease)
            for lease in leases:
                try:
                    await self.serve(engine, record, lease)
                except LeaseLostError:
                    self.floor.stale += 1

    async def serve(self, engine: Engine, record: WorkerRecord, lease: Lease) -> None:
        turn, elsewhere = self.chance.random(), self.chance.choice(self.engines)
        if engine is self.engines[-1] and turn < 0.3:
            await _run_out(engine, record, lease)
        self.floor.leave(lease)
        if turn < 0.1:
            await patiently(elsewhere.workers.requeue, record, lease.job_id, lease.token, "spot")
        elif turn < 0.15:
            await patiently(engine.workers.fail, record, lease.job_id, lease.token, ERROR, retry=True, retry_after=0)
        else:
            output = {"by": record.id, "epoch": lease.epoch}
            await patiently(elsewhere.workers.complete, record, lease.job_id, lease.token, output)
            self.floor.ended[lease.job_id] += 1
            self.floor.winners[lease.job_id] = record.id


async def test_each_job_is_one_workers_at_a_time_and_ends_once(engine: Engine, engines: list[Engine]) -> None:
    await engine.grant(TENANT, ACCOUNT, JOBS * 5)
    submitted = await engine.submit_many([{"kind": KIND, "input": {"n": n}, **OWNER} for n in range(JOBS)])
    crew, stop = Crew(engines), asyncio.Event()
    async with asyncio.timeout(120), asyncio.TaskGroup() as crowd:
        crowd.create_task(reaper(engine, timedelta(milliseconds=30)).run(stop))
        for n in range(WORKERS):
            crowd.create_task(crew.work(n))
        while await _unended(engine):
            await asyncio.sleep(0.05)
        crew.floor.is_over = True
        stop.set()
    found = [await engine.read(TENANT, made.job_id) for made in submitted if isinstance(made, Submitted)]
    assert [job.phase for job in found] == ["ended"] * JOBS
    won = {job.job_id: job for job in found if job.outcome == "succeeded"}
    assert crew.floor.ended == dict.fromkeys(won, 1)
    assert {job_id: job.output["by"] for job_id, job in won.items()} == crew.floor.winners
    assert all(job.output["epoch"] == job.epoch for job in won.values())
    assert crew.floor.stale > 0
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.held, balance.active) == (0, 0)


async def test_those_who_wait_to_register_leave_connections_to_others(engines: list[Engine]) -> None:
    """As when a whole fleet is started at once: what else is asked meanwhile is answered."""
    first, second, *_ = engines

    async def waiting() -> int:
        return await tx.fetchval("select count(*) from pg_locks where locktype = 'advisory' and not granted")

    async def is_awaited() -> bool:
        return await waiting() > 0

    async with second.db.transaction() as tx:
        await fetch(tx, SQL["lock_fleet"])
        crowd = asyncio.gather(
            *(first.workers.register(worker=f"w{n}", routes=[KIND], fleet=FLEET, address="x") for n in range(20)),
            return_exceptions=True,  # on a slow machine the first one may be told to come again
        )
        await until(is_awaited)
        await first.balance(TENANT, ACCOUNT)
        assert await waiting() <= 1
    await crowd


async def _run_out(engine: Engine, record: WorkerRecord, lease: Lease) -> None:
    """As one that is paused for longer than its lease."""
    with contextlib.suppress(LeaseLostError):
        while True:
            await engine.workers.lease(record, lease.job_id, lease.token)
            await asyncio.sleep(0.01)


async def _unended(engine: Engine) -> int:
    async with engine.db.transaction() as tx:
        return await tx.fetchval("select count(*) from millpond.dispatches")


async def test_a_complete_that_meets_a_revoke_is_whole_or_not_at_all(engines: list[Engine]) -> None:
    first, second, *_ = engines
    for n in range(12):
        record, _ = await first.workers.register(worker=f"w{n}", routes=[KIND], fleet=FLEET, address="x")
        await first.grant(TENANT, ACCOUNT, 5)
        made = await first.submit(KIND, {}, **OWNER)
        (lease,) = await first.workers.poll(record, 1, 1)
        done, _ = await asyncio.gather(
            first.workers.complete(record, lease.job_id, lease.token, {}),
            second.workers.revoke(record.id, actor="key_op"),
            return_exceptions=True,
        )
        job = await first.read(TENANT, made.job_id)
        if isinstance(done, MillpondError):
            assert (job.phase, job.captured) == ("ready", None)
            await first.cancel(TENANT, made.job_id)
        else:
            assert (job.phase, job.captured) == ("ended", 5)
