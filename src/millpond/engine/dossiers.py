"""Dossiers: a job with all that belongs to it, for operators: how it spent its time, on whose hands, its money."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import ids
from millpond.engine import timelines
from millpond.engine.ledger import Entry
from millpond.engine.timelines import Happening, Stance, Timeline
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.deliveries import DeliveryRecord
    from millpond.engine.engine import Engine
    from millpond.engine.timelines import Attempt
    from millpond.engine.views import JobView
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine", "dossiers")

EVENTS_MAX: Final = 1_000
"""How many events are read at each end."""
RETRIES_WALK: Final = 2_000
"""Among how many of the next jobs of its account those are looked for that were made from it."""
_PARTS_MAX: Final = 100
_ATTEMPTS_MAX: Final = 10
"""Of how many past attempts the audit is asked who made them."""
_NEAR: Final = timedelta(seconds=5)
"""How far a line of the audit may be from the event that it tells of: for a tenant elsewhere they are two commits."""


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """What a provider was asked to do."""

    submission_id: UUID
    provider: str
    prediction_id: str | None
    status: str
    part: str
    run: int
    created_at: datetime
    over_at: datetime | None

    @property
    def id(self) -> str:
        return ids.text("sub", self.submission_id)


@dataclass(frozen=True, slots=True)
class Dossier:
    """A job and what belongs to it."""

    job: JobView
    holder: str | None
    """Who holds it now: the id of a worker of the fleet, or the name of one beside the database."""
    timeline: Timeline
    entries: Sequence[Entry]
    deliveries: Sequence[DeliveryRecord]
    files: Sequence[ArtifactRecord]
    submissions: Sequence[SubmissionRecord]
    retries: Sequence[str]
    names: dict[str, str] = field(default_factory=dict[str, str])
    """What the workers of the fleet that stand here are called; one that has left is not known any more."""


async def read(engine: Engine, tenant: str | None, job_id: UUID | str, account: str | None = None) -> Dossier:
    """The dossier of a job; without a tenant, of whosever it is."""
    job = await engine.views.job(tenant, account, job_id)
    home = engine.home(job.tenant)
    timeline = await _timeline(home, job)
    held_by = await _whose(engine, job, timeline.attempts)
    return Dossier(
        job,
        held_by,
        timeline,
        await _entries(home, job),
        await engine.deliveries.list(job.tenant, job_id=job.job_id, limit=_PARTS_MAX),
        await engine.artifacts.of_job(job.tenant, job.job_id),
        [SubmissionRecord(*row) for row in await home.run(SQL["submissions"], job.job_id, job.tenant, _PARTS_MAX)],
        await _retries(home, job),
        await _names(engine, (held_by, *(attempt.worker for attempt in timeline.attempts))),
    )


async def _timeline(home: Database, job: JobView) -> Timeline:
    rows = await home.run(SQL["events"], job.job_id, job.tenant, job.events, EVENTS_MAX)
    made = timelines.timeline(Stance(job.phase, job.run, job.epoch, job.run_at), [Happening(*row) for row in rows])
    if made.attempts and made.attempts[-1].outcome == job.outcome != "succeeded" and job.error is not None:
        made.attempts[-1].code = msgspec.json.decode(job.error).get("code")  # its event does not say why
    return made


async def _entries(home: Database, job: JobView) -> list[Entry]:
    refunds = f"refund:{job.id}"
    rows = await home.run(SQL["entries"], job.job_id, job.tenant, _PARTS_MAX, job.account, refunds)
    return [Entry(*row) for row in rows]


async def _retries(home: Database, job: JobView) -> list[str]:
    if job.outcome is None:
        return []
    rows = await home.run(SQL["retries"], job.job_id, job.tenant, job.account, RETRIES_WALK)
    return [ids.text("job", row["job_id"]) for row in rows]


async def _whose(engine: Engine, job: JobView, attempts: Sequence[Attempt]) -> str | None:
    """Put down whose each attempt was, as far as anybody knows; tells who holds the job now.

    The lease tells of the present one. The past ones of jobs that the fleet runs are in the audit; of others nobody
    keeps whose they were.
    """
    holder = await engine.db.run(SQL["holder"], job.job_id)
    kind = engine.app.kinds.get(job.kind)
    asked = attempts[-_ATTEMPTS_MAX:] if kind is None or kind.runs == "fleet" else ()
    if asked:
        times, epochs = [attempt.start for attempt in asked], [attempt.number for attempt in asked]
        found = await engine.db.run(SQL["leased_to"], job.tenant, job.id, times, epochs, _NEAR)
        known = {row["epoch"]: row["worker"] for row in found}
        for attempt in asked:
            attempt.worker = known.get(attempt.number)
    if holder is None or holder["epoch"] != job.epoch:  # it changed hands since it was read
        return None
    if attempts and attempts[-1].end is None:
        attempts[-1].worker = holder["worker"]
    return str(holder["worker"])


async def _names(engine: Engine, workers: Iterable[str | None]) -> dict[str, str]:
    asked = sorted({worker for worker in workers if worker is not None})
    if not asked:
        return {}
    return {row["id"]: row["worker"] for row in await engine.db.run(SQL["names"], asked)}
