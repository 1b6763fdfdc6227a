"""The handles of the client: of jobs, and of batches."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from millpond.client.ports import iterate, run
from millpond.client.requests import ANYTHING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from datetime import datetime, timedelta

    from millpond import wire
    from millpond.client.verbs import Verbs

P = ParamSpec("P")
S = TypeVar("S", bound="Handle")
T = TypeVar("T")


class Handle:
    """A job with its last known state. Only the methods send requests."""

    def __init__(self, verbs: Verbs[Any, Any], id: str, known: wire.Job | wire.Accepted | None = None) -> None:
        self._verbs = verbs
        self._known = known
        self.id = id
        self.webhook_secret: str | None = getattr(known, "webhook_secret", None) or None
        """The secret that signs its webhook, if the server generated it. Known after a submit only."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.kind or ''} {self.state or 'not read yet'}>"

    def learn(self, known: wire.Job | wire.Accepted) -> None:
        """Store the response of the server."""
        self._known = known

    def _get(self, name: str) -> Any:
        return getattr(self._known, name, None)

    @property
    def record(self) -> wire.Job | wire.Accepted | None:
        """The last response of the server about the job."""
        return self._known

    @property
    def kind(self) -> str | None:
        """The kind."""
        return self._get("kind")

    @property
    def state(self) -> str | None:
        """The state in the lifecycle."""
        return self._get("state")

    @property
    def phase(self) -> wire.Phase | None:
        """The phase, which is the same for all lifecycles."""
        return self._get("phase")

    @property
    def outcome(self) -> wire.Outcome | None:
        """The outcome, once the job has ended."""
        return self._get("outcome")

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.phase == "ended"

    @property
    def output(self) -> Any:
        """The output, once the job has succeeded."""
        return self._get("output")

    @property
    def error(self) -> dict[str, Any] | None:
        """The error, if the job did not succeed."""
        return self._get("error")

    @property
    def price(self) -> int | None:
        """The price, which is held until the job ends."""
        return self._get("price")

    @property
    def captured(self) -> int | None:
        """The captured credits."""
        return self._get("captured")

    @property
    def progress(self) -> float | None:
        """The progress from 0 to 1."""
        return self._get("progress")

    @property
    def stage(self) -> str | None:
        """The current stage."""
        return self._get("stage")

    @property
    def position(self) -> int | None:
        """The position in the queue."""
        return self._get("position")

    @property
    def eta(self) -> wire.Eta | None:
        """The estimated end."""
        return self._get("eta")

    @property
    def created_at(self) -> datetime | None:
        """The time of the submit."""
        return self._get("created_at")

    @property
    def finished_at(self) -> datetime | None:
        """The time of the end."""
        return self._get("finished_at")


class AsyncJobHandle(Handle):
    """A job handle of :class:`AsyncClient`."""

    async def refresh(self) -> Self:
        """Read the job again."""
        return await self._verbs.get(self)

    async def wait(self, *, timeout: float | None = None) -> Self:
        """Wait until the job has ended, with any outcome."""
        return await self._verbs.wait(self, timeout=timeout)

    async def result(self, type: type[T] = ANYTHING, *, timeout: float | None = None) -> T:
        """Wait for the output, decoded as the given type; raise if the job does not succeed."""
        return await self._verbs.result(self, type, timeout=timeout)

    def events(self, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[wire.Event]:
        """The events of the job as they occur, until the job has ended."""
        return self._verbs.events(self, after=after, timeout=timeout)

    def chunks(self, *, timeout: float | None = None) -> AsyncIterator[wire.Chunk]:
        """The text that the job emits while it runs, in chunks; the chunk with number 1 restarts it."""
        return self._verbs.chunks(self, timeout=timeout)

    def stream_text(
        self, *, timeout: float | None = None, on_restart: Callable[[], object] | None = None
    ) -> AsyncIterator[str]:
        """The text that the job emits while it runs, piece by piece, until the job has ended.

        If another attempt restarts the text, ``on_restart`` is called: the pieces so far are void.
        """
        return self._verbs.stream_text(self, timeout=timeout, on_restart=on_restart)

    def logs(self, *, after: int = 0) -> AsyncIterator[wire.LogLine]:
        """The lines of the job's log."""
        return self._verbs.logs(self, after=after)

    async def cancel(self) -> wire.Canceled:
        """Cancel the job. If it is running, its worker is asked to stop."""
        return await self._verbs.cancel(self)

    async def retry(self, *, even_if_succeeded: bool = False) -> Self:
        """Retry the job; returns the handle of the job that runs now.

        A job that succeeded is retried only with ``even_if_succeeded``.
        """
        return await self._verbs.retry(self, even_if_succeeded=even_if_succeeded)

    async def children(self, *, cursor: str | None = None, limit: int = 50) -> wire.Children:
        """A page of the children of the job, the oldest first, with their counts and the job's budget."""
        return await self._verbs.children(self, cursor=cursor, limit=limit)

    async def questions(self) -> list[wire.Question]:
        """The questions that the job asks."""
        return await self._verbs.questions(self)

    async def answer(self, answer: Any, *, question: str | None = None) -> wire.State:
        """Answer the parked job, or one of its questions."""
        return await self._verbs.answer(self, answer, question=question)

    async def token(
        self, scopes: Sequence[wire.TokenScope] = ("read",), *, expires_in: timedelta | str | float = "15m"
    ) -> wire.Token:
        """Create a token with which a browser can watch the job, and cancel it if allowed."""
        return await self._verbs.token(self, scopes, expires_in=expires_in)


def _verb(awaited: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Handle, P], T]:
    """A method of the blocking handle."""

    @functools.wraps(awaited)
    def call(self: Handle, /, *args: P.args, **options: P.kwargs) -> T:
        return run(awaited(self, *args, **options))

    return call


