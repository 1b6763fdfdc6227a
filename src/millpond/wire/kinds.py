"""Kinds, queues, workers and routes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from millpond.wire.shapes import (
    ROUTES_MAX,
    Answer,
    Duration,
    Name,
    Outcome,
    Phase,
    Request,
    Time,
    Verdict,
    WorkerStatus,
)


class Arrow(Answer):
    """A transition of a lifecycle: an event and the states before and after it."""

    from_state: str | None
    event: str
    to_state: str


class LifecycleInfo(Answer):
    """A lifecycle as data and as a diagram."""

    name: str
    states: dict[str, Phase]
    ends: Annotated[dict[str, Outcome], Meta(description="The terminal states with their outcomes.")]
    transitions: list[Arrow]
    mermaid: str


class Durations(Answer):
    """Recent run times of a kind, in seconds."""

    p50: float
    p90: float
    jobs: Annotated[int, Meta(description="The number of jobs in the sample.")]


class KindInfo(Answer):
    """A kind of job: its input schema, price and lifecycle."""

    name: str
    summary: str
    is_open: Annotated[
        bool,
        Meta(
            description="Whether jobs can be submitted through this API; otherwise "
            "only through the routes of its product."
        ),
    ]
    price: Annotated[int | str, Meta(description="Credits, or 'by input'.")]
    budget: Annotated[int | None, Meta(description="What the children of a job may cost; held with its price.")]
    queue: str
    priority: int
    stages: list[str]
    firm_stages: Annotated[list[str], Meta(description="The stages in which a job cannot be canceled.")]
    expires_in_seconds: float | None
    time_limit_seconds: float | None
    input_schema: dict[str, Any]
    lifecycle: LifecycleInfo
    durations: Durations | None


class Kinds(Answer):
    """All kinds of jobs."""

    data: list[KindInfo]


class QueueInfo(Answer):
    """A queue and its status."""

    queue: str
    verdict: Annotated[
        Verdict,
        Meta(
            description="paused; unserved: jobs wait and no worker polls; stuck: jobs are leased, but "
            "none ends; busy; ok."
        ),
    ]
    reason: str
    ready: int
    waiting: int
    leased: int
    parked: int
    oldest_wait_seconds: float | None
    workers: Annotated[int, Meta(description="The live workers that serve it, and others that hold its jobs.")]
    paused_at: Time | None


class Queues(Answer):
    """All queues."""

    data: list[QueueInfo]


class WorkerInfo(Answer):
    """A worker: of the fleet, which connects over HTTP, or direct, which connects to the database."""

    id: Annotated[str | None, Meta(description="worker_…; null for a worker that holds leases and is not registered.")]
    worker: str
    is_fleet: Annotated[bool, Meta(description="Whether it connects over HTTP; a direct worker uses the database.")]
    version: Annotated[str | None, Meta(description="The version of Millpond that it runs, if it has reported it.")]
    routes: Annotated[list[str], Meta(description="The routes of a fleet worker.")]
    queues: Annotated[list[str], Meta(description="The queues from which it takes jobs.")]
    slots: Annotated[int | None, Meta(description="The number of jobs that the worker can hold at the same time.")]
    status: WorkerStatus
    leases: int
    jobs: Annotated[int, Meta(description="The number of jobs that the worker holds.")]
    capabilities: Annotated[Any, Meta(description="The capabilities reported by the worker.")]
    hint: Annotated[str | None, Meta(description="The first and last characters of its token.")]
    fleet: Annotated[str | None, Meta(description="The key used for the registration.")]
    address: Annotated[str | None, Meta(description="The address of the last heartbeat.")]
    registered_at: Time | None
    heard_at: Time | None
    granted_at: Annotated[Time | None, Meta(description="When the worker last received a job that it still holds.")]
    expires_at: Annotated[Time | None, Meta(description="When the first of its leases expires.")]
    unready_at: Annotated[Time | None, Meta(description="Since when the worker reports that it takes no jobs.")]
    unready_reason: Annotated[str | None, Meta(description="Why the worker takes no jobs, as it reports.")]


class Workers(Answer):
    """All workers, followed by those that hold leases and are not registered, such as ones of an older version."""

    data: list[WorkerInfo]


class RotateWorker(Request):
    """How long the old token stays valid; without a duration, it is rejected immediately."""

    overlap: Duration | None = None


class NewWorkerToken(WorkerInfo):
    """A worker with its new token, which is returned only once and is not stored."""

    token: str


class AssignRoutes(Request):
    """The new routes of a worker."""

    routes: Annotated[list[Name], Meta(min_length=1, max_length=ROUTES_MAX)]


class RouteWorkers(Answer):
    """The number of live workers of a route by status."""

    idle: int
    busy: int
    draining: int


class RouteInfo(Answer):
    """A route: a queue whose jobs are run by the fleet."""

    route: str
    ready: Annotated[int, Meta(description="Jobs that wait for a worker; 10000 means as many or more.")]
    leased: int
    oldest_wait_seconds: float | None
    workers: RouteWorkers
    slots: Annotated[int, Meta(description="The slots of the workers that take jobs.")]
    paused_at: Time | None


class Routes(Answer):
    """All routes."""

    data: list[RouteInfo]


class Scaling(Answer):
    """The desired number of workers of a route, and the inputs of the calculation."""

    route: str
    desired_workers: int
    ready: int
    leased: int
    oldest_wait_seconds: float | None
    workers: RouteWorkers
    expected_seconds: Annotated[float | None, Meta(description="The average run time of a job; null if unknown.")]


class Scalings(Answer):
    """The desired number of workers of every route."""

    data: list[Scaling]
