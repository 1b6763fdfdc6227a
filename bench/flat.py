"""Measures the speed with millions of finished jobs, and with a snapshot that stays open.

`python -m bench.flat --dsn postgresql://…` prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import uvloop

from bench.product import KIND, Product
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BATCH = 200
ROUNDS = 60
CHUNK = 100_000
LEASE = timedelta(minutes=10)
HISTORY = Path(__file__).with_name("history.sql")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures whether Millpond stays fast.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, default=5_000_000)
    parser.add_argument("--pinned", type=float, default=60, help="seconds with an open snapshot")
    arguments = parser.parse_args()
    product = Product(arguments.dsn)
    async with product.opened():
        await pinned(product, arguments.pinned)
    async with product.opened():
        empty = await rates(product)
    async with product.opened():
        await fill(product.store, arguments.jobs)
        full = await rates(product)
    for verb, rate in full.items():
        report(f"flat_{verb}", rate / empty[verb], "of the rate on empty tables", jobs=arguments.jobs)


async def rates(product: Product) -> dict[str, float]:
    """Jobs per second of single submits, claims and finishes: the median of all rounds."""
    engine, lanes = product.engine, Lanes([KIND])
    taken: dict[str, list[float]] = {"submit": [], "claim": [], "finish": []}
    for _ in range(ROUNDS):
        seconds, _ = await timed(lambda: submit(product))
        taken["submit"].append(BATCH / seconds)
        seconds, held = await timed(lambda: engine.claim(lanes, BATCH, worker="bench", duration=LEASE))
        taken["claim"].append(len(held) / seconds)
        seconds, _ = await timed(
            lambda held=held: asyncio.gather(*[engine.finish(End(lease, "succeeded", "{}")) for lease in held])
        )
        taken["finish"].append(len(held) / seconds)
        await engine.close_leases({lease.token for lease in held})
    return {verb: statistics.median(found) for verb, found in taken.items()}


async def pinned(product: Product, seconds: float) -> None:
    """The rate of jobs from submit to finish, before a snapshot is opened and when it has been open for long."""
    before = await complete_jobs(product, 10)
    connection = await asyncpg.connect(product.store)
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("select count(*) from millpond.kinds")
        if seconds > 10:
            await complete_jobs(product, seconds - 10)
        after = await complete_jobs(product, 10)
    await connection.close()
    report("pinned", after / before, "of the rate before the snapshot", seconds=seconds, jobs_per_second=round(after))


async def complete_jobs(product: Product, seconds: float) -> float:
    lanes, done, began = Lanes([KIND]), 0, time.monotonic()
    while time.monotonic() - began < seconds:
        await submit(product)
        held = await product.engine.claim(lanes, BATCH, worker="bench", duration=LEASE)
        await asyncio.gather(*[product.engine.finish(End(lease, "succeeded", "{}")) for lease in held])
        await product.engine.close_leases({lease.token for lease in held})
        done += len(held)
    return done / (time.monotonic() - began)


async def submit(product: Product) -> None:
    await product.enqueue_many([product.body(n) for n in range(BATCH)], {"batch": BATCH})


async def timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = await call()
    return time.perf_counter() - began, answer


async def fill(dsn: str, jobs: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("set session_replication_role = replica; set synchronous_commit = off")
    for start in range(0, jobs, CHUNK):
        await connection.execute(HISTORY.read_text(), CHUNK, start)
    await connection.execute("vacuum analyze")
    await connection.execute("checkpoint")
    await connection.close()


def report(metric: str, value: float, unit: str, **settings: Any) -> None:
    line = {"peer": "millpond", "metric": metric, "value": round(value, 3), "unit": unit, "settings": settings}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
