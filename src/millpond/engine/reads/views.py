"""Views: all reads for clients. Tenants are isolated twice; see views.sql.

JSON stays the text that comes from the database, and the API sends it unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import msgspec

from millpond import ids, values
from millpond.engine.batcher import Batcher
from millpond.engine.credits import ledger
from millpond.engine.credits.ledger import Balance, Entry
from millpond.engine.jobs import events, jobs
from millpond.engine.reads.streams import Position
from millpond.errors import InvalidError, NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.store.db import Database
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.reads", "views")

WALK: Final = 10_000
"""How many jobs a page reads at most to find those that match its filters."""
BYTES_MAX: Final = 4 * 1024 * 1024
"""A page ends with the item with which its JSON has reached this size: the same number as in views.sql."""
_PAGES_MAX: Final = 20
TAGGED: Final = 1_000
"""How many jobs with the tags are read after that walk."""
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
_SEQ_MAX: Final = 2**31 - 1
_ENTRY_MAX: Final = 2**63 - 1

_Request: TypeAlias = "tuple[str | None, str | None, UUID]"


class JobView(jobs.JobFields, frozen=True, gc=False):
    """A job as its client may see it, without the data that only its handler sees. Its JSON is text."""

    input: str
    output: str | None
    error: str | None


class EventView(msgspec.Struct, frozen=True, gc=False):
    """An event, and the state of the job at that time."""

    seq: int
    at: datetime
    type: str
    state: str
    data: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, the newest first, and the ``before`` of the next page, which is None on the last page.

    A page may have fewer jobs than the limit, or none, without being the last: see ``WALK`` and ``BYTES_MAX``.
    """

    data: list[JobView]
    before: UUID | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of a job's events, the oldest first, and the ``after`` of the next page."""

    data: list[EventView]
    after: int | None


class TextView(msgspec.Struct, frozen=True, gc=False):
    """The text that a job has emitted so far, and where the stream of the job continues it."""

    seq: int
    number: int
    at: datetime | None
    epoch: int | None
    text: str


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of an account's entries, the newest first, and the ``before`` of the next page."""

    data: list[Entry]
    before: int | None


