"""Job details: a job with all that belongs to it, for operators: its timeline, workers, credits, webhooks and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import ids
from millpond.engine.composition import batches, budgets, steps
from millpond.engine.credits.ledger import Entry
from millpond.engine.jobs import tracebacks
from millpond.engine.reads import timelines
from millpond.engine.reads.timelines import Standing, Timeline, TimelineEvent
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.composition.batches import ChildCounts
    from millpond.engine.composition.budgets import Budget
    from millpond.engine.composition.steps import Question
    from millpond.engine.engine import Engine
    from millpond.engine.jobs.artifacts import ArtifactRecord
    from millpond.engine.reads.timelines import Attempt
    from millpond.engine.reads.views import JobView
    from millpond.engine.webhooks.deliveries import DeliveryRecord
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.reads", "details")

EVENTS_MAX: Final = 1_000
"""How many events are read at each end."""
RETRIES_WALK: Final = 2_000
"""How many of the account's next jobs are searched for retries of a job."""
_PARTS_MAX: Final = 100
_ATTEMPTS_MAX: Final = 10
"""For how many of the last attempts the audit is searched for their workers."""
_NEAR: Final = timedelta(seconds=5)
"""How far an audit record may be from its event: with a tenant database they are two commits."""


@dataclass(frozen=True, slots=True)
class PredictionRecord:
    """What a provider was asked to do."""

    prediction_id: UUID
    provider: str
    external_id: str | None
    status: str
    part: str
    run: int
    created_at: datetime
    over_at: datetime | None

    @property
    def id(self) -> str:
        return ids.text("pred", self.prediction_id)


@dataclass(frozen=True, slots=True)
class JobComposition:
    """What a job consists of beside its own code."""

    counts: ChildCounts
    budget: Budget | None
    questions: Sequence[Question]
    wakes_at: datetime | None
    """The end of the next sleep of its code."""


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job and what belongs to it."""

    job: JobView
    holder: str | None
    """The worker that holds it now: the id of a fleet worker, or the name of one that connects to the database."""
    timeline: Timeline
    entries: Sequence[Entry]
    deliveries: Sequence[DeliveryRecord]
    files: Sequence[ArtifactRecord]
    predictions: Sequence[PredictionRecord]
    retries: Sequence[str]
    tracebacks: dict[int, str]
    """Where the code of the job raised the errors of its attempts, by the attempt."""
    composition: JobComposition | None
    """None if the job has no steps, children or budget."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the fleet workers above, by id, except those that have left."""


async def read(engine: Engine, tenant: str | None, job_id: UUID | str, account: str | None = None) -> JobDetail:
    """The detail of a job; without a tenant, of a job of any tenant."""
    job = await engine.views.job(tenant, account, job_id)
    database = engine.database(job.tenant)
    timeline = await _timeline(database, job)
    held_by = await _holder(engine, job, timeline.attempts)
    return JobDetail(
        job,
        held_by,
        timeline,
        await _entries(database, job),
        await engine.deliveries.list(job.tenant, job_id=job.job_id, limit=_PARTS_MAX),
        await engine.artifacts.of_job(job.tenant, job.job_id),
        [PredictionRecord(*row) for row in await database.run(SQL["predictions"], job.job_id, job.tenant, _PARTS_MAX)],
        await _retries(database, job),
        await tracebacks.of_job(database, job.tenant, job.job_id),
        None if job.depth is None else await _composition(database, job),
        await _names(engine, (held_by, *(attempt.worker for attempt in timeline.attempts))),
    )


async def _composition(database: Database, job: JobView) -> JobComposition:
    waking = await database.run(SQL["waking"], job.job_id, job.run)
    return JobComposition(
        await batches.counts(database, job.tenant, job.job_id),
        await budgets.read(database, job.tenant, job.job_id, job.run),
        await steps.questions(database, job.tenant, job.job_id),
        waking["at"],
    )


async def _timeline(database: Database, job: JobView) -> Timeline:
    rows = await database.run(SQL["events"], job.job_id, job.tenant, job.events, EVENTS_MAX)
    made = timelines.timeline(
        Standing(job.phase, job.run, job.epoch, job.run_at), [TimelineEvent(*row) for row in rows]
    )
    if made.attempts and made.attempts[-1].outcome == job.outcome != "succeeded" and job.error is not None:
        made.attempts[-1].code = msgspec.json.decode(job.error).get("code")  # its event contains no error
    return made


async def _entries(database: Database, job: JobView) -> list[Entry]:
    refunds = f"refund:{job.id}"
    rows = await database.run(SQL["entries"], job.job_id, job.tenant, _PARTS_MAX, job.account, refunds)
    return [Entry(*row) for row in rows]


async def _retries(database: Database, job: JobView) -> list[str]:
    if job.outcome is None:
        return []
    rows = await database.run(SQL["retries"], job.job_id, job.tenant, job.account, RETRIES_WALK)
    return [ids.text("job", row["job_id"]) for row in rows]


async def _holder(engine: Engine, job: JobView, attempts: Sequence[Attempt]) -> str | None:
    """Set the worker of each attempt, as far as it is known, and return the worker that holds the job now.

    The lease names the present worker. The audit names the past ones of jobs that the fleet runs; the past workers of
    other jobs are not stored.
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
    if holder is None or holder["epoch"] != job.epoch:  # it was leased again since it was read
        return None
    if attempts and attempts[-1].end is None:
        attempts[-1].worker = holder["worker"]
    return str(holder["worker"])


async def _names(engine: Engine, workers: Iterable[str | None]) -> dict[str, str]:
    asked = sorted({worker for worker in workers if worker is not None})
    if not asked:
        return {}
    return {row["id"]: row["worker"] for row in await engine.db.run(SQL["names"], asked)}
