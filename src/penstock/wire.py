"""The native API's shapes: what the server takes and gives, what its OpenAPI document says, what the SDK reads.

One type per shape, for all three. Field names are the engine's words; times are RFC 3339 in UTC; ids are TypeIDs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.webhooks import MOMENTS

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]
Scope = Literal["client", "worker", "admin"]
TokenScope = Literal["read", "cancel"]
Verdict = Literal["ok", "busy", "stuck", "paused", "unserved"]
WorkerStatus = Literal["unapproved", "idle", "busy", "draining", "silent", "revoked"]
DeliveryState = Literal["pending", "delivered", "failed", "withdrawn"]

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:@+/-]+$")]
Key = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
Time = Annotated[datetime, Meta(tz=True)]
Duration = Annotated[
    # The bounds are for readers of the schema; who goes beyond is told so in plain words.
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}(\.[0-9]{1,3})?(s|m|h)$|^[1-9][0-9]{0,2}d$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 0.001, "maximum": 10 * 365 * 86_400})],
    Meta(description="Seconds, or text like 90s, 15m, 1h, 7d.", examples=["15m"]),
]
TokenDuration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}s$|^[1-9][0-9]{0,2}m$|^(1?[1-9]|10|2[0-4])h$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 1, "maximum": 86_400})],
    Meta(description="Seconds, or text like 90s, 15m, 1h; from 1s to 24h.", examples=["15m"]),
]
OverlapDuration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}(s|m)$|^[1-9][0-9]?h$|^([12]?[1-9]|[123]0)d$"})]
    | Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 30 * 86_400})],
    Meta(description="Seconds, or text like 15m, 24h, 7d; at most 30d.", examples=["24h"]),
]
Priority = Annotated[int, Meta(ge=-100, le=100, description="The highest goes first.")]
Credits = Annotated[int, Meta(ge=0, description="A whole number of credits.")]

BULK_MAX: Final = 1_000
ROUTES_MAX: Final = 100
SLOTS_MAX: Final = 1_000
POLL_MAX: Final = 100
POLL_SECONDS_MAX: Final = 30
RENEW_MAX: Final = 100
NOTES_MAX: Final = 500
ARTIFACTS_MAX: Final = 200
PULL_MAX: Final = 100

JOB_EVENTS: Final = tuple(f"job.{moment}" for moment in MOMENTS)
"""What the moments of a job are called towards its customer."""
ENDPOINT_EVENTS: Final = (*JOB_EVENTS, "endpoint.disabled", "*")
"""All that an endpoint can be told of; the star is everything."""

# The bounds of these are for readers; who goes beyond is told so in plain words.
WebhookUrl = Annotated[str, Meta(extra_json_schema={"format": "uri", "maxLength": 2_048})]
WebhookSecret = Annotated[
    str,
    Meta(
        description="whsec_ and 24 to 64 bytes in base64; without one, one is made.",
        extra_json_schema={"pattern": "^whsec_([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    ),
]
JobEventName = Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(JOB_EVENTS)})]
EventName = Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(ENDPOINT_EVENTS)})]


class Request(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What comes in: a field we do not know is an error, not something to be ignored."""

    either: ClassVar[tuple[str, ...]] = ()
    """Members of which one must be given, and no two. It is for the document: types have no word for it."""


class Answer(Struct, kw_only=True):
    """What goes out; a client ignores the fields it does not know."""


# Jobs


class JobWebhook(Request):
    """Where one job is told of, beside the endpoints of its tenant."""

    url: WebhookUrl
    secret: WebhookSecret | None = None
    events: (
        Annotated[list[JobEventName], Meta(min_length=1, max_length=50, description="Without them: those of its kind.")]
        | None
    ) = None


class Submit(Request):
    """A job to be."""

    kind: Name
    input: dict[str, Any] = {}
    account: Annotated[Name | None, Meta(description="Whose wallet pays; a client key has its own.")] = None
    idempotency_key: Annotated[
        Key | None, Meta(description="The same as the Idempotency-Key header; one of the two is enough.")
    ] = None
    priority: Priority | None = None
    run_at: Annotated[Time, Meta(description="Not before this time.")] | None = None
    expires_in: Duration | None = None
    webhook: JobWebhook | None = None


