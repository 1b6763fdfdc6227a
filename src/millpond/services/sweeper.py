"""The sweeper: deletes files that are no longer needed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.engine.jobs.artifacts import RETENTION
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

FILES_MAX: Final = 1_000


def sweeper(engine: Engine, *, retention: timedelta = RETENTION, every: timedelta = timedelta(minutes=5)) -> Service:
    async def run_once() -> int:
        if not engine.artifacts.has_store:
            return 0
        swept = await engine.artifacts.sweep(FILES_MAX, retention=retention)
        if swept:
            logs.emit("artifacts.swept", files=swept)
        return swept

    return Service("sweeper", every, run_once)
