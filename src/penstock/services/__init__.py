"""The background services of a deployment. Any number of processes may run them side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.services.courier import courier
from penstock.services.ensurer import ensurer
from penstock.services.expirer import expirer
from penstock.services.pruner import pruner
from penstock.services.reaper import reaper
from penstock.services.reconciler import reconciler
from penstock.services.scheduler import scheduler
from penstock.services.steward import steward
from penstock.services.sweeper import sweeper
from penstock.services.tallier import tallier

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.services.service import Part
    from penstock.settings import Settings


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
