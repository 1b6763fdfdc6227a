"""Idempotency: the first answer to a key is the answer to all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.jobs import Submission
    from millpond.store.db import Door, Row

SQL: Final = queries("millpond.engine", "idempotency")

WINDOW_MIN_HOURS: Final = 24


async def answers(db: Door, items: Sequence[Submission]) -> dict[UUID, Row]:
    """The answers that were given to these keys before, by the id the repeat would have had."""
    found = await db.run(
        SQL["answers"],
        [item.tenant for item in items],
        [item.scope for item in items],
        [item.key for item in items],
        [item.kind for item in items],
        [item.input for item in items],
        [item.request for item in items],
    )
    answered: dict[UUID, Row] = {items[int(row["n"]) - 1].job_id: row for row in found}
    return answered


async def prune(db: Door, window: timedelta, most: int) -> int:
    """Forget keys past their window, never those of a job that has not ended."""
    return len(await db.run(SQL["prune"], window, most))
