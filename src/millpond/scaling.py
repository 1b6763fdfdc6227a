"""How many workers a route should have now: a pure function, used by the API and the autoscaler.

``GET /v1/scaling/{route}`` returns the result (KEDA reads it from there), and ``millpond autoscale`` uses it. The
function has no memory: the delay before workers are removed is added by :mod:`millpond.integrations.aws.scaling`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_ROUNDING: Final = 1e-9  # a quotient that should be whole must not be rounded up to one worker more


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a route at one moment.

    ``ready`` jobs could start now, and ``leased`` jobs run, on ``busy`` workers. ``expected_seconds`` is how long a
    job is expected to run, None if that is not known.
    """

    ready: int
    leased: int
    busy: int = 0
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """An operator's targets for a route.

    ``jobs_per_worker`` is how many jobs a worker runs at once; ``target_wait`` is how many seconds the last job of the
    queue may wait for its start.
    """

    min: int = 0
    max: int = 50
    jobs_per_worker: int = 1
    target_wait: float = 60.0


def desired_workers(load: Load, policy: Policy) -> int:
    """The number of workers with which every ready job starts within the target wait, but at least the busy ones.

    Running jobs count: with a smaller number, an autoscaler would stop a busy worker. ``max`` limits growth; it is
    not a reason to remove a busy worker.
    """
    slots = max(slots_for(load, policy.target_wait), load.leased)
    wanted = math.ceil(slots / policy.jobs_per_worker - _ROUNDING)
    return max(load.busy, policy.min, min(wanted, policy.max))


def slots_for(load: Load, target_wait: float) -> float:
    """How many jobs must be able to run at once.

    Of ``slots``, ``slots - leased`` start a job at once, and all of them start another one every ``expected_seconds``.
    So ``slots - leased + slots * target_wait / expected_seconds`` jobs start in time, and this must equal ``ready``.
    If it is not known how long a job runs, each job has a slot of its own.
    """
    pending = load.ready + load.leased
    if not load.expected_seconds:
        return pending
    return pending / (1 + target_wait / load.expected_seconds)
