"""Both stores, each behind a real server: the same tests pass on either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest

from millpond.storage.local import Local
from tests.storage.shelves import Shelf, file_server
from tests.storage.weed import Weed, running_weed
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from millpond.storage import Storage


@pytest.fixture(scope="session")
def weed() -> Iterator[Weed]:
    with running_weed() as running:
        yield running


@pytest.fixture(scope="session")
async def http(anyio_backend: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="session")
async def served(anyio_backend: str) -> AsyncIterator[Local]:
    """One file server for all tests; each gives its store a folder of its own."""
    store = Local(Path("/nonexistent"))
    async with file_server(store):
        yield store


@pytest.fixture
def local(served: Local, tmp_path: Path) -> Local:
    served.root = tmp_path / "files"
    served._key = None
    return served


@pytest.fixture
def disk(local: Local, http: httpx2.AsyncClient) -> Shelf:
    return Shelf("local", local, http)


@pytest.fixture
def bucket(weed: Weed, http: httpx2.AsyncClient) -> Shelf:
    return Shelf("s3", weed.store(f"test-{uuid4().hex[:8]}"), http)


@pytest.fixture(params=["local", "s3"])
def shelf(request: pytest.FixtureRequest, served: Local, http: httpx2.AsyncClient) -> Shelf:
    return request.getfixturevalue("disk" if request.param == "local" else "bucket")


@pytest.fixture
def store(shelf: Shelf) -> Storage:
    return shelf.store
