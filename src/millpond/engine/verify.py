"""Verify: checks every invariant on a live database. An operator runs it after a restore, and every test at its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond import ids
from millpond.engine.queue import fires
from millpond.engine.tenant_databases import remote
from millpond.engine.tenant_databases.remote import skip_unavailable
from millpond.errors import UnavailableError
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.engine.tenant_databases.remote import RemoteExecutor
    from millpond.store.db import Database, Row
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine", "verify")

_ACROSS: Final = frozenset({"unended_jobs_have_a_dispatch", "dispatches_agree_with_their_job"})
"""The queries that compare a tenant's tables with those of the queue, and need both in one database."""
_FIRES: Final = "fires_name_their_job"
"""The query that does so for the tenants in the central database."""
_SCHEDULED: Final = "scheduled_jobs_have_a_fire"
_COMPARISONS: Final = 4
_PAUSE: Final = 0.5
_PAGE: Final = 10_000
_REPORTED_MAX: Final = 100


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


async def verify_all(databases: TenantDatabases, *, newest: timedelta | None = None) -> list[Violation]:
    """All violations in any database, or between central and a tenant's."""
    if not databases.remote:
        return await verify(databases.central, newest=newest)
    found = await verify(databases.central, newest=newest, leave_out=frozenset({_FIRES}))
    found += await _unfounded_fires(databases, await _oldest(databases.central, newest))
    for pair in dict.fromkeys(databases.executors.values()):
        try:
            found += await verify(pair.database, newest=newest, leave_out=_ACROSS)
            found += await _across(pair)
            found += await _unrecorded(pair, await _oldest(databases.central, newest))
        except UnavailableError as error:
            found.append(
                Violation("tenant_databases_can_be_reached", ", ".join(pair.database.tenants), None, error.message)
            )
    return found


async def verify(
    db: Database, *, newest: timedelta | None = None, leave_out: frozenset[str] = frozenset()
) -> list[Violation]:
    """All violations of a database, over all jobs or only those created within the last ``newest``.

    All queries share one snapshot, so that changes made meanwhile are not reported as violations.
    """
    found: list[Violation] = []
    oldest = await _oldest(db, newest)
    async with db.snapshot() as tx:
        for name, query in SQL.items():
            if name in leave_out:
                continue
            found += [
                Violation(name, row["subject"], row["job_id"], row["detail"]) for row in await fetch(tx, query, oldest)
            ]
    return found


async def _oldest(db: Database, newest: timedelta | None) -> UUID:
    """The lowest id to check."""
    if newest is None:
        return UUID(int=0)
    async with db.transaction() as tx:
        return ids.first(await tx.fetchval("select millpond.clock()") - newest)


async def _unfounded_fires(databases: TenantDatabases, oldest: UUID) -> list[Violation]:
    """The fires that name a job which does not exist. A fire is settled after its job, so no common snapshot is needed.

    Tenants whose database cannot be reached are left out.
    """
    found: list[Violation] = []
    last = UUID(int=0)
    while rows := await databases.central.run(fires.SQL["submitted"], oldest, last, _PAGE):
        last = rows[-1]["fire_id"]
        for db in databases.all:
            with skip_unavailable():
                own = [row for row in rows if databases.of(row["tenant"]) is db]
                known = {row["job_id"] for row in await db.run(fires.SQL["states"], [row["job_id"] for row in own])}
                found += [_unfounded(row) for row in own if row["job_id"] not in known]
    return found[:_REPORTED_MAX]


def _unfounded(fire: Row) -> Violation:
    detail = f"schedule {fire['schedule_id']} submitted it for {fire['due_at']}, and it does not exist"
    return Violation(_FIRES, fire["tenant"], fire["job_id"], detail)


async def _unrecorded(pair: RemoteExecutor, oldest: UUID) -> list[Violation]:
    """The jobs of a tenant that a schedule has submitted, and of which no fire exists.

    A fire is stored before its job, and deleted long after it, so no common snapshot is needed.
    """
    found: list[Violation] = []
    last = UUID(int=0)
    while rows := await pair.database.run(fires.SQL["keys"], oldest, last, _PAGE):
        last = rows[-1]["job_id"]
        columns = [[row[name] for row in rows] for name in ("job_id", "tenant", "schedule_id")]
        found += [
            Violation(_SCHEDULED, row["tenant"], row["job_id"], f"no fire of schedule {row['name']} names it")
            for row in await pair.central.run(fires.SQL["unrecorded"], *columns)
        ]
    return found[:_REPORTED_MAX]


async def _across(pair: RemoteExecutor) -> list[Violation]:
    """The differences between a tenant's jobs and their dispatches.

    The two databases have no common snapshot. A difference that an operation in progress causes has changed or is gone
    at the next comparison, so only those that stay the same are reported.
    """
    differences = await _differences(pair)
    for _ in range(_COMPARISONS):
        if not differences:
            break
        await asyncio.sleep(_PAUSE)
        again = await _differences(pair)
        differences = {job_id: found for job_id, found in differences.items() if again.get(job_id) == found}
    return [
        Violation(
            "dispatches_agree_with_their_job",
            job["tenant"],
            job_id,
            f"the job is {states[0]}, but its dispatch is {states[1]}",
        )
        for job_id, (job, states) in list(differences.items())[:_REPORTED_MAX]
    ]


async def _differences(pair: RemoteExecutor) -> dict[UUID, tuple[Row, tuple[object, object]]]:
    jobs = await _pages(pair.database, remote.SQL["live"], pair.database.tenants)
    queued = await _pages(pair.central, remote.SQL["dispatches"], pair.database.tenants)
    return {
        job_id: (jobs.get(job_id) or queued[job_id], states)
        for job_id in jobs.keys() | queued.keys()
        if (states := (_columns(jobs.get(job_id)), _columns(queued.get(job_id))))[0] != states[1]
    }


async def _pages(db: Database, query: NamedQuery, tenants: Sequence[str]) -> dict[UUID, Row]:
    found: dict[UUID, Row] = {}
    last = UUID(int=0)
    while rows := await db.run(query, tenants, last, _PAGE):
        found |= {row["job_id"]: row for row in rows}
        last = rows[-1]["job_id"]
    return found


def _columns(row: Row | None) -> object:
    return "absent, or ended" if row is None else tuple(row.values())
