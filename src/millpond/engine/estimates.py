"""Estimates: a job's place in line, and when it is likely to have ended.

Three things are known, each from a bounded look that all callers share for a moment: the head of a queue's line,
what its workers hold now, and how long jobs of each kind ran lately. While jobs wait, those that are held end at the
rate at which they end on average, each end lets the next one start, and then the job itself runs as long as others of
its kind did. No history is read: a process that ends jobs keeps some of their run times in a small table.
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

from millpond.engine.homes import Homes
from millpond.errors import MillpondError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.leases import End
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine", "estimates")

POSITION_MAX: Final = 1_000
"""A place in line is counted no further."""
LEASED_MAX: Final = 10_000
RUNS_MIN: Final = 5
"""With fewer runs of a kind there is nothing to go by."""
SLOTS: Final = 200
"""So many run times are kept for each kind."""
_LEARNED_MAX: Final = 20  # of a kind, between two heartbeats
_LOOK_SHARE: Final = 20  # a look may take one part in so many of the time
_RUN_STEPS: Final = tuple((n + 0.5) / 20 for n in range(20))
_WAIT_STEPS: Final = tuple(NormalDist().inv_cdf((n + 0.5) / 9) for n in range(9))

Seen = TypeVar("Seen")


class Pending(Protocol):
    """What must be known of a job to estimate it."""

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
    """A place in line, from 1 on, and the times by which half, and nine of ten, of such jobs have ended."""

    position: int | None = None
    p50: datetime | None = None
    p90: datetime | None = None


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
        """A few runs that stand for all."""
        return [quantile(self.seconds, step) for step in _RUN_STEPS]

    def longer(self, elapsed: float) -> Sequence[float]:
        """The runs that were not over after so long."""
        return self.seconds[bisect_right(self.seconds, elapsed) :]


@dataclass(frozen=True, slots=True)
class Held:
    """What workers hold of one kind in one queue."""

    queue: str
    kind: str
    jobs: int
    workers: frozenset[str]
    claimed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the jobs that are held now end, how much their runs differ, and from how many runs we know."""

    jobs: int
    rate: float
    spread: float
    runs: int

    def wait(self, position: int) -> list[float]:
        """A few waits that stand for all, until so many of them have ended."""
        mean = (position - (1 - self.spread) / (2 * self.jobs)) / self.rate
        chance = position * self.spread + 1 / 12
        doubt = position**2 * self.spread / self.runs
        deviation = sqrt(chance + doubt) / self.rate
        return [max(0.0, mean + deviation * step) for step in _WAIT_STEPS]


@dataclass(slots=True)
class Line:
    """The first jobs of a queue, as of a moment."""

    present: datetime
    is_paused: bool
    places: list[tuple[int, int, UUID]]
    numbers: dict[UUID, int]
    turn: int
    seen_at: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """What the database's clock shows."""
        return self.present + timedelta(seconds=time.monotonic() - self.seen_at)

    def position(self, job: Pending) -> int:
        """Its place; one that has joined since the look is counted where it must stand."""
        number = self.numbers.get(job.job_id)
        if number is None:
            number = bisect_left(self.places, (-job.priority, self.turn, job.job_id)) + 1
        return min(number, POSITION_MAX)


