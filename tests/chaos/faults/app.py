"""The app under fault: jobs whose outcome is known beforehand, however often they are interrupted."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

from millpond import Job, Millpond, PermanentError
from millpond.retry import Backoff

app = Millpond()

PRICE = 3
STUBBORN: dict[str, Any] = {
    "price": PRICE,
    "attempts_max": 1_000,
    "lapses_max": 1_000,
    "interruptions_max": 1_000,
    "backoff": Backoff(first=timedelta(milliseconds=100), longest=timedelta(seconds=1)),
}


@app.kind("sum", **STUBBORN)
async def sum_(job: Job, n: int) -> int:
    await asyncio.sleep(random.uniform(0, 0.05))
    return n + 1


@app.kind("part", **STUBBORN)
async def part(job: Job, n: int) -> int:
    """Cost less than was held."""
    await job.progress(0.5)
    job.capture(1)
    return n


@app.kind("refused", **STUBBORN)
async def refused(job: Job, n: int) -> None:
    raise PermanentError("The input is refused.")


@app.kind("endless", **STUBBORN)
async def endless(job: Job, n: int) -> None:
    """Run until canceled."""
    while True:
        await job.checkpoint()
        await asyncio.sleep(0.02)


@app.kind("sheet", runs="fleet", **STUBBORN)
async def sheet(job: Job, n: int) -> dict[str, Any]:
    """Leave a file that names the attempt."""
    file = await job.save(f"{n}.txt", f"{job.id} {job.epoch}".encode(), "text/plain")
    return {"file": file.id, "epoch": job.epoch}
