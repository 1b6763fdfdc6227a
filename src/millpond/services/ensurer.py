"""The ensurer: ensures that jobs of tenants with a database of their own have dispatches, and dispatches have jobs.

It creates missing dispatches after a short delay. It also compares all such jobs and dispatches, some at a time, to
find differences that no verb would find for long: an answered job whose dispatch is still parked, an ended job
whose dispatch waits for its start time, and everything that restoring an older state of a database brings back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500
DELAY: Final = timedelta(seconds=2)
"""How long the process that accepted a job has to create its dispatch."""


def ensurer(engine: Engine, every: timedelta = timedelta(seconds=1), *, delay: timedelta = DELAY) -> Service:
    async def run_once() -> int:
        grown = await engine.tenant_databases.repair(delay, JOBS_MAX)
        engine.notify_requeued(grown)
        return len(grown)

    return Service("ensurer", every, run_once)
