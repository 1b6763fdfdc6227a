"""One Replicate for all tests, as if just started for each."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from millpond.engine.providers.breakers import Breaker
from millpond.storage.local import Local
from tests.doubles.replicate import Replicate, served_replicate
from tests.providers.deployments import Deployment, planned, running_deployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.databases import DatabaseServer
    from tests.doubles.comfyui import Served

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def replicate_api() -> Iterator[Served]:
    with served_replicate() as running:
        yield running


@pytest.fixture
def double(replicate_api: Served) -> Replicate:
    made: Replicate = replicate_api.double
    made.reset()
    made.cog = None
    made.plan = planned
    return made


@pytest.fixture(scope="module")
async def shared(
    anyio_backend: str,
    server: DatabaseServer,
    template: str,
    replicate_api: Served,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Deployment]:
    """The product with all that runs it, for all tests of a module."""
    files = Local(tmp_path_factory.mktemp("files"), "http://files.test")
    async with server.database(template) as dsn, running_deployment(dsn, files, replicate_api.double) as made:
        yield made


@pytest.fixture
def here(shared: Deployment, double: Replicate) -> Deployment:
    """The same with an account of the test's own, and a provider of which nothing bad is known."""
    line = shared.engine.providers.client("replicate")
    line.breaker = Breaker(line.name)
    return replace(shared, account=f"ann-{next(_NUMBERS)}")
