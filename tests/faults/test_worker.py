"""A worker among failures: a lease that ran out unnoticed, a database that answers with errors."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import BlockedError, Millpond, logs
from millpond.engine.engine import Engine
from millpond.engine.queue import leases, registry
from millpond.engine.verify import verify
from millpond.lifecycle import lifecycle
from millpond.worker.worker import Worker
from tests.checks import until
from tests.factories import MINUTE, OWNER, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import datetime

    from millpond.store.db import Database
    from tests.clocks import Clock

PLAIN = lifecycle(
    "plain",
    """
    *       -> running   submitted
    running -> done      succeeded
    running -> broken    failed expired
    """,
    ends="done=succeeded broken=failed",
)


@pytest.fixture
def release() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def app(release: asyncio.Event) -> Millpond:
    app = Millpond()

    @app.kind("slow_at_first", price=0)
    async def slow_at_first(job: Any) -> int:
        """Hangs the first time it is tried."""
        while job.epoch == 1:
            await asyncio.sleep(0.01)
        return job.epoch

    @app.kind("held")
    async def held(job: Any) -> str:
        await release.wait()
        return "done"

    @app.kind("improper", lifecycle=PLAIN)
    async def improper(job: Any) -> None:
        raise BlockedError("Not here.")

    @app.kind("chatty")
    async def chatty(job: Any) -> None:
        """Its notes go out in any order and with any level."""
        await asyncio.gather(*(job.log(f"line {n}", level="\x00" * 50) for n in range(50)))

    return app


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("warning", as_json=True, stream=stream)
    yield stream
    logs.silence()


@asynccontextmanager
async def working(db: Database, app: Millpond, **options: Any) -> AsyncIterator[tuple[Engine, Worker]]:
    await registry.register(db, app.kinds.values())
    engine = Engine(db, app)
    worker = Worker(engine.source(**options), app, grace=timedelta(seconds=0.1))
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield engine, worker
    finally:
        stop.set()
        await task
    assert not worker._runs
    assert not worker._held
    assert await verify(db) == []


async def test_a_job_that_comes_round_again_while_its_first_run_hangs_is_run_once_more(
    db: Database, clock: Clock, app: Millpond
) -> None:
    """Its lease ran out before the worker noticed; both runs are its own, and neither may free the other's slot."""
    async with working(db, app, heartbeat=timedelta(hours=1)) as (engine, worker):
        submitted = await engine.submit("slow_at_first", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "leased"))
        await clock.advance(MINUTE + timedelta(seconds=1))
        await leases.lapse(db, 10)
        await until(lambda: is_in(engine, submitted.job_id, "ended"))
        await until(lambda: is_idle(worker))
    assert (await engine.read(TENANT, submitted.job_id)).output == 2


async def test_a_heartbeat_outlives_a_database_that_answers_with_errors(
    db: Database, app: Millpond, release: asyncio.Event, log: io.StringIO
) -> None:
    """An error is not the end of the heart: without it every lease would run out."""
    async with working(db, app, heartbeat=timedelta(seconds=0.05)) as (engine, _):
        submitted = await engine.submit("held", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "leased"))
        async with hidden(db, "leases"):
            await until(lambda: was_said(log, "db.unavailable"))
        granted = await lease_end(db)
        await until(lambda: is_prolonged(db, granted))
        release.set()
        await until(lambda: is_in(engine, submitted.job_id, "ended"))
    job = await engine.read(TENANT, submitted.job_id)
    assert (job.output, job.epoch) == ("done", 1)


async def test_a_worker_outlives_a_claim_that_fails(db: Database, app: Millpond, log: io.StringIO) -> None:
    async with working(db, app) as (engine, _):
        async with hidden(db, "ready"):
            await until(lambda: was_said(log, "service.failed"))
        submitted = await engine.submit("chatty", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "ended"))


async def test_an_end_that_the_lifecycle_does_not_draw_is_a_failure(db: Database, app: Millpond) -> None:
    """Better failed than in nobody's hands: every job that runs can fail."""
    async with working(db, app) as (engine, _):
        submitted = await engine.submit("improper", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "ended"))
    job = await engine.read(TENANT, submitted.job_id)
    assert (job.state, job.epoch, job.error["code"]) == ("broken", 1, "transition_denied")


async def test_many_notes_at_once_are_all_written(db: Database, app: Millpond) -> None:
    async with working(db, app) as (engine, _):
        submitted = await engine.submit("chatty", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "ended"))
    events = await engine.events(TENANT, submitted.job_id)
    assert [event.seq for event in events] == list(range(1, 54))


async def is_in(engine: Engine, job_id: Any, phase: str) -> bool:
    return (await engine.read(TENANT, job_id)).phase == phase


async def is_idle(worker: Worker) -> bool:
    return not worker._runs


async def lease_end(db: Database) -> datetime:
    async with db.transaction() as tx:
        return await tx.fetchval("select max(expires_at) from millpond.leases")


async def is_prolonged(db: Database, granted: datetime) -> bool:
    return await lease_end(db) > granted


async def was_said(log: io.StringIO, event: str) -> bool:
    return event in log.getvalue()


@asynccontextmanager
async def hidden(db: Database, table: str) -> AsyncIterator[None]:
    """While a table is away, every statement on it is an error that nobody has a name for."""
    async with db.transaction() as tx:
        await tx.execute(f"alter table millpond.{table} rename to hidden")
    try:
        yield
    finally:
        async with db.transaction() as tx:
            await tx.execute(f"alter table millpond.hidden rename to {table}")


REFUSING = """
create sequence public.refusals;
create function public.refuse() returns trigger language plpgsql as $$
begin
    perform nextval('public.refusals');
    raise exception 'cannot execute UPDATE in a read-only transaction' using errcode = '25006';
end $$;
"""


@asynccontextmanager
async def read_only(db: Database, *tables: str) -> AsyncIterator[None]:
    """Meanwhile these tables refuse changes as a read-only server does, and count them."""
    triggers = [f"trigger refuse before update or delete on millpond.{table}" for table in tables]
    async with db.transaction() as tx:
        await tx.execute(REFUSING)
        for trigger in triggers:
            await tx.execute(f"create {trigger} for each statement execute function public.refuse()")
    try:
        yield
    finally:
        async with db.transaction() as tx:
            for table in tables:
                await tx.execute(f"drop trigger refuse on millpond.{table}")


async def test_a_finished_result_is_reported_until_the_database_accepts_it(
    db: Database, app: Millpond, release: asyncio.Event
) -> None:
    """Even when its lease can no longer be trusted: the report is fenced, so the worst is that it is refused."""
    async with working(db, app, heartbeat=timedelta(seconds=0.05)) as (engine, worker):
        submitted = await engine.submit("held", **OWNER)
        await until(lambda: is_in(engine, submitted.job_id, "leased"))
        async with read_only(db, "jobs", "leases"):
            release.set()
            worker._trusted_until = 0.0  # as if most of the lease had passed; heartbeats are refused too
            await until(lambda: is_refused_often(db))
        await until(lambda: is_in(engine, submitted.job_id, "ended"))
    job = await engine.read(TENANT, submitted.job_id)
    assert (job.outcome, job.output, job.epoch) == ("succeeded", "done", 1)


async def is_refused_often(db: Database) -> bool:
    """Whether the report and the heartbeats were refused several times."""
    async with db.transaction() as tx:
        return await tx.fetchval("select last_value from public.refusals") > 30
