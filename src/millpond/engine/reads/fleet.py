"""Fleet: all workers, the jobs that they hold, when they were last heard from, and which of them are deaf."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.engine.reads import health
from millpond.scaling import Policy
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.fleet.scaling import RouteLoad
    from millpond.engine.fleet.workers import WorkerView
    from millpond.engine.reads.health import WorkerHealth

SQL: Final = queries("millpond.engine.reads", "fleet")

DEAF_AFTER: Final = timedelta(seconds=30)
"""Workers poll every few seconds, so one that leaves jobs waiting for this long is deaf."""
JOBS_MAX: Final = 50
"""How many jobs of a worker are shown."""
POLICY: Final = Policy()
"""The policy for the numbers of workers that the dashboard shows. An autoscaler with another policy passes its own."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that a worker holds."""

    job_id: UUID
    tenant: str
    kind: str
    since: datetime
    stage: str | None
    progress: float


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at one moment: its workers, other workers that hold leases, jobs by worker, and the routes."""

    at: datetime
    workers: Sequence[WorkerView]
    others: Sequence[WorkerHealth]
    jobs: Mapping[str, Sequence[WorkerJob]]
    routes: Sequence[RouteLoad]

    def age(self, instant: datetime | None) -> float | None:
        """How many seconds ago ``instant`` was."""
        return None if instant is None else round(max(0.0, (self.at - instant).total_seconds()), 3)


async def look(engine: Engine) -> FleetView:
    """Read all workers, with their jobs of all tenants."""
    workers = await engine.workers.list()
    known = {worker.id for worker in workers}
    others = [worker for worker in await health.workers(engine.db) if worker.worker not in known]
    present: datetime = (await engine.db.run(SQL["clock"]))["present"]
    return FleetView(present, workers, others, await _jobs(engine), await engine.scaling.routes())


def is_deaf(worker: WorkerView, routes: Iterable[RouteLoad], at: datetime) -> bool:
    """Whether a worker sends heartbeats and has free slots, but does not poll while jobs of its routes wait."""
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
    """When a worker last polled, or was granted a lease that it still holds."""
    return max(filter(None, (worker.polled_at, worker.granted_at)), default=None)


async def _jobs(engine: Engine) -> dict[str, list[WorkerJob]]:
    rows = await engine.db.run(SQL["held"], health.COUNT_MAX)
    shown: dict[str, list[WorkerJob]] = {}
    held: dict[str, list[UUID]] = {}
    for row in rows:
        held.setdefault(row["worker"], []).append(row["job_id"])
    first = [job_id for job_ids in held.values() for job_id in job_ids[:JOBS_MAX]]
    doing = {row["job_id"]: row for row in await engine.tenant_databases.gather(SQL["doing"], first)} if first else {}
    for row in rows:
        now = doing.get(row["job_id"])
        if now is not None:
            job = WorkerJob(
                row["job_id"], row["tenant"], row["kind"], row["granted_at"], now["stage"], float(now["progress"])
            )
            shown.setdefault(row["worker"], []).append(job)
    return shown
