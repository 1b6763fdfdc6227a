"""The reaper: takes back what silent workers hold, and cuts off those that do not heed a cancel."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from penstock.engine import jobs, leases
from penstock.services.service import Service

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

LEASES_MAX: Final = 200
JOBS_MAX: Final = 200


def reaper(engine: Engine, every: timedelta = timedelta(seconds=1)) -> Service:
    async def run_once() -> int:
        done = 0
        while grown := await leases.lapse(engine.db, LEASES_MAX):
            engine.ring_back(grown)
            done += len(grown)
        while ended := await jobs.enforce(engine.db, JOBS_MAX):
            done += ended
        return done

    return Service("reaper", every, run_once)
