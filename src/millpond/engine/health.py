"""Health: what a queue is up to, as a verdict with its reason in words and numbers; and who works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from millpond.engine import estimates
from millpond.engine.homes import Homes
from millpond.store.queries import queries as named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.estimates import Durations, Held
    from millpond.store.db import Database, Row

SQL: Final = named("millpond.engine", "health")

COUNT_MAX: Final = 10_000
"""Nothing is counted further; this many means this many or more."""

UNSERVED_AFTER: Final = timedelta(seconds=10)
"""A worker looks every second: a job that nobody has claimed for so long has no worker."""
BUSY_AFTER: Final = timedelta(seconds=30)
STUCK_AFTER: Final = timedelta(minutes=5)
"""No queue is stuck sooner."""
STUCK_UNKNOWN: Final = timedelta(hours=1)
"""Nor sooner than this, where nobody knows how long its jobs take."""
STUCK_RUNS: Final = 3
"""How many times what nine of ten jobs take is too long."""
LAPSED_AFTER: Final = timedelta(seconds=30)
"""A lease that ran out so long ago should have been taken back."""

_SPANS: Final = (
    (10, 1, 1, "s"),
    (120, 1, 0, "s"),
    (2 * 3_600, 60, 0, "min"),
    (2 * 86_400, 3_600, 0, "h"),
    (float("inf"), 86_400, 0, "d"),
)

Verdict = Literal["ok", "busy", "stuck", "paused", "unserved"]


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """A queue and how it is doing."""

    queue: str
    verdict: Verdict
    reason: str
    ready: int
    waiting: int
    leased: int
    parked: int
    oldest_wait_seconds: float | None
    workers: int
    paused_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker that holds leases: how many, for how many jobs, when it last claimed, and until when it is good."""

    worker: str
    leases: int
    jobs: int
    granted_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of one queue at a moment."""

    present: datetime
    paused_at: datetime | None
    ready: int
    wait: timedelta | None
    held: Sequence[Held]
    run: timedelta | None
    """How long nine of ten of the jobs that are held take at most; nothing, where that is not known of all."""

    @property
    def leased(self) -> int:
        return sum(item.jobs for item in self.held)

    @property
    def workers(self) -> int:
        return len(frozenset[str]().union(*(item.workers for item in self.held)))

    @property
    def since_claim(self) -> timedelta:
        return self.present - max((item.claimed_at for item in self.held), default=self.present)

    @property
    def since_lapse(self) -> timedelta:
        """How long ago the first lease ran out that nobody has taken back."""
        return self.present - min((item.expires_at for item in self.held), default=self.present)

    def judge(self) -> tuple[Verdict, str]:
        """The first of these that fits."""
        if self.paused_at is not None:
            return "paused", f"Paused for {span(self.present - self.paused_at)}. {self._line()}."
        if not self.held and self.wait is not None and self.wait > UNSERVED_AFTER:
            return "unserved", f"{self._line()}, and no worker holds any of its jobs. Is one running for it?"
        if self.since_lapse > LAPSED_AFTER:
            return (
                "stuck",
                f"A lease ran out {span(self.since_lapse)} ago and was not taken back. Do the services run?",
            )
        if self.held and self.since_claim > self._patience():
            usual = "" if self.run is None else f"; nine of ten take at most {span(self.run)}"
            return (
                "stuck",
                f"{self._hands()}, none of them claimed within {span(self.since_claim)}{usual}. {self._line()}.",
            )
        if self.wait is not None and self.wait > BUSY_AFTER:
            return "busy", f"{self._line()}; {self._hands()}."
        return "ok", f"{self._line()}; {self._hands()}."

    def _patience(self) -> timedelta:
        return STUCK_UNKNOWN if self.run is None else max(STUCK_AFTER, self.run * STUCK_RUNS)

    def _line(self) -> str:
        if not self.ready:
            return "No job waits"
        oldest = "" if self.wait is None else f", the oldest for {span(self.wait)}"
        return f"{_jobs(self.ready)} {'waits' if self.ready == 1 else 'wait'}{oldest}"

    def _hands(self) -> str:
        if not self.held:
            return "none is leased"
        by = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{_jobs(self.leased)} {'is' if self.leased == 1 else 'are'} leased by {by}"


async def queues(db: Database, homes: Homes | None = None) -> list[QueueHealth]:
    """How every queue is doing, by name."""
    homes = homes or Homes(db)
    lines: Sequence[Row] = await db.run(SQL["queues"], COUNT_MAX)
    aside = {row["queue"]: (row["waiting"], row["parked"]) for row in await db.run(SQL["aside"], COUNT_MAX)}
    joined = await _joined(homes, [job_id for row in lines for job_id in row["heads"]])
    held = await estimates.leased(db)
    durations = await estimates.durations(homes)
    return [
        _health(
            row["queue"],
            _sight(row, joined, [item for item in held if item.queue == row["queue"]], durations),
            *aside.get(row["queue"], (0, 0)),
        )
        for row in lines
    ]


def _sight(
    row: Row, joined: Mapping[UUID, datetime], held: Sequence[Held], durations: Mapping[str, Durations]
) -> Sight:
    present: datetime = row["present"]
    since = min((joined[head] for head in row["heads"] if head in joined), default=None)
    wait = None if since is None else max(timedelta(0), present - since)
    return Sight(present, row["paused_at"], row["ready"], wait, held, _usual(held, durations))


def _health(queue: str, sight: Sight, waiting: int, parked: int) -> QueueHealth:
    verdict, reason = sight.judge()
    return QueueHealth(
        queue=queue,
        verdict=verdict,
        reason=reason,
        ready=sight.ready,
        waiting=waiting,
        leased=sight.leased,
        parked=parked,
        oldest_wait_seconds=None if sight.wait is None else round(sight.wait.total_seconds(), 3),
        workers=sight.workers,
        paused_at=sight.paused_at,
    )


async def workers(db: Database) -> list[WorkerHealth]:
    """Who holds leases now, by name."""
    return [WorkerHealth(**row) for row in await db.run(SQL["workers"], COUNT_MAX)]


async def _joined(homes: Homes, heads: Sequence[UUID]) -> dict[UUID, datetime]:
    if not heads:
        return {}
    return {row["job_id"]: row["at"] for row in await homes.gather(SQL["joined"], heads)}


def _usual(held: Iterable[Held], durations: Mapping[str, Durations]) -> timedelta | None:
    known = [durations.get(item.kind) for item in held]
    runs = [one.p90 for one in known if one is not None]
    return timedelta(seconds=max(runs)) if runs and len(runs) == len(known) else None


def _jobs(count: int) -> str:
    if count >= COUNT_MAX:
        return f"{COUNT_MAX:,} jobs or more"
    return "1 job" if count == 1 else f"{count:,} jobs"


def span(length: timedelta) -> str:
    """A length of time as one says it: 0.4 s, 42 s, 12 min, 3 h, 5 d."""
    seconds = max(0.0, length.total_seconds())
    for most, size, digits, unit in _SPANS:
        if seconds < most:
            return f"{seconds / size:.{digits}f} {unit}"
    raise AssertionError
