"""Estimates: a job's position in its queue, and when it is likely to end.

Three things are known, each from a bounded query whose result all callers share for a moment: the head of a queue, what
its workers hold now, and how long recent jobs of each kind ran. While jobs wait, the held ones end at their average
rate, each end lets the next one start, and then the job itself runs as long as others of its kind did. No history is
read: a process that ends jobs stores some of their run times in a small table.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import product
from math import sqrt
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from millpond.engine.tenant_databases.databases import TenantDatabases
from millpond.errors import MillpondError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.queue.leases import End
    from millpond.engine.queue.limits import Limits, LimitWait
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.reads", "estimates")

POSITION_MAX: Final = 1_000
"""Positions are counted up to this number."""
LEASED_MAX: Final = 10_000
RUNS_MIN: Final = 5
"""With fewer runs of a kind there is no estimate."""
SLOTS: Final = 200
"""How many run times are kept for each kind."""
_LEARNED_MAX: Final = 20  # of a kind, between two heartbeats
_LOOK_SHARE: Final = 20  # queries may take at most this fraction (1 / n) of the time
_RUN_STEPS: Final = tuple((n + 0.5) / 20 for n in range(20))
_WAIT_STEPS: Final = tuple(NormalDist().inv_cdf((n + 0.5) / 9) for n in range(9))

Seen = TypeVar("Seen")


class Pending(Protocol):
    """The fields of a job that an estimate needs."""

    @property
    def job_id(self) -> UUID: ...
    @property
    def kind(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """A position in the queue, from 1 on, and the times by which 50 % and 90 % of such jobs have ended."""

    position: int | None = None
    p50: datetime | None = None
    p90: datetime | None = None
    wait: LimitWait | None = None
    """The limit that holds a ready job back; it has no position then."""


@dataclass(frozen=True)
class Durations:
    """How long jobs of a kind ran lately, in seconds, the shortest first."""

    seconds: Sequence[float]

    @property
    def jobs(self) -> int:
        return len(self.seconds)

    @property
    def p50(self) -> float:
        return quantile(self.seconds, 0.5)

    @property
    def p90(self) -> float:
        return quantile(self.seconds, 0.9)

    @cached_property
    def mean(self) -> float:
        return max(fmean(self.seconds), 1e-6)

    @cached_property
    def square(self) -> float:
        """The mean of the squares: how much the runs differ."""
        return max(fmean(value * value for value in self.seconds), 1e-12)

    @cached_property
    def steps(self) -> list[float]:
        """A few quantiles that represent all runs."""
        return [quantile(self.seconds, step) for step in _RUN_STEPS]

    def longer(self, elapsed: float) -> Sequence[float]:
        """The runs that took longer than ``elapsed``."""
        return self.seconds[bisect_right(self.seconds, elapsed) :]


@dataclass(frozen=True, slots=True)
class Held:
    """The jobs of one kind in one queue that workers hold."""

    queue: str
    kind: str
    jobs: int
    workers: frozenset[str]
    claimed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the held jobs end, how much their runs differ, and from how many runs that is known."""

    jobs: int
    rate: float
    spread: float
    runs: int

    def wait(self, position: int) -> list[float]:
        """A few quantiles of the time until ``position`` held jobs have ended."""
        mean = (position - (1 - self.spread) / (2 * self.jobs)) / self.rate
        chance = position * self.spread + 1 / 12
        doubt = position**2 * self.spread / self.runs
        deviation = sqrt(chance + doubt) / self.rate
        return [max(0.0, mean + deviation * step) for step in _WAIT_STEPS]


@dataclass(slots=True)
class QueueHead:
    """The first jobs of a queue at a moment."""

    present: datetime
    is_paused: bool
    places: list[tuple[int, int, UUID]]
    numbers: dict[UUID, int]
    turn: int
    seen_at: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """The present time of the database's clock."""
        return self.present + timedelta(seconds=time.monotonic() - self.seen_at)

    def position(self, job: Pending) -> int:
        """The position of a job. One that became ready after the query gets the position that it must have."""
        number = self.numbers.get(job.job_id)
        if number is None:
            number = bisect_left(self.places, (-job.priority, self.turn, job.job_id)) + 1
        return min(number, POSITION_MAX)


