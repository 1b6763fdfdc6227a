"""The canceler: cancels the children of jobs that ended before them, and the jobs of canceled batches.

A child does not outlive its parent.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500


def canceler(engine: Engine, every: timedelta = timedelta(seconds=0.5)) -> Service:
    async def run_once() -> int:
        done = 0
        while canceled := await engine.cancel_orphans(JOBS_MAX) + await engine.batches.cancel_jobs(JOBS_MAX):
            done += canceled
        return done

    return Service("canceler", every, run_once)
