"""The native API's shapes: what the server takes and gives, what its OpenAPI document says, what the SDK reads.

One type per shape, for all three. Field names are the engine's words; times are RFC 3339 in UTC; ids are TypeIDs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.webhooks import MOMENTS

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]
Scope = Literal["client", "worker", "viewer", "operator", "admin"]
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
    ends: Annotated[dict[str, Outcome], Meta(description="The ended states, each with its outcome.")]
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
    is_open: Annotated[bool, Meta(description="Whether it is submitted here; else only at its product's own routes.")]
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
    body: Annotated[
        str | None,
        Meta(description="What every request for it says; null where this server does not know the words of its kind."),
    ]
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
    """A page of what operators did, the newest first. It may be short, or empty, and have a next one."""

    data: list[AuditEntry]
    next_cursor: str | None
    searched_to: Annotated[
        Time | None, Meta(description="Set where the page ended because it had looked at enough.")
    ] = None


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


# The board

AlarmSubject = Literal["queue", "worker", "endpoint", "failure", "hold"]
Fingerprint = Annotated[
    str,
    Meta(
        description="The same for failures that differ only in numbers, names and the like. Where too many were new in"
        " a day it begins with `others`: the rest of a kind and a code, whose jobs are found by these."
    ),
]


class Subject(Answer):
    """What an alarm is about."""

    type: AlarmSubject
    id: str
    tenant: Annotated[str | None, Meta(description="Whose it is, where it is one tenant's.")]


class Alarm(Answer):
    """Something that somebody should look at, in words."""

    level: Literal["bad", "warn"]
    text: str
    subject: Subject


class Failure(Answer):
    """Failures of one fingerprint since a time."""

    fingerprint: Fingerprint
    kind: str
    code: str
    message: Annotated[str, Meta(description="Of one of the last; at most 500 characters.")]
    count: int
    first_at: Annotated[Time, Meta(description="When it was first seen, to the minute, at whatever time.")]
    last_at: Time
    tenants: Annotated[int, Meta(description="How many tenants it happened to.")]
    released: Annotated[int, Meta(description="The credits that were given back for it.")]
    sample: Annotated[str, Meta(description="The id of one of the jobs.")]
    counts: Annotated[list[int], Meta(description="How often it happened in each step, the oldest first.")]


class Failures(Answer):
    """The most frequent failures since a time, at most 100."""

    step_seconds: int
    since: Time
    data: list[Failure]


class BoardWorkers(Answer):
    """The fleet, by how it is; a deaf worker is heard from and leaves jobs waiting."""

    ok: int
    draining: int
    deaf: int
    unapproved: int


class Spender(Answer):
    """A tenant, what was captured of it in the last hour, and for how many jobs."""

    tenant: str
    captured: int
    jobs: int


class Board(Answer):
    """Where everything stands. For one tenant: its own numbers, without queues and workers, which are everybody's."""

    at: Time
    refresh: Annotated[float, Meta(description="Seconds between two looks; 0: by hand.")]
    ready: int
    waiting: int
    leased: int
    parked: int
    delivering: int
    slots: Annotated[int | None, Meta(description="How many jobs the workers of the fleet can do at once.")]
    oldest_wait_seconds: float | None
    succeeded_1h: int
    failed_1h: Annotated[int, Meta(description="Failed, blocked or expired.")]
    ended_1h: int
    captured_1h: int
    held: Annotated[int, Meta(description="Credits.")]
    webhooks_pending: int
    webhooks_failing: int
    queues: list[QueueInfo]
    workers: BoardWorkers
    failures: Annotated[list[Failure], Meta(description="The most frequent of the last hour.")]
    tenants: Annotated[list[Spender], Meta(description="Those of which most was captured in the last hour.")]
    alarms: list[Alarm]


class Series(Answer):
    """What went through, point by point; the last is not over yet."""

    span: Literal["1h", "6h", "24h", "7d", "30d"]
    step_seconds: int
    at: Annotated[list[int], Meta(description="Where each point begins, in seconds since 1970.")]
    submitted: list[int]
    succeeded: list[int]
    failed: Annotated[list[int], Meta(description="Those that were blocked as well.")]
    canceled: list[int]
    expired: list[int]
    retried: Annotated[list[int], Meta(description="How often a job went back to be run once more.")]
    captured: list[int]
    wait_p50: Annotated[list[float | None], Meta(description="Seconds from when it might start until it did.")]
    wait_p90: list[float | None]
    run_p50: Annotated[list[float | None], Meta(description="Seconds from the first start until the end.")]
    run_p90: list[float | None]


class KindCount(Answer):
    """How many jobs of a kind are in each state; of ended ones, how many have come there since this is counted."""

    kind: str
    states: Annotated[dict[str, int], Meta(examples=[{"queued": 128, "running": 31, "succeeded": 5_120}])]
    held: Annotated[int, Meta(description="The credits held for them.")]


