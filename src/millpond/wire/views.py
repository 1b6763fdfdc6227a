"""Operator views: job detail, holds, fleet and system."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from millpond.wire.artifacts import Artifact
from millpond.wire.credits import Entry
from millpond.wire.jobs import Budget, ChildCounts, Job, Question
from millpond.wire.kinds import LifecycleInfo
from millpond.wire.shapes import Answer, Credits, Phase, Time, WorkerStatus
from millpond.wire.webhooks import Delivery


class Attempt(Answer, rename={"start": "from", "end": "to"}):
    """An attempt of a worker at a job, and its result."""

    number: Annotated[int, Meta(description="The number of the attempt, counted over all runs.")]
    run: int
    start: Time
    end: Time | None
    worker: Annotated[str | None, Meta(description="The worker that made the attempt, if known.")]
    worker_id: Annotated[str | None, Meta(description="worker_…, for a fleet worker.")]
    outcome: Annotated[
        str | None,
        Meta(description="The outcome of the job, or requeued, parked, delivering; null while the attempt is running."),
    ]
    cause: Annotated[str | None, Meta(description="Why the job was requeued: attempt, interruption or lapse.")]
    error_code: str | None
    traceback: Annotated[
        str | None, Meta(description="Where the job's code raised the error, without what looks like a secret.")
    ] = None


class Span(Answer, rename={"start": "from", "end": "to"}):
    """A span of a job's timeline; `to` is null for the current one."""

    phase: Phase
    stage: str | None
    attempt: Annotated[int, Meta(description="The attempt that the span belongs to or follows; 0 before the first.")]
    start: Time
    end: Time | None


class PredictionInfo(Answer):
    """A provider prediction for a job."""

    id: str
    provider: str
    external_id: Annotated[str | None, Meta(description="The id of the prediction at the provider.")]
    status: str
    part: Annotated[str, Meta(description="The part of the job that the prediction is for; empty for the whole job.")]
    run: int
    created_at: Time
    over_at: Time | None


class JobComposition(Answer):
    """What a job consists of beside its own code."""

    counts: ChildCounts
    budget: Budget | None
    questions: Annotated[list[Question], Meta(description="Of the current run, oldest first.")]
    wakes_at: Annotated[Time | None, Meta(description="The end of the next sleep of its code.")]


class JobDetail(Answer):
    """A job with its related objects."""

    job: Job
    worker: Annotated[str | None, Meta(description="The worker that holds the job.")]
    worker_id: Annotated[str | None, Meta(description="worker_…, for a fleet worker.")]
    attempts: list[Attempt]
    spans: list[Span]
    events_left_out: Annotated[
        int, Meta(description="The number of events that were omitted from the middle of the timeline.")
    ]
    entries: Annotated[
        list[Entry], Meta(description="The ledger entries of the job: hold, capture or release, refunds.")
    ]
    deliveries: Annotated[list[Delivery], Meta(description="The newest 100 deliveries.")]
    files: list[Artifact]
    predictions: list[PredictionInfo]
    key: Annotated[str | None, Meta(description="The idempotency key; null if it is not indexed.")]
    retries: Annotated[list[str], Meta(description="Retries of the job, among the next 2,000 jobs of its account.")]
    lifecycle: Annotated[LifecycleInfo | None, Meta(description="Null for a kind that this server does not know.")]
    composition: Annotated[JobComposition | None, Meta(description="Null if the job has no steps, children or budget.")]


SearchResultType = Literal[
    "job",
    "worker",
    "endpoint",
    "delivery",
    "key",
    "artifact",
    "batch",
    "bulk_operation",
    "schedule",
    "audit",
    "tenant",
    "account",
    "kind",
    "queue",
]


class SearchResult(Answer):
    """A search result."""

    type: SearchResultType
    id: str
    tenant: str | None
    title: str
    by: Annotated[
        Literal["id", "name", "external_id", "idempotency_key"], Meta(description="The property that matched.")
    ]


class SearchResults(Answer):
    """Search results, best match first; at most 20."""

    data: list[SearchResult]


class Hold(Answer):
    """A credit hold of a job."""

    job_id: str
    tenant: str
    account: str
    kind: str
    state: str
    phase: Phase
    price: Credits
    held_at: Time


class HoldAge(Answer):
    """The holds of an age group."""

    seconds: Annotated[
        int | None, Meta(description="The upper bound of the age in seconds; null for the oldest group.")
    ]
    jobs: int
    credits: int


class Holds(Answer):
    """Credit holds, oldest first. A page can be short or empty and still have a next page."""

    data: list[Hold]
    next_cursor: str | None
    ages: Annotated[
        list[HoldAge],
        Meta(
            description="Holds by age, of the 10,000 oldest unfinished jobs. Only on the first page; empty on others."
        ),
    ]
    is_capped: Annotated[bool, Meta(description="Whether there are more unfinished jobs.")]


class FleetJob(Answer):
    """A job held by a worker."""

    id: str
    tenant: str
    kind: str
    stage: str | None
    progress: float
    since: Time