class SubmitMany(Request):
    """Up to a thousand jobs; each is accepted or refused by itself."""

    jobs: Annotated[list[Submit], Meta(min_length=1, max_length=BULK_MAX)]


class Links(Answer):
    """Where a job can be read, watched and stopped."""

    self: str
    events: str
    stream: str
    cancel: str


class Accepted(Answer):
    """The answer to a submit: what was true when the job was born. A replay is the same, byte for byte."""

    id: str
    kind: str
    state: str
    price: Credits
    available: Annotated[int | None, Meta(description="What the account has left; a free job does not tell.")]
    created_at: Time
    expires_at: Time | None
    links: Links
    webhook_secret: Annotated[
        str | UnsetType, Meta(description="What its webhook is signed with, where that was made here.")
    ] = UNSET


class Result(Answer):
    """The outcome of one job of a bulk submit: accepted, or a problem."""

    status: int
    job: Accepted | None = None
    problem: Problem | None = None


class Results(Answer):
    """The outcomes of a bulk submit, in the order of its jobs."""

    accepted: int
    refused: int
    results: list[Result]


class Eta(Answer):
    """When a job is likely to have ended: half of all such jobs by the first time, nine of ten by the second."""

    p50: Time
    p90: Time


class JobError(Answer):
    """Why a job did not succeed."""

    code: str
    message: str
    field: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class Job(Answer):
    """A job as it stands."""

    id: str
    tenant: str
    account: str
    kind: str
    lifecycle: str
    queue: str
    state: str
    phase: Phase
    outcome: Outcome | None
    progress: Annotated[float, Meta(ge=0, le=1)]
    stage: str | None
    position: Annotated[
        int | None, Meta(description="Its place in line, from 1 on; 1000 means a thousand or more. Only while ready.")
    ]
    eta: Annotated[Eta | None, Meta(description="Only while it has not ended, once there is something to go by.")]
    priority: int
    run: int
    attempts: int
    events: Annotated[int, Meta(description="The number of its last event.")]
    price: Credits
    captured: Annotated[int | None, Meta(description="What it cost in the end.")]
    created_at: Time
    run_at: Time | None
    expires_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    cancel_requested_at: Time | None
    retry_of: str | None
    input: Any
    output: Any
    error: dict[str, Any] | None
    links: Links


class Jobs(Answer):
    """A page of jobs, the newest first."""

    data: list[Job]
    next_cursor: str | None


class Canceled(Answer):
    """Whether a cancel was accepted, and where the job stands."""

    id: str
    is_accepted: Annotated[bool, Meta(description="False where the job had ended before.")]
    state: str
    stage: str | None


class GiveAnswer(Request):
    """What a parked job waits for."""

    answer: Any


class Move(Request):
    """An operator's move along an arrow of the lifecycle."""

    state: Name


class CallbackHeard(Answer):
    """What a provider's call was worth."""

    verdict: str
    """accepted, repeated, late, superseded or unknown. It only makes us ask the provider sooner what is true."""


class State(Answer):
    """Where a job stands after a move or an answer."""

    id: str
    state: str


class Event(Answer):
    """One thing that happened to a job; ``seq`` counts from 1 without a gap."""

    seq: int
    at: Time
    type: str
    state: str
    data: Any


class Events(Answer):
    """A page of events, the oldest first. ``next`` is the ``after`` of the next page, null on the last one."""

    data: list[Event]
    next: int | None


class LogLine(Answer):
    """One line of a job's log."""

    seq: int
    at: Time
    text: str
    level: str | None


class Logs(Answer):
    """A page of log lines, the oldest first."""

    data: list[LogLine]
    next: int | None


class MakeToken(Request):
    """What a browser may do with one job, and for how long."""

    scopes: Annotated[list[TokenScope], Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["read"]
    )
    expires_in: TokenDuration = "15m"


class Token(Answer):
    """A token for a browser; it is good for one job only."""

    token: str
    job_id: str
    scopes: list[TokenScope]
    expires_at: Time


# Money


class AskPrice(Request):
    """A job that might be submitted."""

    kind: Name
    input: dict[str, Any] = {}
    account: Name | None = None


