"""Counters: how many jobs there are, how fast they move and why they fail, without counting jobs.

Every statement that moves jobs writes counter changes in the same transaction. A service merges them into small tables
by minute and hour; readers add the changes that are not merged yet. So no page reads history, and every number is
current, whether the service runs or not.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from millpond.errors import StoreError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.store.db import Database, Row
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.reads", "counters")

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
KEPT: Final = {MINUTE: timedelta(hours=25), HOUR: timedelta(days=90)}
"""How long flows are kept, by minute and by hour."""
BUCKETS: Final = 64
FAILURES_MAX: Final = 100
MERGE_MAX: Final = 5_000
UNMERGED_MAX: Final = 10_000
"""With more unmerged changes than this, a reader merges some first, because each read adds all of them up."""
RELIEVE_EVERY: Final = 1.0
"""The seconds between two such checks of a process."""
RECOUNT_TIMEOUT: Final = 3600.0
"""The seconds that a recount may take: it reads all jobs."""
_ALL: Final = ""

Span = Literal["1h", "6h", "24h", "7d", "30d"]
Since = Literal["1h", "24h", "7d", "30d"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)
FLOWS: Final = ("submitted", "succeeded", "failed", "canceled", "expired", "retried", "captured")


@dataclass(frozen=True, slots=True)
class Period:
    """How a span of time is divided: into points, each of which adds up rows of minutes or hours."""

    length: timedelta
    point: timedelta
    step: timedelta

    def start(self, present: datetime) -> datetime:
        """The start of the span; its last point is the one that is not over yet."""
        seconds = self.point.total_seconds()
        last = datetime.fromtimestamp(present.timestamp() // seconds * seconds, present.tzinfo)
        return last - self.length + self.point

    def points(self, start: datetime) -> list[datetime]:
        return [start + self.point * n for n in range(self.length // self.point)]


STRETCHES: Final[Mapping[Span, Period]] = {
    "1h": Period(timedelta(hours=1), timedelta(minutes=1), MINUTE),
    "6h": Period(timedelta(hours=6), timedelta(minutes=5), MINUTE),
    "24h": Period(timedelta(hours=24), timedelta(minutes=15), MINUTE),
    "7d": Period(timedelta(days=7), timedelta(hours=1), HOUR),
    "30d": Period(timedelta(days=30), timedelta(hours=6), HOUR),
}
FAILURE_STRETCHES: Final[Mapping[Since, Period]] = {
    "1h": Period(timedelta(hours=1), timedelta(minutes=2), MINUTE),
    "24h": Period(timedelta(hours=24), timedelta(hours=1), HOUR),
    "7d": Period(timedelta(days=7), timedelta(hours=6), HOUR),
    "30d": Period(timedelta(days=30), timedelta(days=1), HOUR),
}


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs of a kind are in a state, and the credits that are held for them."""

    kind: str
    state: str
    phase: str
    n: int
    held: int


@dataclass(frozen=True, slots=True)
class Flow:
    """How many jobs were submitted, ended and retried in a period, and the credits that were captured."""

    at: datetime
    submitted: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    expired: int = 0
    retried: int = 0
    captured: int = 0
    waits: Sequence[int] = ()
    runs: Sequence[int] = ()

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.canceled + self.expired

    @property
    def lost(self) -> int:
        """The jobs that failed or expired."""
        return self.failed + self.expired


