"""The expirer: ends the jobs that have reached their deadline."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from penstock.engine import jobs
from penstock.services.service import Service

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

JOBS_MAX: Final = 500


def expirer(engine: Engine, every: timedelta = timedelta(seconds=0.5)) -> Service:
    async def run_once() -> int:
        done = 0
        while ended := await jobs.expire(engine.homes.everywhere, JOBS_MAX):
            done += ended
        return done

    return Service("expirer", every, run_once)
