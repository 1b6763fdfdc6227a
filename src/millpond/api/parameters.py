"""Query parameters: what may stand behind the question mark, by route."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.wire import DeliveryState, KindName, Moment, Name, Outcome, Phase, Word

WAIT_MAX: Final = 60

Limit = Annotated[int, Meta(ge=1, le=200, description="How many at most.")]
_NEXT: Final = "The `next_cursor` of the page before."
Cursor = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[!-~]+$", description=_NEXT)]
# The patterns below are for readers; who strays from them is told so in plain words.
_ID: Final = "[0-7][0-9a-hjkmnp-tv-z]{25}$"
JobCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^job_{_ID}"})]
KeyCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^key_{_ID}"})]
AuditCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^audit_{_ID}"})]
DeliveryCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^msg_{_ID}"})]
EndpointCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^ep_{_ID}"})]
EntryCursor = Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": "^[0-9]{1,18}$"})]
EventNumber = Annotated[
    str,
    Meta(
        max_length=40,
        description="For a stream: as the Last-Event-ID header, if none can be set.",
        extra_json_schema={"pattern": "^[0-9]{0,9}$"},
    ),
]
Tenant = Annotated[Name, Meta(description="Whose; an admin key without a tenant of its own names one.")]
Account = Annotated[Name, Meta(description="Which account; a client key has its own.")]
After = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Only what comes after this number.")]


class Query(Struct, forbid_unknown_fields=True, kw_only=True):
    """Query parameters: one that we do not know is an error."""


class OfTenant(Query):
    """Whose things are meant."""

    tenant: Tenant | None = None


class OfAccount(OfTenant):
    """Whose wallet is meant."""

    account: Account | None = None


class ReadJob(OfTenant):
    """How to read a job."""

    wait: Annotated[
        float, Meta(ge=0, le=WAIT_MAX, description="Seconds to wait for its end before answering anyway.")
    ] = 0


class ListJobs(OfAccount):
    """Which jobs."""

    kind: Name | None = None
    state: Name | None = None
    phase: Phase | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ReadEvents(OfTenant):
    """Which events."""

    after: After = 0
    last_event_id: EventNumber | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many at most; a stream has no end of its own.")] = 100


class ReadLogs(OfTenant):
    """Which lines."""

    after: After = 0
    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many at most.")] = 100


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

    actor: Annotated[str, Meta(max_length=200, description="Who did it: a key's id, a worker's.")] | None = None
    action: Annotated[str, Meta(max_length=100, description="What the action begins with: key.")] | None = None
    subject: Annotated[str, Meta(max_length=200, description="What it was done to.")] | None = None
    since: Annotated[Moment, Meta(description="A time, or a length of time back from now.")] | None = None
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
    """Since when to count."""

    since: Annotated[
        str,
        Meta(
            description="A length of time back from now, e.g. 24h.",
            extra_json_schema={"pattern": "^[1-9][0-9]{0,3}(s|m|h)$|^[1-9][0-9]{0,2}d$"},
        ),
    ] = "24h"


class Scale(Query):
    """What is wanted of a route."""

    min: Annotated[int, Meta(ge=0, le=100_000, description="Never fewer workers.")] = 0
    max: Annotated[int, Meta(ge=0, le=100_000, description="No more, unless more are busy.")] = 50
    jobs_per_worker: Annotated[int, Meta(ge=1, le=1_000, description="How many jobs a worker runs at once.")] = 1
    target_wait: Annotated[
        float, Meta(ge=0, le=86_400, description="Seconds that the last in line may wait for its start.")
    ] = 60.0


class Verify(Query):
    """How far back to look."""

    newest: Annotated[str, Meta(max_length=20, description="Only jobs born within this time, e.g. 24h.")] | None = None


class Find(Query):
    """What to look for."""

    q: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="An id or how it begins, a prediction id, an idempotency key, or how a name begins.",
        ),
    ]


class ListWallets(OfTenant):
    """Which wallets."""

    prefix: Annotated[Name, Meta(description="How the account's name begins, or else the tenant's.")] | None = None
    cursor: Annotated[str, Meta(max_length=300, description=_NEXT)] | None = None
    limit: Limit = 50


class ListHolds(OfTenant):
    """Which holds."""

    cursor: JobCursor | None = None
    limit: Limit = 50


class FindJobs(OfAccount):
    """Which jobs, by what they have in common."""

    kind: KindName | None = None
    state: Name | None = None
    phase: Phase | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    error: Annotated[Word, Meta(description="The code of the error with which it failed.")] | None = None
    fingerprint: Word | None = None
    stage: Word | None = None
    since: Annotated[Moment, Meta(description="Only jobs born since: 24h, or a time.")] | None = None
    until: Annotated[Moment, Meta(description="Only jobs born before: 1h, or a time.")] | None = None
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListErrands(OfTenant):
    """Which errands."""

    cursor: Annotated[str, Meta(description=_NEXT, extra_json_schema={"pattern": f"^errand_{_ID}"})] | None = None
    limit: Limit = 50


class ListKinds(Query):
    """Which kinds."""

    closed: Annotated[bool, Meta(description="Also those that only a product's own routes submit.")] = False


class ReadSeries(OfTenant):
    """Which stretch of time, and of which jobs."""

    span: Literal["1h", "6h", "24h", "7d", "30d"] = "1h"
    kind: Name | None = None


class ReadFailures(OfTenant):
    """Since when, and of which jobs."""

    since: Literal["1h", "24h", "7d", "30d"] = "24h"
    kind: Name | None = None
