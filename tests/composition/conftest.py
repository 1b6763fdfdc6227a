"""What the tests of composition share: an app whose handlers each test writes, and workers that run them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.tenant_databases.databases import RemoteDatabase, TenantDatabases
from millpond.engine.verify import verify
from millpond.retry import Backoff
from millpond.services.canceler import canceler
from millpond.services.ensurer import ensurer
from millpond.services.expirer import expirer
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from millpond.worker import Worker
from tests.factories import ACCOUNT, OWNER, TENANT
from tests.tenant_databases.conftest import Clocks
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from millpond.engine.jobs.jobs import JobRecord, Submitted
    from millpond.storage.local import Local
    from millpond.store.db import Database
    from tests.clocks import Clock
    from tests.recycling import Recycling

AT_ONCE = Backoff(first=timedelta(0), longest=timedelta(0), jitter=0)


@dataclass
class Play:
    """An app, its engine, and how often each handler was called."""

    engine: Engine
    app: Millpond
    clock: Clock
    calls: list[str] = field(default_factory=list)

    def kind(self, name: str, **options: Any) -> Callable[[Any], Any]:
        return self.app.kind(name, backoff=AT_ONCE, **options)

    async def begin(self, amount: int = 1_000) -> None:
        """Register the kinds."""
        for db in self.engine.databases():
            await registry.register(db, self.app.kinds.values())
        await self.engine.grant(TENANT, ACCOUNT, amount)

    async def submit(self, kind: str, given: Any = None, **options: Any) -> Submitted:
        return await self.engine.submit(kind, given, **OWNER, **options)

    async def drain(self) -> None:
        """Run jobs until none is ready."""
        while True:
            done = await Worker(self.engine.source(name="w"), self.app).drain()
            grown = await self.engine.tenant_databases.repair(timedelta(0), 1_000)
            if self.engine._watchers:
                await asyncio.wait(self.engine._watchers)
            elif not done and not grown:
                return

    async def run(self, kind: str, given: Any = None, **options: Any) -> JobRecord:
        """Submit a job, run everything that is ready, and return the job."""
        submitted = await self.submit(kind, given, **options)
        await self.drain()
        return await self.read(submitted.job_id)

    async def read(self, job_id: Any) -> JobRecord:
        return await self.engine.read(TENANT, job_id)

    async def held(self) -> tuple[int, int]:
        """What is available and held of the account."""
        balance = await self.engine.balance(TENANT, ACCOUNT)
        return balance.available, balance.held

    async def children(self, job_id: Any) -> list[JobRecord]:
        """The children of a job, in order."""
        return [
            child
            for batch in await self.engine.batches_of(TENANT, job_id)
            for child in await self.engine.members(TENANT, batch.batch_id, limit=200)
        ]

    async def types(self, job_id: Any) -> list[str]:
        return [event.type for event in await self.engine.events(TENANT, job_id)]

    @asynccontextmanager
    async def working(self, workers: int = 1) -> AsyncIterator[None]:
        """Workers and services, in the background."""
        stop = asyncio.Event()
        notifier = Notifier(self.engine)
        running = [
            asyncio.create_task(task)
            for task in (
                notifier.run(stop),
                *(Worker(self.engine.source(name=f"w{n}"), self.app).run(stop) for n in range(workers)),
                *(service(self.engine).run(stop) for service in (canceler, ensurer, expirer, reaper, scheduler)),
            )
        ]
        try:
            yield
        finally:
            stop.set()
            for task in running:
                with suppress(asyncio.CancelledError):
                    await task

    async def until_ended(self, job_id: Any) -> JobRecord:
        async with asyncio.timeout(PATIENCE):
            while (job := await self.read(job_id)).outcome is None:
                await asyncio.sleep(0.01)
        return job


@asynccontextmanager
async def two_databases(db: Database, recycling: Recycling, app: Millpond, files: Local) -> AsyncIterator[Play]:
    """The tenant has a database of its own."""
    async with recycling.database() as other:
        remote = await RemoteDatabase.open(other.dsn, size=4, patience=PATIENCE)
        remote.tenants.append(TENANT)
        engine = Engine(db, app, storage=files, tenant_databases=TenantDatabases(db, [remote]))
        clock = Clocks(db)
        clock.database = other
        try:
            yield Play(engine, app, clock)
            assert await engine.verify() == []
        finally:
            await engine.tenant_databases.close()


@pytest.fixture(params=["one database", "two databases"])
async def play(
    request: pytest.FixtureRequest, db: Database, clock: Clock, files: Local, recycling: Recycling
) -> AsyncIterator[Play]:
    """Every invariant must hold when the test is over."""
    app = Millpond()
    if request.param == "two databases":
        async with two_databases(db, recycling, app, files) as made:
            yield made
    else:
        yield Play(Engine(db, app, storage=files), app, clock)
    assert await verify(db) == []