class Views:
    """Reads for callers. Without an account, they cover all accounts of the tenant; without a tenant, all tenants."""

    def __init__(self, tenant_databases: TenantDatabases) -> None:
        self._tenant_databases = tenant_databases
        self._jobs: Batcher[_Request, JobView] = Batcher(
            self._read_jobs, lanes=2, apart=lambda request: request[0] and tenant_databases.of(request[0])
        )

    async def job(self, tenant: str | None, account: str | None, job_id: UUID | str) -> JobView:
        """A job. Concurrent calls share one statement."""
        return await self._jobs.add((tenant, account, ids.parse("job", job_id)))

    async def jobs(
        self,
        tenant: str | None,
        account: str | None = None,
        *,
        kind: str | None = None,
        state: str | None = None,
        phase: str | None = None,
        tags: Mapping[str, str] | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """One page, the newest first. ``tags`` selects jobs that have all of these tags, and maybe more."""
        if tenant is None and account is not None:
            raise InvalidError("The account requires a tenant.", field="tenant")
        values.check_limit(limit, jobs.PAGE_MAX)
        start = _LAST if before is None else ids.parse("job", before)
        text = tags_text(tags)
        given = (account, start, kind, state, phase, limit + 1, WALK, text)
        page = _page(await self._read_all(SQL["page"], tenant, *given, None), limit)
        if text is None or page.before is None or len(page.data) == limit or is_full(page.data):
            return page
        # Few of the newest jobs have these tags: find the others by the index on tags.
        job_ids, stop = await tagged(self._tenant_databases, tenant, text, page.before, is_whole=True)
        rest = _page(await self._read_all(SQL["page"], tenant, *given, job_ids), limit - len(page.data))
        return _ended(page.data + rest.data, rest.before or stop)

    async def jobs_of(
        self, lifecycle: str, tenant: str, account: str, *, before: UUID | None, limit: int, **filters: Any
    ) -> JobPage:
        """One page of the jobs of one product's lifecycle, the newest first.

        Jobs of other products may have the same account: they are skipped, so a page may be shorter.
        """
        found: list[JobView] = []
        for _ in range(_PAGES_MAX):
            page = await self.jobs(tenant, account, before=before, limit=limit - len(found), **filters)
            found += [job for job in page.data if job.lifecycle == lifecycle]
            before = page.before
            if before is None or len(found) == limit or is_full(found):
                break
        return _ended(found, before)

    async def events(
        self, tenant: str | None, account: str | None, job_id: UUID | str, *, after: int = 0, limit: int = 500
    ) -> EventPage:
        """The events of a job after this number."""
        return await self._events(None, tenant, account, job_id, after=after, limit=limit)

    async def logs(
        self, tenant: str | None, account: str | None, job_id: UUID | str, *, after: int = 0, limit: int = 500
    ) -> EventPage:
        """The log events of a job after this number."""
        return await self._events("log", tenant, account, job_id, after=after, limit=limit)

    async def text(self, tenant: str | None, account: str | None, job_id: UUID | str) -> TextView:
        """The text that a job has emitted so far."""
        found_id = ids.parse("job", job_id)
        rows = await self._read_all(SQL["text"], tenant, account, found_id)
        row: Sequence[Any] | None = next(filter(None, rows), None)
        if row is None:
            raise _absent(found_id)
        return TextView(*row)

    async def last_chunk(self, tenant: str, account: str, job_id: UUID) -> Position | None:
        """The position of the last chunk of a job; None if it has none, or has them no longer."""
        row = await self._read(SQL["last_chunk"], tenant, account, job_id)
        return None if row is None else Position(*row)

    async def wallet(self, tenant: str, account: str) -> Balance:
        """The balance of an account; zero if the account was never used."""
        row = await self._read(SQL["wallet"], tenant, account)
        return Balance(tenant, account, 0, 0, 0, None) if row is None else Balance(tenant, account, *row)

    async def entries(self, tenant: str, account: str, *, before: int | None = None, limit: int = 50) -> EntryPage:
        """One page of the ledger, the newest first."""
        values.check_limit(limit, ledger.PAGE_MAX)
        start = _ENTRY_MAX if before is None else _number(before, "before", _ENTRY_MAX)
        rows = await self._read(SQL["entries"], tenant, account, start, limit + 1)
        found = [Entry(*row) for row in rows[:limit]]
        return EntryPage(found, found[-1].seq if len(rows) > limit else None)

    async def _events(
        self, type: str | None, tenant: str | None, account: str | None, job_id: UUID | str, *, after: int, limit: int
    ) -> EventPage:
        values.check_limit(limit, events.PAGE_MAX)
        found_id = ids.parse("job", job_id)
        start = _number(after, "after", _SEQ_MAX)
        pages = await self._read_all(SQL["events"], tenant, account, found_id, start, type, limit + 1)
        rows: Sequence[Any] = next(filter(None, pages), ())
        if not rows:
            raise _absent(found_id)
        found = [EventView(*row) for row in rows[:limit] if row["seq"] is not None]
        is_cut = len(rows) > limit or sum(_bytes(event.data) for event in found) >= BYTES_MAX
        return EventPage(found, found[-1].seq if is_cut else None)

    async def _read_jobs(self, requests: Sequence[_Request]) -> list[JobView | Exception]:
        """Read the jobs of a batch, which are in one database, or in any if it is for operators of all tenants."""
        tenants = [tenant for tenant in {tenant for tenant, _, _ in requests} if tenant is not None]
        job_ids = list({job_id for _, _, job_id in requests})
        if tenants:
            rows = await self._tenant_databases.of(tenants[0]).read(SQL["jobs"], tenants, job_ids)
        else:
            rows = [row for page in await self._read_all(SQL["jobs"], None, job_ids) for row in page]
        found = {row[0]: _view(row) for row in rows}
        return [_own(request, found.get(request[2])) for request in requests]

    async def _read(self, query: NamedQuery, tenant: str, *arguments: Any) -> Any:
        """Run a query by the role for clients."""
        return await self._tenant_databases.of(tenant).read(query, tenant, *arguments)

    async def _read_all(self, query: NamedQuery, tenant: str | None, *arguments: Any) -> list[Sequence[Any]]:
        """The same. For operators of all tenants, query each database as the engine."""
        if tenant is not None:
            return [await self._read(query, tenant, *arguments)]
        return [await db.run(query, None, *arguments) for db in self._tenant_databases.all]


def is_full(data: Iterable[JobView]) -> bool:
    """Whether a page has reached its size in bytes."""
    return sum(map(_size, data)) >= BYTES_MAX


def fitting(data: list[JobView]) -> list[JobView]:
    """The first of these jobs, up to the one with which a page has reached its size in bytes."""
    sizes = accumulate(map(_size, data))
    last = next((n for n, size in enumerate(sizes) if size >= BYTES_MAX), len(data))
    return data[: last + 1]


def _size(job: JobView) -> int:
    return _bytes(job.input) + _bytes(job.output) + _bytes(job.error)


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text.encode())


def tags_text(tags: Mapping[str, str] | None) -> str | None:
    """Tags to look for, as JSON."""
    return msgspec.json.encode(values.check_tags(tags)).decode() if tags else None


async def tagged(
    databases: TenantDatabases, tenant: str | None, tags: str, before: UUID, low: UUID = _FIRST, *, is_whole: bool
) -> tuple[list[UUID], UUID | None]:
    """The newest jobs that have these tags, by the index on tags, and the id down to which they are complete.

    Without ``is_whole``, remote databases that cannot be reached are skipped if no tenant is named.
    """
    found = await databases.each(lambda db: tagged_in(db, tenant, tags, before, low), tenant, is_whole=is_whole)
    stop = max((stop for _, stop in found if stop is not None), default=None)
    job_ids = (job_id for own, _ in found for job_id in own if stop is None or job_id >= stop)
    return sorted(job_ids, reverse=True), stop


async def tagged_in(
    db: Database, tenant: str | None, tags: str, before: UUID, low: UUID = _FIRST
) -> tuple[list[UUID], UUID | None]:
    """The same in one database."""
    job_ids = [row["job_id"] for row in await db.run(SQL["tagged"], tenant, tags, before, low, TAGGED + 1)]
    return job_ids[:TAGGED], job_ids[TAGGED - 1] if len(job_ids) > TAGGED else None


def _page(pages: Sequence[Sequence[Any]], limit: int) -> JobPage:
    """Merge the pages of several databases.

    Jobs below the highest id at which a walk stopped are left out, because others may be missing there.
    """
    stop = max((rows[-1]["id"] for rows in pages if rows and rows[-1]["is_stop"]), default=None)
    found = [_view(row[2:]) for rows in pages for row in rows if row["is_match"]]
    found.sort(key=lambda job: job.job_id, reverse=True)
    if stop is not None:
        found = [job for job in found if job.job_id >= stop]
    return _ended(found, stop, limit)


def _ended(found: list[JobView], before: UUID | None, limit: int | None = None) -> JobPage:
    """A page of the first of these jobs: as many as the limit and its size in bytes allow."""
    data = fitting(found[:limit])
    return JobPage(data, data[-1].job_id if len(data) < len(found) else before)


def _view(row: Sequence[Any]) -> JobView:
    """A job from a row of the statements that read jobs; its JSON stays text."""
    return JobView(*jobs.shared(row), *row[-3:])


def _own(request: _Request, job: JobView | None) -> JobView | NotFoundError:
    """The job, if this caller may see it: the statement has read the jobs of all callers of the batch."""
    tenant, account, job_id = request
    if job is None or (tenant is not None and tenant != job.tenant) or (account is not None and account != job.account):
        return _absent(job_id)
    return job


def _absent(job_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no job {ids.text('job', job_id)!r}.", field="id")


def _number(given: Any, field: str, limit: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= limit:
        raise InvalidError(f"The value must be a whole number from 0 to {limit:,}.", field=field)
    return given
