"""Verify: every invariant, on a live database. What an operator runs after a restore, and every test ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock import ids
from penstock.store.db import fetch
from penstock.store.queries import queries

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock.store.db import Database

SQL: Final = queries("penstock.engine", "verify")


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that breaks an invariant."""

    invariant: str
    subject: str
    job_id: UUID | None
    detail: str

    def __str__(self) -> str:
        job = f" {ids.text('job', self.job_id)}" if self.job_id else ""
        return f"{self.invariant}: {self.subject}{job}: {self.detail}"


async def verify(db: Database, *, newest: timedelta | None = None) -> list[Violation]:
    """What breaks the invariants, over all jobs or only those born in the ``newest`` stretch of time.

    All queries see one snapshot, so that a database at work does not look broken for being at work.
    """
    found: list[Violation] = []
    async with db.snapshot() as tx:
        oldest = UUID(int=0) if newest is None else _first_id(await tx.fetchval("select penstock.clock()"), newest)
        for name, query in SQL.items():
            found += [
                Violation(name, row["subject"], row["job_id"], row["detail"]) for row in await fetch(tx, query, oldest)
            ]
    return found


def _first_id(present: datetime, newest: timedelta) -> UUID:
    milliseconds = int((present - newest).timestamp() * 1000)
    return UUID(int=milliseconds << 80)
