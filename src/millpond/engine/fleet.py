"""Fleet: all workers at one look. What each is at, since when it was heard from, and whether it has gone deaf."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine import health
from millpond.scaling import Policy
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.health import WorkerHealth
    from millpond.engine.scaling import RouteLoad
    from millpond.engine.workers import WorkerView

SQL: Final = queries("millpond.engine", "fleet")

DEAF_AFTER: Final = timedelta(seconds=30)
"""A worker asks for jobs every few seconds: one that left jobs waiting for so long does not hear of them."""
JOBS_MAX: Final = 50
"""How many jobs of a worker are shown."""
POLICY: Final = Policy()
"""By what it is told how many workers there should be; whoever scales by another asks for that."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job in a worker's hands."""

    job_id: UUID
    tenant: str
    kind: str
    since: datetime
    stage: str | None
    progress: float


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at a moment: its workers, the others that hold leases, their jobs by worker, and the routes."""

    at: datetime
    workers: Sequence[WorkerView]
    others: Sequence[WorkerHealth]
    jobs: Mapping[str, Sequence[HeldJob]]
    routes: Sequence[RouteLoad]

    def age(self, moment: datetime | None) -> float | None:
        """How many seconds ago something was."""
        return None if moment is None else round(max(0.0, (self.at - moment).total_seconds()), 3)


async def look(engine: Engine) -> FleetView:
    """All workers, whoever's jobs they have."""
    workers = await engine.workers.list()
    known = {worker.id for worker in workers}
    others = [worker for worker in await health.workers(engine.db) if worker.worker not in known]
    present: datetime = (await engine.db.run(SQL["clock"]))["present"]
    return FleetView(present, workers, others, await _jobs(engine), await engine.scaling.routes())


def is_deaf(worker: WorkerView, routes: Iterable[RouteLoad], at: datetime) -> bool:
    """Whether a worker is heard from and has room, but leaves jobs of its routes waiting without asking for them."""
    if worker.status not in ("idle", "busy") or worker.jobs >= worker.slots:
        return False
    waits = [
        timedelta(seconds=load.oldest_wait_seconds)
        for load in routes
        if load.route in worker.routes and load.paused_at is None and load.oldest_wait_seconds is not None
    ]
    longest = max(waits, default=timedelta(0))
    return longest > DEAF_AFTER and at - (claimed_at(worker) or worker.registered_at) > longest


def claimed_at(worker: WorkerView) -> datetime | None:
    """When it last asked for jobs, or was given one that it still has."""
    return max(filter(None, (worker.polled_at, worker.granted_at)), default=None)


async def _jobs(engine: Engine) -> dict[str, list[HeldJob]]:
    rows = await engine.db.run(SQL["held"], health.COUNT_MAX)
    shown: dict[str, list[HeldJob]] = {}
    held: dict[str, list[UUID]] = {}
    for row in rows:
        held.setdefault(row["worker"], []).append(row["job_id"])
    first = [job_id for job_ids in held.values() for job_id in job_ids[:JOBS_MAX]]
    doing = {row["job_id"]: row for row in await engine.homes.gather(SQL["doing"], first)} if first else {}
    for row in rows:
        now = doing.get(row["job_id"])
        if now is not None:
            job = HeldJob(
                row["job_id"], row["tenant"], row["kind"], row["granted_at"], now["stage"], float(now["progress"])
            )
            shown.setdefault(row["worker"], []).append(job)
    return shown
