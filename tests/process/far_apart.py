"""An app for the fleet, whose handlers run in processes: the same file for the server and the worker."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond import Job, Millpond

if TYPE_CHECKING:
    from collections.abc import Iterator

app = Millpond()


@app.resource
def card() -> Iterator[str]:
    yield "L4"


@app.kind("shout", runs="fleet", run="process", queue="gpu", stages=("shouting",), price=1, budget=50)
def shout(job: Job, words: str, card: str) -> dict[str, Any]:
    job.stage("shouting")
    job.progress(0.5)
    job.log(f"on {card}")
    job.emit("text")
    job.step("once", os.getpid)
    (child,) = job.gather(job.child("part", {"number": 7}))
    saved = job.save("loud.txt", job.open(words).upper())
    return {"file": saved.id, "child": child.output, "pid": os.getpid()}


@app.kind("part", runs="fleet", run="process", queue="gpu")
async def part(job: Job, number: int) -> int:
    return number


@app.kind("matches", runs="fleet", run="process", queue="gpu")
def matches(job: Job, file: str) -> None:
    """Blocks in C, with the lock of the interpreter: nothing else in the process runs."""
    begin(file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.kind("matches_here", run="process")
def matches_here(job: Job, file: str) -> None:
    begin(file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.kind("crashes", runs="fleet", run="process", queue="gpu", attempts_max=1)
def crashes(job: Job) -> None:
    os._exit(3)


def begin(file: str) -> None:
    part = Path(f"{file}.part")
    part.write_text(json.dumps({"pid": os.getpid()}))
    part.rename(file)
