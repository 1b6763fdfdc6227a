"""One server for all tests here: each has partners of its own.

It ends with the last of them: its services would go on beside the tests of others, and meet what those patch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.partner.deployments import Deployment, Partner, running_deployment
from products.tests.partner.sources import Sources, open_sources

from millpond.engine.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="package")
async def partner_deployment(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture(scope="package")
def sources(partner_deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    """What ingests read."""
    with open_sources(partner_deployment, tmp_path_factory.mktemp("repositories")) as opened:
        yield opened


@pytest.fixture
def deployment(partner_deployment: Deployment) -> Deployment:
    """The code of jobs is as usual at the beginning of each test."""
    partner_deployment.scripts.clear()
    return partner_deployment


@pytest.fixture
async def partner(deployment: Deployment) -> Partner:
    return await deployment.partner()
