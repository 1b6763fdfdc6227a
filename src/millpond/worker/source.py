"""Where a worker takes its jobs from and reports their outcomes: the database, or a server over HTTP."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from datetime import timedelta
    from pathlib import Path
    from uuid import UUID

    from millpond.app import Millpond
    from millpond.errors import MillpondError
    from millpond.work import (
        Artifact,
        BatchResults,
        Chunk,
        End,
        HeartbeatAnswer,
        Lease,
        Note,
        Return,
        SpawnRequest,
        Step,
        StepRequest,
    )


def default_name() -> str:
    """The name of a worker that was not given one."""
    return f"{socket.gethostname()}:{os.getpid()}"


class JobSource(Protocol):
    """What the code of a running job needs.

    Every method about a lease raises :class:`~millpond.errors.LeaseLostError` if the lease is lost, and
    :class:`~millpond.errors.UnavailableError` if the call may be retried.
    """

    async def extend(self, leases: Sequence[Lease]) -> HeartbeatAnswer: ...

    async def note(self, *notes: Note) -> bool:
        """Write notes about a job, all or none. Returns whether the job must stop, as far as that is known yet."""
        ...

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        """Write text that jobs emit. Each group has the chunks of one lease, which are all written, or none.

        Each result is whether the job must stop, as far as that is known yet, or why its text was not written. Chunks
        that were written before are not written again.
        """
        ...

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:
        """Apply the event `answered` to a job without giving up its lease; returns the new state."""
        ...

    # Steps

    async def recall(self, lease: Lease, after: str) -> list[Step]:
        """Some steps that earlier attempts of the run have recorded, by name, after a name; none at the end."""
        ...

    async def record(self, item: StepRequest) -> Step:
        """Record a step, once; returns it as it is recorded."""
        ...

    async def spawn(self, request: SpawnRequest) -> Step:
        """Submit children, once; returns their step."""
        ...

    async def results(self, lease: Lease, batch_id: UUID, after: UUID | None) -> BatchResults:
        """Some children of a step, in order, after an id."""
        ...

    # Files

    async def save(self, lease: Lease, name: str, content_type: str, data: bytes | Path) -> Artifact: ...

    def read(self, lease: Lease, name: str) -> AsyncGenerator[bytes]:
        """The content of a file, by the id of its artifact or by the name that its kind defines."""
        ...


class Source(JobSource, Protocol):
    """Where a worker takes its jobs from and reports their outcomes."""

    @property
    def name(self) -> str:
        """The name of the worker."""
        ...

    @property
    def lease(self) -> timedelta:
        """How long a lease is valid, counted from when its claim or extension was requested."""
        ...

    @property
    def heartbeat(self) -> timedelta:
        """The interval at which leases must be extended."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether a claim waits for jobs by itself."""
        ...

    @property
    def outage(self) -> str:
        """The name of the log event for an unreachable source."""
        ...

    @property
    def queues(self) -> Sequence[str]:
        """The queues from which it takes jobs, once it is open."""
        ...

    async def open(self, app: Millpond, slots: int, ears: SourceListener) -> None:
        """Open the source. Returns once jobs of the app can be claimed; raises if they never can be."""
        ...

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]: ...

    def stop_polling(self) -> None:
        """Stop polling for jobs: a claim that still waits returns at once."""
        ...

    async def beat(self) -> None:
        """Report that the worker is alive; called once per heartbeat interval, after :meth:`extend`."""
        ...

    def report_loaded(self, resources: Sequence[str]) -> None:
        """Report which resources the worker has created; called whenever that changes."""
        ...

    async def keep_traceback(self, lease: Lease, text: str) -> None:
        """Store the traceback of an attempt that has failed, before its end is reported."""
        ...

    async def finish(self, end: End) -> None: ...

    async def give_back(self, item: Return) -> None: ...

    async def park(self, lease: Lease, memo: Any) -> None: ...

    async def suspend(self, lease: Lease, name: str) -> None:
        """Park the job until what the step waits for has come."""
        ...

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        """Close leases under which no jobs are held any more."""
        ...

    async def close(self) -> None:
        """Close the source, because the worker ends."""
        ...


class SourceListener(Protocol):
    """The methods of a worker that its source may call at any time."""

    def wake(self) -> None:
        """Look for jobs to claim."""
        ...

    def cancel(self, job_id: UUID) -> None:
        """Stop a job."""
        ...

    def lose(self, leases: Iterable[Lease] | None = None) -> None:
        """Stop the jobs of these lost leases, or of all."""
        ...

    def dismiss(self, reason: MillpondError) -> None:
        """Stop all work, because the source no longer admits the worker."""
        ...
