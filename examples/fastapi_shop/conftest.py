"""The fixtures of the shop: its tables are in the template of the databases of all tests."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient
from jobs import app
from main import Table, make_shop, url_for_sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from millpond import Millpond
from millpond.testing import Harness


@pytest.fixture(scope="session")
def millpond_product() -> Millpond:
    return app


@pytest.fixture(scope="session")
def millpond_setup() -> Callable[[str], None]:
    return lambda dsn: asyncio.run(make_tables(url_for_sqlalchemy(dsn)))


async def make_tables(url: str) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Table.metadata.create_all)
    await engine.dispose()


@pytest.fixture
def shop(millpond_app: Harness) -> Iterator[TestClient]:
    """The shop without a worker: jobs run when a test drains them."""
    with TestClient(make_shop(millpond_app.dsn, worker=False), headers={"x-customer": "ann"}) as client:
        yield client