class Memory(Generic[Seen]):
    """What a look has shown, good for a moment; those who ask meanwhile share the next one."""

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
    """Estimates for the jobs of one queue, wherever they live. What was seen is good for ``fresh`` seconds."""

    def __init__(self, db: Database, homes: Homes | None = None, *, fresh: float = 1.0) -> None:
        self._db = db
        self._homes = homes or Homes(db)
        self._fresh = fresh
        self._lines: dict[str, Memory[Line | None]] = {}
        self._held = Memory(self._look_at_leases, fresh)
        self._durations = Memory(self._look_at_durations, fresh * 5)
        self._ended: dict[tuple[Database, str], list[UUID]] = {}
        self._slot = random.randrange(SLOTS)  # noqa: S311 - processes begin at different places

    async def of(self, jobs: Iterable[Pending]) -> dict[UUID, Estimate]:
        """For each job what can be said of it; nothing of one that is neither ready nor leased."""
        given = list(jobs)
        pending = [job for job in given if job.phase in {"ready", "leased"}]
        told = {job.job_id: Estimate() for job in given}
        if not pending:
            return told
        held, durations = await self._held.recall(), await self._durations.recall()
        paces = {queue: _pace(held, durations, queue) for queue in {job.queue for job in pending}}
        for job in pending:
            line = await self._line(job.queue)
            if line is not None:
                told[job.job_id] = _estimate(job, line, paces[job.queue], durations.get(job.kind))
        return told

    async def durations(self) -> dict[str, Durations]:
        """How long jobs ran lately, by kind."""
        return await self._durations.recall()

    def saw(self, end: End) -> None:
        """Remember a job that ended here, to learn from it later; of a crowd, a few are enough."""
        if end.outcome == "succeeded":
            known = self._ended.setdefault((self._homes.of(end.lease.tenant), end.lease.kind), [])
            if len(known) < _LEARNED_MAX:
                known.append(end.lease.job_id)

    async def learn(self) -> None:
        """Keep how long the jobs ran that ended here since the last time; what gets lost is no loss."""
        ended, self._ended = self._ended, {}
        for db in {db for db, _ in ended}:
            job_ids = [job_id for (home, _), known in ended.items() if home is db for job_id in known]
            with contextlib.suppress(MillpondError):
                slots = [(self._slot + n) % SLOTS for n in range(len(job_ids))]
                self._slot += len(job_ids)
                await db.run(SQL["learn"], job_ids, slots)

    async def _line(self, queue: str) -> Line | None:
        memory = self._lines.get(queue)
        if memory is None:
            memory = self._lines[queue] = Memory(lambda: self._look_at_line(queue), self._fresh)
        return await memory.recall()

    async def _look_at_line(self, queue: str) -> Line | None:
        row = await self._db.run(SQL["line"], queue, POSITION_MAX)
        if row is None:
            return None
        places = list(zip(row["ranks"], row["turns"], row["job_ids"], strict=True))
        numbers = {job_id: n for n, (_, _, job_id) in enumerate(places, start=1)}
        return Line(row["present"], row["is_paused"], places, numbers, max(row["turns"], default=0))

    async def _look_at_leases(self) -> list[Held]:
        return await leased(self._db)

    async def _look_at_durations(self) -> dict[str, Durations]:
        return await durations(self._homes)


async def leased(db: Database) -> list[Held]:
    """What workers hold now, by queue and kind."""
    return [
        Held(row["queue"], row["kind"], row["jobs"], frozenset(row["workers"]), row["claimed_at"], row["expires_at"])
        for row in await db.run(SQL["leased"], LEASED_MAX)
    ]


async def durations(homes: Homes) -> dict[str, Durations]:
    """How long jobs ran lately, by kind; only kinds of which enough have succeeded."""
    runs: dict[str, list[float]] = {}
    for row in await homes.gather(SQL["durations"]):
        runs.setdefault(row["kind"], []).extend(row["seconds"])
    return {kind: Durations(sorted(seconds)) for kind, seconds in runs.items() if len(seconds) >= RUNS_MIN}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies, between two of them where it falls there."""
    place = min(max(share * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _pace(held: Iterable[Held], durations: Mapping[str, Durations], queue: str) -> Pace | None:
    """How fast a queue's workers end what they hold; nothing, where one holds what we know nothing of."""
    known = [(item.jobs, durations.get(item.kind)) for item in held if item.queue == queue]
    paces = [(jobs / runs.mean, jobs, runs) for jobs, runs in known if runs is not None]
    if not paces or len(paces) < len(known):
        return None
    rate = sum(pace for pace, _, _ in paces)
    jobs = sum(jobs for _, jobs, _ in paces)
    square = sum(pace / rate * runs.square for pace, _, runs in paces)
    spread = max(0.0, square / (jobs / rate) ** 2 - 1)
    return Pace(jobs, rate, spread, min(runs.jobs for _, _, runs in paces))


def _estimate(job: Pending, line: Line, pace: Pace | None, runs: Durations | None) -> Estimate:
    if job.phase == "leased":
        return Estimate() if runs is None else _of_leased(job, line, runs)
    position = line.position(job)
    if runs is None or pace is None or line.is_paused or position >= POSITION_MAX:
        return Estimate(position)
    rests = sorted(wait + run for wait, run in product(pace.wait(position), runs.steps))
    return _ending(job, position, line.now(), rests)


def _of_leased(job: Pending, line: Line, runs: Durations) -> Estimate:
    """From the runs that were not over when they had run as long as this one already has."""
    began = job.started_at or line.now()
    return _ending(job, None, began, runs.longer((line.now() - began).total_seconds()))


def _ending(job: Pending, position: int | None, began: datetime, seconds: Sequence[float]) -> Estimate:
    if not seconds:
        return Estimate(position)
    times = [began + timedelta(seconds=quantile(seconds, share)) for share in (0.5, 0.9)]
    p50, p90 = (time if job.expires_at is None else min(time, job.expires_at) for time in times)
    return Estimate(position, p50, p90)