class Quote(Answer):
    """What a job would cost, and whether the account could pay."""

    kind: str
    price: Credits
    available: int
    can_pay: bool


class Wallet(Answer):
    """What an account has, and how many of its jobs have not ended."""

    tenant: str
    account: str
    available: int
    held: int
    active: int
    active_max: int | None


class Entry(Answer):
    """One balanced entry of the ledger."""

    seq: int
    at: Time
    type: Literal["grant", "adjust", "hold", "capture", "release"]
    available: int
    held: int
    outside: int
    available_after: int
    held_after: int
    job_id: str | None
    run: int | None
    reference: str | None
    reason: str | None


class Entries(Answer):
    """A page of ledger entries, the newest first."""

    data: list[Entry]
    next_cursor: str | None


class Post(Request):
    """Credits for an account."""

    tenant: Name
    account: Name
    amount: Annotated[int, Meta(ge=1, le=10**12)]
    reference: (
        Annotated[str, Meta(max_length=255, description="The same reference is posted once, however often it is sent.")]
        | None
    ) = None
    reason: Annotated[str, Meta(max_length=255)] | None = None


class Adjust(Request):
    """A correction of what an account has, up or down, with the reason why."""

    tenant: Name
    account: Name
    amount: Annotated[int, Meta(ge=-(10**12), le=10**12, extra_json_schema={"not": {"const": 0}})]
    reason: Annotated[str, Meta(min_length=1, max_length=255)]
    reference: (
        Annotated[str, Meta(max_length=255, description="The same reference is posted once, however often it is sent.")]
        | None
    ) = None


class SetCap(Request):
    """How many jobs of an account may be active at once; null for no limit."""

    active_max: Annotated[int, Meta(ge=0, le=1_000_000)] | None


# Kinds and queues


class Arrow(Answer):
    """One arrow of a lifecycle: what a moment does to a state."""

    from_state: str | None
    moment: str
    to_state: str


class LifecycleInfo(Answer):
    """A lifecycle as data, and as a diagram."""

    name: str
    states: dict[str, Phase]
    moves: list[Arrow]
    mermaid: str


class Durations(Answer):
    """How long jobs of a kind have run lately, in seconds."""

    p50: float
    p90: float
    jobs: Annotated[int, Meta(description="How many jobs this was learned from.")]


class KindInfo(Answer):
    """A kind of job: what it takes, what it costs, how it lives."""

    name: str
    summary: str
    price: Annotated[int | str, Meta(description="Credits, or 'by input'.")]
    queue: str
    priority: int
    stages: list[str]
    firm_stages: Annotated[list[str], Meta(description="The stages in which a cancel is refused.")]
    expires_in_seconds: float | None
    time_limit_seconds: float | None
    input_schema: dict[str, Any]
    lifecycle: LifecycleInfo
    durations: Durations | None


class Kinds(Answer):
    """All kinds of jobs."""

    data: list[KindInfo]


class QueueInfo(Answer):
    """A queue and how it is doing."""

    queue: str
    verdict: Annotated[
        Verdict,
        Meta(description="paused; unserved: jobs wait and nobody claims; stuck: claimed, but nothing ends; busy; ok."),
    ]
    reason: str
    ready: int
    waiting: int
    leased: int
    parked: int
    oldest_wait_seconds: float | None
    workers: int
    paused_at: Time | None


class Queues(Answer):
    """All queues."""

    data: list[QueueInfo]


class WorkerInfo(Answer):
    """A worker: one of the fleet, or one beside the database that holds leases now."""

    id: Annotated[str | None, Meta(description="worker_…; null for a worker that works on the database itself.")]
    worker: str
    is_fleet: bool
    routes: list[str]
    slots: Annotated[int | None, Meta(description="How many jobs it may hold at once.")]
    status: WorkerStatus
    leases: int
    jobs: Annotated[int, Meta(description="How many it holds.")]
    capabilities: Annotated[Any, Meta(description="What it said of itself.")]
    hint: Annotated[str | None, Meta(description="The beginning and the end of its token.")]
    fleet: Annotated[str | None, Meta(description="The key it registered with.")]
    address: Annotated[str | None, Meta(description="From where it was last heard.")]
    registered_at: Time | None
    heard_at: Time | None
    granted_at: Annotated[Time | None, Meta(description="When it was last given a job that it still has.")]
    expires_at: Annotated[Time | None, Meta(description="When the first of its leases runs out.")]


