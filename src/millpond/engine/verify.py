"""Verify: every invariant, on a live database. What an operator runs after a restore, and every test ends with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond import ids
from millpond.engine import split
from millpond.errors import UnavailableError
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.engine.homes import Homes
    from millpond.engine.split import Split
    from millpond.store.db import Database, Row
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "verify")

_ACROSS: Final = frozenset({"unended_jobs_have_a_dispatch", "dispatches_agree_with_their_job"})
"""What compares a tenant's tables with those of the queue, and so cannot be asked where the queue is not."""
_LOOKS: Final = 4
_PAUSE: Final = 0.5
_PAGE: Final = 10_000
_MOST: Final = 100


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


async def verify_all(everywhere: Homes, *, newest: timedelta | None = None) -> list[Violation]:
    """What breaks the invariants in any database, or between central and a tenant's."""
    found = await verify(everywhere.central, newest=newest)
    for pair in dict.fromkeys(everywhere.splits.values()):
        try:
            found += await verify(pair.home, newest=newest, leave_out=_ACROSS)
            found += await _across(pair)
        except UnavailableError as error:
            found.append(Violation("homes_can_be_reached", ", ".join(pair.home.tenants), None, error.message))
    return found


async def verify(
    db: Database, *, newest: timedelta | None = None, leave_out: frozenset[str] = frozenset()
) -> list[Violation]:
    """What breaks the invariants, over all jobs or only those born in the ``newest`` stretch of time.

    All queries see one snapshot, so that a database at work does not look broken for being at work.
    """
    found: list[Violation] = []
    async with db.snapshot() as tx:
        oldest = UUID(int=0) if newest is None else ids.first(await tx.fetchval("select millpond.clock()") - newest)
        for name, query in SQL.items():
            if name in leave_out:
                continue
            found += [
                Violation(name, row["subject"], row["job_id"], row["detail"]) for row in await fetch(tx, query, oldest)
            ]
    return found


async def _across(pair: Split) -> list[Violation]:
    """What a tenant's jobs and their dispatches do not agree on.

    The two databases cannot be seen as of one moment. What is under way looks odd once, and is something else, or
    nothing, at the next look.
    """
    odd = await _differences(pair)
    for _ in range(_LOOKS):
        if not odd:
            break
        await asyncio.sleep(_PAUSE)
        again = await _differences(pair)
        odd = {job_id: told for job_id, told in odd.items() if again.get(job_id) == told}
    return [
        Violation(
            "dispatches_agree_with_their_job", job["tenant"], job_id, f"the job is {told[0]}, its dispatch {told[1]}"
        )
        for job_id, (job, told) in list(odd.items())[:_MOST]
    ]


async def _differences(pair: Split) -> dict[UUID, tuple[Row, tuple[object, object]]]:
    jobs = await _pages(pair.home, split.SQL["live"], pair.home.tenants)
    queued = await _pages(pair.central, split.SQL["dispatches"], pair.home.tenants)
    return {
        job_id: (jobs.get(job_id) or queued[job_id], told)
        for job_id in jobs.keys() | queued.keys()
        if (told := (_told(jobs.get(job_id)), _told(queued.get(job_id))))[0] != told[1]
    }


async def _pages(db: Database, query: Query, tenants: Sequence[str]) -> dict[UUID, Row]:
    found: dict[UUID, Row] = {}
    last = UUID(int=0)
    while rows := await db.run(query, tenants, last, _PAGE):
        found |= {row["job_id"]: row for row in rows}
        last = rows[-1]["job_id"]
    return found


def _told(row: Row | None) -> object:
    return "absent, or ended" if row is None else tuple(row.values())
