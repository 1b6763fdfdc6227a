"""The native API's shapes: what the server takes and gives, what its OpenAPI document says, what the SDK reads.

One type per shape, for all three. Field names are the engine's words; times are RFC 3339 in UTC; ids are TypeIDs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]
Scope = Literal["client", "worker", "admin"]
TokenScope = Literal["read", "cancel"]
Verdict = Literal["ok", "busy", "stuck", "paused", "unserved"]

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
Priority = Annotated[int, Meta(ge=-100, le=100, description="The highest goes first.")]
Credits = Annotated[int, Meta(ge=0, description="A whole number of credits.")]

BULK_MAX: Final = 1_000


class Request(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What comes in: a field we do not know is an error, not something to be ignored."""


class Answer(Struct, kw_only=True):
    """What goes out; a client ignores the fields it does not know."""


# Jobs


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
    """A worker that holds leases now."""

    worker: str
    leases: int
    jobs: int
    granted_at: Time
    expires_at: Time


class Workers(Answer):
    """The workers that hold leases now."""

    data: list[WorkerInfo]


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