class Workers(Answer):
    """The fleet, and the other workers that hold leases now."""

    data: list[WorkerInfo]


class RotateWorker(Request):
    """How long the old token stays good beside the new one; not at all, unless a time is given."""

    overlap: Duration | None = None


class NewWorkerToken(WorkerInfo):
    """A worker with its new token, which is told this once and is not kept."""

    token: str


class AssignRoutes(Request):
    """The routes of a worker from now on."""

    routes: Annotated[list[Name], Meta(min_length=1, max_length=ROUTES_MAX)]


class RouteWorkers(Answer):
    """How many workers of a route are heard from, by what they are at."""

    idle: int
    busy: int
    draining: int


class RouteInfo(Answer):
    """A route: a queue whose jobs go to the fleet."""

    route: str
    ready: Annotated[int, Meta(description="Jobs that wait for a worker; 10000 means as many or more.")]
    leased: int
    oldest_wait_seconds: float | None
    workers: RouteWorkers
    slots: Annotated[int, Meta(description="Of the workers that take jobs.")]
    paused_at: Time | None


class Routes(Answer):
    """All routes."""

    data: list[RouteInfo]


class Scaling(Answer):
    """How many workers a route should have now, and what that was decided by."""

    route: str
    desired_workers: int
    ready: int
    leased: int
    oldest_wait_seconds: float | None
    workers: RouteWorkers
    expected_seconds: Annotated[float | None, Meta(description="How long a job runs on average; null if unknown.")]


class Scalings(Answer):
    """How many workers each route should have now."""

    data: list[Scaling]


# Files


class MakeArtifact(Request):
    """A file to be uploaded."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="As people see it.",
            examples=["cat.png"],
            extra_json_schema={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"},
        ),
    ]
    content_type: Annotated[
        str,
        Meta(
            min_length=3,
            max_length=200,
            examples=["image/png"],
            extra_json_schema={"pattern": r"^[a-z0-9.+-]{1,90}/[a-z0-9.+-]{1,90}$"},
        ),
    ]
    size: Annotated[int, Meta(ge=0, description="Bytes; exactly so many are taken.")]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="Nothing else is taken then.")] | None = None
    account: Annotated[Name | None, Meta(description="Whose it is; a client key has its own.")] = None


class Artifact(Answer):
    """A file in storage."""

    id: str
    tenant: str
    account: str
    job_id: Annotated[str | None, Meta(description="The job that it was made by, or given to.")]
    name: str
    content_type: str
    size: int
    sha256: str | None
    created_at: Time
    expires_at: Annotated[Time, Meta(description="Until when it was to be uploaded.")]
    stored_at: Annotated[Time | None, Meta(description="When it was seen in storage, whole.")]
    download: Annotated[Signed | None, Meta(description="Where to get it, once it is stored.")]


class NewArtifact(Artifact):
    """A file that was announced, and where to put it."""

    upload: Signed


class Artifacts(Answer):
    """The files of a job: what it was given, and what its last attempt has made."""

    data: list[Artifact]


# Webhooks


class MakeEndpoint(Request):
    """A URL that is told of a tenant's jobs."""

    url: Annotated[
        WebhookUrl | None, Meta(description="Without one nothing is sent: what is due waits to be pulled.")
    ] = None
    events: (
        Annotated[list[EventName], Meta(min_length=1, max_length=50, description="Without them: how jobs end.")] | None
    ) = None
    kinds: Annotated[list[Name], Meta(max_length=100, description="Only jobs of these kinds; none: of all.")] = []
    description: Annotated[str, Meta(max_length=200)] = ""
    secret: WebhookSecret | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="How many requests it may have to answer at once.")] | None = (
        None
    )


