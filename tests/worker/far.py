"""An app for the fleet, and for its server: the same file on both sides."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from millpond import Job, Millpond

app = Millpond()


@app.kind("echo", runs="fleet", queue="gpu")
def echo(job: Job, number: int = 0) -> dict[str, Any]:
    job.log(f"number {number}")
    return {"number": number, "by": os.environ.get("WORKER"), "epoch": job.epoch}


@app.kind("hold", runs="fleet", queue="gpu")
async def hold(job: Job, file: str) -> dict[str, Any]:
    """Until a file is there."""
    await job.progress(0.5)
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return {"by": os.environ.get("WORKER"), "epoch": job.epoch}


@app.kind("hold_plain", runs="fleet", queue="gpu")
def hold_plain(job: Job, file: str) -> dict[str, Any]:
    while not Path(file).exists():
        time.sleep(0.01)
    return {"by": os.environ.get("WORKER"), "epoch": job.epoch}


@app.kind("shout", runs="fleet", queue="gpu")
async def shout(job: Job, words: str) -> dict[str, Any]:
    """A file in, a file out."""
    found = await job.open(words)
    return {"file": await job.save("loud.txt", found.upper())}


@app.kind("silent", runs="fleet", queue="gpu", stall_limit=0.3, attempts_max=1)
async def silent(job: Job) -> None:
    await asyncio.sleep(3600)


@app.kind("composed", runs="fleet", queue="gpu", price=1, budget=10)
async def composed(job: Job, parts: int) -> dict[str, Any]:
    """Steps, children, a sleep and a question, on whichever worker."""
    first = await job.step("first", os.environ.get, "WORKER")
    done = await job.gather(*(job.child("echo", {"number": number}) for number in range(parts)))
    await job.sleep(0.2)
    answer = await job.ask("Go on?", who="operator")
    return {"first": first, "numbers": [child.output["number"] for child in done], "answer": answer}


@app.kind("asking", runs="fleet", queue="gpu", expires_in="1h")
async def asking(job: Job) -> Any:
    if job.answer is None:
        job.park({"asked": True})
    return [job.memo, job.answer]


@app.kind("unreadable", runs="fleet", queue="gpu", schema={"type": "object", "required": ["x"]})
def unreadable(job: Job, **given: Any) -> list[str]:
    return sorted(given)
