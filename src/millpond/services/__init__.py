"""The background services of a deployment. Any number of processes may run them concurrently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.services.bulk_runner import BulkRunner
from millpond.services.canceler import canceler
from millpond.services.counter import counter
from millpond.services.courier import courier
from millpond.services.ensurer import ensurer
from millpond.services.expirer import expirer
from millpond.services.firer import firer
from millpond.services.pruner import chunk_pruner, pruner
from millpond.services.reaper import reaper
from millpond.services.reconciler import reconciler
from millpond.services.scheduler import scheduler
from millpond.services.sweeper import sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.engine.engine import Engine
    from millpond.engine.reads.views import JobView
    from millpond.services.service import BackgroundTask
    from millpond.settings import Settings


def all_services(engine: Engine, settings: Settings, export_line: Callable[[JobView], bytes]) -> list[BackgroundTask]:
    return [
        *([ensurer(engine)] if engine.tenant_databases.remote else ()),
        canceler(engine),
        courier(engine, settings),
        expirer(engine),
        firer(engine),
        pruner(
            engine,
            retention=settings.retention,
            key_window=settings.idempotency_window,
            webhook_retention=settings.webhook_retention,
        ),
        chunk_pruner(engine),
        reaper(engine),
        *(reconciler(engine, client.name) for client in engine.providers.clients),
        scheduler(engine),
        BulkRunner(engine, export_line, grace=settings.grace),
        sweeper(engine, retention=settings.retention),
        counter(engine),
    ]
