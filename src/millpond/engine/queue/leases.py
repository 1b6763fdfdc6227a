"""Leases: what workers do with the jobs they hold. Every write contains the lease token; a lost one writes nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID, uuid4

from millpond import kinds, logs, values
from millpond.engine.jobs import jobs
from millpond.engine.queue import dispatches
from millpond.engine.webhooks import deliveries
from millpond.errors import InvalidError, LeaseLostError, UnavailableError
from millpond.store.db import PATIENCE, Database, NoRoomError
from millpond.store.queries import queries
from millpond.work import NOTE_TYPES, End, HeartbeatAnswer, Lease, Note, Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from millpond.engine.queue.dispatches import Lanes
    from millpond.lifecycle import Outcome
    from millpond.store.db import Executor, Row

__all__ = [
    "NOTE_TYPES",
    "End",
    "HeartbeatAnswer",
    "Lease",
    "Note",
    "Return",
]  # the types that its functions take and return

SQL: Final = queries("millpond.engine.queue", "leases")

BYTES_MAX: Final = 4 * 1024 * 1024
"""A claim of fleet workers ends with the job with which its JSON has reached this size: the same as in leases.sql."""
DELAY_MAX: Final = timedelta(days=3650)
_TRIES: Final = 4
LAPSED: Final = {"code": "lease_lost", "message": "The worker stopped sending heartbeats."}
INTERRUPTED: Final = {"code": "interrupted", "message": "The worker was interrupted."}
_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leased job and its lease."""

    job_id: UUID
    token: UUID
    worker: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many jobs a worker wants. ``origin`` is the address of a fleet worker."""

    worker: str
    jobs: int
    origin: str | None = None
    token: UUID = field(default_factory=uuid4)


async def claim(db: Executor, lanes: Lanes, wants: Sequence[ClaimRequest], duration: timedelta) -> list[Lease]:
    """Claim jobs for these workers in order, each leased for ``duration`` under the token of its want.

    Either all workers are of the fleet, or there is one, which connects to the database.
    """
    whole, columns = lanes.columns()
    if not columns:
        return []
    began = time.monotonic()
    try:
        found: list[Row] = await db.run(SQL["claim"], *columns, *_want_columns(wants, duration))
    except NoRoomError:
        lanes.rescan()  # The queue was not searched: the next claim searches all of it.
        return []
    except UnavailableError:
        # The claim may have succeeded, and only its answer was lost: give the jobs back at once.
        await asyncio.gather(*(abandon(db, want.token) for want in wants))
        raise
    has_more = any(row["job_id"] is None for row in found)
    found = [row for row in found if row["job_id"] is not None]
    found.sort(key=lambda row: (row["rank"], row["turn"], row["job_id"]))
    is_full = has_more or (wants[0].origin is not None and size(found) >= BYTES_MAX)
    lanes.claimed(found, whole=whole, took=time.monotonic() - began, is_full=is_full)
    jobs.report(found)
    return [_lease(row) for row in found]


def size(claimed: Iterable[Row]) -> int:
    """The bytes of the JSON that workers get with these jobs."""
    return sum(
        len(row[name].encode()) for row in claimed for name in ("input", "memo", "answer") if row[name] is not None
    )


def _want_columns(wants: Sequence[ClaimRequest], duration: timedelta) -> list[Any]:
    return [
        [want.jobs for want in wants],
        [want.token for want in wants],
        [want.worker for want in wants],
        duration,
        None if wants[0].origin is None else [want.origin for want in wants],
    ]


async def finish(db: Executor, ends: Sequence[End]) -> list[str | Exception]:
    """End jobs. Each result is the state in which the job ended, or that its lease was lost."""
    states: dict[UUID, str] = {}
    outcomes: set[Outcome | Literal["delivering"]] = {end.outcome for end in ends}
    for outcome in outcomes:
        group = [end for end in ends if end.outcome == outcome]
        states |= await (_deliver(db, group) if outcome == "delivering" else _finish(db, outcome, group))
    return [_state_or_lost(states, end.lease) for end in ends]


async def _finish(db: Executor, outcome: Outcome, ends: Sequence[End]) -> dict[UUID, str]:
    """End jobs with this outcome. If the answer is lost, end them again, and read back those that have ended so.

    They are also read back if some are missing and the tenant has a database of its own: an earlier caller may have
    died between the two commits.
    """
    until = time.monotonic() + PATIENCE
    for left in reversed(range(_TRIES)):
        try:
            ended: Sequence[Row] = await db.run(SQL["finish"], outcome, *_end_columns(ends))
            states = {row["job_id"]: str(row["state"]) for row in ended}
            details = {end.lease.job_id: end.error if outcome != "succeeded" else _output_summary(end) for end in ends}
            jobs.report_end(outcome, ended, details)
            if left < _TRIES - 1 or (len(states) < len(ends) and not isinstance(db, Database)):
                states |= await _read_back(db, ends)
            return states
        except UnavailableError:
            if not left or time.monotonic() > until:
                raise
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def _deliver(db: Executor, ends: Sequence[End]) -> dict[UUID, str]:
    """Likewise for jobs that succeed once their webhook is delivered. Those without one end now."""
    job_ids, tokens, outputs, _, captures, origins = _end_columns(ends)
    until = time.monotonic() + PATIENCE
    for left in reversed(range(_TRIES)):
        try:
            transitioned: Sequence[Row] = await db.run(
                deliveries.SQL["deliver"], job_ids, tokens, outputs, captures, origins
            )
            jobs.report([row for row in transitioned if not row["is_ended"]])
            jobs.report_end("succeeded", [row for row in transitioned if row["is_ended"]])
            states = {row["job_id"]: str(row["state"]) for row in transitioned}
            if left < _TRIES - 1 or (len(states) < len(ends) and not isinstance(db, Database)):
                found = await db.run(deliveries.SQL["delivering"], job_ids, [end.lease.epoch for end in ends])
                states |= {row["job_id"]: str(row["state"]) for row in found}
            return states
        except UnavailableError:
            if not left or time.monotonic() > until:
                raise
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def _read_back(db: Executor, ends: Sequence[End]) -> dict[UUID, str]:
    found = await db.run(
        SQL["ended"],
        [end.lease.job_id for end in ends],
        [end.lease.epoch for end in ends],
        [end.outcome for end in ends],
    )
    return {row["job_id"]: str(row["state"]) for row in found}


async def abandon(db: Executor, token: UUID, on_end: Callable[[Sequence[Row]], None] = jobs.ignore) -> set[str]:
    """Give back all jobs that a token still holds, and return the queues that they joined."""
    until = time.monotonic() + PATIENCE
    for left in reversed(range(_TRIES)):
        try:
            transitioned: Sequence[Row] = await db.run(SQL["abandon"], token)
            on_end(_ended(transitioned))
            _report_fates(transitioned, {row["job_id"]: INTERRUPTED for row in transitioned})
            return {row["queue"] for row in transitioned if row["fate"] == "requeued"}
        except UnavailableError:
            if not left or time.monotonic() > until:
                return set()  # The lease expires by itself.
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def give_back(db: Executor, returns: Sequence[Return]) -> list[str | Exception]:
    """Return jobs to the queue. Each result is the job's fate ('requeued', 'failed' or 'canceled'), or a lost lease."""
    fates: dict[UUID, str] = {}
    for cause in sorted({item.cause for item in returns}):
        group = [item for item in returns if item.cause == cause]
        transitioned = await db.run(
            SQL["requeue"],
            cause,
            [item.lease.job_id for item in group],
            [item.lease.token for item in group],
            [item.delay and min(item.delay, DELAY_MAX) for item in group],
            [values.encode(item.error, field="error") for item in group],
            _origins(group),
        )
        fates.update((row["job_id"], row["fate"]) for row in transitioned)
        _report_fates(transitioned, {item.lease.job_id: item.error for item in group})
    return [_state_or_lost(fates, item.lease) for item in returns]


