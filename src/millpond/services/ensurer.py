"""The ensurer: sees that jobs of tenants in other databases have their dispatches, and these their jobs.

What is owed it makes good after a moment. And it walks, some at a time, over all such jobs and dispatches, for what got
out of step and would not be met by a verb for long: an answered job whose dispatch is still parked, one that has ended
while it waits for its time, and all that an older state of a database brings back.
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
MOMENT: Final = timedelta(seconds=2)
"""Whoever takes a job in has so long to put it into the queue himself."""


def ensurer(engine: Engine, every: timedelta = timedelta(seconds=1), *, moment: timedelta = MOMENT) -> Service:
    async def run_once() -> int:
        grown: set[str] = set()
        for split in dict.fromkeys(engine.homes.splits.values()):
            if split.home.is_up:
                try:
                    grown |= await split.ensure(moment, JOBS_MAX)
                    grown |= await split.sweep(JOBS_MAX)
                except UnavailableError:  # It is looked after.
                    pass
                except MillpondError as error:  # What one home is ill with must not stop the others.
                    logs.emit("service.failed", service="ensurer", error=f"{type(error).__name__}: {error}")
        engine.ring_back(grown)
        return len(grown)

    return Service("ensurer", every, run_once)
