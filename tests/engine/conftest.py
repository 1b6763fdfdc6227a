"""What the tests of webhooks share: one database and one set of receivers a module, wiped before each story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.post import Post, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def post_office(server: DatabaseServer, template: str) -> AsyncIterator[Post]:
    async with server.database(template) as dsn, opened(dsn) as made:
        yield made


@pytest.fixture
async def post(post_office: Post) -> AsyncIterator[Post]:
    await post_office.clear()
    yield post_office
    assert await verify(post_office.engine.db) == []