async def park(db: Executor, lease: Lease, memo: Any, *, size_max: int = values.BYTES_MAX) -> str:
    """Park a job until it is answered, and return its state."""
    if lease.expires_at is None:
        raise InvalidError("The job cannot park, because it has no deadline.", hint="Declare the kind with expires_in.")
    text = None if memo is None else values.encode(memo, field="memo", limit=size_max)
    transitioned = await db.run(SQL["park"], [lease.job_id], [lease.token], [text])
    jobs.report(transitioned)
    if not transitioned:
        raise _lost(lease)
    return str(transitioned[0]["state"])


async def proceed(db: Executor, lease: Lease, memo: Any, answer: Any, *, size_max: int = values.BYTES_MAX) -> str:
    """Apply an answer to a job that its worker keeps, and return its state."""
    memo_text = None if memo is None else values.encode(memo, field="memo", limit=size_max)
    answer_text = values.encode(answer, field="answer", limit=size_max)
    transitioned = await db.run(SQL["proceed"], [lease.job_id], [lease.token], [memo_text], [answer_text])
    jobs.report(transitioned)
    if not transitioned:
        raise _lost(lease)
    return str(transitioned[0]["state"])


async def note(db: Executor, notes: Sequence[Note]) -> list[bool | Exception]:
    """Write progress, stages and log lines. Each result is whether the job must stop, or that its lease was lost."""
    found = await db.run(
        SQL["note"],
        [item.lease.job_id for item in notes],
        [item.lease.token for item in notes],
        [item.number for item in notes],
        [item.type for item in notes],
        [item.value for item in notes],
        [item.stage for item in notes],
        [item.data for item in notes],
    )
    stops = {(row["job_id"], row["token"]): bool(row["is_canceling"]) for row in found}
    return [
        stops[name] if (name := (item.lease.job_id, item.lease.token)) in stops else _lost(item.lease) for item in notes
    ]