class FleetWorker(Answer):
    """A worker with its current jobs."""

    id: Annotated[str | None, Meta(description="worker_…; null for a worker that holds leases and is not registered.")]
    worker: str
    is_fleet: Annotated[bool, Meta(description="Whether it connects over HTTP; a direct worker uses the database.")]
    version: Annotated[str | None, Meta(description="The version of Millpond that it runs, if it has reported it.")]
    routes: Annotated[list[str], Meta(description="The routes of a fleet worker.")]
    queues: Annotated[list[str], Meta(description="The queues from which it takes jobs.")]
    slots: Annotated[int | None, Meta(description="The number of jobs that the worker can hold at the same time.")]
    status: WorkerStatus
    leases: int
    held: Annotated[int, Meta(description="The number of jobs that the worker holds.")]
    jobs: Annotated[list[FleetJob], Meta(description="The first 50 jobs; for a key of one tenant, only its own.")]
    capabilities: Annotated[Any, Meta(description="The capabilities reported by the worker.")]
    hint: Annotated[str | None, Meta(description="The first and last characters of its token.")]
    fleet: Annotated[str | None, Meta(description="The key used for the registration.")]
    address: Annotated[str | None, Meta(description="The address of the last heartbeat.")]
    registered_at: Time | None
    heard_at: Time | None
    polled_at: Annotated[Time | None, Meta(description="The last poll.")]
    granted_at: Annotated[Time | None, Meta(description="When the worker last received a job that it still holds.")]
    expires_at: Annotated[Time | None, Meta(description="When the first of its leases expires.")]
    unready_at: Annotated[Time | None, Meta(description="Since when the worker reports that it takes no jobs.")]
    unready_reason: Annotated[str | None, Meta(description="Why the worker takes no jobs, as it reports.")]
    heartbeat_age_seconds: Annotated[float | None, Meta(description="Seconds since the last heartbeat.")]
    claim_age_seconds: Annotated[float | None, Meta(description="Seconds since the last poll or lease.")]
    is_deaf: Annotated[
        bool,
        Meta(
            description="The worker sends heartbeats and has free slots, but does not poll although "
            "jobs of its routes wait."
        ),
    ]


class FleetRoute(Answer):
    """A route and its desired number of workers."""

    route: str
    ready: int
    leased: int
    oldest_wait_seconds: float | None
    idle: int
    busy: int
    draining: int
    desired: int
    slots: int
    paused_at: Time | None


class FleetBoard(Answer):
    """The workers, their jobs and the capacity of the fleet."""

    at: Time
    desired: Annotated[int, Meta(description="The desired number of workers of all routes.")]
    ready: Annotated[int, Meta(description="The number of idle and busy workers.")]
    starting: Annotated[int, Meta(description="The number of desired workers that have not registered yet.")]
    routes: list[FleetRoute]
    workers: list[FleetWorker]


class DatabaseInfo(Answer):
    """The central database."""

    version: str
    size: Annotated[int, Meta(description="Bytes.")]
    started_at: Time
    connections: int
    connections_max: int
    oldest_transaction_seconds: float | None
    cache_hit: Annotated[float | None, Meta(description="The share of blocks that were read from memory.")]
    commits: int
    rollbacks: int
    deadlocks: int
    temporary_bytes: int


class TenantDatabaseInfo(Answer):
    """A tenant database."""

    tenants: list[str]
    is_up: bool


class PoolInfo(Answer):
    """A connection pool of this process."""

    name: str
    size: int
    idle: int
    limit: int


class TableInfo(Answer):
    """A table with its indexes; partitions are combined."""

    table: str
    bytes: int
    rows: Annotated[int, Meta(description="The row estimate of the planner.")]
    dead: int
    vacuumed_at: Time | None


class MigrationInfo(Answer):
    """An applied migration."""

    number: int
    name: str
    applied_at: Time


class SlowQuery(Answer):
    """A slow statement; all its executions are combined."""

    query: str
    calls: int
    mean_ms: float
    total_ms: float


class RunningQuery(Answer):
    """A statement that has been running for more than a second."""

    pid: int
    seconds: float
    state: str
    query: str


class SettingInfo(Answer):
    """A setting; for secrets, only whether it is set."""

    name: str
    value: str | int | bool | None
    source: Annotated[
        Literal["environment", "default", "given"],
        Meta(description="given: passed by the code that started the process."),
    ]
    is_secret: bool


class CheckInfo(Answer):
    """A check of the doctor."""

    check: str
    verdict: Literal["ok", "failed"]
    detail: str


class System(Answer):
    """The status of a process and its database."""

    version: str
    python: str
    started_at: Time
    now: Time
    host: str
    pid: int
    is_development: bool
    database: DatabaseInfo
    tenant_databases: list[TenantDatabaseInfo]
    pools: list[PoolInfo]
    tables: Annotated[list[TableInfo], Meta(description="The 20 largest tables.")]
    migrations: list[MigrationInfo]
    slow: list[SlowQuery]
    slow_reason: Annotated[str | None, Meta(description="Why no slow statements are available, and what to do.")]
    running: list[RunningQuery]
    configuration: list[SettingInfo]
    checks: list[CheckInfo]
