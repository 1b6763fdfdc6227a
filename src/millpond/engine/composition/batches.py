"""Batches: jobs that are awaited together, among them the children of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids
from millpond.engine.jobs import jobs
from millpond.errors import (
    ChildCycleError,
    InsufficientCreditsError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    NotFoundError,
    TreeTooLargeError,
)
from millpond.store.db import NotAcceptedError, new_id
from millpond.store.queries import queries
from millpond.work import BatchResults, ChildResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from millpond.engine.jobs.jobs import JobRecord, Submission, Submitted
    from millpond.store.db import Executor, Row
    from millpond.work import Lease, SpawnRequest

SQL: Final = queries("millpond.engine.composition", "batches")

CHILDREN_MAX: Final = 10_000
DEPTH_MAX: Final = 10
TREE_MAX: Final = 100_000
IS_REMOTE: Final = 9
"""The place of ``is_remote`` among the arguments of the statement ``spawn``."""
PAGE_MAX: Final = 1_000
_FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that are awaited together, and how many of them have ended."""

    batch_id: UUID
    tenant: str
    account: str
    name: str
    parent_id: UUID | None
    run: int | None
    is_detached: bool
    fails_fast: bool
    total: int
    submitted: int
    ended: int
    succeeded: int
    failed: int
    canceled: int
    created_at: datetime
    ended_at: datetime | None
    price: int | None
    """What its jobs may cost; none if they are children."""
    captured: int | None
    """What its ended jobs have cost; none if they are children."""
    canceled_at: datetime | None
    tags: dict[str, str]
    """The tags that its jobs inherit from it."""

    @property
    def id(self) -> str:
        return ids.text("batch", self.batch_id)

    @property
    def state(self) -> str:
        if self.ended_at is not None:
            return "completed" if self.canceled_at is None else "canceled"
        if self.canceled_at is not None:
            return "canceling"
        return "open" if self.submitted < self.total else "running"

    @property
    def is_over(self) -> bool:
        """Whether a parent need not wait for it any more."""
        return self.ended_at is not None or (self.fails_fast and self.failed + self.canceled > 0)


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children a job has, how many of them have ended, and how."""

    submitted: int
    ended: int
    succeeded: int
    failed: int
    canceled: int


@dataclass(frozen=True, slots=True)
class ChildPage:
    """The ids of some children of a job, the oldest first, and the ``after`` of the next page."""

    data: list[UUID]
    after: UUID | None


async def spawn(db: Executor, request: SpawnRequest, items: Sequence[Submission]) -> list[Submitted]:
    """Submit children of a leased job, all or none; returns no answers if they were submitted before."""
    _check_request(request)
    bill, columns = jobs.submit_columns(items)
    step = (request.lease.job_id, request.lease.epoch, request.name, request.position, new_id())
    part = (request.total, request.first, request.is_detached, request.fails_fast)
    try:
        row = await db.run(SQL["spawn"], *step, *part, False, *columns)  # noqa: FBT003 - the columns of its statement
    except NotAcceptedError as error:
        raise InsufficientCreditsError(
            f"The children cost {sum(bill.sums)} credits, and the account does not have as many.",
            required=sum(bill.sums),
        ) from error
    if row["verdict"] == "repeated":
        return []
    if row["verdict"] != "spawned":
        raise _refusal(row["verdict"], sum(bill.sums), row["available"])
    answers = [jobs.submitted(item, row["created_at"], None) for item in items]
    if not row["deadlines"]:
        return answers
    # Children may have inherited the deadline of their parent. Their dispatches in another database must have it too.
    given = zip(answers, row["deadlines"], strict=True)
    return [msgspec.structs.replace(answer, expires_at=deadline) for answer, deadline in given]


def _check_request(request: SpawnRequest) -> None:
    if not request.children or request.first + len(request.children) > request.total:
        raise InvalidError("The children must be at least one, and at most the total.", field="children")
    if request.total > CHILDREN_MAX:
        raise TreeTooLargeError(_TOO_LARGE["wide"], field="children")


def _refusal(verdict: str, required: int, available: int | None) -> MillpondError:
    if verdict in _TOO_LARGE:
        return TreeTooLargeError(_TOO_LARGE[verdict], field="children")
    if verdict in _INVALID:
        field, message = _INVALID[verdict]
        return InvalidError(message, field=field)
    match verdict:
        case "lost":
            return LeaseLostError()
        case "cycle":
            return ChildCycleError(
                "A child has the same kind and input as an ancestor.", field="children", hint="Change its input."
            )
        case _:
            return InsufficientCreditsError(
                f"The children may cost {required} credits, but only {available} of the budget are left.",
                required=required,
                available=available,
            )


_TOO_LARGE: Final = {
    "deep": f"Jobs can be nested at most {DEPTH_MAX} levels deep.",
    "wide": f"A job can have at most {CHILDREN_MAX:,} children.",
    "large": f"A tree can have at most {TREE_MAX:,} jobs.",
}
_INVALID: Final = {
    "early": ("first", "The children before these are not submitted yet."),
    "changed": ("total", "The batch was begun with another total."),
    "tagged": ("tags", "A child has too many tags, with those of its parent."),
}


async def read(db: Executor, tenant: str, batch_id: UUID) -> Batch:
    row = await db.run(SQL["read"], batch_id, tenant)
    if row is None:
        raise NotFoundError(f"There is no batch {ids.text('batch', batch_id)!r}.", field="id")
    return record(row)


def record(row: Row) -> Batch:
    fields: list[Any] = list(row)
    return Batch(*fields[:-1], tags=jobs.decode(fields[-1]) or {})


async def results(db: Executor, lease: Lease, batch_id: UUID, after: UUID | None, limit: int) -> BatchResults:
    """Some jobs of a batch of a leased job, in order, after an id; none while its parent must wait for them."""
    row = await db.run(SQL["read"], batch_id, lease.tenant)
    batch = None if row is None else record(row)
    if batch is None or batch.parent_id != lease.job_id:
        raise NotFoundError(f"The job has no batch {ids.text('batch', batch_id)!r}.", field="batch_id")
    if not batch.is_over:
        return BatchResults(is_over=False, total=batch.total, children=())
    rows: Sequence[Row] = await db.run(SQL["results"], batch_id, after or _FIRST, limit)
    return BatchResults(is_over=True, total=batch.total, children=[_result(row) for row in rows])


def _result(row: Row) -> ChildResult:
    return ChildResult(
        ids.text("job", row["job_id"]),
        row["kind"],
        row["outcome"],
        jobs.decode(row["output"]),
        jobs.decode(row["error"]),
    )


async def of_parent(db: Executor, tenant: str, job_id: UUID, after: UUID | None = None, limit: int = 50) -> list[Batch]:
    """The batches of a job's children, the oldest first."""
    return [record(row) for row in await db.run(SQL["of_parent"], job_id, tenant, after or _FIRST, limit)]


