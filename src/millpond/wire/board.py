"""The board, its time series and failures."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from millpond.wire.kinds import QueueInfo
from millpond.wire.shapes import Answer, Time

AlarmSubject = Literal["queue", "worker", "endpoint", "schedule", "failure", "hold"]
Fingerprint = Annotated[
    str,
    Meta(
        description="Identical for failures that differ only in numbers, names and similar parts. If "
        "there were too many new ones in a day, it begins with `others` and covers the "
        "remaining failures of a kind and code."
    ),
]


class Subject(Answer):
    """The subject of an alarm."""

    type: AlarmSubject
    id: str
    tenant: Annotated[str | None, Meta(description="The tenant that owns the subject, if any.")]


class Alarm(Answer):
    """A problem that requires attention."""

    level: Literal["bad", "warn"]
    text: str
    subject: Subject


class Failure(Answer):
    """Failures of one fingerprint since a time."""

    fingerprint: Fingerprint
    kind: str
    code: str
    message: Annotated[str, Meta(description="The message of a recent failure; at most 500 characters.")]
    count: int
    first_at: Annotated[Time, Meta(description="The first occurrence of all time, to the minute.")]
    last_at: Time
    tenants: Annotated[int, Meta(description="The number of affected tenants.")]
    released: Annotated[int, Meta(description="The released credits.")]
    sample: Annotated[str, Meta(description="The id of one of the jobs.")]
    counts: Annotated[list[int], Meta(description="The number of failures per time step, oldest first.")]


class Failures(Answer):
    """The most frequent failures since a time, at most 100."""

    step_seconds: int
    since: Time
    data: list[Failure]


class BoardWorkers(Answer):
    """Workers by status.

    A `deaf` worker sends heartbeats but does not poll although jobs wait; an `unready` one reports that it
    takes no jobs.
    """

    ok: int
    draining: int
    deaf: int
    unready: int
    unapproved: int
    lost: int


class Spender(Answer):
    """A tenant with its captured credits and number of jobs in the last hour."""

    tenant: str
    captured: int
    jobs: int


class Board(Answer):
    """The current state of the system.

    For one tenant: its own numbers, without queues and workers, which all tenants share.
    """

    at: Time
    refresh: Annotated[float, Meta(description="Seconds between two refreshes; 0 for manual refresh.")]
    ready: int
    waiting: int
    leased: int
    parked: int
    delivering: int
    slots: Annotated[int | None, Meta(description="The slots of the live workers; of draining ones, those in use.")]
    slots_used: Annotated[int | None, Meta(description="How many of these slots hold a job.")]
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
    failures: Annotated[list[Failure], Meta(description="The most frequent failures of the last hour.")]
    tenants: Annotated[list[Spender], Meta(description="The tenants with the most captured credits in the last hour.")]
    alarms: list[Alarm]


class Series(Answer):
    """The throughput over time; the last point is incomplete."""

    span: Literal["1h", "6h", "24h", "7d", "30d"]
    step_seconds: int
    at: Annotated[list[int], Meta(description="The start of each point, in seconds since 1970.")]
    submitted: list[int]
    succeeded: list[int]
    failed: Annotated[list[int], Meta(description="Includes blocked jobs.")]
    canceled: list[int]
    expired: list[int]
    retried: Annotated[list[int], Meta(description="The number of retries.")]
    captured: list[int]
    wait_p50: Annotated[list[float | None], Meta(description="Seconds from when a job was ready until it started.")]
    wait_p90: list[float | None]
    run_p50: Annotated[list[float | None], Meta(description="Seconds from the first start until the end.")]
    run_p90: list[float | None]


class KindCount(Answer):
    """The number of jobs of a kind per state; for terminal states, the number of jobs since counting began."""

    kind: str
    states: Annotated[dict[str, int], Meta(examples=[{"queued": 128, "running": 31, "succeeded": 5_120}])]
    held: Annotated[int, Meta(description="The credits held for the jobs.")]


class KindCounts(Answer):
    """All kinds that have jobs."""

    data: list[KindCount]
