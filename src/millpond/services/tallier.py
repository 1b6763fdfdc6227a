"""The tallier: folds what was tallied of jobs into numbers by the minute and the hour."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.tallies import FOLD_MAX
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

_FOLDS_MAX: Final = 20  # then it rests, so that vacuum comes after it
_RECOUNT_EVERY: Final = 60.0  # seconds, where it fails: it is dear


def tallier(engine: Engine, *, every: timedelta = timedelta(seconds=2)) -> Service:
    recount_at = 0.0

    async def run_once() -> int:
        nonlocal recount_at
        done = 0
        for _ in range(_FOLDS_MAX):
            folded = await engine.tallies.fold(FOLD_MAX)
            done += folded
            if folded < FOLD_MAX:
                break
        if time.monotonic() >= recount_at:
            recount_at = time.monotonic() + _RECOUNT_EVERY
            await engine.tallies.recount()  # last: where it fails, all is folded
            recount_at = 0.0
        return done

    return Service("tallier", every, run_once)
