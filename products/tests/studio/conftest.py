"""One server for all tests here: each has users of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.studio.deployments import Deployment, Lines, listening, running_deployment

from millpond.engine.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="session")
async def studio(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
def deployment(studio: Deployment) -> Deployment:
    """The provider begins again with each test."""
    studio.provider.reset()
    studio.shop.troubles.clear()
    return studio


@pytest.fixture
def lines() -> Iterator[Lines]:
    with listening() as heard:
        yield heard
