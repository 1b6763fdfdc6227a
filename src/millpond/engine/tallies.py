"""Tallies: how many jobs there are, how fast they move and why they fail, known without counting them.

Every statement that moves jobs writes what it has done, as numbers, in the same transaction. A service folds these
into small tables by the minute and the hour; who reads adds what has not been folded yet. So no page looks at history,
and what it shows is right at once, whether the service runs or not.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from millpond.engine.split import passed_over
from millpond.errors import StoreError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.homes import Homes
    from millpond.store.db import Database, Row
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "tallies")

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
KEPT: Final = {MINUTE: timedelta(hours=25), HOUR: timedelta(days=90)}
"""For how long what went through in each minute, and in each hour, is known."""
BUCKETS: Final = 64
FAILURES_MAX: Final = 100
FOLD_MAX: Final = 5_000
UNFOLDED_MAX: Final = 10_000
"""Where more tallies than this lie about, whoever reads folds some first: each read adds all of them up."""
RELIEVE_EVERY: Final = 1.0
"""Seconds until a reader looks again whether they do."""
RECOUNT_TIMEOUT: Final = 3600.0
"""Seconds that counting anew may take: it looks at every job there is."""
_ALL: Final = ""

Span = Literal["1h", "6h", "24h", "7d", "30d"]
Since = Literal["1h", "24h", "7d", "30d"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)
FLOWS: Final = ("submitted", "succeeded", "failed", "canceled", "expired", "retried", "captured")


@dataclass(frozen=True, slots=True)
class Stretch:
    """How a span of time is looked at: in points so far apart, that are put together from minutes or hours."""

    length: timedelta
    point: timedelta
    step: timedelta

    def start(self, present: datetime) -> datetime:
        """Where it begins: the last point is the one that is not over yet."""
        seconds = self.point.total_seconds()
        last = datetime.fromtimestamp(present.timestamp() // seconds * seconds, present.tzinfo)
        return last - self.length + self.point

    def points(self, start: datetime) -> list[datetime]:
        return [start + self.point * n for n in range(self.length // self.point)]


STRETCHES: Final[Mapping[Span, Stretch]] = {
    "1h": Stretch(timedelta(hours=1), timedelta(minutes=1), MINUTE),
    "6h": Stretch(timedelta(hours=6), timedelta(minutes=5), MINUTE),
    "24h": Stretch(timedelta(hours=24), timedelta(minutes=15), MINUTE),
    "7d": Stretch(timedelta(days=7), timedelta(hours=1), HOUR),
    "30d": Stretch(timedelta(days=30), timedelta(hours=6), HOUR),
}
FAILURE_STRETCHES: Final[Mapping[Since, Stretch]] = {
    "1h": Stretch(timedelta(hours=1), timedelta(minutes=2), MINUTE),
    "24h": Stretch(timedelta(hours=24), timedelta(hours=1), HOUR),
    "7d": Stretch(timedelta(days=7), timedelta(hours=6), HOUR),
    "30d": Stretch(timedelta(days=30), timedelta(days=1), HOUR),
}


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs of a kind are in a state, and what is held for them."""

    kind: str
    state: str
    phase: str
    n: int
    held: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What went through in a stretch of time."""

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
        """Those that should have succeeded and did not."""
        return self.failed + self.expired


@dataclass(frozen=True, slots=True)
class Flows:
    """What went through, point by point."""

    stretch: Stretch
    data: list[Flow]

    @property
    def total(self) -> Flow:
        return reduce(_together, self.data)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures that differ only in numbers, names and the like, since a time."""

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

    stretch: Stretch
    since: datetime
    data: list[Failure]


@dataclass(frozen=True, slots=True)
class Spender:
    """A tenant, what was captured of it, and for how many jobs that ended."""

    tenant: str
    captured: int
    jobs: int


