"""Measures Millpond in the peers' own harness: `python -m bench.product --dsn postgresql://…`.

Every job has an idempotency key and a price, so key, hold, job, dispatch, events and capture are all written.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import uvloop

from bench import databases
from bench.peers import harness
from bench.processes import STOP_SECONDS, within
from millpond import Engine, Millpond, Worker
from millpond.services.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.peers.harness import Settings
    from bench.peers.workers import Board
    from millpond import Job

TENANT, ACCOUNT, KIND = "bench", "bench", "noop"
WARM = "warm"
CREDITS = 10**11
CONNECTIONS = 4
WARM_UPS = 8


def app(board: Board | None = None, measure: str = "drain") -> Millpond:
    made = Millpond()

    @made.kind(KIND, price=5)
    async def noop(job: Job, sequence: int, padding: str) -> dict[str, Any]:  # noqa: ARG001 - a no-op
        if board is not None and measure == "drain":
            board.count()
        elif board is not None:
            board.stamp(sequence, time.monotonic_ns())
        return {}

    @made.kind(WARM)
    async def warm(job: Job) -> None: ...

    return made


@contextlib.asynccontextmanager
async def opened(server: str, app: Millpond, **options: Any) -> AsyncIterator[Engine]:
    """An engine on a database of its own."""
    async with databases.fresh(server) as dsn:
        engine = await Engine.open(dsn, app, **options)
        try:
            yield engine
        finally:
            async with within(STOP_SECONDS, "the engine to close"):
                await engine.close()


class Product:
    """Millpond as a peer of the others."""

    name = "millpond"
    version = version("millpond")
    enqueue_settings: ClassVar[Settings] = {"loop": "uvloop"}
    bulk_choices: ClassVar[Sequence[Settings]] = [{"batch": size} for size in (5_000, 10_000)]
    drain_choices: ClassVar[Sequence[Settings]] = [{"processes": 2, "slots": slots} for slots in (500, 1_000)]
    latency_settings: ClassVar[Settings] = {"processes": 1, "slots": 10}

    def __init__(self, server: str) -> None:
        self.server = server

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with opened(self.server, app()) as self.engine:
            self.store = self.engine.db.dsn
            Notifier(self.engine)
            await self.engine.grant(TENANT, ACCOUNT, CREDITS)
            self.made = 0
            await asyncio.gather(*[self.warm_up() for _ in range(CONNECTIONS)])
            yield

    async def warm_up(self) -> None:
        """Prepare the statements on all connections, as in a server that has run for some time."""
        for _ in range(WARM_UPS):
            warm = await self.engine.submit(WARM, {}, tenant=TENANT, account=ACCOUNT)
            await self.engine.submit_many([{"kind": WARM, "tenant": TENANT, "account": ACCOUNT}])
            await self.engine.cancel(TENANT, warm.job_id)

    def body(self, sequence: int) -> dict[str, Any]:
        return harness.body(sequence)

    async def enqueue(self, body: dict[str, Any]) -> None:
        self.made += 1
        await self.engine.submit(KIND, body, tenant=TENANT, account=ACCOUNT, idempotency_key=f"order-{self.made}")

    async def enqueue_many(self, bodies: Sequence[dict[str, Any]], settings: Settings) -> None:
        size = settings["batch"]
        for start in range(0, len(bodies), size):
            requests = []
            for body in bodies[start : start + size]:
                self.made += 1
                requests.append(
                    {
                        "kind": KIND,
                        "input": body,
                        "tenant": TENANT,
                        "account": ACCOUNT,
                        "idempotency_key": f"order-{self.made}",
                    }
                )
            answers = await self.engine.submit_many(requests)
            refused = [answer for answer in answers if isinstance(answer, Exception)]
            if refused:
                raise refused[0]

    async def settle(self) -> None:
        async with self.engine.db.pool.acquire() as connection:
            await connection.execute("vacuum analyze")

    async def unfinished(self) -> int:
        return await self.engine.db.pool.fetchval("select count(*) from millpond.dispatches where kind = $1", KIND)


async def work(dsn: str, board: Board, measure: str, settings: Settings) -> None:
    made = app(board, measure)
    engine = await Engine.open(dsn, made)
    notifier = Notifier(engine)
    stop = asyncio.Event()
    worker = Worker(engine.source(), made, slots=settings["slots"])
    listening = asyncio.create_task(notifier.run(stop))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    board.wait_at_gate()
    await worker.run(stop)
    await listening
    await engine.close()


if __name__ == "__main__":
    harness.main(Product, work, uvloop.run)
