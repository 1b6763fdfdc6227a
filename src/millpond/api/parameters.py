"""Query parameters of the routes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.wire import (
    BatchState,
    BulkOperationState,
    DeliveryState,
    FireOutcome,
    Instant,
    KindName,
    Name,
    Outcome,
    Phase,
    ScheduleSource,
    ScheduleState,
    TagFilter,
    Word,
)

WAIT_MAX: Final = 60

Limit = Annotated[int, Meta(ge=1, le=200, description="The limit of items per page.")]
_NEXT: Final = "The `next_cursor` of the previous page."
Cursor = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[!-~]+$", description=_NEXT)]
# The patterns below are for the OpenAPI document only; handlers check the values and raise plainer errors.
_ID: Final = "[0-7][0-9a-hjkmnp-tv-z]{25}$"
JobCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^job_{_ID}"})]
BatchCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^batch_{_ID}"})]
KeyCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^key_{_ID}"})]
AuditCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^audit_{_ID}"})]
DeliveryCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^msg_{_ID}"})]
EndpointCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^ep_{_ID}"})]
EntryCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": "^[0-9]{1,18}$"})]
EventNumber = Annotated[
    str,
    Meta(
        max_length=40,
        description="For streams: the value of Last-Event-ID, if the header cannot be set.",
        extra_json_schema={"pattern": "^[0-9]{0,9}$"},
    ),
]
StreamPosition = Annotated[
    str,
    Meta(
        max_length=40,
        description="For streams: the value of Last-Event-ID, if the header cannot be set.",
        extra_json_schema={"pattern": r"^([0-9]{1,9}(\.[0-9]{1,9})?)?$"},
    ),
]
Tenant = Annotated[Name, Meta(description="The tenant; required for admin keys that have none.")]
Account = Annotated[Name, Meta(description="The account; client keys have their own.")]
After = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Return only items after this number.")]


class Query(Struct, forbid_unknown_fields=True, kw_only=True):
    """Query parameters; an unknown one is an error."""


class OfTenant(Query):
    """The tenant of the request."""

    tenant: Tenant | None = None


class OfAccount(OfTenant):
    """The tenant and account of the request."""

    account: Account | None = None


class ReadJob(OfTenant):
    """How to read a job."""

    wait: Annotated[
        float,
        Meta(ge=0, le=WAIT_MAX, description="Seconds to wait for the end of the job before the response is sent."),
    ] = 0


class ReadEvents(OfTenant):
    """Which events."""

    after: After = 0
    last_event_id: StreamPosition | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="The limit of items; ignored for streams.")] = 100


class ReadLogs(OfTenant):
    """Which lines."""

    after: After = 0
    limit: Annotated[int, Meta(ge=1, le=1_000, description="The limit of items.")] = 100


class ListChildren(OfTenant):
    """Which children."""

    cursor: JobCursor | None = None
    limit: Limit = 50


class ListBatches(OfAccount):
    """Which batches."""

    state: BatchState | UnsetType = UNSET
    tag: (
        Annotated[TagFilter, Meta(description="Only batches with this tag: team:ads. A batch must have all of them.")]
        | None
    ) = None
    cursor: BatchCursor | None = None
    limit: Limit = 50


class ListBatchJobs(OfTenant):
    """Which jobs of a batch."""

    phase: Phase | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListEntries(OfAccount):
    """Which entries."""

    cursor: EntryCursor | None = None
    limit: Limit = 50


class Page(Query):
    """A part of a list."""

    cursor: Cursor | None = None
    limit: Limit = 50


class ListKeys(OfTenant):
    """Which keys."""

    cursor: KeyCursor | None = None
    limit: Limit = 50


class ListAudit(OfTenant):
    """Which entries of the audit."""

    actor: Annotated[str, Meta(max_length=200, description="The actor: the id of a key or worker.")] | None = None
    action: Annotated[str, Meta(max_length=100, description="The prefix of the action, e.g. `key.`.")] | None = None
    subject: Annotated[str, Meta(max_length=200, description="The subject of the action.")] | None = None
    since: Annotated[Instant, Meta(description="A time, or a duration before now.")] | None = None
    cursor: AuditCursor | None = None
    limit: Limit = 50


class ListEndpoints(OfTenant):
    """Which endpoints."""

    cursor: EndpointCursor | None = None
    limit: Limit = 100


class ListDeliveries(OfTenant):
    """Which deliveries."""

    endpoint: Annotated[str, Meta(extra_json_schema={"pattern": f"^ep_{_ID}"})] | None = None
    job: Annotated[str, Meta(extra_json_schema={"pattern": f"^job_{_ID}"})] | None = None
    state: DeliveryState | UnsetType = UNSET
    cursor: DeliveryCursor | None = None
    limit: Limit = 50


class EndpointSince(OfTenant):
    """The start of the counted period."""

    since: Annotated[
        str,
        Meta(
            description="A duration before now, e.g. 24h.",
            extra_json_schema={"pattern": "^[1-9][0-9]{0,3}(s|m|h)$|^[1-9][0-9]{0,2}d$"},
        ),
    ] = "24h"


class Scale(Query):
    """The scaling policy of a route."""

    min: Annotated[int, Meta(ge=0, le=100_000, description="The minimum number of workers.")] = 0
    max: Annotated[int, Meta(ge=0, le=100_000, description="The maximum number of workers, unless more are busy.")] = 50
    jobs_per_worker: Annotated[
        int, Meta(ge=1, le=1_000, description="The number of jobs that a worker runs at the same time.")
    ] = 1
    target_wait: Annotated[
        float, Meta(ge=0, le=86_400, description="The target for the wait time of the last ready job, in seconds.")
    ] = 60.0


class Verify(Query):
    """Which jobs to check."""

    newest: (
        Annotated[str, Meta(max_length=20, description="Only jobs submitted within this duration, e.g. 24h.")] | None
    ) = None


class Search(Query):
    """What to look for."""

    q: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="An id or its prefix, a prediction id, an idempotency key, or the prefix of a name.",
        ),
    ]


class ListWallets(OfTenant):
    """Which wallets."""

    prefix: (
        Annotated[Name, Meta(description="The prefix of the account, or of the tenant if none is given.")] | None
    ) = None
    cursor: Annotated[str, Meta(max_length=300, description=_NEXT)] | None = None
    limit: Limit = 50


class ListHolds(OfTenant):
    """Which holds."""

    cursor: JobCursor | None = None
    limit: Limit = 50


class ListJobs(OfAccount):
    """The filters of jobs, the same for every list of jobs."""

    kind: KindName | None = None
    state: Name | None = None
    phase: Phase | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    error: Annotated[Word, Meta(description="The error code of the failed job.")] | None = None
    fingerprint: Word | None = None
    stage: Word | None = None
    tag: TagFilter | None = None
    since: Annotated[Instant, Meta(description="Only jobs submitted since: 24h, or a time.")] | None = None
    until: Annotated[Instant, Meta(description="Only jobs submitted before: 1h, or a time.")] | None = None
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListBulkOperations(OfTenant):
    """Which bulk operations."""

    state: BulkOperationState | UnsetType = UNSET
    cursor: Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^bulk_{_ID}"})] | None = None
    limit: Limit = 50


class ListSchedules(OfAccount):
    """Which schedules."""

    kind: Name | None = None
    name: Name | None = None
    source: ScheduleSource | UnsetType = UNSET
    state: ScheduleState | UnsetType = UNSET
    cursor: Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^sched_{_ID}"})] | None = None
    limit: Limit = 50


class ListFires(OfTenant):
    """Which fires."""

    outcome: FireOutcome | UnsetType = UNSET
    cursor: Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^fire_{_ID}"})] | None = None
    limit: Limit = 50


class ListLimitKeys(Query):
    """Which keys of a limit."""

    cursor: Annotated[str, Meta(description=_NEXT)] | None = None
    limit: Limit = 50


class ListKinds(Query):
    """Which kinds."""

    closed: Annotated[
        bool, Meta(description="Include kinds that can be submitted only through the routes of their product.")
    ] = False


class ReadSeries(OfTenant):
    """The period, and the kind of the jobs."""

    span: Literal["1h", "6h", "24h", "7d", "30d"] = "1h"
    kind: Name | None = None


class ReadFailures(OfTenant):
    """The start of the period, and the kind of the jobs."""

    since: Literal["1h", "24h", "7d", "30d"] = "24h"
    kind: Name | None = None
