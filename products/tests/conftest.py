"""What the tests of products may ask for beside conftest.py of the repository: databases with the products' tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond_products.catalog import PRODUCTS
from tests.databases import migrated_template
from tests.recycling import Recycling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="session")
async def template(anyio_backend: str, server: DatabaseServer) -> AsyncIterator[str]:
    """The name of a migrated database with the test product and all products in it, to be cloned."""
    async with migrated_template(server, PRODUCTS) as name:
        yield name


@pytest.fixture(scope="session")
async def recycling(server: DatabaseServer, template: str) -> AsyncIterator[Recycling]:
    """Copies of this template: those of the core's tests have no tables of products."""
    made = Recycling(server, template)
    yield made
    await made.close()