def _same(awaited: Callable[Concatenate[Any, P], Coroutine[Any, Any, Handle]]) -> Callable[Concatenate[S, P], S]:
    """A method that returns a handle of the same type."""
    return cast("Callable[Concatenate[S, P], S]", _verb(awaited))


def _list(awaited: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Handle, P], Iterator[T]]:
    """A method that returns an iterator."""

    @functools.wraps(awaited)
    def call(self: Handle, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return iterate(awaited(self, *args, **options))

    return call


class JobHandle(Handle):
    """A job handle of :class:`Client`."""

    refresh = _same(AsyncJobHandle.refresh)
    wait = _same(AsyncJobHandle.wait)
    result = _verb(AsyncJobHandle.result)
    events = _list(AsyncJobHandle.events)
    chunks = _list(AsyncJobHandle.chunks)
    stream_text = _list(AsyncJobHandle.stream_text)
    logs = _list(AsyncJobHandle.logs)
    cancel = _verb(AsyncJobHandle.cancel)
    retry = _same(AsyncJobHandle.retry)
    children = _verb(AsyncJobHandle.children)
    questions = _verb(AsyncJobHandle.questions)
    answer = _verb(AsyncJobHandle.answer)
    token = _verb(AsyncJobHandle.token)


class KnownBatch:
    """A batch with its last known state. Only the methods send requests."""

    def __init__(self, verbs: Verbs[Any, Any], id: str, known: wire.Batch | None = None) -> None:
        self._verbs = verbs
        self._known = known
        self.id = id
        self.webhook_secret: str | None = getattr(known, "webhook_secret", None) or None
        """The secret that signs its webhook, if the server generated it. Known after the batch was created only."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state or 'not read yet'} {self.ended} of {self.total}>"

    def learn(self, known: wire.Batch) -> None:
        """Store the response of the server."""
        self._known = known

    @property
    def record(self) -> wire.Batch | None:
        """The last response of the server about the batch."""
        return self._known

    def _count(self, name: str) -> int:
        return getattr(self._known, name, 0)

    @property
    def name(self) -> str | None:
        """The name."""
        return getattr(self._known, "name", None)

    @property
    def state(self) -> wire.BatchState | None:
        """open, running, canceling, completed or canceled."""
        return getattr(self._known, "state", None)

    @property
    def is_ended(self) -> bool:
        """Whether all its jobs have ended."""
        return self.state in {"completed", "canceled"}

    @property
    def total(self) -> int:
        """How many jobs it is to have."""
        return self._count("total")

    @property
    def submitted(self) -> int:
        """How many jobs were submitted."""
        return self._count("submitted")

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return self._count("ended")

    @property
    def succeeded(self) -> int:
        """How many jobs have succeeded."""
        return self._count("succeeded")

    @property
    def failed(self) -> int:
        """How many jobs failed, expired or were blocked."""
        return self._count("failed")

    @property
    def canceled(self) -> int:
        """How many jobs were canceled."""
        return self._count("canceled")

    @property
    def progress(self) -> float:
        """The share of its jobs that have ended, from 0 to 1."""
        return getattr(self._known, "progress", 0.0)

    @property
    def captured(self) -> int | None:
        """What its ended jobs have cost."""
        return getattr(self._known, "captured", None)


class AsyncBatchHandle(KnownBatch):
    """A batch handle of :class:`AsyncClient`."""

    async def refresh(self) -> Self:
        """Read the batch again."""
        return await self._verbs.get_batch(self)

    async def wait(self, *, timeout: float | None = None) -> Self:
        """Wait until all its jobs have ended, with any outcome."""
        return await self._verbs.wait_for_batch(self, timeout=timeout)

    def jobs(
        self, *, phase: wire.Phase | None = None, outcome: wire.Outcome | None = None, limit: int | None = None
    ) -> AsyncIterator[AsyncJobHandle]:
        """Its jobs in the order in which they were submitted; ``limit`` is the page size."""
        return self._verbs.batch_jobs(self, phase=phase, outcome=outcome, limit=limit)

    async def cancel(self) -> wire.CanceledBatch:
        """Cancel the batch: it accepts no more jobs, and those that have not ended are canceled."""
        return await self._verbs.cancel_batch(self)


class BatchHandle(KnownBatch):
    """A batch handle of :class:`Client`."""

    def refresh(self) -> Self:
        """Read the batch again."""
        return run(self._verbs.get_batch(self))

    def wait(self, *, timeout: float | None = None) -> Self:
        """Wait until all its jobs have ended, with any outcome."""
        return run(self._verbs.wait_for_batch(self, timeout=timeout))

    def jobs(
        self, *, phase: wire.Phase | None = None, outcome: wire.Outcome | None = None, limit: int | None = None
    ) -> Iterator[JobHandle]:
        """Its jobs in the order in which they were submitted; ``limit`` is the page size."""
        return iterate(self._verbs.batch_jobs(self, phase=phase, outcome=outcome, limit=limit))

    def cancel(self) -> wire.CanceledBatch:
        """Cancel the batch: it accepts no more jobs, and those that have not ended are canceled."""
        return run(self._verbs.cancel_batch(self))
