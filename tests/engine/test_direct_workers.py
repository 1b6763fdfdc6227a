"""Workers that connect to the database: registered, heard from, drained, lost and forgotten like any other."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Job, Millpond, Worker
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.reads import board, health
from millpond.errors import ConflictError
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from tests.checks import until
from tests.factories import OWNER
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.fleet.workers import WorkerView
    from millpond.store.db import Database
    from tests.clocks import Clock

SECOND = timedelta(seconds=1)


class Ears:
    """A listener of a source that only counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()

    def cancel(self, job_id: Any) -> None: ...

    def lose(self, leases: Any = None) -> None: ...

    def dismiss(self, reason: Any) -> None: ...


class Handler:
    """A kind whose jobs run until they are released."""

    def __init__(self, app: Millpond) -> None:
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        app.kind("slow")(self.run)

    async def has_begun(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.began.wait()
        self.began.clear()

    async def run(self, job: Job) -> dict[str, bool]:
        assert job.kind == "slow"
        self.began.set()
        await self.release.wait()
        return {"done": True}


@pytest.fixture
def app() -> Millpond:
    return Millpond()


@pytest.fixture
def slow(app: Millpond) -> Handler:
    return Handler(app)


@pytest.fixture
async def engine(db: Database, app: Millpond, slow: Handler) -> Engine:
    await registry.register(db, app.kinds.values())
    return Engine(db, app)


@asynccontextmanager
async def working(engine: Engine, **options: Any) -> AsyncIterator[asyncio.Event]:
    """A worker that runs until the block is left, and then stops as it should."""
    stop = asyncio.Event()
    source = engine.source(name="hand", heartbeat=SECOND / 20)
    task = asyncio.create_task(Worker(source, engine.app, **options).run(stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE):
            await task


async def registered(engine: Engine) -> WorkerView:
    async def is_there() -> bool:
        return len(await engine.workers.list()) == 1

    await until(is_there)
    (found,) = await engine.workers.list()
    return found


async def test_an_idle_worker_is_registered_and_leaves_no_trace_when_it_stops(engine: Engine) -> None:
    async with working(engine, slots=7):
        found = await registered(engine)
        assert (found.worker, found.is_fleet, found.slots, found.status) == ("hand", False, 7, "idle")
        assert (found.queues, found.routes, found.version) == (("slow",), (), version("millpond"))
        assert found.capabilities["pid"] == os.getpid()

        async def is_heard_again() -> bool:
            now = await engine.workers.get(found.id)
            return now.heard_at > found.heard_at and now.polled_at is not None

        await until(is_heard_again)
        (queue,) = [each for each in await health.queues(engine.db) if each.queue == "slow"]
        assert (queue.workers, queue.verdict) == (1, "ok")
        seen = await board.look(engine)
        assert (seen.crew.ok, seen.capacity.slots, seen.capacity.slots_used) == (1, 7, 0)
    assert await engine.workers.list() == []


async def test_slots_and_the_jobs_in_them_are_counted_over_the_same_workers(engine: Engine, slow: Handler) -> None:
    async with working(engine, slots=2):
        await engine.submit("slow", {}, **OWNER)
        await slow.has_begun()
        found = await registered(engine)
        assert (found.status, found.jobs, found.leases) == ("busy", 1, 1)
        seen = await board.look(engine)
        assert (seen.capacity.slots, seen.capacity.slots_used) == (2, 1)
        await engine.workers.drain(found.id, actor="key_op")
        seen = await board.look(engine)
        assert (seen.capacity.slots, seen.capacity.slots_used, seen.crew.draining) == (1, 1, 1)
        slow.release.set()


async def test_a_draining_worker_finishes_its_jobs_and_takes_none_until_it_is_resumed(
    engine: Engine, slow: Handler
) -> None:
    async with working(engine):
        first = await engine.submit("slow", {}, **OWNER)
        await slow.has_begun()
        found = await registered(engine)
        drained = await engine.workers.drain(found.id, actor="key_op")
        assert (drained.status, drained.jobs) == ("draining", 1)
        second = await engine.submit("slow", {}, **OWNER)
        slow.release.set()

        async def is_idle() -> bool:
            return (await engine.workers.get(found.id)).jobs == 0

        await until(is_idle)
        assert (await engine.read(OWNER["tenant"], first.job_id)).outcome == "succeeded"
        assert (await engine.read(OWNER["tenant"], second.job_id)).phase == "ready"
        await engine.workers.resume(found.id, actor="key_op")
        await slow.has_begun()


async def test_no_claim_that_begins_after_a_drain_gets_a_job(engine: Engine) -> None:
    """The worker does not know of the drain yet: the database refuses it."""
    source = engine.source()
    await source.open(engine.app, 1, Ears())
    (found,) = await engine.workers.list()
    submitted = await engine.submit("slow", {}, **OWNER)
    await engine.workers.drain(found.id, actor="key_op")
    assert await source.claim(1, is_waiting=False) == []
    await engine.workers.resume(found.id, actor="key_op")
    (lease,) = await source.claim(1, is_waiting=False)
    assert lease.job_id == submitted.job_id
    await source.close()


async def test_a_notification_informs_a_worker_of_its_drain_and_wakes_it_when_it_is_resumed(engine: Engine) -> None:
    notifier, stop, ears = Notifier(engine), asyncio.Event(), Ears()
    notifying = asyncio.create_task(notifier.run(stop))
    source = engine.source()
    await source.open(engine.app, 1, ears)
    registration = source._registration
    assert registration is not None
    await engine.workers.drain(registration.id, actor="key_op")

    async def is_notified() -> bool:
        return registration.is_draining

    await until(is_notified)
    await engine.workers.resume(registration.id, actor="key_op")
    async with asyncio.timeout(PATIENCE):
        await ears.woken.wait()
    await source.close()
    stop.set()
    await notifying


async def test_what_needs_a_token_or_routes_is_refused(engine: Engine) -> None:
    source = engine.source(name="hand")
    await source.open(engine.app, 1, Ears())
    (found,) = await engine.workers.list()
    workers = engine.workers
    for verb in (workers.approve, workers.revoke, workers.rotate):
        with pytest.raises(ConflictError, match="connects to the database") as refused:
            await verb(found.id, actor="key_op")
        assert "drained and resumed" in (refused.value.hint or "")
    await workers.open_route("gpu")
    with pytest.raises(ConflictError):
        await workers.assign(found.id, ["gpu"], actor="key_op")
    await source.close()


async def test_a_dead_worker_is_lost_its_jobs_are_taken_back_and_its_successor_replaces_it(
    engine: Engine, clock: Clock
) -> None:
    source = engine.source(name="hand", lease=SECOND * 30)
    await source.open(engine.app, 4, Ears())
    submitted = await engine.submit("slow", {}, **OWNER)
    assert len(await source.claim(1, is_waiting=False)) == 1
    await clock.advance(SECOND * 31)
    (found,) = await engine.workers.list()
    assert (found.status, found.jobs) == ("lost", 1)
    seen = await board.look(engine)
    assert (seen.crew.lost, seen.crew.ok, seen.capacity.slots) == (1, 0, None)
    await reaper(engine).run_once()
    assert (await engine.read(OWNER["tenant"], submitted.job_id)).phase == "ready"
    assert [worker.status for worker in await engine.workers.list()] == ["lost"]
    successor = engine.source(name="hand")
    await successor.open(engine.app, 4, Ears())
    await reaper(engine).run_once()
    (left,) = await engine.workers.list()
    assert (left.status, left.id == found.id) == ("idle", False)
    await source.beat()  # the lost one comes back: it is another worker of that name
    assert {worker.status for worker in await engine.workers.list()} == {"idle"}
    assert len(await engine.workers.list()) == 2
    for each in (source, successor):
        await each.close()
    assert await engine.workers.list() == []


async def test_workers_of_one_name_are_distinguished_and_take_no_place_in_the_fleet(engine: Engine) -> None:
    sources = [engine.source(name="hand") for _ in range(3)]
    for source in sources:
        await source.open(engine.app, 1, Ears())
    assert [worker.worker for worker in await engine.workers.list()] == ["hand"] * 3
    assert len({worker.id for worker in await engine.workers.list()}) == 3
    (row,) = [await engine.db.run(_alive(), timedelta(days=1))]
    assert row["workers"] == 0
    for source in sources:
        await source.close()


def _alive() -> Any:
    from millpond.engine.fleet.workers import SQL  # noqa: PLC0415 - only here

    return SQL["alive"]


async def test_a_heartbeat_costs_one_statement_and_a_job_none(
    engine: Engine, slow: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = type(engine.db).run

    async def counted(self: Database, query: Any, *arguments: Any, **options: Any) -> Any:
        ran.append(query.name)
        return await run(self, query, *arguments, **options)

    monkeypatch.setattr(type(engine.db), "run", counted)
    source = engine.source()
    await source.open(engine.app, 5, Ears())
    slow.release.set()
    for _ in range(3):
        await engine.submit("slow", {}, **OWNER)
    leases = await source.claim(3, is_waiting=False)
    assert len(leases) == 3
    await source.beat()
    assert [name for name in ran if name.startswith("registrations.")] == ["registrations.beat"] * 2
    assert [name for name in ran if name.startswith("workers.")] == []
    await source.close()
