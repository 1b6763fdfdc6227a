"""A real server on a real socket, with the test product, keys and an HTTP client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.engine import Engine
from millpond.store.db import Database
from tests.api.sites import Site, running_site
from tests.checks import Snapshot, snapshot
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    """The API of the test's engine."""
    async with running_site(engine) as running:
        yield running


@pytest.fixture(scope="module")
async def still_site(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    """One API for all tests of a module that write nothing: when they are over, every row is as it was."""
    async with server.database(template) as dsn:
        db = await Database.open(dsn, size=4)
        try:
            async with running_site(Engine(db, app)) as running:
                before = await _rows(db)
                yield running
                assert await _rows(db) == before
        finally:
            await db.close()


async def _rows(db: Database) -> Snapshot:
    return {table: rows for table, rows in (await snapshot(db)).items() if table != "keys"}  # they tell their last use
