"""Both clients, before a double of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from millpond import AsyncClient, Backoff, Client
from tests.client.both import Awaited
from tests.doubles.native_api import KEY, NativeApi, Server, served
from tests.waiting import PATIENCE


@pytest.fixture
def api() -> NativeApi:
    return NativeApi()


@pytest.fixture(scope="session")
def port() -> Iterator[Server]:
    with served(NativeApi()) as server:
        yield server


@pytest.fixture
def double(api: NativeApi, port: Server) -> Server:
    """The double, served on a real socket."""
    port.api = api
    return port


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pauses are short, and the last look at a job may take its time."""
    monkeypatch.setattr("millpond.client.requests._BACKOFF", Backoff(first=timedelta(seconds=0.02)))
    monkeypatch.setattr("millpond.client.verbs.LATE_MAX", PATIENCE)  # a busy machine is late


@pytest.fixture(params=["awaited", "blocking"])
async def client(anyio_backend: str, double: Server, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Each client in turn; the blocking one is called in threads."""
    if request.param == "awaited":
        async with AsyncClient(double.url, KEY, timeout=PATIENCE) as made:
            yield made
    else:
        with Client(double.url, KEY, timeout=PATIENCE) as made:
            yield Awaited(made)
