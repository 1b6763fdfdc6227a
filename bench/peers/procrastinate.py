"""Measures Procrastinate: `bench/.venv/bin/python -m bench.peers.procrastinate --dsn postgresql://…`.

psycopg's compiled build on uvloop. Procrastinate gets a pool from this script, as its documentation
allows: with autocommit, and without a check of each acquired connection, it enqueues about a third
more jobs than with its own pool. It runs single statements only, so autocommit is safe. Finished
jobs are deleted, which means the fewest writes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import uvloop
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

from bench import databases

from . import harness
from .harness import Settings
from .workers import Board

TASK = "noop"
WORKER = {"pool": 4, "autocommit": True, "delete_jobs": "always"}

# It warns about an app made in __main__, which cannot be avoided in a script.
logging.getLogger("procrastinate").setLevel(logging.ERROR)


class Procrastinate:
    """Procrastinate as a peer."""

    name = "procrastinate"
    version = version("procrastinate")
    enqueue_settings: ClassVar[Settings] = {"pool": 1, "autocommit": True}
    bulk_choices: ClassVar[Sequence[Settings]] = [{"batch": size, "autocommit": True} for size in (500, 1000, 2500)]
    drain_choices: ClassVar[Sequence[Settings]] = [
        WORKER | {"processes": 2, "concurrency": 4},
        WORKER | {"processes": 4, "concurrency": 4},
    ]
    latency_settings: ClassVar[Settings] = WORKER | {"processes": 1, "concurrency": 10}

    def __init__(self, server: str) -> None:
        self.server = server

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self.app = App(connector=PsycopgConnector())
        self.task = self.app.task(name=TASK)(ignore)
        async with (
            databases.fresh(self.server) as self.store,
            make_pool(self.store, size=1) as pool,
            self.app.open_async(pool),
        ):
            await self.app.schema_manager.apply_schema_async()
            yield

    def body(self, sequence: int) -> dict[str, Any]:
        return harness.body(sequence)

    async def enqueue(self, body: dict[str, Any]) -> None:
        await self.task.defer_async(**body)

    async def enqueue_many(self, bodies: Sequence[dict[str, Any]], settings: Settings) -> None:
        size = settings["batch"]
        for start in range(0, len(bodies), size):
            await self.task.batch_defer_async(*bodies[start : start + size])

    async def settle(self) -> None:
        await self.app.connector.execute_query_async("vacuum analyze procrastinate_jobs")

    async def unfinished(self) -> int:
        query = "select count(*) as n from procrastinate_jobs where status in ('todo', 'doing')"
        return (await self.app.connector.execute_query_one_async(query))["n"]


def make_pool(dsn: str, size: int) -> AsyncConnectionPool:
    return AsyncConnectionPool(
        dsn,
        # Its SQL is not plain ASCII, and psycopg sends only ASCII to a database without encoding.
        kwargs={"client_encoding": "UTF8"},
        # Not in kwargs: Procrastinate passes those on together with its own autocommit.
        configure=lambda connection: connection.set_autocommit(True),
        min_size=size,
        max_size=size,
        open=False,
    )


async def ignore(sequence: int, padding: str) -> None:
    """The task as the enqueuing side sees it: only its name is used."""


async def work(dsn: str, board: Board, measure: str, settings: Settings) -> None:
    app = App(connector=PsycopgConnector())
    app.task(name=TASK)(handler(board, measure))
    async with make_pool(dsn, settings["pool"]) as pool, app.open_async(pool):
        board.wait_at_gate()
        await app.run_worker_async(
            concurrency=settings["concurrency"],
            delete_jobs=settings["delete_jobs"],
        )


def handler(board: Board, measure: str) -> Callable[..., Awaitable[None]]:
    async def count(**_body: object) -> None:
        board.count()

    async def stamp(sequence: int, **_rest: object) -> None:
        board.stamp(sequence, time.monotonic_ns())

    return count if measure == "drain" else stamp


if __name__ == "__main__":
    harness.main(Procrastinate, work, uvloop.run)
