"""The scheduler: makes jobs ready at their start time, when they have slept, and when a limit lets them start."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.jobs import jobs
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500


def scheduler(engine: Engine, every: timedelta = timedelta(seconds=0.25)) -> Service:
    async def run_once() -> int:
        done = 0
        for make_ready in (jobs.promote, jobs.resume_due):
            while grown := await make_ready(engine.tenant_databases.executor_for_all, JOBS_MAX):
                engine.notify_requeued(grown)
                done += len(grown)
        return done + await engine.limits.look_again()

    return Service("scheduler", every, run_once)
