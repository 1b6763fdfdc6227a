"""The firer: submits the jobs of schedules at their due times."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine


def firer(engine: Engine, every: timedelta = timedelta(seconds=0.5)) -> Service:
    async def run_once() -> int:
        done = 0
        while found := await engine.fires.fire() + await engine.fires.recover():
            done += found
        return done

    return Service("firer", every, run_once)
