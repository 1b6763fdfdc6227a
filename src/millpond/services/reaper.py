"""The reaper: takes back what silent workers hold, cuts off who heeds no cancel, forgets the long silent."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine import jobs, leases
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

LEASES_MAX: Final = 200
JOBS_MAX: Final = 200


def reaper(engine: Engine, every: timedelta = timedelta(seconds=1)) -> Service:
    async def run_once() -> int:
        done = 0
        while grown := await leases.lapse(engine.homes.everywhere, LEASES_MAX):
            engine.ring_back(grown)
            done += len(grown)
        done += await engine.workers.sweep(LEASES_MAX)
        while ended := await jobs.enforce(engine.homes.everywhere, JOBS_MAX):
            done += ended
        return done

    return Service("reaper", every, run_once)
