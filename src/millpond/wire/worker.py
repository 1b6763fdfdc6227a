"""The messages between fleet workers and the server."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from msgspec import Meta

from millpond.wire.shapes import (
    ARTIFACTS_MAX,
    CHILDREN_MAX,
    CHUNKS_MAX,
    NOTES_MAX,
    POLL_MAX,
    POLL_SECONDS_MAX,
    RENEW_MAX,
    RESOURCES_MAX,
    ROUTES_MAX,
    SLOTS_MAX,
    Answer,
    Credits,
    Name,
    Outcome,
    Priority,
    Request,
    Tags,
    Time,
)

STEP_NAME_LENGTH_MAX: Final = 220
_NO_NUL: Final = r"^[^\x00]*$"
StepName = Annotated[str, Meta(min_length=1, max_length=STEP_NAME_LENGTH_MAX, pattern=_NO_NUL)]
StepPosition = (
    Annotated[
        int,
        Meta(ge=1, le=2**31 - 1, description="The number of the step in the order of the code; null if it has none."),
    ]
    | None
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
    has_steps: Annotated[bool, Meta(description="Whether an earlier attempt may have recorded steps.")] = False


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
    """Whether the worker takes jobs at present, and which resources it has loaded."""

    unready_reason: (
        Annotated[
            str, Meta(max_length=500, description="Why the worker takes no jobs, for operators; null if it takes jobs.")
        ]
        | None
    )
    resources: (
        Annotated[
            list[Name],
            Meta(
                max_length=RESOURCES_MAX,
                description="The resources that the worker has loaded, which become part of its capabilities. "
                "If omitted, they are unchanged.",
            ),
        ]
        | None
    ) = None


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


class EmittedChunk(Request):
    """A piece of the text of a job."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1, description="Counts the chunks of the lease from 1, without gaps.")]
    text: Annotated[str, Meta(description="Up to 64 KiB.")]


class EmittedText(OfLease):
    """Text that a job has emitted: its next chunks, in order."""

    chunks: Annotated[list[EmittedChunk], Meta(min_length=1, max_length=CHUNKS_MAX)]


class EmitText(Request):
    """Text that jobs of the worker have emitted."""

    jobs: Annotated[list[EmittedText], Meta(min_length=1, max_length=SLOTS_MAX)]


class EmittedResult(Answer):
    """Whether the chunks of a job were written. Chunks that were written before are not written again."""

    job_id: str
    lease_token: UUID
    is_held: Annotated[bool, Meta(description="False if the lease is lost: discard the job.")]
    cancel_requested: bool
    error: Annotated[
        dict[str, Any] | None, Meta(description="Why no chunk of the job was written; null if they are written.")
    ]


class Emitted(Answer):
    """The results, in the order of the jobs."""

    jobs: list[EmittedResult]


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


class RecallSteps(OfLease):
    """Asks for the recorded steps, by name, after a name."""

    after: Annotated[str, Meta(max_length=STEP_NAME_LENGTH_MAX, pattern=_NO_NUL)] = ""


class NewQuestion(Request):
    """What is asked, the JSON Schema of the answer, and who may answer: client, operator or the id of a key."""

    question: Annotated[str, Meta(min_length=1, max_length=8_192)]
    schema: dict[str, Any] | None = None
    who: Annotated[str, Meta(max_length=128, pattern="^(client|operator|key_[0-7][0-9a-hjkmnp-tv-z]{25})$")] = "client"


class RecordStep(OfLease):
    """A step to record, once: a question, a sleep of some seconds, or the result of a call."""

    name: StepName
    position: StepPosition = None
    result: Annotated[Any, Meta(description="Of a call: what the function returned.")] = None
    seconds: (
        Annotated[
            float, Meta(gt=0, le=10 * 365 * 86_400, description="The length of a sleep, or the time for an answer.")
        ]
        | None
    ) = None
    question: NewQuestion | None = None

    @property
    def type(self) -> Literal["call", "sleep", "question"]:
        """With a question it asks, with a time alone it sleeps, otherwise it is a call."""
        if self.question is not None:
            return "question"
        return "call" if self.seconds is None else "sleep"


class RecordedStep(Answer):
    """A step as it is recorded."""

    name: str
    position: int | None
    type: Literal["call", "children", "sleep", "question"]
    batch_id: str | None
    due_at: Time | None
    is_done: bool
    is_due: Annotated[bool, Meta(description="Whether the end of a sleep, or the deadline of a question, has passed.")]
    result: Any
    submitted: Annotated[int, Meta(description="How many of the children are submitted.")]


class RecalledSteps(Answer):
    """Recorded steps, ordered by name; none after the last."""

    steps: list[RecordedStep]


class NewChild(Request):
    """A child to submit."""

    kind: Name
    input: Any = None
    tags: Tags | None = None
    priority: Priority | None = None
    run_at: Time | None = None
    expires_in: Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    route: Name | None = None


class SpawnChildren(OfLease):
    """Children of a step: those from `first` on, of `total`."""

    name: StepName
    children: Annotated[list[NewChild], Meta(min_length=1, max_length=CHILDREN_MAX)]
    total: Annotated[int, Meta(ge=1, le=10_000)]
    position: StepPosition = None
    first: Annotated[int, Meta(ge=0, lt=10_000)] = 0
    is_detached: Annotated[bool, Meta(description="Whether the children outlive the job.")] = False
    fails_fast: Annotated[bool, Meta(description="Whether the job resumes as soon as a child has not succeeded.")] = (
        True
    )


class ReadResults(OfLease):
    """Asks for the results of the children of a step, in order, after a job."""

    batch_id: str
    after: str | None = None


class ChildOutcome(Answer):
    """A child; its outcome is null if it has not ended."""

    id: str
    kind: str
    outcome: Outcome | None
    output: Any
    error: dict[str, Any] | None


class ChildOutcomes(Answer):
    """Some children in order; none while the job must wait for them."""

    is_over: bool
    total: int
    children: list[ChildOutcome]


class SuspendJob(OfLease):
    """A job to park until what a step waits for has come."""

    name: StepName


class Fate(Answer):
    """The result of a failure: requeued, or the outcome of the job."""

    job_id: str
    fate: str
