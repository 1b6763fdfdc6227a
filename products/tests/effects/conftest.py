"""One server for all tests of a module: each has users, workflows and workers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.effects.deployments import Deployment, running_deployment

from millpond.engine.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def deployment(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []
