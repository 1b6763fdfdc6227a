"""The background services of a deployment. Any number of processes may run them side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.services.courier import courier
from millpond.services.ensurer import ensurer
from millpond.services.expirer import expirer
from millpond.services.pruner import pruner
from millpond.services.reaper import reaper
from millpond.services.reconciler import reconciler
from millpond.services.scheduler import scheduler
from millpond.services.steward import steward
from millpond.services.sweeper import sweeper
from millpond.services.tallier import tallier

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.services.service import Part
    from millpond.settings import Settings


def all_services(engine: Engine, settings: Settings) -> list[Part]:
    return [
        *([ensurer(engine)] if engine.homes.away else ()),
        courier(engine, settings),
        expirer(engine),
        pruner(
            engine,
            retention=settings.retention,
            key_window=settings.idempotency_window,
            webhook_retention=settings.webhook_retention,
        ),
        reaper(engine),
        *(reconciler(engine, line.name) for line in engine.providers.lines),
        scheduler(engine),
        steward(engine, grace=settings.grace),
        sweeper(engine, retention=settings.retention),
        tallier(engine),
    ]
