"""Measures PgQueuer: `bench/.venv/bin/python -m bench.peers.pgqueuer --dsn postgresql://…`.

asyncpg on uvloop, as its own benchmark and documentation recommend. Bodies are encoded before the
measurement starts, because PgQueuer takes bytes. Tables are `durable`, the default: all are logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import ClassVar

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench import databases

from . import harness
from .harness import Settings
from .workers import Board

ENTRYPOINT = "noop"


class PgQueuer:
    """PgQueuer as a peer."""

    name = "pgqueuer"
    version = version("pgqueuer")
    enqueue_settings: ClassVar[Settings] = {"driver": "asyncpg connection", "loop": "uvloop"}
    bulk_choices: ClassVar[Sequence[Settings]] = [
        {"batch": size, "driver": "asyncpg connection"} for size in (500, 1000, 2500)
    ]
    drain_choices: ClassVar[Sequence[Settings]] = [
        {"processes": 2, "batch": 500, "driver": "asyncpg connection"},
        {"processes": 2, "batch": 1000, "driver": "asyncpg connection"},
        {"processes": 2, "batch": 1000, "driver": "asyncpg pool"},
    ]
    latency_settings: ClassVar[Settings] = {
        "processes": 1,
        "batch": 10,
        "driver": "asyncpg connection",
    }

    def __init__(self, server: str) -> None:
        self.server = server

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with databases.fresh(self.server) as self.store, connected(self.store, "asyncpg connection") as driver:
            self.driver, self.queries = driver, Queries(driver)
            await self.queries.install()
            yield

    def body(self, sequence: int) -> bytes:
        return json.dumps(harness.body(sequence)).encode()

    async def enqueue(self, body: bytes) -> None:
        await self.queries.enqueue(ENTRYPOINT, body)

    async def enqueue_many(self, bodies: Sequence[bytes], settings: Settings) -> None:
        size = settings["batch"]
        for start in range(0, len(bodies), size):
            batch = list(bodies[start : start + size])
            await self.queries.enqueue([ENTRYPOINT] * len(batch), batch, [0] * len(batch))

    async def settle(self) -> None:
        await self.driver.execute("vacuum analyze pgqueuer")

    async def unfinished(self) -> int:
        return (await self.driver.fetch("select count(*) from pgqueuer"))[0]["count"]


async def work(dsn: str, board: Board, measure: str, settings: Settings) -> None:
    async with connected(dsn, settings["driver"]) as driver:
        manager = QueueManager(Queries(driver))
        manager.entrypoint(ENTRYPOINT)(handler(board, measure))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
        board.wait_at_gate()
        await manager.run(batch_size=settings["batch"])


@contextlib.asynccontextmanager
async def connected(dsn: str, driver: str) -> AsyncIterator[AsyncpgDriver | AsyncpgPoolDriver]:
    if driver == "asyncpg pool":
        async with asyncpg.create_pool(dsn, min_size=3, max_size=5) as pool:
            yield AsyncpgPoolDriver(pool)
        return
    connection = await asyncpg.connect(dsn)
    try:
        yield AsyncpgDriver(connection)
    finally:
        await connection.close()


def handler(board: Board, measure: str) -> Callable[[Job], Awaitable[None]]:
    async def count(_job: Job) -> None:
        board.count()

    async def stamp(job: Job) -> None:
        started = time.monotonic_ns()
        board.stamp(json.loads(job.payload)["sequence"], started)

    return count if measure == "drain" else stamp


if __name__ == "__main__":
    harness.main(PgQueuer, work, uvloop.run)