class KindCounts(Answer):
    """All kinds of which there are jobs."""

    data: list[KindCount]


# Errands

JOBS_MAX: Final = 1_000
JobId = Annotated[str, Meta(extra_json_schema={"pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"})]
KindName = Annotated[
    str,
    Meta(
        max_length=129,
        pattern=r"^([A-Za-z0-9_.:@+/-]+[*]?|[*])$",
        description="A kind; with a star at its end, all that begin so.",
    ),
]
_DAY: Final = "2[0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_HOUR: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|\+00:00)"
Moment = Annotated[
    str,
    Meta(
        max_length=40,
        description="A length of time back from now, like 24h, or a time with its zone.",
        extra_json_schema={"pattern": rf"^[1-9][0-9]{{0,3}}(s|m|h)$|^[1-9][0-9]{{0,2}}d$|^{_DAY}T{_HOUR}$"},
    ),
]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Reason = Annotated[str, Meta(min_length=1, max_length=255, description="Why; it stands in the ledger and the audit.")]
ErrandAction = Literal["retry", "cancel", "refund", "priority", "export", "verify"]
ErrandState = Literal["waiting", "running", "done", "aborted", "failed"]
ExportFormat = Literal["ndjson", "csv"]


class JobFilter(Request):
    """Which jobs are meant: those that fit all that is given."""

    tenant: Name | None = None
    account: Annotated[Name, Meta(description="One of the tenant's accounts.")] | None = None
    kind: KindName | None = None
    state: Name | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    error: Annotated[Word, Meta(description="The code of the error with which it failed.")] | None = None
    fingerprint: Annotated[Word, Meta(description="What failures have in common: see /v1/failures.")] | None = None
    stage: Word | None = None
    since: Annotated[Moment, Meta(description="Only jobs born since: 24h, or a time.")] | None = None
    until: Annotated[Moment, Meta(description="Only jobs born before: 1h, or a time.")] | None = None
    ids: (
        Annotated[list[JobId], Meta(min_length=1, max_length=JOBS_MAX, description="These jobs, and no others.")] | None
    ) = None


class JobLine(Answer):
    """A job as a list shows it, without what it was given and what it made."""

    id: str
    tenant: str
    account: str
    kind: str
    state: str
    phase: Phase
    outcome: Outcome | None
    stage: str | None
    progress: Annotated[float, Meta(ge=0, le=1)]
    attempts: int
    priority: int
    price: Credits
    captured: int | None
    created_at: Time
    run_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    fingerprint: Annotated[str | None, Meta(description="What it has in common with other failures.")]
    error_code: str | None
    error_message: Annotated[str | None, Meta(description="Its first 200 characters.")]
    worker: Annotated[str | None, Meta(description="Who holds it.")]
    is_canceling: bool


class JobLines(Answer):
    """A page of jobs, the newest first. It may be short, or empty, and still have a next one."""

    data: list[JobLine]
    next_cursor: str | None
    searched_to: Annotated[
        Time | None,
        Meta(description="Set where the page ended because it had looked at enough jobs, not because it was full."),
    ]


class MakeErrand(Request):
    """Something to be done to many jobs, in the background."""

    action: ErrandAction
    filter: JobFilter = msgspec.field(default_factory=JobFilter)
    all: Annotated[bool, Meta(description="That an empty filter, which means every job, is meant.")] = False
    priority: Priority | None = None
    format: ExportFormat | None = None
    reason: Reason | None = None


class PreviewErrand(Request):
    """Which jobs an errand would be about."""

    filter: JobFilter = msgspec.field(default_factory=JobFilter)


class ErrandPreview(Answer):
    """How many jobs fit a filter, and some of them."""

    matched: Annotated[int, Meta(description="Counted no further than 10,000.")]
    is_capped: Annotated[bool, Meta(description="Whether there are more.")]
    searched_to: Annotated[Time | None, Meta(description="How far back was looked; none: at everything.")]
    sample: list[JobLine]


class Refusal(Answer):
    """Why jobs were refused, how many, and one of them."""

    code: str
    message: str
    count: int
    sample: Annotated[str, Meta(description="The id of one of them.")]


class ErrandResult(Answer):
    """What an errand has made: a file, or a verdict."""

    name: str | None = None
    size: int | None = None
    rows: int | None = None
    url: Annotated[str | None, Meta(description="Where the file is, for an hour; ask again for another.")] = None
    expires_at: Annotated[Time | None, Meta(description="When the file is removed.")] = None
    ok: bool | None = None
    violations: list[Violation] | None = None