async def members(db: Executor, tenant: str, batch_id: UUID, after: UUID | None, limit: int) -> list[JobRecord]:
    """Some jobs of a batch, in order, after an id."""
    return jobs.records(await db.run(SQL["members"], batch_id, after or _FIRST, limit, tenant))


async def children(db: Executor, tenant: str, job_id: UUID, after: UUID | None, limit: int) -> ChildPage:
    """A page of the ids of a job's children, the oldest first, after one of them."""
    rows: Sequence[Row] = await db.run(SQL["children_of"], job_id, tenant, after or _FIRST, limit + 1)
    found = [row["job_id"] for row in rows[:limit]]
    return ChildPage(found, found[-1] if found and rows[0]["found"] > len(found) else None)


async def parents(db: Executor, tenant: str, job_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these jobs that have children."""
    return {row["job_id"] for row in await db.run(SQL["parents"], list(job_ids), tenant)}


async def parents_of(db: Executor, tenant: str, job_ids: Sequence[UUID]) -> set[UUID]:
    """The parents of those of these jobs that are children."""
    return {row["job_id"] for row in await db.run(SQL["parents_of"], list(job_ids), tenant)}


async def counts(db: Executor, tenant: str, job_id: UUID) -> ChildCounts:
    """How many children a job has, and how they ended."""
    return ChildCounts(*(await db.run(SQL["counted"], job_id, tenant)))


async def ready_queues(db: Executor, job_ids: Sequence[UUID]) -> set[str]:
    """The queues of those of these jobs that are ready."""
    return {row["queue"] for row in await db.run(SQL["ready_queues"], list(job_ids))}


async def orphans(db: Executor, limit: int) -> list[tuple[UUID, str]]:
    """Jobs that ended before their children, with their tenants."""
    rows: list[Any] = await db.run(SQL["orphans"], limit)
    return [(row["job_id"], row["tenant"]) for row in rows]


async def open_children(db: Executor, job_id: UUID, limit: int) -> list[UUID]:
    """Children of an ended job that are still to be canceled."""
    return [row["job_id"] for row in await db.run(SQL["children"], job_id, limit)]


async def drop_orphans(db: Executor, job_ids: Sequence[UUID]) -> int:
    """Forget jobs whose children have ended; look at the others again later."""
    return len(await db.run(SQL["drop_orphans"], list(job_ids)))
