"""The pruner: makes the coming weeks' partitions, drops old ones, deletes old keys, fires, deliveries and text."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.engine.access import sessions
from millpond.engine.jobs import chunks, idempotency
from millpond.engine.providers import callbacks, predictions
from millpond.engine.reads import counters
from millpond.engine.webhooks import deliveries, endpoints
from millpond.services.service import Service
from millpond.store import partitions
from millpond.store.migrate import WEEKS_AHEAD

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database

KEYS_MAX: Final = 5_000
PREDICTIONS_MAX: Final = 1_000
DELIVERIES_MAX: Final = 2_000
CHANGES_MAX: Final = 5_000
SILENCE: Final = timedelta(hours=1)
"""After how long without its listener an endpoint is deleted."""
LISTENERS_MAX: Final = 100
SESSIONS_MAX: Final = 1_000
FIRES_MAX: Final = 5_000
LIMIT_KEYS_MAX: Final = 1_000
EMITTERS_MAX: Final = 200


def pruner(
    engine: Engine,
    *,
    retention: timedelta = timedelta(days=90),
    key_window: timedelta = timedelta(hours=24),
    webhook_retention: timedelta = timedelta(days=30),
    every: timedelta = timedelta(minutes=10),
) -> Service:
    logged: set[str] = set()
    """The missing providers that were logged."""

    async def run_once() -> int:
        done = await engine.endpoints.delete_silent(SILENCE, LISTENERS_MAX)
        done += await sessions.prune(engine.db, SESSIONS_MAX) + await engine.bulk_operations.prune(retention)
        while forgotten := await engine.fires.prune(retention, FIRES_MAX):  # before the jobs that they name
            done += forgotten
        while forgotten := await engine.limits.prune(LIMIT_KEYS_MAX):
            done += forgotten
        return done + sum(await engine.tenant_databases.each(prune))

    async def prune(db: Database) -> int:
        await partitions.ensure(db, WEEKS_AHEAD)
        dropped = await partitions.drop(db, retention)
        for name in dropped:
            logs.emit("partition.dropped", partition=name)
        done = len(dropped) + await _close_abandoned(engine, db, logged)
        for forget in (
            partial(idempotency.prune, db, key_window, KEYS_MAX),
            partial(predictions.prune, db, retention, PREDICTIONS_MAX),
            partial(deliveries.prune, db, webhook_retention, DELIVERIES_MAX),
            partial(callbacks.prune, db, PREDICTIONS_MAX),
            partial(counters.prune, db, CHANGES_MAX),
        ):
            while forgotten := await forget():
                done += forgotten
        while await endpoints.follow(db, endpoints.FOLLOW_MAX) == endpoints.FOLLOW_MAX:
            pass
        return done

    return Service("pruner", every, run_once)


def chunk_pruner(engine: Engine, *, every: timedelta = timedelta(minutes=1)) -> Service:
    """Deletes the text of jobs that have ended. It is a service of its own, because there may be much of it soon."""

    async def run_once() -> int:
        return sum(await engine.tenant_databases.each(lambda db: chunks.prune(db, EMITTERS_MAX)))

    return Service("chunk_pruner", every, run_once)


async def _close_abandoned(engine: Engine, db: Database, logged: set[str]) -> int:
    """Close the predictions of providers that are no longer configured once their jobs have ended; log each once."""
    known = [client.name for client in engine.providers.clients]
    for name in await predictions.strangers(db, known):
        if name not in logged:
            logged.add(name)
            logs.emit("provider.missing", provider=name)
    done = 0
    while closed := await predictions.close_abandoned(db, known, PREDICTIONS_MAX):
        done += closed
    return done
