"""The ensurer: ensures that jobs of tenants with a database of their own have dispatches, and dispatches have jobs.

It creates missing dispatches after a short delay. It also compares all such jobs and dispatches, some at a time, to
find differences that no verb would find for long: an answered job whose dispatch is still parked, an ended job
whose dispatch waits for its start time, and everything that restoring an older state of a database brings back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import MillpondError, UnavailableError
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500
DELAY: Final = timedelta(seconds=2)
"""How long the process that accepted a job has to create its dispatch."""


def ensurer(engine: Engine, every: timedelta = timedelta(seconds=1), *, delay: timedelta = DELAY) -> Service:
    async def run_once() -> int:
        grown: set[str] = set()
        for executor in dict.fromkeys(engine.tenant_databases.executors.values()):
            if executor.database.is_up:
                try:
                    grown |= await executor.ensure(delay, JOBS_MAX)
                    grown |= await executor.sweep(JOBS_MAX)
                except UnavailableError:  # The database is probed until it is back.
                    pass
                except MillpondError as error:  # A failure of one database must not stop the others.
                    logs.emit("service.failed", service="ensurer", error=f"{type(error).__name__}: {error}")
        engine.notify_requeued(grown)
        return len(grown)

    return Service("ensurer", every, run_once)
