"""Once: an action with external effects must not be repeated because a worker has died.

Before such an action, the job stores a memo. A later worker that finds the memo cannot know how far the first one got,
so it fails the job instead of acting twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millpond.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Coroutine

Answer = TypeVar("Answer")

CHECK_EVERY: Final = 0.2
"""Seconds between two checkpoints."""


async def begin(job: Any, what: str) -> None:
    """Record that the job is about to act. Raise an error if an earlier worker has already recorded it."""
    if job.memo is not None:
        raise PermanentError(
            f"{what} was started by a worker that disappeared. Its progress is unknown, and it is not started again.",
            hint="Check the log, and retry the job if that is safe.",
        )
    await job.proceed({"begun": job.epoch}, {"begun": job.epoch})


async def watched(job: Any, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Await work that has no checkpoints of its own, and cancel it as soon as the job must stop."""
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
