"""Lines: jobs by filter, over all homes, the newest first, without what they were given and what they made.

No index knows of states: they change too often. So a page is a walk over so many jobs and no further; where that is not
enough it says how far it has looked, and the next page goes on from there. Where something knows the candidates, they
are few and only they are looked at: failures by their fingerprints, what workers hold by the leases, what has not ended
by the dispatches.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, values
from millpond.engine.split import passed_over
from millpond.engine.views import WALK
from millpond.errors import InvalidError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.engine.homes import Homes
    from millpond.store.db import Database, Row
    from millpond.wire import JobFilter

SQL: Final = queries("millpond.engine", "lines")

PAGE_MAX: Final = 1_000
IDS_MAX: Final = 1_000
COUNT_MAX: Final = 10_000
_COUNT_PAGES: Final = 3
_COUNT_SECONDS: Final = 0.1
"""How many walks a count is worth, and how long it may have taken before another one is begun."""
_CHUNK: Final = 500
FIRST: Final = UUID(int=0)
LAST: Final = UUID(int=2**128 - 1)
_FAILED: Final = ("failed", "expired", "blocked")


class Line(msgspec.Struct, frozen=True, gc=False):
    """A job as a list shows it."""

    job_id: UUID
    tenant: str
    account: str
    kind: str
    state: str
    phase: str
    outcome: str | None
    stage: str | None
    progress: float
    attempts: int
    priority: int
    price: int
    captured: int | None
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    fingerprint: str | None
    error_code: str | None
    error_message: str | None
    is_canceling: bool
    worker: str | None = None

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


@dataclass(frozen=True, slots=True)
class LinePage:
    """Some jobs, and the id that the next page is ``before``; none where this is the last.

    ``searched_to`` is set where the page ended because it had looked at enough jobs, not because it was full.
    """

    data: list[Line]
    before: UUID | None
    looked: int
    searched_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs fit a filter, as far as that was looked at, and some of them."""

    matched: int
    is_capped: bool
    searched_to: datetime | None
    sample: list[Line]


@dataclass(frozen=True, slots=True)
class Sought:
    """A filter, read: names are checked, and times are ids."""

    tenant: str | None = None
    account: str | None = None
    kind: str | None = None
    kinds_like: str | None = None
    state: str | None = None
    phase: str | None = None
    outcome: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    stage: str | None = None
    low: UUID = FIRST
    before: UUID = LAST
    job_ids: tuple[UUID, ...] | None = None

    def names(self) -> tuple[str | None, ...]:
        """What is compared with a job, in the order of the statement."""
        return (
            self.kind,
            self.kinds_like,
            self.state,
            self.phase,
            self.outcome,
            self.error,
            self.fingerprint,
            self.stage,
        )


def sought(given: JobFilter, tenant: str | None, present: datetime) -> Sought:
    """Read a filter; ``tenant`` is whose jobs may be seen, and lengths of time are back from the present."""
    if given.account is not None and tenant is None:
        raise InvalidError("An account is one of a tenant: name that too.", field="tenant")
    kind, star, _ = (given.kind or "").partition("*")
    low = FIRST if given.since is None else ids.first(moment(given.since, present, field="since"))
    before = LAST if given.until is None else ids.first(moment(given.until, present, field="until"))
    if given.since is not None and given.until is not None and low >= before:
        raise InvalidError("It must be later than since.", field="until")
    return Sought(
        tenant=tenant,
        account=given.account,
        kind=kind if kind and not star else None,
        kinds_like=kind if star else None,
        state=given.state,
        phase=given.phase,
        outcome=given.outcome,
        error=given.error,
        fingerprint=given.fingerprint,
        stage=given.stage,
        low=low,
        before=before,
        job_ids=None if given.ids is None else tuple(sorted({job_number(one) for one in given.ids}, reverse=True)),
    )


def job_number(given: str) -> UUID:
    """One of the ids of a filter."""
    return ids.parse("job", given)


def moment(given: str, present: datetime, *, field: str) -> datetime:
    """A time, or a length of time back from the present."""
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        try:
            return present - values.duration(given, field=field)
        except InvalidError:
            raise InvalidError(
                f"{given[:40]!r} is neither a time nor a length of time.",
                field=field,
                hint="Write 24h, or 2026-03-01T12:00:00Z.",
            ) from None
    if found.utcoffset() is None:
        raise InvalidError("It must say its zone.", field=field, hint="Write 2026-03-01T12:00:00Z.")
    return values.check_moment(found, field=field)


