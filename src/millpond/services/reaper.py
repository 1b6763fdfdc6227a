"""The reaper: requeues jobs of expired leases, ends jobs that ignore a cancel, deletes workers silent for very long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

LEASES_MAX: Final = 200
JOBS_MAX: Final = 200


def reaper(engine: Engine, every: timedelta = timedelta(seconds=1)) -> Service:
    async def run_once() -> int:
        done = 0
        executor, on_end = engine.tenant_databases.executor_for_all, engine.parent_notifier.jobs_ended
        while grown := await leases.lapse(executor, LEASES_MAX, on_end):
            engine.notify_requeued(grown)
            done += len(grown)
        done += await engine.workers.sweep(LEASES_MAX)
        while ended := await jobs.force_cancel(executor, JOBS_MAX, on_end):
            done += ended
        return done

    return Service("reaper", every, run_once)
