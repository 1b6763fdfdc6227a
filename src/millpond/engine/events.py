"""Events: a job's append-only log, read after a cursor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import values
from millpond.store.queries import queries

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from millpond.store.db import Database

SQL: Final = queries("millpond.engine", "events")

PAGE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, and the state the job was in then."""

    seq: int
    at: datetime
    type: str
    state: str
    data: Any


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