class ChangeEndpoint(Request):
    """What is to be different about an endpoint; what is left out stays as it is."""

    url: WebhookUrl | UnsetType = UNSET
    events: Annotated[list[EventName], Meta(min_length=1, max_length=50)] | UnsetType = UNSET
    kinds: Annotated[list[Name], Meta(max_length=100)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=100)] | UnsetType | None = UNSET


class EndpointInfo(Answer):
    """An endpoint without its secret."""

    id: str
    tenant: str
    account: Annotated[str | None, Meta(description="Whose jobs it is told of; null: those of the whole tenant.")]
    url: Annotated[str | None, Meta(description="Null: what is due is pulled.")]
    events: list[str]
    kinds: Annotated[list[str], Meta(description="None: of all kinds.")]
    is_native: Annotated[
        bool, Meta(description="Whether it is told as said here; if not, in the words of each job's kind.")
    ]
    description: str
    limit: Annotated[int | None, Meta(description="How many requests at once; null for the server's own limit.")]
    created_at: Time
    disabled_at: Annotated[Time | None, Meta(description="From then on nothing is sent.")]
    disabled_reason: str | None
    failing_since: Annotated[Time | None, Meta(description="Since when it has taken nothing.")]
    rotated_until: Annotated[Time | None, Meta(description="Until when the secret before this one signs too.")]
    pulled_at: Annotated[Time | None, Meta(description="When something was last pulled from it.")]


class NewEndpoint(EndpointInfo):
    """An endpoint with its secret, which is told this once."""

    secret: str


class Endpoints(Answer):
    """A page of the endpoints of a tenant, the oldest first."""

    data: list[EndpointInfo]
    next_cursor: str | None


class RotateEndpoint(Request):
    """How long what is sent is signed with the old secret too."""

    overlap: OverlapDuration = "24h"


class DisableEndpoint(Request):
    """Why nothing is to be sent."""

    reason: Annotated[str, Meta(max_length=200)] = "by an operator"


class TriggerEvent(Request):
    """What the test pretends to tell of."""

    event: Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(ENDPOINT_EVENTS[:-1])})] = (
        "job.succeeded"
    )


class ResendSince(Request):
    """What is to be sent once more: what failed since then, or everything."""

    since: Time
    only_failed: bool = True


class Resent(Answer):
    """How many are sent once more."""

    count: int


class EndpointStats(Answer):
    """How an endpoint fared since a time."""

    endpoint_id: str
    since: Time
    pending: int
    delivered: int
    failed: int
    withdrawn: int
    tries: int
    seconds_p50: Annotated[float | None, Meta(description="How long it took to answer, in half of all tries.")]
    seconds_p90: float | None


class Delivery(Answer):
    """One thing that is told to one receiver."""

    id: Annotated[str, Meta(description="The webhook-id of every request for it.")]
    tenant: str
    endpoint_id: Annotated[str | None, Meta(description="Null: the job's own webhook.")]
    job_id: str | None
    event: str
    state: DeliveryState
    tries: int
    created_at: Time
    due_at: Annotated[Time | None, Meta(description="When it is tried next.")]
    settled_at: Time | None


class DeliveryTry(Answer):
    """One request, and what came of it."""

    number: int
    at: Time
    url: Annotated[str | None, Meta(description="Where it went.")]
    seconds: float
    status: int | None
    error: Annotated[str | None, Meta(description="What kept it from being answered.")]
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    response_body: Annotated[str, Meta(description="How it began.")]


class DeliveryLog(Delivery):
    """A delivery with all its tries, the first one first."""

    url: Annotated[str | None, Meta(description="Where it goes now; null where it is pulled.")]
    log: list[DeliveryTry]


class Deliveries(Answer):
    """A page of deliveries, the newest first."""

    data: list[Delivery]
    next_cursor: str | None


class PullDeliveries(Request):
    """How many of those that are due are wanted."""

    most: Annotated[int, Meta(ge=1, le=PULL_MAX)] = 10


class Parcel(Answer):
    """A request that whoever pulled it is to make: these headers and this body, byte for byte."""

    id: str
    headers: dict[str, str]
    body: str


class Parcels(Answer):
    """What is due; whatever is not reported within a minute is given out again."""

    data: list[Parcel]


