"""Job filters and bulk operations."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from millpond.wire.access import Violation
from millpond.wire.shapes import Answer, Credits, Name, Outcome, Phase, Priority, Request, TagFilter, Time

JOBS_MAX: Final = 1_000
JobId = Annotated[str, Meta(extra_json_schema={"pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"})]
KindName = Annotated[
    str,
    Meta(
        max_length=129,
        pattern=r"^([A-Za-z0-9_.:@+/-]+[*]?|[*])$",
        description="A kind, or a prefix of kinds followed by a star.",
    ),
]
_DAY: Final = "2[0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_HOUR: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|\+00:00)"
Instant = Annotated[
    str,
    Meta(
        max_length=40,
        description="A duration before now, such as 24h, or a time with its zone.",
        extra_json_schema={"pattern": rf"^[1-9][0-9]{{0,3}}(s|m|h)$|^[1-9][0-9]{{0,2}}d$|^{_DAY}T{_HOUR}$"},
    ),
]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Reason = Annotated[
    str,
    Meta(min_length=1, max_length=255, description="The reason, which is recorded in the ledger and the audit log."),
]
BulkOperationAction = Literal["retry", "cancel", "refund", "priority", "export", "verify"]
BulkOperationState = Literal["waiting", "running", "done", "aborted", "failed"]
ExportFormat = Literal["ndjson", "csv"]


class JobFilter(Request):
    """A job filter: jobs match if they meet all given conditions."""

    tenant: Name | None = None
    account: Annotated[Name, Meta(description="An account of the tenant.")] | None = None
    kind: KindName | None = None
    state: Name | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    error: Annotated[Word, Meta(description="The error code of the failed job.")] | None = None
    fingerprint: Annotated[Word, Meta(description="The fingerprint of a failure: see /v1/failures.")] | None = None
    stage: Word | None = None
    tag: TagFilter | None = None
    since: Annotated[Instant, Meta(description="Only jobs submitted since: 24h, or a time.")] | None = None
    until: Annotated[Instant, Meta(description="Only jobs submitted before: 1h, or a time.")] | None = None
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=JOBS_MAX, description="Only these jobs.")] | None = None


class JobSummary(Answer):
    """A job in a list, without input and output."""

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
    fingerprint: Annotated[str | None, Meta(description="The fingerprint of the failure.")]
    error_code: str | None
    error_message: Annotated[str | None, Meta(description="The first 200 characters.")]
    worker: Annotated[str | None, Meta(description="The worker that holds the job.")]
    is_canceling: bool
    tags: dict[str, str] = {}


class JobSummaries(Answer):
    """A page of jobs, newest first. A page can be short or empty and still have a next page."""

    data: list[JobSummary]
    next_cursor: str | None
    searched_to: Annotated[
        Time | None,
        Meta(description="Set if the page ended because the search limit was reached, not because it was full."),
    ]


class MakeBulkOperation(Request):
    """A bulk operation to create."""

    action: BulkOperationAction
    filter: JobFilter = msgspec.field(default_factory=JobFilter)
    all: Annotated[bool, Meta(description="Confirms that an empty filter, which matches every job, is intended.")] = (
        False
    )
    priority: Priority | None = None
    even_if_succeeded: Annotated[bool, Meta(description="Retry jobs even if they succeeded.")] | None = None
    format: ExportFormat | None = None
    reason: Reason | None = None


class PreviewBulkOperation(Request):
    """The jobs that a bulk operation would change."""

    filter: JobFilter = msgspec.field(default_factory=JobFilter)


class BulkOperationPreview(Answer):
    """The number of jobs that match a filter, and some of them."""

    matched: Annotated[int, Meta(description="Counted up to 10,000.")]
    is_capped: Annotated[bool, Meta(description="Whether more jobs match.")]
    searched_to: Annotated[
        Time | None, Meta(description="How far back the jobs were searched; null if all were searched.")
    ]
    sample: list[JobSummary]


class Refusal(Answer):
    """Refused jobs by reason, with an example."""

    code: str
    message: str
    count: int
    sample: Annotated[str, Meta(description="The id of one of the jobs.")]


class BulkOperationResult(Answer):
    """The result of a bulk operation: a file or a verification result."""

    name: str | None = None
    size: int | None = None
    rows: int | None = None
    url: Annotated[
        str | None, Meta(description="The URL of the file, valid for one hour. Read the operation again for a new URL.")
    ] = None
    expires_at: Annotated[Time | None, Meta(description="The time at which the file is deleted.")] = None
    ok: bool | None = None
    violations: list[Violation] | None = None


class BulkOperation(Answer):
    """A bulk operation and its progress."""

    id: str
    action: BulkOperationAction
    filter: JobFilter
    arguments: dict[str, Any]
    state: BulkOperationState
    is_aborting: Annotated[bool, Meta(description="Whether an abort was requested.")]
    examined: int
    matched: int
    done: int
    refused: int
    refusals: list[Refusal]
    estimate: Annotated[int | None, Meta(description="The estimated number of matching jobs, if known.")]
    result: BulkOperationResult | None
    error: Annotated[dict[str, Any] | None, Meta(description="The reason of the failure.")]
    actor: str
    tenant: str | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class BulkOperations(Answer):
    """A page of bulk operations, newest first."""

    data: list[BulkOperation]
    next_cursor: str | None


class MakeRefund(Request):
    """A refund of the charge of a job."""

    reason: Reason
    amount: (
        Annotated[int, Meta(ge=1, le=10**12, description="The amount; if omitted, the remaining charge.")] | None
    ) = None


class Refund(Answer):
    """The refunded amount."""

    job_id: str
    amount: Credits
    available: Annotated[int, Meta(description="The available credits of the account after the refund.")]


class SetPriority(Request):
    """A new priority."""

    priority: Priority
