"""Health: a verdict for each queue, with a reason in words and numbers, and the workers that hold leases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from millpond.engine.reads import estimates
from millpond.engine.tenant_databases.databases import TenantDatabases
from millpond.store.queries import queries as named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.reads.estimates import Durations, Held
    from millpond.store.db import Database, Row

SQL: Final = named("millpond.engine.reads", "health")

COUNT_MAX: Final = 10_000
"""Counts stop here: this number means this many or more."""

UNSERVED_AFTER: Final = timedelta(seconds=10)
"""Workers poll every second: if a job was not claimed for this long, its queue has no worker."""
BUSY_AFTER: Final = timedelta(seconds=30)
STUCK_AFTER: Final = timedelta(minutes=5)
"""The shortest time without a claim after which a queue counts as stuck."""
STUCK_UNKNOWN: Final = timedelta(hours=1)
"""The time without a claim after which a queue is stuck if the run times of its jobs are not known."""
STUCK_RUNS: Final = 3
"""A queue is stuck if nothing was claimed for this many times the p90 of its jobs' run times."""
LAPSED_AFTER: Final = timedelta(seconds=30)
"""A lease that expired this long ago should have been taken back."""
SILENCE: Final = timedelta(seconds=60)
"""A fleet worker that was not heard from for this long is lost, unless the settings say otherwise."""

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
    """A queue and its health."""

    queue: str
    verdict: Verdict
    reason: str
    ready: int
    waiting: int
    leased: int
    parked: int
    oldest_wait_seconds: float | None
    workers: int
    """The live workers that serve it, and others that hold its jobs."""
    paused_at: datetime | None