class Memory(Generic[Seen]):
    """The result of a query, cached for a moment. Concurrent callers share one query."""

    def __init__(self, look: Callable[[], Awaitable[Seen]], fresh: float) -> None:
        self._look = look
        self._fresh = fresh
        self._good_until = 0.0
        self._looking: asyncio.Task[Seen] | None = None
        self._seen: Seen | None = None

    async def recall(self) -> Seen:
        if self._seen is not None and time.monotonic() < self._good_until:
            return self._seen
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._renew())
        return await asyncio.shield(self._looking)

    async def _renew(self) -> Seen:
        began = time.monotonic()
        self._seen = await self._look()
        took = time.monotonic() - began
        self._good_until = began + max(self._fresh, took * _LOOK_SHARE) if self._fresh else 0.0
        return self._seen


class Estimates:
    """Estimates for jobs, whichever database they are in. Query results are cached for ``fresh`` seconds."""

    def __init__(
        self,
        db: Database,
        tenant_databases: TenantDatabases | None = None,
        limits: Limits | None = None,
        *,
        fresh: float = 1.0,
    ) -> None:
        self._db = db
        self._limits = limits
        self._tenant_databases = tenant_databases or TenantDatabases(db)
        self._fresh = fresh
        self._heads: dict[str, Memory[QueueHead | None]] = {}
        self._held = Memory(self._look_at_leases, fresh)
        self._durations = Memory(self._look_at_durations, fresh * 5)
        self._ended: dict[tuple[Database, str], list[UUID]] = {}
        self._slot = random.randrange(SLOTS)  # noqa: S311 - processes begin at different slots

    async def of(self, jobs: Iterable[Pending]) -> dict[UUID, Estimate]:
        """An estimate for each job; an empty one for a job that is neither ready nor leased."""
        given = list(jobs)
        pending = [job for job in given if job.phase in {"ready", "leased"}]
        estimates = {job.job_id: Estimate() for job in given}
        if not pending:
            return estimates
        held, durations = await self._held.recall(), await self._durations.recall()
        waits = await self._waits(pending)
        paces = {queue: _pace(held, durations, queue) for queue in {job.queue for job in pending}}
        for job in pending:
            head = await self._head(job.queue)
            if job.job_id in waits:
                estimates[job.job_id] = Estimate(wait=waits[job.job_id])
            elif head is not None:
                estimates[job.job_id] = _estimate(job, head, paces[job.queue], durations.get(job.kind))
        return estimates

    async def _waits(self, jobs: Iterable[Pending]) -> dict[UUID, LimitWait]:
        """What those of the jobs wait for that a limit holds back."""
        limits = self._limits
        if limits is None:
            return {}
        ready = [job.job_id for job in jobs if job.phase == "ready" and limits.may_apply(job.kind)]
        return await limits.waits(ready) if ready else {}

    async def durations(self) -> dict[str, Durations]:
        """How long jobs ran lately, by kind."""
        return await self._durations.recall()

    def saw(self, end: End) -> None:
        """Remember a job that ended in this process, for ``learn``. A few of each kind are enough."""
        if end.outcome == "succeeded":
            known = self._ended.setdefault((self._tenant_databases.of(end.lease.tenant), end.lease.kind), [])
            if len(known) < _LEARNED_MAX:
                known.append(end.lease.job_id)

    async def learn(self) -> None:
        """Store the run times of jobs that ended in this process since the last call. Losing some does no harm."""
        ended, self._ended = self._ended, {}
        for db in {db for db, _ in ended}:
            job_ids = [job_id for (database, _), known in ended.items() if database is db for job_id in known]
            with contextlib.suppress(MillpondError):
                slots = [(self._slot + n) % SLOTS for n in range(len(job_ids))]
                self._slot += len(job_ids)
                await db.run(SQL["learn"], job_ids, slots)

    async def _head(self, queue: str) -> QueueHead | None:
        memory = self._heads.get(queue)
        if memory is None:
            memory = self._heads[queue] = Memory(lambda: self._look_at_head(queue), self._fresh)
        return await memory.recall()

    async def _look_at_head(self, queue: str) -> QueueHead | None:
        row = await self._db.run(SQL["line"], queue, POSITION_MAX)
        if row is None:
            return None
        places = list(zip(row["ranks"], row["turns"], row["job_ids"], strict=True))
        numbers = {job_id: n for n, (_, _, job_id) in enumerate(places, start=1)}
        return QueueHead(row["present"], row["is_paused"], places, numbers, max(row["turns"], default=0))

    async def _look_at_leases(self) -> list[Held]:
        return await leased(self._db)

    async def _look_at_durations(self) -> dict[str, Durations]:
        return await durations(self._tenant_databases)