@dataclass(frozen=True, slots=True)
class Flows:
    """The flows of a span of time, point by point."""

    stretch: Period
    data: list[Flow]

    @property
    def total(self) -> Flow:
        return reduce(_add_flows, self.data)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures with one fingerprint since a time: they differ only in numbers, ids and the like."""

    fingerprint: str
    kind: str
    code: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    tenants: int
    released: int
    sample: UUID
    counts: list[int]


@dataclass(frozen=True, slots=True)
class Failures:
    """The most frequent failures since a time."""

    stretch: Period
    since: datetime
    data: list[Failure]


@dataclass(frozen=True, slots=True)
class Spender:
    """A tenant, the credits captured from it, and the number of its jobs that ended."""

    tenant: str
    captured: int
    jobs: int


class Counters:
    """The counters of the jobs of one tenant, or of all."""

    def __init__(self, tenant_databases: TenantDatabases) -> None:
        self._tenant_databases = tenant_databases
        self._relieve_at = 0.0

    async def clock(self) -> datetime:
        async with self._tenant_databases.central.connection() as connection:
            return await connection.fetchval("select millpond.clock()")

    async def counts(self, tenant: str | None = None) -> list[Count]:
        """How many jobs of each kind are in each state. For final states: how many have ended since counting began."""
        sums: dict[tuple[str, str, str], tuple[int, int]] = {}
        for row in await self._rows(tenant, SQL["counts"], tenant):
            key = row["kind"], row["state"], row["phase"]
            n, held = sums.get(key, (0, 0))
            sums[key] = n + row["n"], held + row["held"]
        return [Count(*key, n, held) for key, (n, held) in sorted(sums.items())]

    async def flows(
        self, span: Span, *, tenant: str | None = None, kind: str | None = None, at: datetime | None = None
    ) -> Flows:
        """The flows of a span of time, up to now or to ``at``, a time of the database's clock."""
        stretch = STRETCHES[span]
        start = stretch.start(at or await self.clock())
        rows = await self._rows(tenant, SQL["flows"], stretch.step, tenant or _ALL, kind or _ALL, start, stretch.point)
        found: dict[datetime, Flow] = {}
        for row in rows:
            flow = _flow(row)
            known = found.get(flow.at)
            found[flow.at] = flow if known is None else _add_flows(known, flow)
        return Flows(stretch, [found.get(at) or Flow(at) for at in stretch.points(start)])

    async def total(self, span: Span, *, tenant: str | None, at: datetime) -> Flow:
        """The total flow of a span of time up to ``at``."""
        stretch = STRETCHES[span]
        start = stretch.start(at)
        rows = await self._rows(tenant, SQL["total"], stretch.step, tenant or _ALL, start)
        return reduce(_add_flows, (Flow(start, **row) for row in rows))

    async def durations(self) -> dict[str, tuple[list[int], list[int]]]:
        """How long jobs of each kind waited and ran, as histograms that only grow."""
        sums: dict[str, tuple[list[int], list[int]]] = {}
        for row in await self._tenant_databases.gather(SQL["durations"]):
            waits, runs = sums.get(row["kind"], ([], []))
            sums[row["kind"]] = (
                _added(waits, _expanded(row["waits"])),
                _added(runs, _expanded(row["runs"])),
            )
        return sums

    async def spenders(self, limit: int, tenant: str | None = None, *, at: datetime | None = None) -> list[Spender]:
        """The tenants from which the most credits were captured in the last hour."""
        start = STRETCHES["1h"].start(at or await self.clock())
        rows = await self._rows(tenant, SQL["spenders"], start, tenant, limit)
        spenders = [Spender(**row) for row in rows]
        return sorted(spenders, key=lambda spender: -spender.captured)[:limit]

    async def failures(
        self,
        since: Since,
        *,
        tenant: str | None = None,
        kind: str | None = None,
        limit: int = FAILURES_MAX,
        at: datetime | None = None,
    ) -> Failures:
        """The most frequent failures."""
        stretch = FAILURE_STRETCHES[since]
        start = stretch.start(at or await self.clock())
        rows = await self._rows(
            tenant, SQL["failures"], stretch.step, tenant or _ALL, start, stretch.point, kind, limit
        )
        points = {at: n for n, at in enumerate(stretch.points(start))}
        found: dict[str, Failure] = {}
        for row in rows:
            failure = _failure(row, points)
            known = found.get(failure.fingerprint)
            found[failure.fingerprint] = failure if known is None else _add_failures(known, failure)
        ordered = sorted(found.values(), key=lambda failure: (-failure.count, failure.fingerprint))
        return Failures(stretch, start, ordered[:limit])

    async def _rows(self, tenant: str | None, query: NamedQuery, *arguments: object) -> Sequence[Row]:
        """The rows of a tenant's database, or of all databases that can be reached."""
        await self._relieve()
        return await self._tenant_databases.gather(query, *arguments, of=tenant)

    async def _relieve(self) -> None:
        """Merge some changes, in case no service does. If that fails, the read is only slower."""
        if time.monotonic() < self._relieve_at:
            return
        self._relieve_at = time.monotonic() + RELIEVE_EVERY
        for database in self._tenant_databases.all:
            with contextlib.suppress(StoreError):
                await database.run(SQL["relieve"], UNMERGED_MAX, UNMERGED_MAX)

    # For services

    async def merge(self, limit: int) -> int:
        """Merge up to ``limit`` changes of each database; return how many were merged."""
        return sum(await self._tenant_databases.each(lambda db: merge(db, limit)))

    async def recount(self) -> int:
        """Recount jobs in each database where a recount is due; return how many counts were wrong."""
        return sum(await self._tenant_databases.each(recount))