class Tallies:
    """What is known of the jobs of one tenant, or of all."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._relieve_at = 0.0

    async def clock(self) -> datetime:
        async with self._homes.central.connection() as connection:
            return await connection.fetchval("select millpond.clock()")

    async def counts(self, tenant: str | None = None) -> list[Count]:
        """How many jobs of each kind are in each state. Of ended ones, how many have come there since it is counted."""
        sums: dict[tuple[str, str, str], tuple[int, int]] = {}
        for row in await self._rows(tenant, SQL["counts"], tenant):
            key = row["kind"], row["state"], row["phase"]
            n, held = sums.get(key, (0, 0))
            sums[key] = n + row["n"], held + row["held"]
        return [Count(*key, n, held) for key, (n, held) in sorted(sums.items())]

    async def flows(
        self, span: Span, *, tenant: str | None = None, kind: str | None = None, at: datetime | None = None
    ) -> Flows:
        """What went through in a span of time, up to now or to a moment that the database's clock has shown."""
        stretch = STRETCHES[span]
        start = stretch.start(at or await self.clock())
        rows = await self._rows(tenant, SQL["flows"], stretch.step, tenant or _ALL, kind or _ALL, start, stretch.point)
        found: dict[datetime, Flow] = {}
        for row in rows:
            flow = _flow(row)
            known = found.get(flow.at)
            found[flow.at] = flow if known is None else _together(known, flow)
        return Flows(stretch, [found.get(at) or Flow(at) for at in stretch.points(start)])

    async def total(self, span: Span, *, tenant: str | None, at: datetime) -> Flow:
        """What went through in a span of time up to a moment, in all."""
        stretch = STRETCHES[span]
        start = stretch.start(at)
        rows = await self._rows(tenant, SQL["total"], stretch.step, tenant or _ALL, start)
        return reduce(_together, (Flow(start, **row) for row in rows))

    async def durations(self) -> dict[str, tuple[list[int], list[int]]]:
        """How long jobs of each kind waited and ran, as histograms that only grow."""
        sums: dict[str, tuple[list[int], list[int]]] = {}
        for row in await self._homes.gather(SQL["durations"]):
            waits, runs = sums.get(row["kind"], ([], []))
            sums[row["kind"]] = (
                _piled(waits, _written_out(row["waits"])),
                _piled(runs, _written_out(row["runs"])),
            )
        return sums

    async def spenders(self, most: int, tenant: str | None = None, *, at: datetime | None = None) -> list[Spender]:
        """The tenants of which most was captured in the last hour."""
        start = STRETCHES["1h"].start(at or await self.clock())
        rows = await self._rows(tenant, SQL["spenders"], start, tenant, most)
        spenders = [Spender(**row) for row in rows]
        return sorted(spenders, key=lambda spender: -spender.captured)[:most]

    async def failures(
        self,
        since: Since,
        *,
        tenant: str | None = None,
        kind: str | None = None,
        most: int = FAILURES_MAX,
        at: datetime | None = None,
    ) -> Failures:
        """The failures that happened most."""
        stretch = FAILURE_STRETCHES[since]
        start = stretch.start(at or await self.clock())
        rows = await self._rows(tenant, SQL["failures"], stretch.step, tenant or _ALL, start, stretch.point, kind, most)
        points = {at: n for n, at in enumerate(stretch.points(start))}
        found: dict[str, Failure] = {}
        for row in rows:
            failure = _failure(row, points)
            known = found.get(failure.fingerprint)
            found[failure.fingerprint] = failure if known is None else _joined(known, failure)
        ordered = sorted(found.values(), key=lambda failure: (-failure.count, failure.fingerprint))
        return Failures(stretch, start, ordered[:most])

    async def _rows(self, tenant: str | None, query: Query, *arguments: object) -> Sequence[Row]:
        """Those of the database of a tenant, or of all that can be reached."""
        await self._relieve()
        if tenant is None:
            return await self._homes.gather(query, *arguments)
        return await self._homes.of(tenant).run(query, *arguments)

    async def _relieve(self) -> None:
        """Fold some, where no service does. Whoever reads is told all the same if that cannot be done, only later."""
        if time.monotonic() < self._relieve_at:
            return
        self._relieve_at = time.monotonic() + RELIEVE_EVERY
        for home in (self._homes.central, *self._homes.away):
            with contextlib.suppress(StoreError):
                await home.run(SQL["relieve"], UNFOLDED_MAX, UNFOLDED_MAX)

    # For services

    async def fold(self, most: int) -> int:
        """Fold so many tallies of each database; tells how many were folded."""
        folded = await fold(self._homes.central, most)
        for home in self._homes.away:
            with passed_over():
                folded += await fold(home, most)
        return folded

    async def recount(self) -> int:
        """Count anew where it is due; tells how many numbers were others."""
        mended = await recount(self._homes.central)
        for home in self._homes.away:
            with passed_over():
                mended += await recount(home)
        return mended


async def fold(db: Database, most: int) -> int:
    return int((await db.run(SQL["fold"], most))["folded"])


async def recount(db: Database, *, is_due: bool = False) -> int:
    """Count anew, where it is due or has to be; nobody cuts it short."""
    async with db.transaction() as tx:
        await tx.execute("set local statement_timeout = 0; set local lock_timeout = 0")
        if is_due:
            await tx.execute(SQL["order_recount"].text, timeout=RECOUNT_TIMEOUT)
        return int(await tx.fetchval(SQL["recount"].text, timeout=RECOUNT_TIMEOUT))


async def prune(db: Database, most: int) -> int:
    """Forget so many minutes and hours that nobody asks for any more, and failures of which none is left."""
    pruned = 0
    for step, age in KEPT.items():
        for query in (SQL["prune_flows"], SQL["prune_failure_flows"]):
            pruned += int((await db.run(query, step, age, most))["pruned"])
    return pruned + int((await db.run(SQL["prune_failures"], KEPT[HOUR], most))["pruned"])


def _written_out(histogram: Sequence[int] | None) -> list[int]:
    """A histogram as numbers by bucket, from one that has only those that are not zero; see millpond.histogram."""
    if not histogram:
        return []
    numbers = [0] * BUCKETS
    for one in histogram:
        numbers[one % BUCKETS] += one // BUCKETS
    return numbers


def bounds(bucket: int) -> tuple[float, float]:
    """Between how many seconds a bucket lies; see millpond.bucket."""
    low, high = (2 ** (edge / 2) - 1 for edge in (bucket, bucket + 1))
    return low / 1000, high / 1000


def quantile(histogram: Iterable[int], share: float) -> float | None:
    """The seconds below which this share of them lies, put where it falls within its bucket."""
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


def _piled(one: Sequence[int], other: Sequence[int]) -> list[int]:
    if not one or not other:
        return list(one or other)
    return [a + b for a, b in zip(one, other, strict=True)]


def _flow(row: Row) -> Flow:
    fields: dict[str, Any] = {**row, "waits": _written_out(row["waits"]), "runs": _written_out(row["runs"])}
    return Flow(**fields)


def _together(one: Flow, other: Flow) -> Flow:
    sums = {name: getattr(one, name) + getattr(other, name) for name in FLOWS}
    return Flow(one.at, **sums, waits=_piled(one.waits, other.waits), runs=_piled(one.runs, other.runs))


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


def _joined(one: Failure, other: Failure) -> Failure:
    """The same failure, of two databases."""
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
        _piled(one.counts, other.counts),
    )
