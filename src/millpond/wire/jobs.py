"""Jobs, their events and logs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from millpond.wire.limits import LimitWait
from millpond.wire.problems import Problem
from millpond.wire.shapes import (
    BULK_MAX,
    Answer,
    Credits,
    Duration,
    JobEventName,
    Key,
    Name,
    Outcome,
    Phase,
    Priority,
    Request,
    Tags,
    Time,
    TokenDuration,
    TokenScope,
    WebhookSecret,
    WebhookUrl,
)


class JobWebhook(Request):
    """A webhook for one job, in addition to the endpoints of its tenant."""

    url: WebhookUrl
    secret: WebhookSecret | None = None
    events: (
        Annotated[
            list[JobEventName], Meta(min_length=1, max_length=50, description="If omitted, the events of its kind.")
        ]
        | None
    ) = None


class Submit(Request):
    """A job to submit."""

    kind: Name
    input: dict[str, Any] = {}
    account: Annotated[Name | None, Meta(description="The account that pays; client keys have their own.")] = None
    idempotency_key: Annotated[Key | None, Meta(description="Alternative to the Idempotency-Key header.")] = None
    priority: Priority | None = None
    run_at: Annotated[Time, Meta(description="The earliest start time.")] | None = None
    expires_in: Duration | None = None
    webhook: JobWebhook | None = None
    tags: Tags | None = None


class SubmitMany(Request):
    """Up to a thousand jobs, each of which is accepted or rejected separately."""

    jobs: Annotated[list[Submit], Meta(min_length=1, max_length=BULK_MAX)]


class Links(Answer):
    """The URLs for reading, watching and canceling a job."""

    self: str
    events: str
    stream: str
    cancel: str


class Accepted(Answer):
    """The response to a submit: the job at the time of its creation. A replay is identical byte for byte."""

    id: str
    kind: str
    state: str
    price: Credits
    available: Annotated[int | None, Meta(description="The available credits of the account; omitted for free jobs.")]
    created_at: Time
    expires_at: Time | None
    links: Links
    webhook_secret: Annotated[
        str | UnsetType, Meta(description="The secret that signs the job's webhook, if it was generated.")
    ] = UNSET


class Result(Answer):
    """The result of one job of a bulk submit: accepted, or a problem."""

    status: int
    job: Accepted | None = None
    problem: Problem | None = None


class Results(Answer):
    """The results of a bulk submit, in the order of its jobs."""

    accepted: int
    refused: int
    results: list[Result]


class Eta(Answer):
    """The estimated end of a job: median (p50) and 90th percentile (p90)."""

    p50: Time
    p90: Time


class JobError(Answer):
    """The error of a job."""

    code: str
    message: str
    field: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class Job(Answer):
    """The current state of a job."""

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
        int | None,
        Meta(
            description="The position in the queue, starting at 1; 1000 means a thousand or "
            "more. Set only while the job is ready."
        ),
    ]
    eta: Annotated[Eta | None, Meta(description="Set only until the job has ended, if enough data is available.")]
    priority: int
    run: int
    attempts: int
    events: Annotated[int, Meta(description="The number of the last event.")]
    price: Credits
    captured: Annotated[int | None, Meta(description="The captured credits.")]
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
    tags: dict[str, str] = {}
    parent_id: Annotated[str | None, Meta(description="The job that submitted it as a child.")] = None
    batch_id: str | None = None
    waits_for: Annotated[
        Literal["children", "time", "question"] | None,
        Meta(description="What a parked job waits for; null if it waits for an answer to itself."),
    ] = None
    limit_wait: Annotated[
        LimitWait | None, Meta(description="The limit that does not let a ready job start; it has no position then.")
    ] = None
    omitted: Annotated[
        list[Literal["input", "output"]],
        Meta(
            description="The parts that a list leaves out, as null, because each is larger than 64 KiB. They are at "
            "`links.self`. Always empty for a single job."
        ),
    ] = []


class Jobs(Answer):
    """A page of jobs, newest first. A page of 4 MiB ends before its limit; its cursor continues it."""

    data: list[Job]
    next_cursor: str | None


class ChildCounts(Answer):
    """How many children a job has, how many of them have ended, and how."""

    submitted: int
    ended: int
    succeeded: int
    failed: int
    canceled: int


class Budget(Answer):
    """What the descendants of a job may cost, have cost, and may still cost if they have not ended."""

    amount: Credits
    spent: Credits
    reserved: Credits


class Children(Answer):
    """A page of the children of a job, oldest first."""

    data: list[Job]
    parents: Annotated[list[str], Meta(description="The jobs of this page that have children themselves.")]
    counts: ChildCounts
    budget: Budget | None
    next_cursor: str | None


class Question(Answer):
    """A question that a job asks."""

    name: str
    question: str
    schema: Annotated[dict[str, Any] | None, Meta(description="The JSON Schema of the answer.")]
    who: Annotated[str, Meta(description="Who may answer: client, operator, or the id of a key.")]
    asked_at: Time
    due_at: Time | None
    answered_at: Time | None
    answered_by: str | None
    answer: Any


class Questions(Answer):
    """The questions of the current run of a job, oldest first."""

    data: list[Question]


class Canceled(Answer):
    """Whether the cancellation was accepted, and the state of the job."""

    id: str
    is_accepted: Annotated[bool, Meta(description="False if the job had already ended.")]
    state: str
    stage: str | None


EvenIfSucceeded = Annotated[bool, Meta(description="Retry the job even if it succeeded; otherwise that is an error.")]


class RetryJob(Request):
    """How to retry a job."""

    even_if_succeeded: EvenIfSucceeded = False


class GiveAnswer(Request):
    """The answer for a parked job, or to one of its questions."""

    answer: Any
    question: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=220,
                description="The name of the question; may be omitted if only one is open.",
            ),
        ]
        | None
    ) = None


class MakeTransition(Request):
    """A transition requested by an operator."""

    state: Name


class CallbackResult(Answer):
    """The result of a provider callback."""

    verdict: str
    """accepted, repeated, late, superseded or unknown. A callback only causes the server to read the state from the
    provider sooner.
    """


class State(Answer):
    """The state of a job after a transition or an answer."""

    id: str
    state: str


class Event(Answer):
    """An event of a job; ``seq`` counts from 1 without gaps."""

    seq: int
    at: Time
    type: str
    state: str
    data: Any


class Events(Answer):
    """A page of events, oldest first. ``next`` is the ``after`` of the next page, or null on the last one."""

    data: list[Event]
    next: int | None


class Chunk(Answer):
    """A piece of the text that a running job emits. The chunk with number 1 restarts the text."""

    seq: Annotated[int, Meta(description="The number of the last event before it.")]
    number: Annotated[int, Meta(description="Counts the chunks of an attempt from 1 without gaps.")]
    at: Time
    text: str


class JobText(Answer):
    """The text that a running job has emitted so far."""

    text: str
    number: Annotated[int, Meta(description="The number of its last chunk; 0 if there is none.")]
    at: Annotated[Time | None, Meta(description="When its last chunk was written.")]
    epoch: Annotated[
        int | None, Meta(description="Identifies the attempt that emitted it: with another epoch, it was restarted.")
    ]
    last_event_id: Annotated[str, Meta(description="Where the stream of the job continues it: the Last-Event-ID.")]


class LogLine(Answer):
    """A line of a job's log."""

    seq: int
    at: Time
    text: str
    level: str | None


class Logs(Answer):
    """A page of log lines, oldest first."""

    data: list[LogLine]
    next: int | None


class MakeToken(Request):
    """The permissions and lifetime of a browser token."""

    scopes: Annotated[list[TokenScope], Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["read"]
    )
    expires_in: TokenDuration = "15m"


class Token(Answer):
    """A browser token, valid for one job."""

    token: str
    job_id: str
    scopes: list[TokenScope]
    expires_at: Time
