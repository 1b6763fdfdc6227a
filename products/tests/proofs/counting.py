"""The product of the streams: a job that says one line after the other until it has said enough."""

from __future__ import annotations

import asyncio
from pathlib import Path

from millpond import Job, Millpond
from millpond_products.actions import action

app = Millpond()


@action(app, "count")
async def count(job: Job, lines: int, pause: float, until: str) -> dict[str, int]:
    """Count, at least so far, and on until a file is there."""
    n = 0
    while n < lines or not Path(until).exists():
        await job.log(f"line {n}")
        await asyncio.sleep(pause)
        n += 1
    return {"lines": n}
