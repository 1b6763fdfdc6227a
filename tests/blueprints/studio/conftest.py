"""One server for all tests here: each has users of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.blueprints.studio.places import Lines, Place, listening, running_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.databases import Server


@pytest.fixture(scope="session")
async def studio(
    anyio_backend: str, server: Server, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_place(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
def place(studio: Place) -> Place:
    """The provider begins anew with each test."""
    studio.provider.reset()
    studio.shop.troubles.clear()
    return studio


@pytest.fixture
def lines() -> Iterator[Lines]:
    with listening() as heard:
        yield heard
