"""The scheduler: lets the jobs whose time has come join the line."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine import jobs
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500


def scheduler(engine: Engine, every: timedelta = timedelta(seconds=0.25)) -> Service:
    async def run_once() -> int:
        done = 0
        while grown := await jobs.promote(engine.homes.everywhere, JOBS_MAX):
            engine.ring_back(grown)
            done += len(grown)
        return done

    return Service("scheduler", every, run_once)