class ReportDelivery(Request):
    """What came of a request that was pulled."""

    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    error: Annotated[str, Meta(max_length=200, description="Where there was no answer.")] | None = None
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(description="How the answer began; what is long is shortened.")] = ""


# The fleet: what workers send and get


class Signed(Answer):
    """A request to storage that needs no key: the method, where to, and the headers that must stand in it."""

    method: str
    url: str
    headers: dict[str, str]
    expires_at: Time


class Identity(Request):
    """What an EC2 instance proves itself with: its identity document and the signature of that."""

    document: Annotated[str, Meta(max_length=16_384)]
    signature: Annotated[str, Meta(max_length=16_384)]


class RegisterWorker(Request):
    """A worker that comes: its name, the routes it serves, how many jobs it runs at once."""

    worker: Name
    routes: Annotated[list[Name], Meta(min_length=1, max_length=ROUTES_MAX)]
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    capabilities: dict[str, Any] | None = None
    identity: Identity | None = None


class Registered(Answer):
    """A worker that is in. Its token is told this once and is not kept."""

    id: str
    worker: str
    token: str
    routes: list[str]
    is_approved: Annotated[bool, Meta(description="False: an operator must approve it first.")]
    lease_seconds: float
    heartbeat_seconds: float
    poll_seconds_max: float


class Poll(Request):
    """How many jobs a worker has room for, and how many seconds it waits for the first."""

    want: Annotated[int, Meta(ge=1, le=POLL_MAX)] = 1
    wait: Annotated[float, Meta(ge=0, le=POLL_SECONDS_MAX)] = 0
    held: (
        Annotated[
            list[UUID],
            Meta(
                max_length=1_000,
                description="After a poll whose answer was lost: the lease tokens that the worker has. What else it was"
                " leased goes back.",
            ),
        ]
        | None
    ) = None


class Assignment(Answer):
    """A job in a worker's hands."""

    job_id: str
    lease_token: str
    lease_seconds: float
    kind: str
    route: str
    tenant: str
    account: str
    state: str
    epoch: Annotated[int, Meta(description="How often it was handed out: unique to this lease.")]
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
    downloads: Annotated[dict[str, Signed], Meta(description="What it may read, by the name that stands in the input.")]


class Assignments(Answer):
    """The jobs that a poll was given; none where there was nothing."""

    jobs: list[Assignment]
    is_draining: Annotated[bool, Meta(description="No more jobs until it is resumed; what it has, it finishes.")]


class HeldJob(Request):
    """A job that a worker is at, and the names whose signed requests it wants anew."""

    job_id: str
    lease_token: UUID
    renew: Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=RENEW_MAX)] = []


class Heartbeat(Request):
    """All that a worker is at; nothing, if it only wants to be known to live."""

    jobs: Annotated[list[HeldJob], Meta(max_length=SLOTS_MAX)] = []


class Beat(Answer):
    """How a job of a heartbeat stands."""

    job_id: str
    lease_token: UUID
    is_held: Annotated[bool, Meta(description="False: drop it.")]
    cancel_requested: bool
    lease_seconds: float
    downloads: dict[str, Signed]
    uploads: dict[str, Signed]


class Beats(Answer):
    """The answer to a heartbeat, in its order."""

    jobs: list[Beat]
    is_draining: bool


class OfLease(Request):
    """Which job is meant, and by what right."""

    job_id: str
    lease_token: UUID


class WorkerNote(Request):
    """Something to say about a job. Numbers grow; one that comes twice is written once."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    type: Literal["progress", "stage", "log"]
    value: Annotated[float, Meta(ge=0, le=1, description="For progress.")] | None = None
    stage: Annotated[Name | None, Meta(description="For stage.")] = None
    level: Annotated[str | None, Meta(description="For log; shortened if it is long.")] = None
    text: Annotated[str | None, Meta(description="For log; shortened if it is long.")] = None


class WriteNotes(OfLease):
    """What a worker says about a job, in order."""

    notes: Annotated[list[WorkerNote], Meta(min_length=1, max_length=NOTES_MAX)]


class Noted(Answer):
    """Whether the job must stop."""

    cancel_requested: bool


class MakeUpload(OfLease):
    """A file that a worker wants to save."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    content_type: Annotated[str, Meta(min_length=1, max_length=255)]
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class Upload(Answer):
    """Where a file goes."""

    artifact_id: str
    upload: Signed


