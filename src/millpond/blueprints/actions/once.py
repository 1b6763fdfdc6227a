"""Once: what acts on the world outside must not be done again because a worker has died.

Before it acts, a job notes that it is about to. A worker that gets the job later finds the note, and cannot know how
far the first one came: so it says so, instead of acting twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millpond.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Coroutine

Answer = TypeVar("Answer")

CHECK_EVERY: Final = 0.2
"""Seconds between two looks at whether the job must stop."""


async def begin(job: Any, what: str) -> None:
    """Note that the job is about to act; refuse where it has been before."""
    if job.memo is not None:
        raise PermanentError(
            f"{what} was begun by a worker that has gone since. How far it came is not known, and it is not begun"
            " again.",
            hint="Look at its log, and retry the job if that is right.",
        )
    await job.proceed({"begun": job.epoch}, {"begun": job.epoch})


async def watched(job: Any, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Wait for something that knows nothing of the job; where that must stop, it is left at once."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait([task], timeout=CHECK_EVERY)
            if done:
                return task.result()
            await job.checkpoint()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
