"""One server for all tests here: each has users of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.blueprints.actions.places import Place, User, running_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import Server


@pytest.fixture(scope="session")
async def actions(anyio_backend: str, server: Server, template: str) -> AsyncIterator[Place]:
    async with server.database(template) as dsn, running_place(dsn) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture(scope="session")
async def idling(anyio_backend: str, server: Server, template: str) -> AsyncIterator[Place]:
    async with server.database(template) as dsn, running_place(dsn, roles=("api", "services")) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
def idle(idling: Place) -> Place:
    """A server where no worker runs but by hand."""
    idling.github.reset()
    return idling


@pytest.fixture
def place(actions: Place) -> Place:
    """GitHub begins anew with each test."""
    actions.github.reset()
    return actions


@pytest.fixture
async def user(place: Place) -> User:
    return await place.user()
