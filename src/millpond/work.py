"""Types for the exchange between a job source and a worker, in one process or over HTTP."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations of what processes exchange
from dataclasses import dataclass
from datetime import datetime, timedelta  # noqa: TC003 - as above
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID  # noqa: TC003 - as above

import msgspec

from millpond import values
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from millpond.lifecycle import Outcome

StepType = Literal["call", "children", "sleep", "question"]

NOTE_TYPES: Final = ("log", "progress", "stage")  # never one that the engine itself uses for a transition
CHUNK_MAX: Final = 64 * 1024
"""The maximum size of a chunk, in bytes."""
TEXT_MAX: Final = 1024 * 1024
"""How much text an attempt may emit, in bytes."""


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
    parent_id: UUID | None = None
    """Known to the engine only."""
    has_steps: bool = False
    """Whether an earlier attempt may have recorded steps."""


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
class StepRequest:
    """A step to record: the result of a call, a sleep, or a question."""

    lease: Lease
    name: str
    position: int | None
    type: StepType
    result: str | None = None
    """Of a call, as JSON."""
    wait: timedelta | None = None
    """How long to sleep, or how long the question may remain unanswered."""
    details: str | None = None
    """Of a question, as JSON."""


class Step(msgspec.Struct, frozen=True):
    """A recorded step."""

    name: str
    position: int | None
    type: StepType
    batch_id: UUID | None
    due_at: datetime | None
    is_done: bool
    is_due: bool
    result: str | None
    """As JSON."""
    submitted: int = 0
    """How many of the children are submitted."""


class ChildRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A child to submit."""

    kind: str
    input: Any = None
    tags: dict[str, str] | None = None
    priority: int | None = None
    run_at: datetime | None = None
    expires_in: float | None = None
    """In seconds."""
    route: str | None = None


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Some of the children of a step: those from ``first`` on, of ``total``."""

    lease: Lease
    name: str
    position: int | None
    children: Sequence[ChildRequest]
    total: int
    first: int = 0
    is_detached: bool = False
    fails_fast: bool = True


class ChildResult(msgspec.Struct, frozen=True):
    """A child of a job; without an outcome, it has not ended."""

    id: str
    kind: str
    outcome: str | None = None
    output: Any = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BatchResults:
    """Some children of a step in order, and whether their parent need not wait for them any more."""

    is_over: bool
    total: int
    children: Sequence[ChildResult]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the text that a running job emits. The chunks of an attempt are numbered from 1."""

    lease: Lease
    number: int
    text: str


def gated(kind: str) -> InvalidError:
    """The refusal of text of a kind with a gate.

    A gate checks an output as a whole. What it would remove may be spread over several chunks, and what was sent to a
    reader cannot be taken back.
    """
    return InvalidError(
        f"Jobs of kind {kind!r} cannot emit text, because the kind has a gate.",
        field="text",
        hint="The gate checks the output as a whole: return the text in the output.",
    )


def too_long() -> InvalidError:
    """The refusal of text beyond the limit of an attempt."""
    return InvalidError(f"An attempt may emit at most {TEXT_MAX:,} bytes of text.", field="text")


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
