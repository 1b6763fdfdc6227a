"""One server for all tests of a module: each has a tenant of its own, with its own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.guard.deployments import Customer, Deployment, running_deployment

from millpond.engine.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def deployment(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Deployment]:
    async with server.database(template) as dsn, running_deployment(dsn) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
async def customer(deployment: Deployment) -> Customer:
    return await deployment.customer()
