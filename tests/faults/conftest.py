"""What the fault tests share: one database a module, wiped before each story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.engine import Engine
from millpond.engine.queue import leases
from millpond.outbound import Outbound
from millpond.store.db import Database
from tests.clocks import Clock
from tests.factories import Factory
from tests.faults.statement_faults import StatementFaults
from tests.post import LOOPBACK, VAULT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def make(server: DatabaseServer, template: str) -> AsyncIterator[Factory]:
    async with server.database(template) as dsn:
        db = await Database.open(dsn, size=4)
        engine = Engine(db, app, vault=VAULT, outbound=Outbound(LOOPBACK))
        yield Factory(engine, Clock(db))
        await engine.outbound.close()
        await db.close()


@pytest.fixture(scope="module")
async def statement_faults(make: Factory) -> StatementFaults:
    """The database with a fault in every statement, none of them planned yet."""
    made = StatementFaults(make.engine.db)
    await made.install()
    return made


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's pauses between two tries prove nothing here."""
    monkeypatch.setattr(leases, "_PAUSE", 0.0)
