"""Events: a job's append-only log, read after a cursor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import values
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.jobs", "events")

PAGE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job, and the job's state at that time."""

    seq: int
    at: datetime
    type: str
    state: str
    data: Any


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A summary of the events of a job."""

    job_id: UUID
    changed_at: datetime
    """The time of its last event."""
    started_at: datetime | None
    """When it was last started."""
    attempts: int
    """How often its code was tried. A job that continues with an answer is still in the same attempt, and a start that
    ended in an interruption does not count."""
    attempts_since_retry: int
    """The same, since the job was last retried in place."""


async def histories(db: Database, tenant: str, job_ids: Sequence[UUID]) -> dict[UUID, JobHistory]:
    rows = await db.run(SQL["histories"], list(job_ids), tenant)
    return {
        row["job_id"]: JobHistory(
            row["job_id"],
            row["changed_at"],
            row["started_at"],
            max(0, row["attempts"]),
            max(0, row["attempts_since_retry"]),
        )
        for row in rows
    }


async def after(db: Database, tenant: str, job_id: UUID, seq: int = 0, *, limit: int = 500) -> list[Event]:
    """The events of a job after this number, in order."""
    values.check_limit(limit, PAGE_MAX)
    found = await db.run(SQL["after"], job_id, tenant, seq, limit)
    return [
        Event(
            row["seq"],
            row["at"],
            row["type"],
            row["state"],
            None if row["data"] is None else msgspec.json.decode(row["data"]),
        )
        for row in found
    ]
