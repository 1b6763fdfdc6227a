"""A worker with a pool, beside the database."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Worker, logs
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.verify import verify
from millpond.services.scheduler import scheduler
from millpond.storage.local import Local
from tests.checks import until
from tests.factories import ACCOUNT, OWNER, TENANT
from tests.process import apart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path
    from uuid import UUID

    from millpond import Millpond
    from millpond.engine.jobs.jobs import JobRecord
    from millpond.store.db import Database


@dataclass
class Site:
    engine: Engine
    worker: Worker
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, kind: str, given: Any = None) -> UUID:
        return (await self.engine.submit(kind, given, **OWNER)).job_id

    async def read(self, job_id: UUID) -> JobRecord:
        return await self.engine.read(TENANT, job_id)

    async def ended(self, job_id: UUID) -> JobRecord:
        return await self.until("ended", job_id)

    async def until(self, phase: str, job_id: UUID) -> JobRecord:
        async def is_there() -> bool:
            await scheduler(self.engine).run_once()
            return (await self.read(job_id)).phase == phase

        await until(is_there)
        return await self.read(job_id)

    async def run(self, kind: str, given: Any = None) -> JobRecord:
        return await self.ended(await self.submit(kind, given))

    def pids(self) -> set[int]:
        """The processes of the pool."""
        pool = self.worker._pool
        found = [] if pool is None else [each._process for each in pool._processes]
        return {process.pid for process in found if process is not None}


@asynccontextmanager
async def working(db: Database, tmp_path: Path, app: Millpond = apart.app, **options: Any) -> AsyncIterator[Site]:
    await registry.register(db, app.kinds.values())
    engine = Engine(db, app, storage=Local(tmp_path / "files"))
    await engine.grant(TENANT, ACCOUNT, 1_000)
    source = engine.source(heartbeat=timedelta(seconds=0.1))
    site = Site(engine, Worker(source, app, **{"slots": 2, "grace": timedelta(seconds=5)} | options))
    task = asyncio.create_task(site.worker.run(site.stop))
    try:
        yield site
    finally:
        site.stop.set()
        await task
    assert await verify(db) == []


@pytest.fixture(autouse=True)
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which the resources write."""
    file = tmp_path / "events"
    file.touch()
    monkeypatch.setenv("APART_EVENTS", str(file))
    return file


@pytest.fixture
async def site(db: Database, tmp_path: Path, events: Path) -> AsyncIterator[Site]:
    async with working(db, tmp_path) as made:
        yield made


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    yield stream
    logs.silence()
