"""Flow: the status of each queue, as the contract defines it. The engine gives the verdict; rates are computed here."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID
from weakref import WeakKeyDictionary

from millpond.product import READERS, Reply, reply
from millpond_products.guard import wire
from millpond_products.guard.kinds import EXPIRES_IN_MAX, KIND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.product import Call, Engine, QueueFlow, QueueHealth

WALK_MAX: Final = 10_000
"""How many of the newest jobs are counted for a rate."""
FRESH_SECONDS: Final = 1.0
"""Seconds for which all requests share a result."""
_MINUTE: Final = 60.0
_WINDOWS: Final = {"1m": _MINUTE, "5m": 5 * _MINUTE}
_VERDICTS: Final[Mapping[str, Literal["ok", "backlogged", "stalled"]]] = {
    "ok": "ok",
    "busy": "backlogged",
    "stuck": "stalled",
    "unserved": "stalled",
}


@dataclass(slots=True)
class QueuesCache:
    """The last result for an engine's queues, and until when it is used."""

    found: list[wire.Queue] = field(default_factory=list[wire.Queue])
    until: float = 0.0
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


_caches: WeakKeyDictionary[Engine, QueuesCache] = WeakKeyDictionary()


async def show(call: Call) -> Reply:
    """All queues for an operator of all tenants; for other keys, the queue of their jobs."""
    cache = _caches.setdefault(call.engine, QueuesCache())
    async with cache.looking:
        if time.monotonic() >= cache.until:
            cache.found = await look(call.engine)
            cache.until = time.monotonic() + FRESH_SECONDS
    sees_all = call.principal.scope in READERS and call.principal.tenant is None
    return reply(wire.Queues(queues=[one for one in cache.found if sees_all or one.queue == KIND.queue]))


async def look(engine: Engine) -> list[wire.Queue]:
    seen = await engine.queue_health()
    flow = await engine.queue_flow(_first_id(), WALK_MAX)
    return [_to_wire(one, [part for part in flow if part.queue == one.queue]) for one in seen]


def _first_id() -> UUID:
    """The lowest possible id of a job that has ended in the last five minutes."""
    began = time.time() - EXPIRES_IN_MAX.total_seconds() - _WINDOWS["5m"]
    return UUID(int=int(began * 1_000) << 80)


def _to_wire(seen: QueueHealth, flow: Sequence[QueueFlow]) -> wire.Queue:
    return wire.Queue(
        queue=seen.queue,
        verdict=_verdict(seen),
        reason=seen.reason,
        depth=seen.ready,
        oldest_age_seconds=seen.oldest_wait_seconds,
        in_flight=seen.leased,
        is_sample=any(map(_is_cut, flow)),
        **_rates(flow),
    )


def _verdict(seen: QueueHealth) -> Literal["ok", "backlogged", "stalled"]:
    if seen.verdict == "paused":  # which is no problem while no job waits
        return "stalled" if seen.ready else "ok"
    return _VERDICTS[seen.verdict]


def _rates(flow: Sequence[QueueFlow]) -> dict[str, Any]:
    """Jobs per second. Each database is counted separately, and the rates are added up."""
    return {
        f"rate_{way}_{window}": round(sum(getattr(part, f"{way}_{window}") / _span(part, seconds) for part in flow), 3)
        for way in ("in", "out")
        for window, seconds in _WINDOWS.items()
    }


def _span(flow: QueueFlow, seconds: float) -> float:
    """The seconds that were counted: the whole window, unless the count reached its limit before."""
    walked = (flow.present - flow.since).total_seconds()
    return min(seconds, max(walked, 1.0)) if _is_cut(flow) else seconds


def _is_cut(flow: QueueFlow) -> bool:
    return flow.walked >= WALK_MAX
