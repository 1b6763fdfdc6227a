"""Single submits from 64 concurrent callers in one process: `python -m bench.callers --dsn postgresql://…`."""

from __future__ import annotations

import argparse
import asyncio
import json
import time

import uvloop

from bench.product import Product

CALLERS = 64
JOBS = 20_000


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures concurrent single submits.")
    parser.add_argument("--dsn", required=True)
    product = Product(parser.parse_args().dsn)
    async with product.opened():
        measured = await measure(product)
    for metric, unit in (("concurrent", "jobs/s"), ("concurrent_p50", "ms"), ("concurrent_p99", "ms")):
        line = {"peer": product.name, "version": product.version, "metric": metric, "value": round(measured[metric], 2)}
        print(json.dumps(line | {"unit": unit, "settings": {"callers": CALLERS}}), flush=True)


async def measure(product: Product) -> dict[str, float]:
    bodies = iter([product.body(n) for n in range(JOBS)])
    waits: list[float] = []

    async def call() -> None:
        for body in bodies:
            began = time.perf_counter()
            await product.enqueue(body)
            waits.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*[call() for _ in range(CALLERS)])
    seconds = time.perf_counter() - began
    waits.sort()
    return {
        "concurrent": JOBS / seconds,
        "concurrent_p50": waits[len(waits) // 2],
        "concurrent_p99": waits[int(len(waits) * 0.99)],
    }


if __name__ == "__main__":
    uvloop.run(main())
