"""A worker beside the database: files, silence, notices and hooks."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Backoff, Millpond, Worker
from millpond.engine.engine import Engine
from millpond.engine.fleet.source import EngineSource
from millpond.engine.queue import registry
from millpond.engine.verify import verify
from millpond.services.scheduler import scheduler
from millpond.storage.local import Local
from millpond.worker import Notice
from tests.checks import until
from tests.factories import OWNER, STRANGER, TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from millpond import Job
    from millpond.engine.jobs.jobs import JobRecord
    from millpond.store.db import Database
    from millpond.work import HeartbeatAnswer, Lease

SOON: dict[str, Any] = {"backoff": Backoff(first=timedelta(seconds=0.01)), "attempts_max": 2}


@pytest.fixture
def app() -> Millpond:
    return Millpond()


@asynccontextmanager
async def opened(db: Database, app: Millpond, tmp_path: Path) -> AsyncIterator[Engine]:
    await registry.register(db, app.kinds.values())
    engine = Engine(db, app, storage=Local(tmp_path / "files"))
    yield engine
    assert await verify(db) == []


async def run(engine: Engine, kind: str, given: Any = None, **options: Any) -> JobRecord:
    """A job, and what became of it."""
    submitted = await engine.submit(kind, given, **OWNER)
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(engine.source(), engine.app, **options).run(stop))

    async def has_ended() -> bool:
        await scheduler(engine).run_once()
        return (await engine.read(TENANT, submitted.job_id)).phase == "ended"

    try:
        await until(has_ended)
    finally:
        stop.set()
        await working
    return await engine.read(TENANT, submitted.job_id)


# Files


async def test_a_handler_saves_and_reads_files(db: Database, app: Millpond, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"moving" * 500_000)

    @app.kind("plain")
    def plain(job: Job, photo: str) -> Any:
        copy = job.download(photo, tmp_path / "copy")
        saved = job.save("words.txt", job.open(photo).decode().upper())
        film = job.upload(tmp_path / "film.mp4")
        return {"saved": saved, "film": film, "copy": copy.read_text()}

    async with opened(db, app, tmp_path) as engine:
        given = await engine.artifacts.save(**OWNER, name="photo.txt", content_type="text/plain", data=b"a photo")
        job = await run(engine, "plain", {"photo": given.id})
        assert job.error is None
        assert job.output["copy"] == "a photo"
        made = {record.name: record for record in await engine.artifacts.of_job(TENANT, job.job_id)}
        assert set(made) == {"words.txt", "film.mp4"}
        assert await engine.artifacts.fetch(made["words.txt"]) == b"A PHOTO"
        assert job.output["saved"] == {
            "id": made["words.txt"].id,
            "name": "words.txt",
            "content_type": "text/plain",
            "size": 7,
            "sha256": made["words.txt"].sha256,
        }
        assert (made["film.mp4"].size, made["film.mp4"].content_type) == (3_000_000, "video/mp4")


@pytest.mark.parametrize("owner", ["another account", "another tenant", "nobody"])
async def test_a_handler_reads_no_file_of_another(db: Database, app: Millpond, tmp_path: Path, owner: str) -> None:
    @app.kind("nosy")
    async def nosy(job: Job, photo: str) -> int:
        return len(await job.open(photo))

    whose = {"another account": (TENANT, "bob"), "another tenant": (STRANGER, "ann"), "nobody": (TENANT, "ann")}[owner]
    async with opened(db, app, tmp_path) as engine:
        record = await engine.artifacts.save(*whose, name="photo", content_type="text/plain", data=b"a photo")
        if owner == "nobody":
            await engine.artifacts.delete(record)
        job = await run(engine, "nosy", {"photo": record.id})
    assert (job.outcome, job.error["code"]) == ("failed", "not_found")


async def test_a_handler_reads_what_its_kind_names(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("branded", files=lambda given: {"logo": f"assets/{given['brand']}.png"})
    async def branded(job: Job, brand: str, file: str = "logo") -> str:
        return (await job.open(file)).decode()

    async with opened(db, app, tmp_path) as engine:
        await engine.artifacts.store.write("assets/acme.png", b"a logo")
        assert (await run(engine, "branded", {"brand": "acme"})).output == "a logo"
        refused = await run(engine, "branded", {"brand": "acme", "file": "assets/acme.png"})
    assert refused.error["hint"] == "Its files: logo."


async def test_what_the_fleet_runs_is_left_to_it_unless_it_is_wanted(
    db: Database, app: Millpond, tmp_path: Path
) -> None:
    @app.kind("far", runs="fleet")
    def far(job: Job) -> str:
        return "near"

    async with opened(db, app, tmp_path) as engine:
        submitted = await engine.submit("far", **OWNER)
        assert await Worker(engine.source(), app).drain() == 0
        assert await Worker(engine.source(with_fleet=True), app).drain() == 1
        assert (await engine.read(TENANT, submitted.job_id)).output == "near"


# Silence


async def test_code_that_gives_no_sign_is_stopped_and_tried_again(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("stuck", stall_limit=1, **SOON)  # a moment on any machine: the second attempt must not be late
    async def stuck(job: Job) -> str:
        if job.attempt == 1:
            await asyncio.sleep(3600)
        return "woken"

    @app.kind("stuck_plain", stall_limit=0.2, **SOON)
    def stuck_plain(job: Job) -> None:
        while True:
            time.sleep(0.01)

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "stuck")
        assert (job.output, job.attempts) == ("woken", 1)
        job = await run(engine, "stuck_plain")
    assert (job.outcome, job.attempts, job.error["code"]) == ("failed", 2, "stalled")


@pytest.mark.parametrize("sign", ["progress", "stage", "log", "checkpoint", "file"])
async def test_every_sign_counts(
    db: Database, app: Millpond, tmp_path: Path, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * len(hours))
    monkeypatch.setattr("millpond.worker.context.time", clock)

    @app.kind("slow", stages=["going"])
    async def slow(job: Job) -> str:
        signs = {
            "progress": lambda n: job.progress(n / 20),
            "stage": lambda _: job.stage("going"),
            "log": lambda n: job.log(str(n)),
            "checkpoint": lambda _: job.checkpoint(),
            "file": lambda n: job.save(str(n), b"x"),
        }
        for n in range(1, 4):
            hours.append(n)
            assert job.silent_for >= 3600
            await signs[sign](n)
            assert job.silent_for < 3600
        return "done"

    async with opened(db, app, tmp_path) as engine:
        assert (await run(engine, "slow")).output == "done"


# Leases that are lost


async def test_a_job_that_comes_round_during_a_heartbeat_is_held(db: Database, app: Millpond, tmp_path: Path) -> None:
    """The heartbeat asks for the lease that it had before, which is gone; the one that it has now is not."""
    beat, is_back, beat_again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.kind("ask", expires_in=3600)
    async def ask(job: Job) -> Any:
        if job.answer is None:
            await beat.wait()
            job.park("?")
        is_back.set()
        await beat_again.wait()
        return job.answer

    class Crossing(EngineSource):
        async def extend(self, leases: Sequence[Lease]) -> HeartbeatAnswer:
            if is_back.is_set():
                beat_again.set()
            else:
                beat.set()
                await until(is_parked)
                await self.engine.answer(TENANT, submitted.job_id, "!")
                await asyncio.wait_for(is_back.wait(), PATIENCE)
            return await EngineSource.extend(self, leases)

    async def is_parked() -> bool:
        return (await engine.read(TENANT, submitted.job_id)).phase == "parked"

    async def has_ended() -> bool:
        return (await engine.read(TENANT, submitted.job_id)).phase == "ended"

    async with opened(db, app, tmp_path) as engine:
        submitted = await engine.submit("ask", **OWNER)
        stop = asyncio.Event()
        worker = Worker(Crossing(engine, heartbeat=timedelta(seconds=0.01)), app)
        working = asyncio.create_task(worker.run(stop))
        try:
            await until(has_ended)
        finally:
            stop.set()
            await working
        job = await engine.read(TENANT, submitted.job_id)
        assert (job.outcome, job.output, job.epoch) == ("succeeded", "!", 2)


async def test_a_run_that_is_cut_before_it_began_frees_its_slot(db: Database, app: Millpond, tmp_path: Path) -> None:
    """Or its lease would be prolonged for as long as the worker lives."""
    begun: list[Job] = []

    @app.kind("work")
    async def work(job: Job) -> None:
        begun.append(job)

    async with opened(db, app, tmp_path) as engine:
        await engine.submit("work", **OWNER)
        worker = Worker(engine.source(), app)
        await worker.source.open(app, 1, worker)
        assert await worker._claim(1, is_waiting=False) == 1
        (task,) = worker._tasks()
        worker.lose()
        await asyncio.wait([task])
        assert (worker._runs, begun) == ({}, [])


# Notices and hooks


async def test_a_notice_lets_end_what_can_end_and_gives_back_the_rest(
    db: Database, app: Millpond, tmp_path: Path
) -> None:
    noticed, begun = asyncio.Event(), asyncio.Semaphore(0)

    @app.kind("work")
    async def work(job: Job, hangs: int = 0) -> str:
        begun.release()
        await (asyncio.sleep(3600) if hangs else noticed.wait())
        return "done"

    async def notices() -> AsyncIterator[Notice]:
        await begun.acquire()
        await begun.acquire()
        yield Notice(15.3, "the machine is taken away")
        noticed.set()

    async with opened(db, app, tmp_path) as engine:
        quick = await engine.submit("work", **OWNER)
        slow = await engine.submit("work", {"hangs": 1}, **OWNER)
        worker = Worker(engine.source(), app, notices=notices(), grace=timedelta(hours=1))
        async with asyncio.timeout(PATIENCE):
            await worker.run(asyncio.Event())
        assert (await engine.read(TENANT, quick.job_id)).output == "done"
        left = await engine.read(TENANT, slow.job_id)
        assert (left.phase, left.attempts, left.error["message"]) == ("ready", 0, "the machine is taken away")
        await engine.cancel(TENANT, slow.job_id)


async def test_it_reports_when_it_is_busy_and_when_it_is_not(db: Database, app: Millpond, tmp_path: Path) -> None:
    reported: list[bool] = []

    @app.kind("work")
    async def work(job: Job) -> None:
        while not reported:
            await asyncio.sleep(0.001)

    async def on_busy(is_busy: bool) -> None:  # noqa: FBT001 - the hook is such
        await asyncio.sleep(0)
        reported.append(is_busy)
        raise RuntimeError("nobody minds")

    async with opened(db, app, tmp_path) as engine:
        await run(engine, "work", on_busy=on_busy)
    assert reported == [True, False]