class Errand(Answer):
    """Something that is done to many jobs, and how far it has come."""

    id: str
    action: ErrandAction
    filter: JobFilter
    arguments: dict[str, Any]
    state: ErrandState
    is_aborting: Annotated[bool, Meta(description="Whether it was told to stop.")]
    looked: int
    matched: int
    done: int
    refused: int
    refusals: list[Refusal]
    estimate: Annotated[int | None, Meta(description="About how many jobs fit, where that is known.")]
    result: ErrandResult | None
    error: Annotated[dict[str, Any] | None, Meta(description="Why it failed.")]
    actor: str
    tenant: str | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class Errands(Answer):
    """A page of errands, the newest first."""

    data: list[Errand]
    next_cursor: str | None


class MakeRefund(Request):
    """Credits that a job has cost, to be given back."""

    reason: Reason
    amount: Annotated[int, Meta(ge=1, le=10**12, description="So many; without it, all that are left.")] | None = None


class Refund(Answer):
    """What was given back."""

    job_id: str
    amount: Credits
    available: Annotated[int, Meta(description="What the account has now.")]


class SetPriority(Request):
    """Another place in the line."""

    priority: Priority


# Sights


class Attempt(Answer, rename={"start": "from", "end": "to"}):
    """A worker's go at a job, and what ended it."""

    number: Annotated[int, Meta(description="The how manieth it is, over all runs.")]
    run: int
    start: Time
    end: Time | None
    worker: Annotated[str | None, Meta(description="Who made it, as far as anybody knows.")]
    worker_id: Annotated[str | None, Meta(description="worker_…, for one of the fleet.")]
    outcome: Annotated[
        str | None,
        Meta(description="How the job ended, or requeued, parked, delivering; null while it lasts."),
    ]
    cause: Annotated[str | None, Meta(description="Why it was requeued: attempt, interruption or lapse.")]
    error_code: str | None


class Span(Answer, rename={"start": "from", "end": "to"}):
    """A stretch of a job's life; `to` is null for the one that lasts."""

    phase: Phase
    stage: str | None
    attempt: Annotated[int, Meta(description="The attempt that it belongs to, or comes after; 0 before the first.")]
    start: Time
    end: Time | None


class SubmissionInfo(Answer):
    """What a provider was asked to do for a job."""

    id: str
    provider: str
    prediction_id: Annotated[str | None, Meta(description="What the provider calls it.")]
    status: str
    part: Annotated[str, Meta(description="Which part of the job it is for; empty where it is all of it.")]
    run: int
    created_at: Time
    over_at: Time | None


class Dossier(Answer):
    """A job with all that belongs to it."""

    job: Job
    worker: Annotated[str | None, Meta(description="Who holds it now.")]
    worker_id: Annotated[str | None, Meta(description="worker_…, for one of the fleet.")]
    attempts: list[Attempt]
    spans: list[Span]
    events_left_out: Annotated[
        int, Meta(description="How many events in the middle of a very long life the timeline was made without.")
    ]
    entries: Annotated[list[Entry], Meta(description="Its money: holds, what became of them, refunds.")]
    deliveries: Annotated[list[Delivery], Meta(description="The newest 100.")]
    files: list[Artifact]
    submissions: list[SubmissionInfo]
    key: Annotated[str | None, Meta(description="Its idempotency key; null where no index leads to it.")]
    retries: Annotated[list[str], Meta(description="Jobs that were made from it, among the next 2,000 of its account.")]
    lifecycle: Annotated[LifecycleInfo | None, Meta(description="Null for a kind that this server does not know.")]


FoundType = Literal[
    "job",
    "worker",
    "endpoint",
    "delivery",
    "key",
    "artifact",
    "errand",
    "audit",
    "tenant",
    "account",
    "kind",
    "queue",
]


class FoundItem(Answer):
    """Something that was found."""

    type: FoundType
    id: str
    tenant: str | None
    title: str
    by: Annotated[
        Literal["id", "name", "prediction_id", "idempotency_key"], Meta(description="By what of it it was found.")
    ]


class Found(Answer):
    """What was found, the nearest first; at most 20."""

    data: list[FoundItem]


class Hold(Answer):
    """Credits that are held for a job."""

    job_id: str
    tenant: str
    account: str
    kind: str
    state: str
    phase: Phase
    price: Credits
    held_at: Time


class HoldAge(Answer):
    """How many holds are so old, and older than the age before."""

    seconds: Annotated[int | None, Meta(description="Up to so many seconds; null: more than all others.")]
    jobs: int
    credits: int


class Holds(Answer):
    """Holds, the oldest first. A page may be short, or empty, and have a next one."""

    data: list[Hold]
    next_cursor: str | None
    ages: Annotated[
        list[HoldAge],
        Meta(description="By age, of the oldest 10,000 jobs that have not ended. On the first page; empty after it."),
    ]
    is_capped: Annotated[bool, Meta(description="Whether there are more of them than that.")]


