from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.doubles.receivers import Receivers, receivers


@dataclass
class PrivateServer:
    """A server of this machine that nobody may reach."""

    port: int
    connections: int = 0


@pytest.fixture(scope="module")
async def private_server(anyio_backend: str) -> AsyncIterator[PrivateServer]:
    """It listens on 127.0.0.1 and ::1, on one port."""
    made = PrivateServer(0)

    async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        writer.close()

    four = await asyncio.start_server(count, "127.0.0.1", 0)
    made.port = four.sockets[0].getsockname()[1]
    six = await asyncio.start_server(count, "::1", made.port)
    async with four, six:
        yield made


@pytest.fixture(scope="module")
async def others(anyio_backend: str) -> AsyncIterator[Receivers]:
    async with receivers() as made:
        yield made