class Lines:
    """Jobs of all homes, by filter."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._prints_from: dict[int, UUID] = {}

    async def page(
        self, wanted: Sought, *, before: UUID | None = None, limit: int = 50, is_whole: bool = False
    ) -> LinePage:
        """One page, the newest first. The worker is told where one holds the job.

        A database that cannot be reached is passed over; where the page must be whole, that is an error.
        """
        values.check_limit(limit, PAGE_MAX)
        start = wanted.before if before is None else min(before, wanted.before)
        found = await self._find(wanted, start, limit, is_whole=is_whole)
        leased = [line.job_id for line in found.data if line.phase == "leased"]
        if not leased:
            return found
        rows = await self._homes.central.run(SQL["workers"], leased)
        workers = {row["job_id"]: row["worker"] for row in rows}
        told = [msgspec.structs.replace(line, worker=workers.get(line.job_id)) for line in found.data]
        return replace(found, data=told)

    async def count(self, wanted: Sought, *, sample: int = 5) -> Count:
        """How many there are, counted no further than ``COUNT_MAX`` and within a few walks; and the first of them."""
        some: list[Line] = []
        stops: list[UUID] = []
        matched = 0
        known = await self._candidates(wanted, wanted.before)
        for db in self._places(wanted.tenant):
            with _asked(is_whole=wanted.tenant is not None):
                if known is None:
                    told, stop, found = await self._count_walk(db, wanted, sample)
                else:
                    own = self._own(db, known[0])
                    *rows, end = await self._look(db, wanted, wanted.before, own, None, len(own) or 1, shown=sample)
                    told, stop, found = end["told"], known[1], [_line(row) for row in rows]
                matched += told
                some += found
                stops += [] if stop is None else [stop]
        some.sort(key=lambda line: line.job_id, reverse=True)
        is_capped = matched >= COUNT_MAX
        searched_to = ids.born(max(stops)) if stops and not is_capped else None
        return Count(min(matched, COUNT_MAX), is_capped, searched_to, some[:sample])

    async def _count_walk(self, db: Database, wanted: Sought, sample: int) -> tuple[int, UUID | None, list[Line]]:
        """How many of one database, the id down to which that is known, and the first of them."""
        _, is_failed = await self._knows(wanted)
        prints_from = await self._first_print(db) if is_failed else None
        matched, stop, some = 0, wanted.before, list[Line]()
        until = time.monotonic() + _COUNT_SECONDS
        for _ in range(_COUNT_PAGES):
            most = COUNT_MAX - matched
            *rows, end = await self._look(db, wanted, stop, None, prints_from, most, shown=sample - len(some))
            some += [_line(row) for row in rows]
            matched, stop = matched + end["told"], end["id"]
            if stop is None or matched >= COUNT_MAX or time.monotonic() > until:
                break
        return matched, stop, some

    async def _find(self, wanted: Sought, before: UUID, limit: int, *, is_whole: bool) -> LinePage:
        known = await self._candidates(wanted, before)
        if known is not None:
            return await self._among(wanted, before, known[0], limit, known[1], is_whole=is_whole)
        return await self._walk(wanted, before, limit, is_whole=is_whole)

    async def _candidates(
        self, wanted: Sought, before: UUID
    ) -> tuple[list[tuple[UUID, str | None]], UUID | None] | None:
        """The jobs that may be meant, and the id down to which they are known; none where nothing knows them."""
        central = self._homes.central
        if wanted.job_ids is not None:
            return [(job_id, None) for job_id in wanted.job_ids if wanted.low <= job_id < before], None
        whose = (wanted.tenant, wanted.account)
        if wanted.phase == "leased":
            rows: Sequence[Row] = await central.run(SQL["leased"], before, wanted.low, *whose, WALK + 1)
            stop = rows[WALK - 1]["job_id"] if len(rows) > WALK else None
            return [(row["job_id"], row["tenant"]) for row in rows[:WALK]], stop
        is_live, _ = await self._knows(wanted)
        if not is_live:
            return None
        rows = await central.run(SQL["live"], before, wanted.low, *whose, wanted.phase, WALK)
        stop = rows[-1]["job_id"] if rows and rows[-1]["is_stop"] else None
        return [(row["job_id"], row["tenant"]) for row in rows if row["is_match"]], stop

    def _own(self, db: Database, candidates: Iterable[tuple[UUID, str | None]]) -> list[UUID]:
        """Those that are, or may be, in a database."""
        return [job_id for job_id, tenant in candidates if tenant is None or self._homes.of(tenant) is db]

    async def _knows(self, wanted: Sought) -> tuple[bool, bool]:
        """Whether the dispatches know the candidates and are the shorter way; whether the fingerprints do."""
        is_live = wanted.phase not in {None, "ended"}
        # A code alone says nothing of how it ended: one that is tried again, or was canceled, may have it too.
        is_failed = wanted.outcome in _FAILED or wanted.fingerprint is not None
        if wanted.state is not None and not is_live and not is_failed:
            row = await self._homes.central.run(SQL["ends"], wanted.state)
            is_live, is_failed = row["is_live"], row["is_failed"]
        if is_live and wanted.tenant is not None:
            row = await self._homes.central.run(SQL["crowd"], WALK)
            is_live = row["jobs"] < WALK
        return is_live, is_failed

    async def _walk(self, wanted: Sought, before: UUID, limit: int, *, is_whole: bool) -> LinePage:
        """What each database finds. Below where one of them had to stop, nothing is known of it."""
        found: list[Line] = []
        stops: list[UUID] = []
        looked = 0
        _, is_failed = await self._knows(wanted)
        for db in self._places(wanted.tenant):
            with _asked(is_whole=is_whole or wanted.tenant is not None):
                prints_from = await self._first_print(db) if is_failed else None
                *rows, end = await self._look(db, wanted, before, None, prints_from, limit + 1)
                found += [_line(row) for row in rows]
                stops += [end["id"]] if len(rows) <= limit and end["id"] is not None else []
                looked += (rows[limit - 1] if len(rows) > limit else end)["looked"]
        found.sort(key=lambda line: line.job_id, reverse=True)
        stop = max(stops, default=None)
        if stop is not None:
            found = [line for line in found if line.job_id >= stop]
        return _cut(found, limit, stop, looked)

    async def _among(
        self,
        wanted: Sought,
        before: UUID,
        candidates: Sequence[tuple[UUID, str | None]],
        limit: int,
        stop: UUID | None,
        *,
        is_whole: bool,
    ) -> LinePage:
        """Those of the candidates that fit, in their order, until there are enough."""
        left = list(candidates)
        found: list[Line] = []
        looked = 0
        while left and len(found) <= limit:
            chunk, left = left[:_CHUNK], left[_CHUNK:]
            looked += len(chunk)
            some: list[Line] = []
            for db in self._places(wanted.tenant):
                if own := self._own(db, chunk):
                    with _asked(is_whole=is_whole or wanted.tenant is not None):
                        *rows, _ = await self._look(db, wanted, before, own, None, len(own))
                        some += [_line(row) for row in rows]
            found += sorted(some, key=lambda line: line.job_id, reverse=True)
        return _cut(found, limit, stop, looked)

    async def _look(  # noqa: PLR0917 - the columns of its statement
        self,
        db: Database,
        wanted: Sought,
        before: UUID,
        job_ids: Sequence[UUID] | None,
        prints_from: UUID | None,
        most: int,
        *,
        shown: int | None = None,
    ) -> list[Row]:
        """Of one tenant by the role for clients; of all, as the engine."""
        run = db.run if wanted.tenant is None else db.read
        where = (wanted.tenant, wanted.account, before, wanted.low, job_ids, prints_from)
        return await run(SQL["lines"], *where, *wanted.names(), most, most if shown is None else shown, WALK)

    def _places(self, tenant: str | None) -> tuple[Database, ...]:
        return self._homes.all if tenant is None else (self._homes.of(tenant),)

    async def _first_print(self, db: Database) -> UUID:
        if id(db) not in self._prints_from:
            self._prints_from[id(db)] = (await db.run(SQL["prints_from"]))["id"]
        return self._prints_from[id(db)]


def _asked(*, is_whole: bool) -> Any:
    """A database that is away is passed over, unless it is the one that is asked, or all must be."""
    return contextlib.nullcontext() if is_whole else passed_over()


def _line(row: Row) -> Line:
    return Line(*tuple(row)[3:])


def _cut(found: list[Line], limit: int, stop: UUID | None, looked: int) -> LinePage:
    if len(found) > limit:
        return LinePage(found[:limit], found[limit - 1].job_id, looked)
    return LinePage(found, stop, looked, None if stop is None else ids.born(stop))
