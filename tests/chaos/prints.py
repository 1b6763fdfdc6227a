"""The product of the chaos: a job writes down who it is and leaves that as a file."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from millpond import Job, Millpond

app = Millpond()


@app.kind("print", price=3, runs="fleet", stages=("inking", "pressing"), lapses_max=100, interruptions_max=100)
async def print_(job: Job, number: int) -> dict[str, Any]:
    """Print a sheet."""
    await job.stage("inking")
    await asyncio.sleep(random.uniform(0, float(os.environ.get("CHAOS_SECONDS", "0.1"))))
    await job.progress(0.5)
    await job.stage("pressing")
    sheet = await job.save(f"{number}.txt", f"{job.id} {job.epoch}".encode(), "text/plain")
    return {"sheet": sheet.id, "epoch": job.epoch}
