"""The counter service: merges counter changes into numbers by the minute and the hour."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.reads.counters import MERGE_MAX
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

_MERGES_MAX: Final = 20  # per run; the pause after it lets vacuum keep up
_RECOUNT_EVERY: Final = 60.0  # seconds between attempts while it fails, because it is expensive


def counter(engine: Engine, *, every: timedelta = timedelta(seconds=2)) -> Service:
    recount_at = 0.0

    async def run_once() -> int:
        nonlocal recount_at
        done = 0
        for _ in range(_MERGES_MAX):
            merged = await engine.counters.merge(MERGE_MAX)
            done += merged
            if merged < MERGE_MAX:
                break
        if time.monotonic() >= recount_at:
            recount_at = time.monotonic() + _RECOUNT_EVERY
            await engine.counters.recount()  # last: if it fails, everything is merged already
            recount_at = 0.0
        return done

    return Service("counter", every, run_once)