async def merge(db: Database, limit: int) -> int:
    return int((await db.run(SQL["merge"], limit))["merged"])


async def recount(db: Database, *, is_due: bool = False) -> int:
    """Recount jobs if a recount is due or, with ``is_due``, in any case. No statement or lock timeout applies."""
    async with db.transaction() as tx:
        await tx.execute("set local statement_timeout = 0; set local lock_timeout = 0")
        if is_due:
            await tx.execute(SQL["order_recount"].text, timeout=RECOUNT_TIMEOUT)
        return int(await tx.fetchval(SQL["recount"].text, timeout=RECOUNT_TIMEOUT))


async def prune(db: Database, limit: int) -> int:
    """Delete flows and failures that are older than ``KEPT``, up to ``limit`` with each statement."""
    pruned = 0
    for step, age in KEPT.items():
        for query in (SQL["prune_flows"], SQL["prune_failure_flows"]):
            pruned += int((await db.run(query, step, age, limit))["pruned"])
    return pruned + int((await db.run(SQL["prune_failures"], KEPT[HOUR], limit))["pruned"])


def _expanded(histogram: Sequence[int] | None) -> list[int]:
    """Expand a sparse histogram to one number for each bucket; see millpond.histogram."""
    if not histogram:
        return []
    numbers = [0] * BUCKETS
    for item in histogram:
        numbers[item % BUCKETS] += item // BUCKETS
    return numbers


def bounds(bucket: int) -> tuple[float, float]:
    """The limits of a bucket in seconds; see millpond.bucket."""
    low, high = (2 ** (edge / 2) - 1 for edge in (bucket, bucket + 1))
    return low / 1000, high / 1000


def quantile(histogram: Iterable[int], share: float) -> float | None:
    """A quantile of a histogram in seconds, interpolated within its bucket."""
    numbers = list(histogram)
    wanted = share * sum(numbers)
    if not wanted:
        return None
    below = 0
    for bucket, number in enumerate(numbers):
        if number and below + number >= wanted:
            low, high = bounds(bucket)
            return round(low + (high - low) * (wanted - below) / number, 4)
        below += number
    return None


def _added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    if not one or not other:
        return list(one or other)
    return [a + b for a, b in zip(one, other, strict=True)]


def _flow(row: Row) -> Flow:
    fields: dict[str, Any] = {**row, "waits": _expanded(row["waits"]), "runs": _expanded(row["runs"])}
    return Flow(**fields)


def _add_flows(one: Flow, other: Flow) -> Flow:
    sums = {name: getattr(one, name) + getattr(other, name) for name in FLOWS}
    return Flow(one.at, **sums, waits=_added(one.waits, other.waits), runs=_added(one.runs, other.runs))


def _failure(row: Row, points: Mapping[datetime, int]) -> Failure:
    counts = [0] * len(points)
    for at, n in zip(row["ats"], row["ns"], strict=True):
        if at in points:
            counts[points[at]] = n
    return Failure(
        row["fingerprint"],
        row["kind"],
        row["code"],
        row["message"],
        row["n"],
        row["first_at"],
        row["last_at"],
        row["tenants"],
        row["released"],
        row["sample"],
        counts,
    )


def _add_failures(one: Failure, other: Failure) -> Failure:
    """Add up the same failure of two databases."""
    latest = max(one, other, key=lambda failure: failure.last_at)
    return Failure(
        one.fingerprint,
        one.kind,
        latest.code,
        latest.message,
        one.count + other.count,
        min(one.first_at, other.first_at),
        latest.last_at,
        one.tenants + other.tenants,
        one.released + other.released,
        latest.sample,
        _added(one.counts, other.counts),
    )
