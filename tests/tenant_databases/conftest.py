"""What the tests of two databases share: central, a home of its own for one tenant, and services to repair with."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from millpond.engine import verify
from millpond.engine.engine import Engine
from millpond.engine.queue import leases
from millpond.engine.tenant_databases.databases import RemoteDatabase, TenantDatabases
from millpond.engine.tenant_databases.remote import skip_unavailable
from millpond.engine.webhooks import deliveries
from millpond.outbound import Outbound
from millpond.services.ensurer import ensurer
from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from millpond.store.db import Database
from tests.checks import Snapshot
from tests.clocks import Clock
from tests.factories import TENANT, Factory
from tests.faults.dumps import story, wipe
from tests.post import LOOPBACK, VAULT
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

CENTRAL = ("dispatches", "leases", "limit_holders", "limit_keys", "limit_releases", "limit_waits", "ready", "shares")
TENANTS = (
    "accounts",
    "batch_cancels",
    "batch_hooks",
    "batch_keys",
    "batch_pages",
    "batches",
    "budgets",
    "chunks",
    "deliveries",
    "delivery_tries",
    "endpoints",
    "entries",
    "events",
    "hooks",
    "idempotency",
    "jobs",
    "orphans",
    "owed",
    "reservations",
    "steps",
    "subscriptions",
    "trees",
)
NOW = timedelta(0)


class Clocks(Clock):
    """Two databases, one time."""

    database: Database

    async def advance(self, by: timedelta) -> None:
        await super().advance(by)
        other = Clock(self.database, self.offset - by)
        await other.advance(by)


@dataclass(slots=True)
class SystemUnderTest:
    """An engine whose tenant lives in another database, and its verbs."""

    make: Factory

    @property
    def engine(self) -> Engine:
        return self.make.engine

    @property
    def database(self) -> Database:
        return self.engine.database(TENANT)

    async def clear(self) -> None:
        for db in self.engine.databases():
            await wipe(db)
            async with db.transaction() as tx:
                await tx.execute("delete from millpond.owed")
        if self.make.clock.offset:
            await self.make.clock.advance(-self.make.clock.offset)

    async def repair(self) -> bool:
        """Tells whether all is well when the services have run once."""
        await self.serve()
        return await self.engine.verify() == []

    async def serve(self) -> None:
        """What services do once."""
        for service in (ensurer, reaper, expirer, scheduler):
            options = {"delay": NOW} if service is ensurer else {}
            await service(self.engine, **options).run_once()
        for database in self.engine.databases():
            with skip_unavailable():
                await deliveries.conclude_unfinished(self.engine, database, 100)

    async def tenants_story(self, *, in_order: bool = True) -> Snapshot:
        described = await story(self.database, in_order=in_order)
        return {name: described.get(name, []) for name in TENANTS if name != "owed"}


@asynccontextmanager
async def opened(central: str, database: str) -> AsyncIterator[Engine]:
    """An engine on two databases that are ready."""
    db = await Database.open(central, size=4)
    remote = await RemoteDatabase.open(database, size=4, patience=PATIENCE)
    remote.tenants.append(TENANT)
    engine = Engine(db, app, tenant_databases=TenantDatabases(db, [remote]), vault=VAULT, outbound=Outbound(LOOPBACK))
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(scope="module")
async def system(server: DatabaseServer, template: str) -> AsyncIterator[SystemUnderTest]:
    async with (
        server.database(template) as central,
        server.database(template) as database,
        opened(central, database) as engine,
    ):
        clock = Clocks(engine.db)
        clock.database = engine.database(TENANT)
        yield SystemUnderTest(Factory(engine, clock))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between two looks or two tries prove nothing here."""
    monkeypatch.setattr(leases, "_PAUSE", 0.0)
    monkeypatch.setattr(verify, "_PAUSE", 0.01)
