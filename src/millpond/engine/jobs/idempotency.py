"""Idempotency: repeated requests with a key receive the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.jobs.jobs import KeyedRequest, Submission
    from millpond.store.db import Executor, Row

SQL: Final = queries("millpond.engine.jobs", "idempotency")

WINDOW_MIN_HOURS: Final = 24


async def answers(db: Executor, items: Sequence[Submission | KeyedRequest]) -> dict[UUID, Row]:
    """The stored answers to these keys, by the id that the repeated job would have had."""
    found = await db.run(
        SQL["answers"],
        [item.tenant for item in items],
        [item.scope for item in items],
        [item.key for item in items],
        [item.kind for item in items],
        [item.input for item in items],
        [item.request for item in items],
        [item.tags for item in items],
    )
    answered: dict[UUID, Row] = {items[int(row["n"]) - 1].job_id: row for row in found}
    return answered


async def prune(db: Executor, window: timedelta, limit: int) -> int:
    """Delete keys past their window, but never those of a job that has not ended."""
    return len(await db.run(SQL["prune"], window, limit))
