"""One server for all tests here: each has users of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.actions.deployments import Deployment, User, running_deployment

from millpond.engine.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer


@pytest.fixture(scope="session")
async def actions(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Deployment]:
    async with server.database(template) as dsn, running_deployment(dsn) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture(scope="session")
async def idling(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Deployment]:
    async with server.database(template) as dsn, running_deployment(dsn, roles=("api", "services")) as running:
        yield running
        assert await verify(running.engine.db) == []


@pytest.fixture
def idle(idling: Deployment) -> Deployment:
    """A server where no worker runs but by hand."""
    idling.github.reset()
    return idling


@pytest.fixture
def deployment(actions: Deployment) -> Deployment:
    """GitHub begins again with each test."""
    actions.github.reset()
    return actions


@pytest.fixture
async def user(deployment: Deployment) -> User:
    return await deployment.user()
