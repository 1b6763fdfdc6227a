"""Both stores, each behind a real server: the same tests pass on either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest

from millpond.storage.local import Local
from tests.storage.backends import Backend, file_server
from tests.storage.seaweedfs import SeaweedFS, running_seaweedfs
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from millpond.storage import Storage


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    with running_seaweedfs() as running:
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
def disk(local: Local, http: httpx2.AsyncClient) -> Backend:
    return Backend("local", local, http)


@pytest.fixture
def bucket(seaweedfs: SeaweedFS, http: httpx2.AsyncClient) -> Backend:
    return Backend("s3", seaweedfs.store(f"test-{uuid4().hex[:8]}"), http)


@pytest.fixture(params=["local", "s3"])
def backend(request: pytest.FixtureRequest, served: Local, http: httpx2.AsyncClient) -> Backend:
    return request.getfixturevalue("disk" if request.param == "local" else "bucket")


@pytest.fixture
def store(backend: Backend) -> Storage:
    return backend.store
