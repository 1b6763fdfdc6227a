"""One server for all tests of a module: each has a tenant of its own, with its own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.blueprints.guard.places import Customer, Place, running_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import Server


@pytest.fixture(scope="module")
async def place(anyio_backend: str, server: Server, template: str) -> AsyncIterator[Place]:
    async with server.database(template) as dsn, running_place(dsn) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
async def customer(place: Place) -> Customer:
    return await place.customer()
