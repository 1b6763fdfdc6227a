"""The expirer: ends the jobs that have reached their deadline.

A job whose URL has taken the news has succeeded, also where nobody has concluded that yet: so this comes first.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine import deliveries, jobs
from millpond.engine.split import passed_over
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

JOBS_MAX: Final = 500


def expirer(engine: Engine, every: timedelta = timedelta(seconds=0.5)) -> Service:
    async def run_once() -> int:
        done = 0
        for home in engine.all_homes():
            with passed_over():
                while await deliveries.conclude_left(engine, home, JOBS_MAX) == JOBS_MAX:
                    pass
        while ended := await jobs.expire(engine.homes.everywhere, JOBS_MAX):
            done += ended
        return done

    return Service("expirer", every, run_once)
