"""Schedules and their fires."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, UnsetType

from millpond.schedules import CATCH_UP_MAX, CatchUp, Cause, FireOutcome, Overlap, ScheduleSource, ScheduleState
from millpond.wire.bulk import Instant
from millpond.wire.shapes import (
    Answer,
    Duration,
    Name,
    Outcome,
    Phase,
    Priority,
    Request,
    Tags,
    Time,
)

# The formats and bounds are for readers of the schema; violations have messages of their own.
Cron = Annotated[
    str,
    Meta(
        description="A cron expression: minute, hour, day of month, month, day of week.",
        examples=["0 3 * * *"],
        extra_json_schema={"format": "cron", "minLength": 1, "maxLength": 200},
    ),
]
Zone = Annotated[
    str,
    Meta(
        description="The time zone of the cron expression; UTC if omitted.",
        examples=["Europe/Berlin"],
        extra_json_schema={"format": "time-zone"},
    ),
]
Jitter = Annotated[Duration, Meta(description="The limit of the random delay after each due time.", examples=["5m"])]
DueField = Annotated[
    str,
    Meta(
        description="The member of the input that is set to the due time.",
        examples=["due_at"],
        extra_json_schema={"minLength": 1, "maxLength": 128},
    ),
]
CatchUpMax = Annotated[
    int, Meta(ge=1, le=CATCH_UP_MAX, description="How many of the missed due times `all` makes up for: the last ones.")
]
_OVERLAP = "What happens at a due time if the job of the previous one has not ended."
_CATCH_UP = "Which due times are made up for that were missed by more than a minute."


class PreviewSchedule(Request):
    """When a schedule would be due."""

    either: ClassVar[tuple[str, ...]] = ("cron", "every", "at")
    cron: Cron | None = None
    every: Duration | None = None
    at: Annotated[Time, Meta(description="The only due time.")] | None = None
    zone: Zone | None = None
    jitter: Jitter | None = None
    count: Annotated[int, Meta(ge=1, le=100, description="How many due times to return.")] = 10


class MakeSchedule(Request):
    """A schedule to create."""

    either: ClassVar[tuple[str, ...]] = ("cron", "every", "at")
    name: Annotated[Name, Meta(description="The name, unique within the tenant.")]
    kind: Name
    account: Annotated[Name | None, Meta(description="The account that pays for the jobs.")] = None
    input: dict[str, Any] = {}
    due_field: DueField | None = None
    cron: Cron | None = None
    every: Duration | None = None
    at: Annotated[Time, Meta(description="The only due time.")] | None = None
    zone: Zone | None = None
    jitter: Jitter | None = None
    overlap: Annotated[Overlap, Meta(description=_OVERLAP)] = "queue"
    catch_up: Annotated[CatchUp, Meta(description=_CATCH_UP)] = "last"
    catch_up_max: CatchUpMax = 100
    priority: Priority | None = None
    expires_in: Duration | None = None
    tags: Tags | None = None


class UpdateSchedule(Request):
    """Changes of a schedule; omitted fields are not changed. Of cron, every and at, a new one replaces the old one."""

    kind: Name | UnsetType = UNSET
    account: Name | UnsetType = UNSET
    input: dict[str, Any] | UnsetType = UNSET
    due_field: DueField | UnsetType | None = UNSET
    cron: Cron | UnsetType = UNSET
    every: Duration | UnsetType = UNSET
    at: Annotated[Time, Meta(description="The only due time.")] | UnsetType = UNSET
    zone: Zone | UnsetType = UNSET
    jitter: Jitter | UnsetType | None = UNSET
    overlap: Annotated[Overlap, Meta(description=_OVERLAP)] | UnsetType = UNSET
    catch_up: Annotated[CatchUp, Meta(description=_CATCH_UP)] | UnsetType = UNSET
    catch_up_max: CatchUpMax | UnsetType = UNSET
    priority: Priority | UnsetType | None = UNSET
    expires_in: Duration | UnsetType | None = UNSET
    tags: Tags | UnsetType = UNSET


class SchedulePreview(Answer):
    """The next due times."""

    upcoming: list[Time]


class Fire(Answer):
    """What a schedule did at a due time, or from one due time until another."""

    id: str
    schedule_id: str
    due_at: Time
    until: Annotated[Time | None, Meta(description="The last one of several due times that were skipped together.")]
    times: Annotated[int, Meta(description="The number of due times, counted up to 1,000.")]
    cause: Annotated[Cause, Meta(description="Why: the schedule was due, or an operator ran or backfilled it.")]
    outcome: FireOutcome
    reason: Annotated[
        str | None, Meta(description="Why no job was submitted: `overlap`, `catch_up`, or the code of a problem.")
    ]
    message: str | None
    at: Annotated[Time, Meta(description="When this was decided.")]
    actor: Annotated[str | None, Meta(description="Who ran or backfilled it.")]
    job_id: str | None
    job_state: Annotated[str | None, Meta(description="Null if there is no job, or if it has been deleted.")]
    job_phase: Phase | None
    job_outcome: Outcome | None
    job_started_at: Time | None
    job_finished_at: Time | None


class Fires(Answer):
    """A page of fires, the last one first."""

    data: list[Fire]
    next_cursor: str | None


class ScheduleInfo(Answer):
    """A schedule without its input."""

    id: str
    name: str
    tenant: str
    account: str
    kind: str
    cron: str | None
    every_seconds: float | None
    at: Time | None
    zone: str
    jitter_seconds: float
    due_field: str | None
    overlap: Overlap
    catch_up: CatchUp
    catch_up_max: int
    priority: Annotated[int | None, Meta(description="Null for the priority of the kind.")]
    expires_in_seconds: Annotated[float | None, Meta(description="Null for the deadline of the kind.")]
    tags: dict[str, str]
    source: Annotated[ScheduleSource, Meta(description="Where it is declared: in the code of an app, or by the API.")]
    state: Annotated[
        ScheduleState,
        Meta(description="An orphaned schedule is no longer declared by its app; an ended one is never due again."),
    ]
    due_at: Annotated[Time | None, Meta(description="The next due time; null unless the schedule is active.")]
    next_at: Annotated[Time | None, Meta(description="When it fires: the next due time with its jitter.")]
    is_overdue: Annotated[
        bool,
        Meta(description="Whether it should have fired more than a minute ago: no process that has its kind runs."),
    ]
    paused_at: Time | None
    orphaned_at: Time | None
    created_at: Time
    updated_at: Time
    last_fire: Fire | None


class ScheduleDetail(ScheduleInfo):
    """A schedule with its input, its next due times and its last fires."""

    input: Any
    upcoming: Annotated[list[Time], Meta(description="The next ten due times from now on, even if it is paused.")]
    fires: Annotated[list[Fire], Meta(description="The last twenty, the last one first.")]


class Schedules(Answer):
    """A page of schedules, oldest first."""

    data: list[ScheduleInfo]
    next_cursor: str | None


class BackfillSchedule(Request):
    """The period whose due times are fired."""

    since: Annotated[Instant, Meta(description="The beginning of the period: 24h ago, or a time.", examples=["24h"])]
    until: Annotated[Instant, Meta(description="Its end, which is now if omitted.")] | None = None


class Backfilled(Answer):
    """The due times of a period, and how many of them a backfill fires: those without a job."""

    due_times: int
    fires: int
