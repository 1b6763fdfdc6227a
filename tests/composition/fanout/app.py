"""A parent with many children, paid by its budget or by the account."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta
from typing import Any

from millpond import Job, Millpond
from millpond.errors import PermanentError
from millpond.retry import Backoff

PRICE, PARENT_PRICE, BUDGET = 3, 5, 40_000
app = Millpond()
OPTIONS: Any = {
    "backoff": Backoff(first=timedelta(milliseconds=10), jitter=0.5),
    "attempts_max": 1_000,
    "lapses_max": 1_000,
    "interruptions_max": 1_000,
    "runs": "fleet" if os.environ.get("FANOUT_FLEET") else "handler",
}


def fate(n: int) -> tuple[str, int]:
    """How a child ends, and what it costs: some fail, and some cost less than was held."""
    if n % 50 == 7:
        return "failed", 0
    return "succeeded", 1 if n % 10 == 3 else PRICE


@app.kind("shot", price=PRICE, **OPTIONS)
async def shot(job: Job, n: int, seconds: float) -> int:
    await asyncio.sleep(random.uniform(0, seconds))
    outcome, cost = fate(n)
    if outcome == "failed":
        raise PermanentError("as planned")
    if cost < PRICE:
        job.capture(cost)
    return n


async def gather(job: Job, children: int, seconds: float) -> int:
    wanted = [job.child("shot", {"n": n, "seconds": seconds}) for n in range(children)]
    done = await job.gather(*wanted, return_exceptions=True)
    return sum(child.output for child in done if not isinstance(child, Exception))


@app.kind("paid_by_budget", price=PARENT_PRICE, budget=BUDGET, **OPTIONS)
async def paid_by_budget(job: Job, children: int, seconds: float) -> int:
    return await gather(job, children, seconds)


@app.kind("paid_by_account", price=PARENT_PRICE, **OPTIONS)
async def paid_by_account(job: Job, children: int, seconds: float) -> int:
    return await gather(job, children, seconds)
