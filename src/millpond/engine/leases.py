"""Leases: what a worker does with the jobs it holds. Every write names the token; a lost lease writes nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID, uuid4

from millpond import logs, values
from millpond.engine import deliveries, dispatches, jobs
from millpond.errors import InvalidError, LeaseLostError, UnavailableError
from millpond.store.db import Database, NoRoomError
from millpond.store.queries import queries
from millpond.work import NOTE_TYPES, End, Lease, Note, Pulse, Return

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.engine.dispatches import Lanes
    from millpond.lifecycle import Outcome
    from millpond.store.db import Door, Row

__all__ = ["NOTE_TYPES", "End", "Lease", "Note", "Pulse", "Return"]  # the words of its verbs

SQL: Final = queries("millpond.engine", "leases")

DELAY_MAX: Final = timedelta(days=3650)
_TRIES: Final = 4
_LAPSED: Final = {"code": "lease_lost", "message": "Its worker fell silent."}
_INTERRUPTED: Final = {"code": "interrupted", "message": "Its worker had to go."}
_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Want:
    """How many jobs a worker has room for; from where it asks, if it is one of the fleet."""

    worker: str
    jobs: int
    origin: str | None = None
    token: UUID = field(default_factory=uuid4)


async def claim(db: Door, lanes: Lanes, wants: Sequence[Want], duration: timedelta) -> list[Lease]:
    """Take jobs from the line for these workers in their order, each leased for ``duration`` under the want's token.

    They are all of the fleet, or there is one, which works beside the database.
    """
    whole, columns = lanes.columns()
    if not columns:
        return []
    began = time.monotonic()
    try:
        found: list[Row] = await db.run(SQL["claim"], *columns, *_want_columns(wants, duration))
    except NoRoomError:
        lanes.rung_back()  # The line was not looked at: the next who asks looks at all of it.
        return []
    except UnavailableError:
        # It may have been granted all the same: what we never heard of goes back at once.
        await asyncio.gather(*(abandon(db, want.token) for want in wants))
        raise
    found.sort(key=lambda row: (row["rank"], row["turn"], row["job_id"]))
    lanes.claimed(found, whole=whole, took=time.monotonic() - began)
    jobs.report(found)
    return [_lease(row) for row in found]


def _want_columns(wants: Sequence[Want], duration: timedelta) -> list[Any]:
    return [
        [want.jobs for want in wants],
        [want.token for want in wants],
        [want.worker for want in wants],
        duration,
        None if wants[0].origin is None else [want.origin for want in wants],
    ]


async def finish(db: Door, ends: Sequence[End]) -> list[str | Exception]:
    """End jobs; each answer is the state it ended in, or that its lease was lost."""
    states: dict[UUID, str] = {}
    outcomes: set[Outcome | Literal["delivering"]] = {end.outcome for end in ends}
    for outcome in outcomes:
        group = [end for end in ends if end.outcome == outcome]
        states |= await (_deliver(db, group) if outcome == "delivering" else _finish(db, outcome, group))
    return [_state_or_lost(states, end.lease) for end in ends]


async def _finish(db: Door, outcome: Outcome, ends: Sequence[End]) -> dict[UUID, str]:
    """Where the answer gets lost the jobs are ended again, and those found ended by us are ours.

    Over two databases that is also so where the one who asked before has died between the two commits.
    """
    for left in reversed(range(_TRIES)):
        try:
            ended: Sequence[Row] = await db.run(SQL["finish"], outcome, *_end_columns(ends))
            states = {row["job_id"]: str(row["state"]) for row in ended}
            told = {end.lease.job_id: end.error if outcome != "succeeded" else _output(end) for end in ends}
            jobs.report_end(outcome, ended, told)
            if left < _TRIES - 1 or (len(states) < len(ends) and not isinstance(db, Database)):
                states |= await _read_back(db, ends)
            return states
        except UnavailableError:
            if not left:
                raise
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def _deliver(db: Door, ends: Sequence[End]) -> dict[UUID, str]:
    """Likewise, of jobs that have ended well once their URL has taken the news; those that have none end now."""
    job_ids, tokens, outputs, _, captures, origins = _end_columns(ends)
    for left in reversed(range(_TRIES)):
        try:
            moved: Sequence[Row] = await db.run(deliveries.SQL["deliver"], job_ids, tokens, outputs, captures, origins)
            jobs.report([row for row in moved if not row["is_ended"]])
            jobs.report_end("succeeded", [row for row in moved if row["is_ended"]])
            states = {row["job_id"]: str(row["state"]) for row in moved}
            if left < _TRIES - 1 or (len(states) < len(ends) and not isinstance(db, Database)):
                found = await db.run(deliveries.SQL["delivering"], job_ids, [end.lease.epoch for end in ends])
                states |= {row["job_id"]: str(row["state"]) for row in found}
            return states
        except UnavailableError:
            if not left:
                raise
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def _read_back(db: Door, ends: Sequence[End]) -> dict[UUID, str]:
    found = await db.run(
        SQL["ended"],
        [end.lease.job_id for end in ends],
        [end.lease.epoch for end in ends],
        [end.outcome for end in ends],
    )
    return {row["job_id"]: str(row["state"]) for row in found}


async def abandon(db: Door, token: UUID) -> set[str]:
    """Give back all that a token still holds; tells which queues have grown."""
    for left in reversed(range(_TRIES)):
        try:
            moved: Sequence[Row] = await db.run(SQL["abandon"], token)
            _report_fates(moved, {row["job_id"]: _INTERRUPTED for row in moved})
            return {row["queue"] for row in moved if row["fate"] == "requeued"}
        except UnavailableError:
            if not left:
                return set()  # The lease runs out by itself.
            await asyncio.sleep(_PAUSE)
    raise AssertionError


async def give_back(db: Door, returns: Sequence[Return]) -> list[str | Exception]:
    """Send jobs back into the queue; each answer is its fate: 'requeued', 'failed' or 'canceled'."""
    fates: dict[UUID, str] = {}
    for cause in sorted({item.cause for item in returns}):
        group = [item for item in returns if item.cause == cause]
        moved = await db.run(
            SQL["requeue"],
            cause,
            [item.lease.job_id for item in group],
            [item.lease.token for item in group],
            [item.delay and min(item.delay, DELAY_MAX) for item in group],
            [values.encode(item.error, field="error") for item in group],
            _origins(group),
        )
        fates.update((row["job_id"], row["fate"]) for row in moved)
        _report_fates(moved, {item.lease.job_id: item.error for item in group})
    return [_state_or_lost(fates, item.lease) for item in returns]


async def park(db: Door, lease: Lease, memo: Any, *, size_max: int = values.BYTES_MAX) -> str:
    """Put a job aside until its answer comes; tells the state."""
    if lease.expires_at is None:
        raise InvalidError("A job that parks needs a deadline.", hint="Declare its kind with expires_in.")
    text = None if memo is None else values.encode(memo, field="memo", most=size_max)
    moved = await db.run(SQL["park"], [lease.job_id], [lease.token], [text])
    jobs.report(moved)
    if not moved:
        raise _lost(lease)
    return str(moved[0]["state"])


async def proceed(db: Door, lease: Lease, memo: Any, answer: Any, *, size_max: int = values.BYTES_MAX) -> str:
    """Take a job on as if its answer had come, without letting go of it; tells the state."""
    left = None if memo is None else values.encode(memo, field="memo", most=size_max)
    text = values.encode(answer, field="answer", most=size_max)
    moved = await db.run(SQL["proceed"], [lease.job_id], [lease.token], [left], [text])
    jobs.report(moved)
    if not moved:
        raise _lost(lease)
    return str(moved[0]["state"])


async def note(db: Door, notes: Sequence[Note]) -> list[bool | Exception]:
    """Write what workers say; each answer is whether the job must stop, or that its lease was lost."""
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


async def note_groups(db: Door, groups: Sequence[Sequence[Note]]) -> list[bool | Exception]:
    """Likewise; the notes of a group are of one lease, and so have one answer."""
    answers = iter(await note(db, [item for group in groups for item in group]))
    return [[next(answers) for _ in group][-1] for group in groups]


async def extend(db: Door, leases: Sequence[Lease], duration: timedelta) -> Pulse:
    """Prolong leases, and learn which of their jobs must stop."""
    await db.run(dispatches.SQL["extend"], list({lease.token for lease in leases}), duration)
    rows = await db.run(
        dispatches.SQL["canceling"], [lease.job_id for lease in leases], [lease.token for lease in leases]
    )
    return Pulse(
        frozenset(row["job_id"] for row in rows if row["is_canceling"]),
        frozenset(row["job_id"] for row in rows if row["is_lost"]),
    )


async def is_canceling(db: Door, lease: Lease) -> bool:
    """Whether a job is still held, and its cancel was asked for."""
    rows = await db.run(dispatches.SQL["canceling"], [lease.job_id], [lease.token])
    return any(row["is_canceling"] for row in rows)


async def close(db: Door, tokens: Iterable[UUID]) -> None:
    """Forget leases of which nothing is held any more."""
    await db.run(dispatches.SQL["close_leases"], list(tokens))


async def lapse(db: Door, most: int) -> set[str]:
    """Take back what silent workers hold; tells which queues have grown."""
    moved: Sequence[Row] = await db.run(SQL["lapse"], most)
    for row in moved:
        logs.emit("lease.lapsed", job_id=row["job_id"], worker=row["worker"], fate=row["fate"])
    _report_fates(moved, {row["job_id"]: _LAPSED for row in moved})
    return {row["queue"] for row in moved if row["fate"] == "requeued"}


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


def _output(end: End) -> dict[str, Any]:
    """What the log tells of an output: not what it says."""
    files = [{"content_type": file.content_type, "size": file.size} for file in end.artifacts]
    return {"size": len(end.output or ""), "files": files}


def _report_fates(moved: Sequence[Row], errors: dict[UUID, Any]) -> None:
    for fate in {row["fate"] for row in moved}:
        group = [row for row in moved if row["fate"] == fate]
        if fate == "requeued":
            for row in group:
                logs.emit("job.requeued", job_id=row["job_id"], type=row["kind"])
            jobs.report(group)
        else:
            jobs.report_end(fate, group, errors)


def _state_or_lost(found: dict[UUID, Any], lease: Lease) -> Any:
    return found[lease.job_id] if lease.job_id in found else _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    logs.emit("lease.lost", job_id=lease.job_id)
    return LeaseLostError()
