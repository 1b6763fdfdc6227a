"""One server for all tests of a module: each has users, workflows and workers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.blueprints.effects.places import Place, running_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import Server


@pytest.fixture(scope="module")
async def place(
    anyio_backend: str, server: Server, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_place(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []
