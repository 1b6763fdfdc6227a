"""Views: every read for a client. Two walls stand between tenants; see views.sql.

JSON stays the text that the database gives: the API sends it on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec

from millpond import ids, values, wire
from millpond.engine import events, jobs, ledger
from millpond.engine.batcher import Batcher
from millpond.engine.ledger import Balance, Entry
from millpond.errors import InvalidError, NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.engine.homes import Homes
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "views")

WALK: Final = 10_000
"""How many jobs a page walks over in search of what its filters ask for."""
_PAGES_MAX: Final = 20
_LAST: Final = UUID(int=2**128 - 1)
_SEQ_MAX: Final = 2**31 - 1
_ENTRY_MAX: Final = 2**63 - 1

_Ask: TypeAlias = "tuple[str | None, str | None, UUID]"


class JobView(msgspec.Struct, frozen=True, gc=False):
    """A job as its client may see it. What its handler keeps for itself is not here."""

    job_id: UUID
    tenant: str
    account: str
    kind: str
    lifecycle: str
    queue: str
    state: str
    phase: str
    outcome: str | None
    priority: int
    run: int
    epoch: int
    attempts: int
    events: int
    price: int
    captured: int | None
    progress: float
    stage: str | None
    created_at: datetime
    run_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    retry_of: UUID | None
    input: str
    output: str | None
    error: str | None

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


class EventView(msgspec.Struct, frozen=True, gc=False):
    """What happened, and the state the job was in then."""

    seq: int
    at: datetime
    type: str
    state: str
    data: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, the newest first, and the id that the next page is ``before``; none where this is the last.

    A page may hold fewer than were asked for, or none, and still have a next one: see ``WALK``.
    """

    data: list[JobView]
    before: UUID | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events of a job, the oldest first, and the number that the next page is ``after``."""

    data: list[EventView]
    after: int | None


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Some entries of an account, the newest first, and the number that the next page is ``before``."""

    data: list[Entry]
    before: int | None


class Views:
    """What callers may see. No account means any of the tenant; no tenant, an operator of all of them."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._jobs: Batcher[_Ask, JobView] = Batcher(
            self._read_jobs, lanes=2, apart=lambda ask: ask[0] and homes.of(ask[0])
        )

    async def job(self, tenant: str | None, account: str | None, job_id: UUID | str) -> JobView:
        """A job as it stands. Callers that come at the same time share one statement."""
        return await self._jobs.add((tenant, account, ids.parse("job", job_id)))

    async def jobs(
        self,
        tenant: str | None,
        account: str | None = None,
        *,
        kind: str | None = None,
        state: str | None = None,
        phase: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """One page, the newest first."""
        if tenant is None and account is not None:
            raise InvalidError("An account is one of a tenant: name that too.", field="tenant")
        values.check_limit(limit, jobs.PAGE_MAX)
        start = _LAST if before is None else ids.parse("job", before)
        return _page(
            await self._read_all(SQL["page"], tenant, account, start, kind, state, phase, limit + 1, WALK), limit
        )

    async def jobs_of(
        self, lifecycle: str, tenant: str, account: str, *, before: UUID | None, limit: int, **filters: str | None
    ) -> JobPage:
        """One page of the jobs of one product, the newest first.

        Those of others have the same owner: they are passed over, and a page may be shorter for it.
        """
        found: list[JobView] = []
        for _ in range(_PAGES_MAX):
            page = await self.jobs(tenant, account, before=before, limit=limit - len(found), **filters)
            found += [job for job in page.data if job.lifecycle == lifecycle]
            before = page.before
            if before is None or len(found) == limit:
                break
        return JobPage(found, before)

    async def events(
        self, tenant: str | None, account: str | None, job_id: UUID | str, *, after: int = 0, limit: int = 500
    ) -> EventPage:
        """What happened to a job after this number."""
        return await self._events(None, tenant, account, job_id, after=after, limit=limit)

    async def logs(
        self, tenant: str | None, account: str | None, job_id: UUID | str, *, after: int = 0, limit: int = 500
    ) -> EventPage:
        """What a job's code wrote after this number."""
        return await self._events("log", tenant, account, job_id, after=after, limit=limit)

    async def wallet(self, tenant: str, account: str) -> Balance:
        """What an account has; one that was never used has nothing."""
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
        return EventPage(found, found[-1].seq if len(rows) > limit else None)

    async def _read_jobs(self, asks: Sequence[_Ask]) -> list[JobView | Exception]:
        """Those of one batch are of one home, or for operators of every tenant."""
        tenants = [tenant for tenant in {tenant for tenant, _, _ in asks} if tenant is not None]
        job_ids = list({job_id for _, _, job_id in asks})
        if tenants:
            rows = await self._homes.of(tenants[0]).read(SQL["jobs"], tenants, job_ids)
        else:
            rows = [row for page in await self._read_all(SQL["jobs"], None, job_ids) for row in page]
        found = {row[0]: JobView(*row) for row in rows}
        return [_own(ask, found.get(ask[2])) for ask in asks]

    async def _read(self, query: Query, tenant: str, *arguments: Any) -> Any:
        """By the role for clients."""
        return await self._homes.of(tenant).read(query, tenant, *arguments)

    async def _read_all(self, query: Query, tenant: str | None, *arguments: Any) -> list[Sequence[Any]]:
        """The same; for an operator of every tenant what each database knows, and he reads as the engine does."""
        if tenant is not None:
            return [await self._read(query, tenant, *arguments)]
        return [await db.run(query, None, *arguments) for db in self._homes.all]


def _page(pages: Sequence[Sequence[Any]], limit: int) -> JobPage:
    """One page of several databases' pages. Below where one of them had to stop, nothing is known of it."""
    stop = max((rows[-1]["id"] for rows in pages if rows and rows[-1]["is_stop"]), default=None)
    found = [JobView(*row[2:]) for rows in pages for row in rows if row["is_match"]]
    found.sort(key=lambda job: job.job_id, reverse=True)
    if stop is not None:
        found = [job for job in found if job.job_id >= stop]
    if len(found) > limit:
        return JobPage(found[:limit], found[limit - 1].job_id)
    return JobPage(found, stop)


def told(
    view: JobView, *, root: str = "", position: int | None = None, eta: wire.Eta | None = None, shows_input: bool = True
) -> wire.Job:
    """A job as the native API tells it. Stored JSON goes out as it is."""
    job_id = ids.text("job", view.job_id)
    return wire.Job(
        id=job_id,
        tenant=view.tenant,
        account=view.account,
        kind=view.kind,
        lifecycle=view.lifecycle,
        queue=view.queue,
        state=view.state,
        phase=cast("wire.Phase", view.phase),
        outcome=cast("wire.Outcome | None", view.outcome),
        progress=view.progress,
        stage=view.stage,
        position=position,
        eta=eta,
        priority=view.priority,
        run=view.run,
        attempts=view.attempts,
        events=view.events,
        price=view.price,
        captured=view.captured,
        created_at=view.created_at,
        run_at=view.run_at,
        expires_at=view.expires_at,
        started_at=view.started_at,
        finished_at=view.finished_at,
        cancel_requested_at=view.cancel_requested_at,
        retry_of=None if view.retry_of is None else ids.text("job", view.retry_of),
        input=raw(view.input) if shows_input else {},
        output=raw(view.output),
        error=raw(view.error),
        links=links(root, job_id),
    )


def links(root: str, job_id: str) -> wire.Links:
    """Where a job can be read, watched and stopped."""
    here = f"{root}/v1/jobs/{job_id}"
    return wire.Links(self=here, events=f"{here}/events", stream=f"{here}/stream", cancel=f"{here}/cancel")


def raw(text: str | None) -> Any:
    """Stored JSON goes out as it is."""
    return None if text is None else msgspec.Raw(text)


def _own(ask: _Ask, job: JobView | None) -> JobView | NotFoundError:
    """The job, if it is this caller's: the statement has answered for all callers of the batch."""
    tenant, account, job_id = ask
    if job is None or (tenant is not None and tenant != job.tenant) or (account is not None and account != job.account):
        return _absent(job_id)
    return job


def _absent(job_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no job {ids.text('job', job_id)!r}.", field="id")


def _number(given: Any, field: str, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise InvalidError(f"It must be a whole number from 0 to {most:,}.", field=field)
    return given
