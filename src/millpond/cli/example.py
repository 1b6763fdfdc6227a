"""The app that `millpond up` serves if none is given: a kind to submit and watch."""

from __future__ import annotations

import asyncio

from millpond.app import Millpond
from millpond.worker.context import Job

_STEPS = 10
_PAUSE = 0.1

app = Millpond()


@app.kind("hello", price=1, stages=("thinking", "writing"), expires_in="10m")
async def hello(job: Job, name: str = "world") -> dict[str, str]:
    """Greet somebody, slowly enough to watch the progress."""
    await job.stage("thinking")
    for step in range(1, _STEPS):
        await asyncio.sleep(_PAUSE)
        await job.progress(step / _STEPS)
    await job.stage("writing")
    await job.log(f"greeting {name}")
    await asyncio.sleep(_PAUSE)
    return {"greeting": f"Hello, {name}!"}
