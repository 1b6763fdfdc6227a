"""The pruner: makes the weeks to come, drops those past their age, forgets what is over: keys, deliveries, sessions."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.engine import callbacks, deliveries, endpoints, idempotency, sessions, submissions, tallies
from millpond.engine.split import passed_over
from millpond.services.service import Service
from millpond.store import partitions
from millpond.store.migrate import WEEKS_AHEAD

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database

KEYS_MAX: Final = 5_000
SUBMISSIONS_MAX: Final = 1_000
DELIVERIES_MAX: Final = 2_000
TALLIES_MAX: Final = 5_000
SILENCE: Final = timedelta(hours=1)
"""After how long without its listener an endpoint is forgotten."""
LISTENERS_MAX: Final = 100
SESSIONS_MAX: Final = 1_000


def pruner(
    engine: Engine,
    *,
    retention: timedelta = timedelta(days=90),
    key_window: timedelta = timedelta(hours=24),
    webhook_retention: timedelta = timedelta(days=30),
    every: timedelta = timedelta(minutes=10),
) -> Service:
    told: set[str] = set()
    """The providers of which it was said that they are missing."""

    async def run_once() -> int:
        done = await prune(engine.db) + await engine.endpoints.forget_silent(SILENCE, LISTENERS_MAX)
        done += await sessions.prune(engine.db, SESSIONS_MAX) + await engine.errands.prune(retention)
        for home in engine.homes.away:
            with passed_over():
                done += await prune(home)
        return done

    async def prune(db: Database) -> int:
        await partitions.ensure(db, WEEKS_AHEAD)
        dropped = await partitions.drop(db, retention)
        for name in dropped:
            logs.emit("partition.dropped", partition=name)
        done = len(dropped) + await _forsake(engine, db, told)
        for forget in (
            partial(idempotency.prune, db, key_window, KEYS_MAX),
            partial(submissions.prune, db, retention, SUBMISSIONS_MAX),
            partial(deliveries.prune, db, webhook_retention, DELIVERIES_MAX),
            partial(callbacks.prune, db, SUBMISSIONS_MAX),
            partial(tallies.prune, db, TALLIES_MAX),
        ):
            while forgotten := await forget():
                done += forgotten
        while await endpoints.follow(db, endpoints.FOLLOW_MAX) == endpoints.FOLLOW_MAX:
            pass
        return done

    return Service("pruner", every, run_once)


async def _forsake(engine: Engine, db: Database, told: set[str]) -> int:
    """What is due to be asked of a provider that is not set up any more ends with its job; said once of each."""
    known = [line.name for line in engine.providers.lines]
    for name in await submissions.strangers(db, known):
        if name not in told:
            told.add(name)
            logs.emit("provider.missing", provider=name)
    done = 0
    while closed := await submissions.forsake(db, known, SUBMISSIONS_MAX):
        done += closed
    return done