async def leased(db: Database) -> list[Held]:
    """What workers hold now, by queue and kind."""
    return [
        Held(row["queue"], row["kind"], row["jobs"], frozenset(row["workers"]), row["claimed_at"], row["expires_at"])
        for row in await db.run(SQL["leased"], LEASED_MAX)
    ]


async def durations(tenant_databases: TenantDatabases) -> dict[str, Durations]:
    """How long jobs ran lately, by kind; only kinds with at least ``RUNS_MIN`` runs."""
    runs: dict[str, list[float]] = {}
    for row in await tenant_databases.gather(SQL["durations"]):
        runs.setdefault(row["kind"], []).extend(row["seconds"])
    return {kind: Durations(sorted(seconds)) for kind, seconds in runs.items() if len(seconds) >= RUNS_MIN}


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, interpolated between two of them."""
    place = min(max(share * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _pace(held: Iterable[Held], durations: Mapping[str, Durations], queue: str) -> Pace | None:
    """The pace of a queue's workers; None if they hold jobs of a kind whose run times are not known."""
    known = [(item.jobs, durations.get(item.kind)) for item in held if item.queue == queue]
    paces = [(jobs / runs.mean, jobs, runs) for jobs, runs in known if runs is not None]
    if not paces or len(paces) < len(known):
        return None
    rate = sum(pace for pace, _, _ in paces)
    jobs = sum(jobs for _, jobs, _ in paces)
    square = sum(pace / rate * runs.square for pace, _, runs in paces)
    spread = max(0.0, square / (jobs / rate) ** 2 - 1)
    return Pace(jobs, rate, spread, min(runs.jobs for _, _, runs in paces))


def _estimate(job: Pending, head: QueueHead, pace: Pace | None, runs: Durations | None) -> Estimate:
    if job.phase == "leased":
        return Estimate() if runs is None else _of_leased(job, head, runs)
    position = head.position(job)
    if runs is None or pace is None or head.is_paused or position >= POSITION_MAX:
        return Estimate(position)
    rests = sorted(wait + run for wait, run in product(pace.wait(position), runs.steps))
    return _ending(job, position, head.now(), rests)


def _of_leased(job: Pending, head: QueueHead, runs: Durations) -> Estimate:
    """An estimate from the runs that took longer than this job has run so far."""
    began = job.started_at or head.now()
    return _ending(job, None, began, runs.longer((head.now() - began).total_seconds()))


def _ending(job: Pending, position: int | None, began: datetime, seconds: Sequence[float]) -> Estimate:
    if not seconds:
        return Estimate(position)
    times = [began + timedelta(seconds=quantile(seconds, share)) for share in (0.5, 0.9)]
    p50, p90 = (time if job.expires_at is None else min(time, job.expires_at) for time in times)
    return Estimate(position, p50, p90)
