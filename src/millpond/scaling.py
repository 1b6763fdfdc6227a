"""How many workers a route should have now: one pure function, for the API and the autoscaler alike.

``GET /v1/scaling/{route}`` answers with it (so KEDA follows it), and ``millpond autoscale`` decides by it. It looks at
one moment and remembers nothing: whoever takes workers away adds the patience (:mod:`millpond.aws.scaling`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_ROUNDING: Final = 1e-9  # a division that comes out even must not ask for one worker more


@dataclass(frozen=True, slots=True)
class Load:
    """What a route has to do at one moment.

    ``ready`` jobs could start now, ``leased`` ones run, on ``busy`` workers; a job is expected to run for so many
    seconds, None while nobody knows.
    """

    ready: int
    leased: int
    busy: int = 0
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator wants of a route.

    ``jobs_per_worker`` is how many jobs a worker runs at once; ``target_wait`` how many seconds a job may wait for
    its start while it is the last in line.
    """

    min: int = 0
    max: int = 50
    jobs_per_worker: int = 1
    target_wait: float = 60.0


def desired_workers(load: Load, policy: Policy) -> int:
    """The workers that let every ready job start within the target wait, and never fewer than are busy.

    Running jobs count: an autoscaler that is told a smaller number than runs would end somebody at work. ``max``
    limits growth; it is no reason to take a busy worker away.
    """
    slots = max(slots_for(load, policy.target_wait), load.leased)
    wanted = math.ceil(slots / policy.jobs_per_worker - _ROUNDING)
    return max(load.busy, policy.min, min(wanted, policy.max))


def slots_for(load: Load, target_wait: float) -> float:
    """How many jobs must be able to run at once.

    Of ``slots``, ``slots - leased`` start a job at once, and all of them start another one every ``expected_seconds``.
    So ``slots - leased + slots * target_wait / expected_seconds`` jobs start in time, and all that are ready must.
    Where nobody knows how long a job runs, each has a slot of its own.
    """
    pending = load.ready + load.leased
    if not load.expected_seconds:
        return pending
    return pending / (1 + target_wait / load.expected_seconds)
