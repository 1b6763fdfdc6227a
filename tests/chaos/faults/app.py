"""The app under fault: jobs whose outcome is known beforehand, however often they are interrupted.

:func:`fate` states how a job of each kind ends and what it costs, :data:`CHILDREN` which children it has, and
:func:`output` what comes of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from millpond import Job, Millpond, PermanentError
from millpond.retry import Backoff

app = Millpond()

TENANT, ACCOUNT = "acme", "ann"
PRICE = 3
EVERY: Final = timedelta(seconds=1)
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


# Trees


@app.kind("leaf", **STUBBORN)
async def leaf(job: Job, n: int) -> int:
    await asyncio.sleep(random.uniform(0, 0.05))
    outcome, cost = fate("leaf", n)
    if outcome == "failed":
        raise PermanentError("The input is refused.")
    job.capture(cost)
    return n


@app.kind("branch", budget=10, **STUBBORN)
async def branch(job: Job, n: int) -> int:
    """Pay for children from a budget that is part of another."""
    return await _gather(job, CHILDREN["branch"](n))


@app.kind("tree", budget=50, **STUBBORN)
async def tree(job: Job, n: int) -> int:
    """Do all that a job can wait for: a step, children in parallel, a sleep, another child."""
    first = await job.step("first", int, n)
    *children, last = CHILDREN["tree"](n)
    total = first + await _gather(job, children)
    await job.sleep(0.05)
    return total + await _gather(job, [last])


@app.kind("family", **STUBBORN)
async def family(job: Job, n: int) -> int:
    """Have children that the account pays for."""
    return await _gather(job, CHILDREN["family"](n))


@app.kind("grove", budget=20, **STUBBORN)
async def grove(job: Job, n: int) -> int:
    """Wait until canceled, for children that do."""
    return await _gather(job, CHILDREN["grove"](n))


async def _gather(job: Job, children: list[tuple[str, int]]) -> int:
    done = await job.gather(*(job.child(kind, {"n": n}) for kind, n in children), return_exceptions=True)
    return sum(0 if isinstance(child, Exception) else child.output for child in done)


CHILDREN: Final[dict[str, Callable[[int], list[tuple[str, int]]]]] = {
    "tree": lambda n: [("leaf", n), ("leaf", n + 1), ("branch", n), ("leaf", n + 7)],
    "branch": lambda n: [("leaf", n + 2), ("leaf", n + 3)],
    "family": lambda n: [("leaf", n), ("leaf", n + 1), ("leaf", n + 2)],
    "grove": lambda n: [("endless", n), ("endless", n + 1)],
}
"""The kinds and inputs of the children of a job. One that is canceled may have fewer of them."""
CANCELED: Final = ("endless", "grove")


# Schedules


@app.schedule(
    every=EVERY, name="tick", tenant=TENANT, account=ACCOUNT, due_field="due", catch_up="all", catch_up_max=1_000
)
@app.kind("tick", **STUBBORN)
async def tick(job: Job, due: str) -> str:
    return due


@app.schedule(every="300d", name="report", tenant=TENANT, account=ACCOUNT)
@app.kind("report", **STUBBORN)
async def report(job: Job) -> None:
    """Submitted only when an operator runs its schedule."""


SCHEDULED: Final = ("tick", "report")

# What is known beforehand


def fate(kind: str, n: int) -> tuple[str, int]:
    """How a job of this kind and input ends, and what it costs itself."""
    if kind in CANCELED:
        return "canceled", 0
    if kind == "refused" or (kind == "leaf" and n % 5 == 4):
        return "failed", 0
    if kind == "part" or (kind == "leaf" and n % 5 == 3):
        return "succeeded", 1
    return "succeeded", PRICE


def cost(kind: str, n: int) -> int:
    """What a job costs with all of its descendants."""
    return fate(kind, n)[1] + sum(cost(*child) for child in _children(kind, n))


def output(kind: str, n: int) -> int:
    """The output of a job that succeeds, of the kinds that have a number."""
    if kind == "sum":
        return n + 1
    own = n if kind in {"leaf", "tree"} else 0
    return own + sum(output(*child) for child in _children(kind, n) if fate(*child)[0] == "succeeded")


def _children(kind: str, n: int) -> list[tuple[str, int]]:
    return CHILDREN[kind](n) if kind in CHILDREN else []