@dataclass(frozen=True, slots=True)
class QueueFlow:
    """How many jobs of a queue were submitted and how many ended, of the newest in one database."""

    queue: str
    present: datetime
    walked: int
    """How many jobs were read, of all queues."""
    since: datetime
    """When the oldest of them was submitted."""
    in_1m: int
    in_5m: int
    out_1m: int
    out_5m: int


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker that holds leases: how many, for how many jobs, when it last claimed, and when the first one expires."""

    worker: str
    leases: int
    jobs: int
    granted_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class QueueObservation:
    """What was observed of one queue at a moment."""

    present: datetime
    paused_at: datetime | None
    ready: int
    wait: timedelta | None
    held: Sequence[Held]
    serving: frozenset[str]
    """The live workers that take jobs of this queue."""
    run: timedelta | None
    """The highest p90 run time of the held kinds; None if it is not known for all of them."""

    @property
    def leased(self) -> int:
        return sum(item.jobs for item in self.held)

    @property
    def holding(self) -> frozenset[str]:
        """The workers that hold jobs of this queue."""
        return frozenset[str]().union(*(item.workers for item in self.held))

    @property
    def since_claim(self) -> timedelta:
        return self.present - max((item.claimed_at for item in self.held), default=self.present)

    @property
    def since_lapse(self) -> timedelta:
        """How long ago the first lease expired that was not taken back."""
        return self.present - min((item.expires_at for item in self.held), default=self.present)

    def judge(self) -> tuple[Verdict, str]:
        """The first verdict that applies, and its reason."""
        if self.paused_at is not None:
            return "paused", f"Paused for {span(self.present - self.paused_at)}. {self._line()}."
        if not self.held and not self.serving and self.wait is not None and self.wait > UNSERVED_AFTER:
            return (
                "unserved",
                f"{self._line()}, and no worker serves this queue. Check that a worker for it is running.",
            )
        if self.since_lapse > LAPSED_AFTER:
            return (
                "stuck",
                (
                    f"A lease expired {span(self.since_lapse)} ago and was not taken back. "
                    "Check that a process runs the services."
                ),
            )
        if self.held and self.since_claim > self._stuck_after():
            usual = "" if self.run is None else f"; 90 % of them usually end within {span(self.run)}"
            return (
                "stuck",
                f"{self._leased_by()}, the last one {span(self.since_claim)} ago{usual}. {self._line()}.",
            )
        if self.wait is not None and self.wait > BUSY_AFTER:
            return "busy", f"{self._line()}; {self._leased_by()}."
        return "ok", f"{self._line()}; {self._leased_by()}."

    def _stuck_after(self) -> timedelta:
        return STUCK_UNKNOWN if self.run is None else max(STUCK_AFTER, self.run * STUCK_RUNS)

    def _line(self) -> str:
        if not self.ready:
            return "No jobs wait"
        oldest = "" if self.wait is None else f", the oldest for {span(self.wait)}"
        return f"{_jobs(self.ready)} {'waits' if self.ready == 1 else 'wait'}{oldest}"

    def _leased_by(self) -> str:
        if not self.held:
            serving = f", {_workers(len(self.serving))} {'serves' if len(self.serving) == 1 else 'serve'} this queue"
            return f"no jobs are leased{serving if self.serving else ''}"
        return f"{_jobs(self.leased)} {'is' if self.leased == 1 else 'are'} leased by {_workers(len(self.holding))}"


async def queues(
    db: Database, tenant_databases: TenantDatabases | None = None, silence: timedelta = SILENCE
) -> list[QueueHealth]:
    """The health of all queues, by name. Fleet workers that were not heard from for ``silence`` are lost."""
    tenant_databases = tenant_databases or TenantDatabases(db)
    lines: Sequence[Row] = await db.run(SQL["queues"], COUNT_MAX)
    aside = {row["queue"]: (row["waiting"], row["parked"]) for row in await db.run(SQL["aside"], COUNT_MAX)}
    joined = await _ready_since(tenant_databases, [job_id for row in lines for job_id in row["heads"]])
    held = await estimates.leased(db)
    serving = {row["queue"]: frozenset[str](row["workers"]) for row in await db.run(SQL["serving"], silence)}
    durations = await estimates.durations(tenant_databases)
    return [
        _health(
            row["queue"],
            _observation(
                row,
                joined,
                [item for item in held if item.queue == row["queue"]],
                serving.get(row["queue"], frozenset()),
                durations,
            ),
            *aside.get(row["queue"], (0, 0)),
        )
        for row in lines
    ]


async def flow(tenant_databases: TenantDatabases, first: UUID, limit: int) -> list[QueueFlow]:
    """The flow of each queue in each database, among the newest ``limit`` jobs from the id ``first`` on."""
    return [QueueFlow(**row) for row in await tenant_databases.gather(SQL["flow"], first, limit)]


def _observation(
    row: Row,
    joined: Mapping[UUID, datetime],
    held: Sequence[Held],
    serving: frozenset[str],
    durations: Mapping[str, Durations],
) -> QueueObservation:
    present: datetime = row["present"]
    since = min((joined[head] for head in row["heads"] if head in joined), default=None)
    wait = None if since is None else max(timedelta(0), present - since)
    return QueueObservation(present, row["paused_at"], row["ready"], wait, held, serving, _usual_run(held, durations))


def _health(queue: str, observation: QueueObservation, waiting: int, parked: int) -> QueueHealth:
    verdict, reason = observation.judge()
    return QueueHealth(
        queue=queue,
        verdict=verdict,
        reason=reason,
        ready=observation.ready,
        waiting=waiting,
        leased=observation.leased,
        parked=parked,
        oldest_wait_seconds=None if observation.wait is None else round(observation.wait.total_seconds(), 3),
        workers=len(observation.serving | observation.holding),
        paused_at=observation.paused_at,
    )


async def workers(db: Database) -> list[WorkerHealth]:
    """The workers that hold leases now, by name."""
    return [WorkerHealth(**row) for row in await db.run(SQL["workers"], COUNT_MAX)]


async def _ready_since(tenant_databases: TenantDatabases, heads: Sequence[UUID]) -> dict[UUID, datetime]:
    if not heads:
        return {}
    return {row["job_id"]: row["at"] for row in await tenant_databases.gather(SQL["joined"], heads)}


def _usual_run(held: Iterable[Held], durations: Mapping[str, Durations]) -> timedelta | None:
    known = [durations.get(item.kind) for item in held]
    runs = [one.p90 for one in known if one is not None]
    return timedelta(seconds=max(runs)) if runs and len(runs) == len(known) else None


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count:,} workers"


def _jobs(count: int) -> str:
    if count >= COUNT_MAX:
        return f"{COUNT_MAX:,} jobs or more"
    return "1 job" if count == 1 else f"{count:,} jobs"


def span(length: timedelta) -> str:
    """A duration in words: 0.4 s, 42 s, 12 min, 3 h, 5 d."""
    seconds = max(0.0, length.total_seconds())
    for limit, size, digits, unit in _SPANS:
        if seconds < limit:
            return f"{seconds / size:.{digits}f} {unit}"
    raise AssertionError
