"""Work: what passes between whoever has jobs and whoever runs them, in one process or over HTTP."""

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

NOTE_TYPES: Final = ("log", "progress", "stage")  # never one that the engine itself uses for a move


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A job in a worker's hands."""

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
    """What a worker that does not have the kind itself is told of it."""
    time_limit: timedelta | None = None


class Artifact(msgspec.Struct, frozen=True):
    """A file that a job's code has saved, or may read."""

    id: str
    name: str
    content_type: str
    size: int
    sha256: str | None = None


class End(msgspec.Struct, frozen=True):
    """How a worker ends a job."""

    lease: Lease
    outcome: Outcome | Literal["delivering"]
    """'delivering' is said by the engine alone: it has ended well, and whoever it is for has yet to be told."""
    output: str | None = None
    error: dict[str, Any] | None = None
    captured: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    """The files that were saved on the way."""
    origin: str | None = None
    """From where a worker of the fleet says so, for the audit."""

    def __post_init__(self) -> None:
        if self.captured is not None:
            values.check_amount(self.captured, field="captured", most=values.PRICE_MAX)
            if self.outcome not in ("succeeded", "delivering") and self.captured >= self.lease.price > 0:
                raise InvalidError("Only a job that succeeds costs its whole price.", field="captured")


@dataclass(frozen=True, slots=True)
class Return:
    """A job that goes back without having ended, and why: 'attempt' or 'interruption'."""

    lease: Lease
    cause: str
    error: dict[str, Any]
    delay: timedelta | None = None
    origin: str | None = None
    """From where a worker of the fleet says so, for the audit."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something a worker says about a job it is at: progress, a stage, a line of log."""

    lease: Lease
    number: int
    type: str
    data: str
    value: float | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if self.type not in NOTE_TYPES:
            raise InvalidError(f"It must be one of {', '.join(NOTE_TYPES)}.", field="type")


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat learns: the jobs that must stop, those no longer held, and whether to take no more."""

    canceling: frozenset[UUID]
    lost: frozenset[UUID]
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """The machine under a worker will be taken away."""

    seconds_left: float
    reason: str
