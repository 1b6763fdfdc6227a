"""Types for the exchange between a job source and a worker, in one process or over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from millpond import values
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from millpond.lifecycle import Outcome

NOTE_TYPES: Final = ("log", "progress", "stage")  # never one that the engine itself uses for a transition


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A leased job."""

    job_id: UUID
    token: UUID
    tenant: str
    account: str
    kind: str
    queue: str
    state: str
    epoch: int
    attempts: int
    run: int
    price: int
    progress: float
    stage: str | None
    input: str
    memo: str | None
    answer: str | None
    created_at: datetime
    expires_at: datetime | None
    stages: tuple[str, ...] = ()
    """The description of the job for workers that do not have its kind."""
    time_limit: timedelta | None = None


class Artifact(msgspec.Struct, frozen=True):
    """A file that the job's code has saved or may read."""

    id: str
    name: str
    content_type: str
    size: int
    sha256: str | None = None


class End(msgspec.Struct, frozen=True):
    """How a worker ends a job."""

    lease: Lease
    outcome: Outcome | Literal["delivering"]
    """'delivering' is used by the engine only: the job succeeded, and its delivery is pending."""
    output: str | None = None
    error: dict[str, Any] | None = None
    captured: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    """The files that the job's code saved."""
    origin: str | None = None
    """The address of a fleet worker, for the audit log."""

    def __post_init__(self) -> None:
        if self.captured is not None:
            values.check_amount(self.captured, field="captured", maximum=values.PRICE_MAX)
            if self.outcome not in ("succeeded", "delivering") and self.captured >= self.lease.price > 0:
                raise InvalidError("Only a job that succeeds can be charged.", field="captured")


@dataclass(frozen=True, slots=True)
class Return:
    """A job that is returned without having ended, and the reason: 'attempt' or 'interruption'."""

    lease: Lease
    cause: str
    error: dict[str, Any]
    delay: timedelta | None = None
    origin: str | None = None
    """The address of a fleet worker, for the audit log."""


@dataclass(frozen=True, slots=True)
class Note:
    """A worker's report about a running job: progress, a stage or a log line."""

    lease: Lease
    number: int
    type: str
    data: str
    value: float | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if self.type not in NOTE_TYPES:
            raise InvalidError(f"The type must be one of {', '.join(NOTE_TYPES)}.", field="type")


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The response to a heartbeat: the jobs to stop, the lost leases, and whether to take no more jobs."""

    canceling: frozenset[UUID]
    lost: frozenset[UUID]
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """The worker's machine will be terminated."""

    seconds_left: float
    reason: str