class FleetJob(Answer):
    """A job in a worker's hands."""

    id: str
    tenant: str
    kind: str
    stage: str | None
    progress: float
    since: Time


class FleetWorker(Answer):
    """A worker with what it is at."""

    id: Annotated[str | None, Meta(description="worker_…; null for a worker that works on the database itself.")]
    worker: str
    is_fleet: bool
    routes: list[str]
    slots: Annotated[int | None, Meta(description="How many jobs it may hold at once.")]
    status: WorkerStatus
    leases: int
    held: Annotated[int, Meta(description="How many jobs it holds.")]
    jobs: Annotated[list[FleetJob], Meta(description="The first 50; for a key of one tenant, that one's alone.")]
    capabilities: Annotated[Any, Meta(description="What it said of itself.")]
    hint: Annotated[str | None, Meta(description="The beginning and the end of its token.")]
    fleet: Annotated[str | None, Meta(description="The key it registered with.")]
    address: Annotated[str | None, Meta(description="From where it was last heard.")]
    registered_at: Time | None
    heard_at: Time | None
    polled_at: Annotated[Time | None, Meta(description="When it last asked for jobs.")]
    granted_at: Annotated[Time | None, Meta(description="When it was last given a job that it still has.")]
    expires_at: Annotated[Time | None, Meta(description="When the first of its leases runs out.")]
    heartbeat_age_seconds: Annotated[float | None, Meta(description="Since it was last heard from.")]
    claim_age_seconds: Annotated[float | None, Meta(description="Since it last asked for jobs, or was given one.")]
    is_deaf: Annotated[
        bool,
        Meta(description="It is heard from and has room, jobs of its routes wait, and it does not ask for them."),
    ]


class FleetRoute(Answer):
    """A route, and how many workers it should have."""

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
    """Who works, at what, and whether that is enough."""

    at: Time
    desired: Annotated[int, Meta(description="How many workers all routes together should have.")]
    ready: Annotated[int, Meta(description="How many take jobs, idle or busy.")]
    starting: Annotated[int, Meta(description="How many of the desired ones are not there yet.")]
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
    cache_hit: Annotated[float | None, Meta(description="The share of blocks that were in memory when asked for.")]
    commits: int
    rollbacks: int
    deadlocks: int
    temporary_bytes: int


class HomeInfo(Answer):
    """Another database, in which tenants live."""

    tenants: list[str]
    is_up: bool


class PoolInfo(Answer):
    """Connections of this process."""

    name: str
    size: int
    idle: int
    most: int


class TableInfo(Answer):
    """A table with its indexes; one in parts as a whole."""

    table: str
    bytes: int
    rows: Annotated[int, Meta(description="As the planner estimates.")]
    dead: int
    vacuumed_at: Time | None


class MigrationInfo(Answer):
    """A change of the schema that was made."""

    number: int
    name: str
    applied_at: Time


class SlowQuery(Answer):
    """A statement that took much time, all its runs together."""

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
    """A setting; of a secret one only whether it is set."""

    name: str
    value: str | int | bool | None
    source: Annotated[
        Literal["environment", "default", "given"], Meta(description="given: by whoever started the process.")
    ]
    is_secret: bool


class CheckInfo(Answer):
    """One thing that the doctor looks at."""

    check: str
    verdict: Literal["ok", "ill"]
    detail: str


class System(Answer):
    """A process, its database, and how both are."""

    version: str
    python: str
    started_at: Time
    now: Time
    host: str
    pid: int
    is_development: bool
    database: DatabaseInfo
    homes: list[HomeInfo]
    pools: list[PoolInfo]
    tables: Annotated[list[TableInfo], Meta(description="The largest 20.")]
    migrations: list[MigrationInfo]
    slow: list[SlowQuery]
    slow_reason: Annotated[str | None, Meta(description="Why no slow statements are known, and what to do.")]
    running: list[RunningQuery]
    configuration: list[SettingInfo]
    checks: list[CheckInfo]


# Sessions


class SignIn(Request):
    """A key of scope viewer, operator or admin, for which the dashboard opens."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]


class BlueprintPage(Answer):
    """A product with a page to try it on."""

    name: str
    title: str
    path: str


class Session(Answer):
    """Who has signed in to the dashboard, and what its page needs to know."""

    scope: Scope
    tenant: Annotated[str | None, Meta(description="Null: every tenant.")]
    actor: Annotated[str, Meta(description="As which they stand in the audit.")]
    name: Annotated[str | None, Meta(description="What the key is called.")]
    expires_at: Time
    csrf: Annotated[str, Meta(description="To be sent as Millpond-Csrf with whatever acts.")]
    is_development: bool
    version: str
    refresh: Annotated[float, Meta(description="Seconds between two looks; 0: by hand.")]
    blueprints: list[BlueprintPage]


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
