"""Queues: their depth, and whether they are paused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond.errors import NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.queue", "queues")

DEPTH_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue; a depth of ``DEPTH_MAX`` means that many or more."""

    queue: str
    is_fair: bool
    paused_at: datetime | None
    depth: int


async def list_queues(db: Database) -> list[Queue]:
    return [Queue(**row) for row in await db.run(SQL["list"], DEPTH_MAX)]


async def pause(db: Database, queue: str) -> None:
    """Lease no more jobs of a queue; running jobs continue."""
    if await db.run(SQL["pause"], queue) is None:
        raise NotFoundError(f"There is no queue {queue[:80]!r}.", field="queue")


async def resume(db: Database, queue: str) -> None:
    if await db.run(SQL["resume"], queue) is None:
        raise NotFoundError(f"There is no queue {queue[:80]!r}.", field="queue")
