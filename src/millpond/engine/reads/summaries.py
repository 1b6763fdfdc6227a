"""Job summaries: jobs by filter, over all databases, the newest first, without their inputs and outputs.

No index covers states, because they change too often. So a page walks over a bounded number of jobs; if that is not
enough, it returns how far it has searched, and the next page continues there. If a small set of candidates is known,
only those are looked at: failures by their fingerprints, held jobs by the leases, jobs that have not ended by the
dispatches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, values
from millpond.engine.jobs import jobs
from millpond.engine.reads.views import WALK, tagged, tagged_in, tags_text
from millpond.errors import InvalidError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.store.db import Database, Row
    from millpond.wire import JobFilter

SQL: Final = queries("millpond.engine.reads", "summaries")

PAGE_MAX: Final = 1_000
IDS_MAX: Final = 1_000
COUNT_MAX: Final = 10_000
_COUNT_PAGES: Final = 3
_COUNT_SECONDS: Final = 0.1
"""A count makes at most _COUNT_PAGES walks over each database, and begins no further one after _COUNT_SECONDS."""
_CHUNK: Final = 500
FIRST: Final = UUID(int=0)
LAST: Final = UUID(int=2**128 - 1)
_FAILED: Final = ("failed", "expired", "blocked")


class JobSummary(msgspec.Struct, frozen=True, gc=False):
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
    tags: dict[str, str]
    worker: str | None = None

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


@dataclass(frozen=True, slots=True)
class JobSummaryPage:
    """A page of jobs, and the ``before`` of the next page, which is None on the last page.

    ``searched_to`` is set if the page ended because its walk reached its limit, not because it was full.
    """

    data: list[JobSummary]
    before: UUID | None
    examined: int
    searched_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class MatchCount:
    """How many jobs match a filter, as far as they were searched, and a sample of them."""

    matched: int
    is_capped: bool
    searched_to: datetime | None
    sample: list[JobSummary]


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A parsed filter: names are checked, and times are ids."""

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
    tags: str | None = None
    low: UUID = FIRST
    before: UUID = LAST
    job_ids: tuple[UUID, ...] | None = None

    def names(self) -> tuple[str | None, ...]:
        """The values that jobs are compared with, in the order of the statement's parameters."""
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


def sought(given: JobFilter, tenant: str | None, present: datetime) -> ParsedFilter:
    """Parse a filter. ``tenant`` limits which jobs may be seen; durations count back from ``present``."""
    if given.account is not None and tenant is None:
        raise InvalidError("The account requires a tenant.", field="tenant")
    kind, star, _ = (given.kind or "").partition("*")
    low = FIRST if given.since is None else ids.first(point_in_time(given.since, present, field="since"))
    before = LAST if given.until is None else ids.first(point_in_time(given.until, present, field="until"))
    if given.since is not None and given.until is not None and low >= before:
        raise InvalidError("The time must be later than since.", field="until")
    return ParsedFilter(
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
        tags=None if given.tag is None else tags_text(values.read_tags(given.tag)),
        low=low,
        before=before,
        job_ids=None if given.ids is None else tuple(sorted({job_number(one) for one in given.ids}, reverse=True)),
    )


def job_number(given: str) -> UUID:
    """Parse one of the ids of a filter."""
    return ids.parse("job", given)


def point_in_time(given: str, present: datetime, *, field: str) -> datetime:
    """Parse a time, or a duration before ``present``."""
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        try:
            return present - values.duration(given, field=field)
        except InvalidError:
            raise InvalidError(
                f"{given[:40]!r} is neither a time nor a duration.",
                field=field,
                hint="Use a value such as 24h or 2026-03-01T12:00:00Z.",
            ) from None
    if found.utcoffset() is None:
        raise InvalidError(
            "The time must have a time zone.", field=field, hint="Use a value such as 2026-03-01T12:00:00Z."
        )
    return values.check_time(found, field=field)


