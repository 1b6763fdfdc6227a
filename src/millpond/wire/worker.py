"""The messages between fleet workers and the server."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from millpond.wire.shapes import (
    ARTIFACTS_MAX,
    NOTES_MAX,
    POLL_MAX,
    POLL_SECONDS_MAX,
    RENEW_MAX,
    ROUTES_MAX,
    SLOTS_MAX,
    Answer,
    Credits,
    Name,
    Request,
    Time,
)


class Signed(Answer):
    """A signed request to storage, which needs no key: method, URL and required headers."""

    method: str
    url: str
    headers: dict[str, str]
    expires_at: Time


class Identity(Request):
    """The proof of identity of an EC2 instance: its identity document and signature."""

    document: Annotated[str, Meta(max_length=16_384)]
    signature: Annotated[str, Meta(max_length=16_384)]


class RegisterWorker(Request):
    """The registration of a worker: its name, routes and number of slots."""

    worker: Name
    routes: Annotated[list[Name], Meta(min_length=1, max_length=ROUTES_MAX)]
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    capabilities: dict[str, Any] | None = None
    identity: Identity | None = None


class Registered(Answer):
    """A registered worker. Its token is returned only once and is not stored."""

    id: str
    worker: str
    token: str
    routes: list[str]
    is_approved: Annotated[bool, Meta(description="False if an operator must approve the worker first.")]
    lease_seconds: float
    heartbeat_seconds: float
    poll_seconds_max: float


class Poll(Request):
    """The number of free slots, and the number of seconds to wait for a job."""

    want: Annotated[int, Meta(ge=1, le=POLL_MAX)] = 1
    wait: Annotated[float, Meta(ge=0, le=POLL_SECONDS_MAX)] = 0
    held: (
        Annotated[
            list[UUID],
            Meta(
                max_length=1_000,
                description="After a poll whose response was lost: the lease tokens that the worker has. "
                "Its other leases are released.",
            ),
        ]
        | None
    ) = None


class Assignment(Answer):
    """A leased job."""

    job_id: str
    lease_token: str
    lease_seconds: float
    kind: str
    route: str
    tenant: str
    account: str
    state: str
    epoch: Annotated[int, Meta(description="The number of times the job was leased; unique per lease.")]
    attempts: int
    run: int
    price: Credits
    progress: float
    stage: str | None
    stages: list[str]
    time_limit_seconds: float | None
    input: Any
    memo: Any
    answer: Any
    created_at: Time
    expires_at: Time | None
    downloads: Annotated[dict[str, Signed], Meta(description="The readable files by their names in the input.")]


class Assignments(Answer):
    """The jobs leased by a poll; empty if there were none."""

    jobs: list[Assignment]
    is_draining: Annotated[
        bool, Meta(description="Whether the worker is draining: it receives no new jobs and finishes its jobs.")
    ]


class HeldJob(Request):
    """A job held by the worker, and the names whose signed requests must be renewed."""

    job_id: str
    lease_token: UUID
    renew: Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=RENEW_MAX)] = []


class Heartbeat(Request):
    """All jobs held by the worker; may be empty."""

    jobs: Annotated[list[HeldJob], Meta(max_length=SLOTS_MAX)] = []


class JobHeartbeat(Answer):
    """The status of a job in a heartbeat."""

    job_id: str
    lease_token: UUID
    is_held: Annotated[bool, Meta(description="False if the lease is lost: discard the job.")]
    cancel_requested: bool
    lease_seconds: float
    downloads: dict[str, Signed]
    uploads: dict[str, Signed]


class HeartbeatResult(Answer):
    """The response to a heartbeat, in the order of its jobs."""

    jobs: list[JobHeartbeat]
    is_draining: bool


class ReportReadiness(Request):
    """Whether the worker takes jobs at present."""

    unready_reason: (
        Annotated[
            str, Meta(max_length=500, description="Why the worker takes no jobs, for operators; null if it takes jobs.")
        ]
        | None
    )


class OfLease(Request):
    """The job and its lease."""

    job_id: str
    lease_token: UUID


class WorkerNote(Request):
    """A report about a job. Numbers increase; a repeated number is written once."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    type: Literal["progress", "stage", "log"]
    value: Annotated[float, Meta(ge=0, le=1, description="For type progress.")] | None = None
    stage: Annotated[Name | None, Meta(description="For type stage.")] = None
    level: Annotated[str | None, Meta(description="For type log; truncated if long.")] = None
    text: Annotated[str | None, Meta(description="For type log; truncated if long.")] = None


class WriteNotes(OfLease):
    """The reports of a worker about a job, in order."""

    notes: Annotated[list[WorkerNote], Meta(min_length=1, max_length=NOTES_MAX)]


class Noted(Answer):
    """Whether the job must stop."""

    cancel_requested: bool


class MakeUpload(OfLease):
    """A file that the worker wants to upload."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    content_type: Annotated[str, Meta(min_length=1, max_length=255)]
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class Upload(Answer):
    """The upload request of a file."""

    artifact_id: str
    upload: Signed


class MakeDownload(OfLease):
    """A file that the worker wants to download."""

    artifact_id: str


class SavedFile(Request):
    """An uploaded file."""

    id: str
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class CompleteJob(OfLease):
    """A completed job."""

    output: Any = None
    artifacts: Annotated[list[SavedFile], Meta(max_length=ARTIFACTS_MAX)] = []
    captured: Annotated[int, Meta(ge=0, description="The charge, if less than the price.")] | None = None


class Completed(Answer):
    """The state of the job."""

    job_id: str
    state: str


class FailJob(OfLease):
    """A failed job."""

    error: Annotated[dict[str, Any], Meta(description="A code and a message; truncated if long.")]
    outcome: Literal["failed", "blocked", "canceled"] = "failed"
    retry: Annotated[bool, Meta(description="Whether the job may be retried.")] = False
    retry_after: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None


class KeepTraceback(OfLease):
    """The traceback of an attempt that has failed."""

    text: Annotated[str, Meta(description="Truncated if long; what looks like a secret is removed.")]


class RequeueJob(OfLease):
    """A job that the worker returns to the queue."""

    reason: str = ""


class ParkJob(OfLease):
    """A job to park until it is answered."""

    memo: Any = None


class Fate(Answer):
    """The result of a failure: requeued, or the outcome of the job."""

    job_id: str
    fate: str
