"""The expirer: ends the jobs that have reached their deadline.

A job whose delivery was accepted has succeeded, even if it is not concluded yet, so such jobs are concluded first.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.jobs import jobs
from millpond.engine.webhooks import deliveries
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database

JOBS_MAX: Final = 500


def expirer(engine: Engine, every: timedelta = timedelta(seconds=0.5)) -> Service:
    async def conclude(db: Database) -> None:
        while await deliveries.conclude_unfinished(engine, db, JOBS_MAX) == JOBS_MAX:
            pass

    async def run_once() -> int:
        done = 0
        await engine.tenant_databases.each(conclude)
        executor, on_end = engine.tenant_databases.executor_for_all, engine.parent_notifier.jobs_ended
        while ended := await jobs.expire(executor, JOBS_MAX, on_end):
            done += ended
        return done

    return Service("expirer", every, run_once)
