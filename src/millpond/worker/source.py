"""Where a worker gets its jobs from and reports how they ended: beside the database, or over HTTP."""

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
    from millpond.work import Artifact, End, Lease, Note, Pulse, Return


def default_name() -> str:
    """What a worker is called that nobody gave a name."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Source(Protocol):
    """What a worker asks of whoever has the jobs.

    Every verb about a lease raises :class:`~millpond.errors.LeaseLostError` when it is held no more, and
    :class:`~millpond.errors.UnavailableError` when it may be tried again.
    """

    @property
    def name(self) -> str:
        """What the worker is called."""
        ...

    @property
    def lease(self) -> timedelta:
        """How long a lease is good, from the moment in which it was asked for or prolonged."""
        ...

    @property
    def heartbeat(self) -> timedelta:
        """How often leases are to be prolonged."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether a claim waits for jobs by itself."""
        ...

    @property
    def outage(self) -> str:
        """The event of the log that says that it cannot be reached."""
        ...

    @property
    def queues(self) -> Sequence[str]:
        """The lines from which it takes jobs, once it is open."""
        ...

    async def open(self, app: Millpond, slots: int, ears: Ears) -> None:
        """Begin. Comes back when jobs of the app can be claimed; raises when that can never be."""
        ...

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]: ...

    def hush(self) -> None:
        """There will be no more claims: one that still waits comes back at once."""
        ...

    async def extend(self, leases: Sequence[Lease]) -> Pulse: ...

    async def note(self, *notes: Note) -> bool:
        """Say something about a job, all of it or nothing; tells whether it must stop, as far as that is known yet."""
        ...

    async def finish(self, end: End) -> None: ...

    async def give_back(self, item: Return) -> None: ...

    async def park(self, lease: Lease, memo: Any) -> None: ...

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:
        """Take a job through the moment in which it is answered, and keep it; tells the state it has come to."""
        ...

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        """Nothing is held under these tokens any more."""
        ...

    async def close(self) -> None:
        """The worker is gone."""
        ...

    # Files

    async def save(self, lease: Lease, name: str, content_type: str, data: bytes | Path) -> Artifact: ...

    def read(self, lease: Lease, name: str) -> AsyncGenerator[bytes]:
        """A file by the id of its artifact, or by the name that the kind gives it."""
        ...


class Ears(Protocol):
    """What a source may tell its worker at any time."""

    def wake(self) -> None:
        """There may be something to claim."""
        ...

    def cancel(self, job_id: UUID) -> None:
        """A job must stop."""
        ...

    def lose(self, leases: Iterable[Lease] | None = None) -> None:
        """These leases, or all, are not held any more."""
        ...

    def dismiss(self, reason: MillpondError) -> None:
        """The worker may not work any more."""
        ...