async def note_groups(db: Executor, groups: Sequence[Sequence[Note]]) -> list[bool | Exception]:
    """Likewise for groups: the notes of a group belong to one lease, and have one result."""
    answers = iter(await note(db, [item for group in groups for item in group]))
    return [[next(answers) for _ in group][-1] for group in groups]


async def extend(db: Executor, leases: Sequence[Lease], duration: timedelta) -> HeartbeatAnswer:
    """Extend leases, and return which of their jobs must stop and which are lost."""
    await db.run(dispatches.SQL["extend"], list({lease.token for lease in leases}), duration)
    rows = await db.run(
        dispatches.SQL["canceling"], [lease.job_id for lease in leases], [lease.token for lease in leases]
    )
    return HeartbeatAnswer(
        frozenset(row["job_id"] for row in rows if row["is_canceling"]),
        frozenset(row["job_id"] for row in rows if row["is_lost"]),
    )


async def is_canceling(db: Executor, lease: Lease) -> bool:
    """Whether a lease still holds its job, and the cancel of the job was requested."""
    rows = await db.run(dispatches.SQL["canceling"], [lease.job_id], [lease.token])
    return any(row["is_canceling"] for row in rows)


async def close(db: Executor, tokens: Iterable[UUID]) -> None:
    """Delete leases that no longer hold a job."""
    await db.run(dispatches.SQL["close_leases"], list(tokens))


async def held(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, LeasedJob]:
    """The jobs of these that are leased, by their ids."""
    return {row["job_id"]: LeasedJob(*row) for row in await db.run(SQL["held"], list(job_ids))}


async def lapse(db: Executor, limit: int, on_end: Callable[[Sequence[Row]], None] = jobs.ignore) -> set[str]:
    """Take back the jobs of expired leases, and return the queues that they joined."""
    transitioned: Sequence[Row] = await db.run(SQL["lapse"], limit)
    on_end(_ended(transitioned))
    for row in transitioned:
        logs.emit("lease.lapsed", job_id=row["job_id"], worker=row["worker"], fate=row["fate"])
    _report_fates(transitioned, {row["job_id"]: LAPSED for row in transitioned})
    return {row["queue"] for row in transitioned if row["fate"] == "requeued"}


def _lease(row: Row) -> Lease:
    return Lease(
        row["job_id"],
        row["token"],
        row["tenant"],
        row["account"],
        row["kind"],
        row["queue"],
        row["state"],
        row["epoch"],
        row["attempts"],
        row["run"],
        row["price"],
        row["progress"],
        row["stage"],
        row["input"],
        row["memo"],
        row["answer"],
        row["created_at"],
        row["expires_at"],
        parent_id=row["parent_id"],
        has_steps=row["depth"] is not None and row["epoch"] > 1,
    )


def _end_columns(ends: Sequence[End]) -> list[Any]:
    errors = [None if end.error is None else values.encode(end.error, field="error") for end in ends]
    return [
        [end.lease.job_id for end in ends],
        [end.lease.token for end in ends],
        [end.output for end in ends],
        errors if any(errors) else None,
        [end.captured for end in ends] if any(end.captured is not None for end in ends) else None,
        _origins(ends),
    ]


def _origins(items: Sequence[End] | Sequence[Return]) -> list[str | None] | None:
    origins = [item.origin for item in items]
    return origins if any(origins) else None


def _output_summary(end: End) -> dict[str, Any]:
    """What is logged about an output: its size and files, not its content."""
    files = [{"content_type": file.content_type, "size": file.size} for file in end.artifacts]
    return {"size": len(end.output or ""), "files": files}


def _report_fates(transitioned: Sequence[Row], errors: dict[UUID, Any]) -> None:
    for fate in {row["fate"] for row in transitioned}:
        group = [row for row in transitioned if row["fate"] == fate]
        if fate == "requeued":
            for row in group:
                logs.emit("job.requeued", job_id=row["job_id"], **kinds.log_fields(row["kind"]))
            jobs.report(group)
        else:
            jobs.report_end(fate, group, errors)


def _ended(transitioned: Sequence[Row]) -> list[Row]:
    """Those jobs that were not requeued."""
    return [row for row in transitioned if row["fate"] != "requeued"]


def _state_or_lost(found: dict[UUID, Any], lease: Lease) -> Any:
    return found[lease.job_id] if lease.job_id in found else _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    logs.emit("lease.lost", job_id=lease.job_id)
    return LeaseLostError()
