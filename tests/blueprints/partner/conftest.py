"""One server for all tests here: each has partners of its own.

It ends with the last of them: its services would go on beside the tests of others, and meet what those patch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.verify import verify
from tests.blueprints.partner.places import Partner, Place, running_place
from tests.blueprints.partner.sources import Sources, open_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.databases import Server


@pytest.fixture(scope="package")
async def partner_place(
    anyio_backend: str, server: Server, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_place(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture(scope="package")
def ground(partner_place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    """What ingests read."""
    with open_sources(partner_place, tmp_path_factory.mktemp("repositories")) as opened:
        yield opened


@pytest.fixture
def place(partner_place: Place) -> Place:
    """The code of jobs is as usual at the beginning of each test."""
    partner_place.scripts.clear()
    return partner_place


@pytest.fixture
async def partner(place: Place) -> Partner:
    return await place.partner()