class JobSummaries:
    """Jobs of all databases, by filter."""

    def __init__(self, tenant_databases: TenantDatabases) -> None:
        self._tenant_databases = tenant_databases
        self._prints_from: dict[int, UUID] = {}

    async def page(
        self, wanted: ParsedFilter, *, before: UUID | None = None, limit: int = 50, is_whole: bool = False
    ) -> JobSummaryPage:
        """One page, the newest first. A leased job has the name of its worker.

        A database that cannot be reached is skipped. With ``is_whole``, or for one tenant, that is an error.
        """
        values.check_limit(limit, PAGE_MAX)
        start = wanted.before if before is None else min(before, wanted.before)
        found = await self._find(wanted, start, limit, is_whole=is_whole)
        leased = [summary.job_id for summary in found.data if summary.phase == "leased"]
        if not leased:
            return found
        rows = await self._tenant_databases.central.run(SQL["workers"], leased)
        workers = {row["job_id"]: row["worker"] for row in rows}
        summaries = [msgspec.structs.replace(summary, worker=workers.get(summary.job_id)) for summary in found.data]
        return replace(found, data=summaries)

    async def count(self, wanted: ParsedFilter, *, sample: int = 5) -> MatchCount:
        """Count the matching jobs, up to ``COUNT_MAX`` and within a few walks, with the newest of them as a sample."""
        known = await self._candidates(wanted, wanted.before)

        async def count(db: Database) -> tuple[int, UUID | None, list[JobSummary]]:
            if known is None:
                return await self._count_walk(db, wanted, sample)
            own = self._own(db, known[0])
            *rows, end = await self._look(db, wanted, wanted.before, own, None, len(own) or 1, shown=sample)
            return end["matched"], known[1], [_summary(row) for row in rows]

        counts = await self._tenant_databases.each(count, wanted.tenant)
        matched = sum(number for number, _, _ in counts)
        stops = [stop for _, stop, _ in counts if stop is not None]
        some = _newest_first(summary for _, _, found in counts for summary in found)
        is_capped = matched >= COUNT_MAX
        searched_to = ids.born(max(stops)) if stops and not is_capped else None
        return MatchCount(min(matched, COUNT_MAX), is_capped, searched_to, some[:sample])

    async def _count_walk(
        self, db: Database, wanted: ParsedFilter, sample: int
    ) -> tuple[int, UUID | None, list[JobSummary]]:
        """The number of matches in one database, the id down to which it was searched, and the newest matches."""
        _, is_failed = await self._candidate_indexes(wanted)
        prints_from = await self._first_fingerprinted(db) if is_failed else None
        matched, stop, some = 0, wanted.before, list[JobSummary]()
        until = time.monotonic() + _COUNT_SECONDS
        for _ in range(_COUNT_PAGES):
            limit = COUNT_MAX - matched
            *rows, end = await self._look(db, wanted, stop, None, prints_from, limit, shown=sample - len(some))
            some += [_summary(row) for row in rows]
            matched, stop = matched + end["matched"], end["id"]
            if stop is None or matched >= COUNT_MAX or time.monotonic() > until:
                break
        if wanted.tags is None or stop is None or matched >= COUNT_MAX:
            return matched, stop, some
        job_ids, bottom = await tagged_in(db, wanted.tenant, wanted.tags, stop, wanted.low)
        limit, left = min(len(job_ids) or 1, COUNT_MAX - matched), sample - len(some)
        *rows, end = await self._look(db, wanted, stop, job_ids, None, limit, shown=left)
        return matched + end["matched"], bottom, some + [_summary(row) for row in rows]

    async def _find(self, wanted: ParsedFilter, before: UUID, limit: int, *, is_whole: bool) -> JobSummaryPage:
        known = await self._candidates(wanted, before)
        if known is not None:
            return await self._among(wanted, before, known[0], limit, known[1], is_whole=is_whole)
        page = await self._walk(wanted, before, limit, is_whole=is_whole)
        if wanted.tags is None or page.searched_to is None or page.before is None:
            return page
        # Few of the newest jobs have these tags: find the others by the index on tags.
        job_ids, stop = await tagged(
            self._tenant_databases, wanted.tenant, wanted.tags, page.before, wanted.low, is_whole=is_whole
        )
        candidates, left = [(job_id, None) for job_id in job_ids], limit - len(page.data)
        rest = await self._among(wanted, page.before, candidates, left, stop, is_whole=is_whole)
        return replace(rest, data=page.data + rest.data, examined=page.examined + rest.examined)

    async def _candidates(
        self, wanted: ParsedFilter, before: UUID
    ) -> tuple[list[tuple[UUID, str | None]], UUID | None] | None:
        """The jobs that may match, and the id down to which they are complete; None if only a walk can find them."""
        central = self._tenant_databases.central
        if wanted.job_ids is not None:
            return [(job_id, None) for job_id in wanted.job_ids if wanted.low <= job_id < before], None
        owner = (wanted.tenant, wanted.account)
        if wanted.phase == "leased":
            rows: Sequence[Row] = await central.run(SQL["leased"], before, wanted.low, *owner, WALK + 1)
            stop = rows[WALK - 1]["job_id"] if len(rows) > WALK else None
            return [(row["job_id"], row["tenant"]) for row in rows[:WALK]], stop
        is_live, _ = await self._candidate_indexes(wanted)
        if not is_live:
            return None
        rows = await central.run(SQL["live"], before, wanted.low, *owner, wanted.phase, WALK)
        stop = rows[-1]["job_id"] if rows and rows[-1]["is_stop"] else None
        return [(row["job_id"], row["tenant"]) for row in rows if row["is_match"]], stop

    def _own(self, db: Database, candidates: Iterable[tuple[UUID, str | None]]) -> list[UUID]:
        """The candidates that are, or may be, in a database."""
        return [job_id for job_id, tenant in candidates if self._tenant_databases.may_hold(db, tenant)]

    async def _candidate_indexes(self, wanted: ParsedFilter) -> tuple[bool, bool]:
        """Whether dispatches contain all candidates at a lower cost than a walk, and whether fingerprints do."""
        is_live = wanted.phase not in {None, "ended"}
        # A code alone does not imply a failure: a job that is retried or was canceled may have one too.
        is_failed = wanted.outcome in _FAILED or wanted.fingerprint is not None
        if wanted.state is not None and not is_live and not is_failed:
            row = await self._tenant_databases.central.run(SQL["ends"], wanted.state)
            is_live, is_failed = row["is_live"], row["is_failed"]
        if is_live and wanted.tenant is not None:
            row = await self._tenant_databases.central.run(SQL["crowd"], WALK)
            is_live = row["jobs"] < WALK
        return is_live, is_failed

    async def _walk(self, wanted: ParsedFilter, before: UUID, limit: int, *, is_whole: bool) -> JobSummaryPage:
        """Walk over each database.

        Jobs below the highest id at which one of the walks stopped are left out, because others may be missing there.
        """
        _, is_failed = await self._candidate_indexes(wanted)

        async def walk(db: Database) -> tuple[list[Row], Row]:
            prints_from = await self._first_fingerprinted(db) if is_failed else None
            *rows, end = await self._look(db, wanted, before, None, prints_from, limit + 1)
            return rows, end

        walks = await self._tenant_databases.each(walk, wanted.tenant, is_whole=is_whole)
        stops = [end["id"] for rows, end in walks if len(rows) <= limit and end["id"] is not None]
        examined = sum((rows[limit - 1] if len(rows) > limit else end)["examined"] for rows, end in walks)
        found = _newest_first(_summary(row) for rows, _ in walks for row in rows)
        stop = max(stops, default=None)
        if stop is not None:
            found = [summary for summary in found if summary.job_id >= stop]
        return _cut(found, limit, stop, examined)

    async def _among(
        self,
        wanted: ParsedFilter,
        before: UUID,
        candidates: Sequence[tuple[UUID, str | None]],
        limit: int,
        stop: UUID | None,
        *,
        is_whole: bool,
    ) -> JobSummaryPage:
        """The candidates that match, in their order, until there are enough."""
        left = list(candidates)
        found: list[JobSummary] = []
        examined = 0
        while left and len(found) <= limit:
            chunk, left = left[:_CHUNK], left[_CHUNK:]
            examined += len(chunk)
            look = partial(self._look_among, wanted, before, chunk)
            some = await self._tenant_databases.each(look, wanted.tenant, is_whole=is_whole)
            found += _newest_first(_summary(row) for rows in some for row in rows)
        return _cut(found, limit, stop, examined)

    async def _look_among(
        self, wanted: ParsedFilter, before: UUID, candidates: Sequence[tuple[UUID, str | None]], db: Database
    ) -> list[Row]:
        own = self._own(db, candidates)
        return (await self._look(db, wanted, before, own, None, len(own)))[:-1] if own else []

    async def _look(  # noqa: PLR0917 - the columns of its statement
        self,
        db: Database,
        wanted: ParsedFilter,
        before: UUID,
        job_ids: Sequence[UUID] | None,
        prints_from: UUID | None,
        limit: int,
        *,
        shown: int | None = None,
    ) -> list[Row]:
        """Query one database: for one tenant by the role for clients, for all tenants as the engine."""
        run = db.run if wanted.tenant is None else db.read
        where = (wanted.tenant, wanted.account, before, wanted.low, job_ids, prints_from)
        return await run(
            SQL["summaries"], *where, *wanted.names(), limit, limit if shown is None else shown, WALK, wanted.tags
        )

    async def _first_fingerprinted(self, db: Database) -> UUID:
        if id(db) not in self._prints_from:
            self._prints_from[id(db)] = (await db.run(SQL["prints_from"]))["id"]
        return self._prints_from[id(db)]


def _summary(row: Row) -> JobSummary:
    fields: tuple[Any, ...] = tuple(row)[3:]
    return JobSummary(*fields[:-1], tags=jobs.decode(fields[-1]) or {})


def _newest_first(found: Iterable[JobSummary]) -> list[JobSummary]:
    return sorted(found, key=lambda summary: summary.job_id, reverse=True)


def _cut(found: list[JobSummary], limit: int, stop: UUID | None, examined: int) -> JobSummaryPage:
    if len(found) > limit:
        return JobSummaryPage(found[:limit], found[limit - 1].job_id, examined)
    return JobSummaryPage(found, stop, examined, None if stop is None else ids.born(stop))
