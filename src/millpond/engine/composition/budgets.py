"""Budgets: what the descendants of a job may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond.store.queries import queries

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.store.db import Executor

SQL: Final = queries("millpond.engine.composition", "budgets")


@dataclass(frozen=True, slots=True)
class Budget:
    """What the descendants of a job may cost, have cost, and may still cost if they have not ended."""

    amount: int
    spent: int
    reserved: int


async def read(db: Executor, tenant: str, job_id: UUID, run: int) -> Budget | None:
    """The budget of a run of a job, if it has one."""
    row = await db.run(SQL["read"], job_id, run, tenant)
    return None if row is None else Budget(*row)
