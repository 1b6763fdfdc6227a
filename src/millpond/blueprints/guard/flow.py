"""Flow: how each queue is doing, in the contract's words. The engine judges; what comes and goes is counted here."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID
from weakref import WeakKeyDictionary

from millpond.api.calls import Reply, reply
from millpond.api.principals import READERS
from millpond.blueprints.guard import wire
from millpond.blueprints.guard.kinds import EXPIRES_IN_MAX, KIND
from millpond.engine import health
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.api.calls import Call
    from millpond.engine.engine import Engine
    from millpond.engine.health import QueueHealth

    Row = Any

SQL: Final = queries("millpond.blueprints.guard", "flow")

WALK_MAX: Final = 10_000
"""How many of the newest jobs are looked at for a rate."""
FRESH_SECONDS: Final = 1.0
"""For so long an answer is good for everybody who asks."""
_MINUTE: Final = 60.0
_WINDOWS: Final = {"1m": _MINUTE, "5m": 5 * _MINUTE}
_VERDICTS: Final[Mapping[str, Literal["ok", "backlogged", "stalled"]]] = {
    "ok": "ok",
    "busy": "backlogged",
    "stuck": "stalled",
    "unserved": "stalled",
}


@dataclass(slots=True)
class Sight:
    """What was last seen of an engine's queues, and until when that is good enough."""

    found: list[wire.Queue] = field(default_factory=list[wire.Queue])
    until: float = 0.0
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


_sights: WeakKeyDictionary[Engine, Sight] = WeakKeyDictionary()


async def show(call: Call) -> Reply:
    """Every queue for an operator of all tenants; for anybody else the one that their jobs stand in."""
    sight = _sights.setdefault(call.engine, Sight())
    async with sight.looking:
        if time.monotonic() >= sight.until:
            sight.found = await look(call.engine)
            sight.until = time.monotonic() + FRESH_SECONDS
    sees_all = call.principal.scope in READERS and call.principal.tenant is None
    return reply(wire.Queues(queues=[one for one in sight.found if sees_all or one.queue == KIND.queue]))


async def look(engine: Engine) -> list[wire.Queue]:
    seen = await health.queues(engine.db, engine.homes)
    flow = await engine.homes.gather(SQL["flow"], _first_id(), WALK_MAX)
    return [_told(one, [row for row in flow if row["queue"] == one.queue]) for one in seen]


def _first_id() -> UUID:
    """The least id of a job that could still end now."""
    began = time.time() - EXPIRES_IN_MAX.total_seconds() - _WINDOWS["5m"]
    return UUID(int=int(began * 1_000) << 80)


def _told(seen: QueueHealth, flow: Sequence[Row]) -> wire.Queue:
    return wire.Queue(
        queue=seen.queue,
        verdict=_verdict(seen),
        reason=seen.reason,
        depth=seen.ready,
        oldest_age_seconds=seen.oldest_wait_seconds,
        in_flight=seen.leased,
        is_sample=any(_is_cut(row) for row in flow),
        **_rates(flow),
    )


def _verdict(seen: QueueHealth) -> Literal["ok", "backlogged", "stalled"]:
    if seen.verdict == "paused":  # which harms nobody while nobody waits
        return "stalled" if seen.ready else "ok"
    return _VERDICTS[seen.verdict]


def _rates(flow: Sequence[Row]) -> dict[str, Any]:
    """Jobs a second. Each database has its own walk, and what they tell adds up."""
    return {
        f"rate_{way}_{window}": round(sum(row[f"{way}_{window}"] / _span(row, seconds) for row in flow), 3)
        for way in ("in", "out")
        for window, seconds in _WINDOWS.items()
    }


def _span(row: Row, seconds: float) -> float:
    """How many seconds were counted: all of them, unless the walk ended before."""
    walked = (row["present"] - row["since"]).total_seconds()
    return min(seconds, max(walked, 1.0)) if _is_cut(row) else seconds


def _is_cut(row: Row) -> bool:
    return row["walked"] >= WALK_MAX