class MakeDownload(OfLease):
    """A file that a worker wants to read."""

    artifact_id: str


class SavedFile(Request):
    """A file that was uploaded."""

    id: str
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class CompleteJob(OfLease):
    """A job that is done."""

    output: Any = None
    artifacts: Annotated[list[SavedFile], Meta(max_length=ARTIFACTS_MAX)] = []
    captured: Annotated[int, Meta(ge=0, description="What it costs, if less than its price.")] | None = None


class Completed(Answer):
    """Where the job stands."""

    job_id: str
    state: str


class FailJob(OfLease):
    """A job that did not succeed."""

    error: Annotated[dict[str, Any], Meta(description="A code and a message; what is long is shortened.")]
    outcome: Literal["failed", "blocked", "canceled"] = "failed"
    retry: Annotated[bool, Meta(description="Whether another attempt may help.")] = False
    retry_after: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None


class RequeueJob(OfLease):
    """A job that its worker cannot go on with."""

    reason: str = ""


class ParkJob(OfLease):
    """A job that waits for an answer."""

    memo: Any = None


class Fate(Answer):
    """What became of a job that did not succeed: requeued, or the way it ended."""

    job_id: str
    fate: str


# Access


class MakeTenant(Request):
    """A customer."""

    tenant: Name


class TenantInfo(Answer):
    """A customer."""

    tenant: str
    created_at: Time


class Tenants(Answer):
    """A page of tenants, by name."""

    data: list[TenantInfo]
    next_cursor: str | None


class MakeAccount(Request):
    """A wallet inside a tenant."""

    account: Name
    active_max: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class Wallets(Answer):
    """A page of a tenant's accounts, by name."""

    data: list[Wallet]
    next_cursor: str | None


class MakeKey(Request):
    """A key: for a client's account, for a worker, or for an operator. Tenant and account are made if missing."""

    scope: Scope
    tenant: Name | None = None
    account: Name | None = None
    name: Annotated[str, Meta(max_length=200)] | None = None
    expires_in: Duration | None = None
    rate_limit: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="Requests a second; null for the server's own limit.")]
        | None
    ) = None


class RotateKey(Request):
    """How long the old key stays good beside the new one."""

    overlap: Duration = "24h"


class KeyInfo(Answer):
    """A key without its secret."""

    id: str
    hint: Annotated[str, Meta(description="Its beginning and its end, to recognise it by.")]
    scope: Scope
    tenant: str | None
    account: str | None
    name: str | None
    rate_limit: int | None
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None


class NewKey(KeyInfo):
    """A key just made. Its secret is told this once and is not kept."""

    key: str


class Keys(Answer):
    """A page of keys, the newest first."""

    data: list[KeyInfo]
    next_cursor: str | None


class AuditEntry(Answer):
    """Something an operator did."""

    id: str
    at: Time
    actor: str
    action: str
    tenant: str | None
    subject: str | None
    data: Any


class Audit(Answer):
    """A page of what operators did, the newest first."""

    data: list[AuditEntry]
    next_cursor: str | None


class Violation(Answer):
    """A row that breaks an invariant."""

    invariant: str
    subject: str
    job_id: str | None
    detail: str


class Verification(Answer):
    """Whether every invariant holds."""

    ok: bool
    violations: list[Violation]


class Health(Answer):
    """Whether this process can serve."""

    status: Literal["ok", "unavailable"]
    version: str
    checks: dict[str, str]


# Errors


class Problem(Struct, kw_only=True, omit_defaults=True):
    """RFC 9457: what went wrong, where, and what to do about it. More members may stand beside these."""

    type: str
    title: str
    status: int
    code: Annotated[str, Meta(description="Stable; the same in Python, on the job and in the logs.")]
    detail: str
    instance: str | None = None
    field: str | None = None
    hint: str | None = None
    retryable: bool = False
    request_id: str | None = None


def schema_of(*types: type) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The JSON Schemas of these types and of all they are made of, for the OpenAPI document."""
    return msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
