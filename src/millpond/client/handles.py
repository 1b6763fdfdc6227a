"""A job in its caller's hand."""

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
    """A job by its id, with what was last heard of it. Only the verbs ask the server."""

    def __init__(self, verbs: Verbs[Any], id: str, known: wire.Job | wire.Accepted | None = None) -> None:
        self._verbs = verbs
        self._known = known
        self.id = id
        self.webhook_secret: str | None = getattr(known, "webhook_secret", None) or None
        """What its webhook is signed with, if the server made that: only the answer to a submit tells it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.kind or ''} {self.state or 'not read yet'}>"

    def learn(self, known: wire.Job | wire.Accepted) -> None:
        """Keep what the server said of it."""
        self._known = known

    def _get(self, name: str) -> Any:
        return getattr(self._known, name, None)

    @property
    def record(self) -> wire.Job | wire.Accepted | None:
        """All that was last heard of it, as the server said it."""
        return self._known

    @property
    def kind(self) -> str | None:
        """Its kind."""
        return self._get("kind")

    @property
    def state(self) -> str | None:
        """Its state in its lifecycle."""
        return self._get("state")

    @property
    def phase(self) -> wire.Phase | None:
        """Its phase, which is the same for every lifecycle."""
        return self._get("phase")

    @property
    def outcome(self) -> wire.Outcome | None:
        """How it ended."""
        return self._get("outcome")

    @property
    def is_ended(self) -> bool:
        """Whether it has ended."""
        return self.phase == "ended"

    @property
    def output(self) -> Any:
        """What it gave, once it has succeeded."""
        return self._get("output")

    @property
    def error(self) -> dict[str, Any] | None:
        """Why it did not succeed."""
        return self._get("error")

    @property
    def price(self) -> int | None:
        """The credits held for it."""
        return self._get("price")

    @property
    def captured(self) -> int | None:
        """The credits it cost in the end."""
        return self._get("captured")

    @property
    def progress(self) -> float | None:
        """How far it is, from 0 to 1."""
        return self._get("progress")

    @property
    def stage(self) -> str | None:
        """The stage it is in."""
        return self._get("stage")

    @property
    def position(self) -> int | None:
        """Its place in line."""
        return self._get("position")

    @property
    def eta(self) -> wire.Eta | None:
        """When it is likely to have ended."""
        return self._get("eta")

    @property
    def created_at(self) -> datetime | None:
        """When it was submitted."""
        return self._get("created_at")

    @property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return self._get("finished_at")


class AsyncJobHandle(Handle):
    """A job in the hand of an :class:`AsyncClient`'s user."""

    async def refresh(self) -> Self:
        """Read it anew."""
        return await self._verbs.get(self)

    async def wait(self, *, timeout: float | None = None) -> Self:
        """Wait until it has ended, whichever way."""
        return await self._verbs.wait(self, timeout=timeout)

    async def result(self, type: type[T] = ANYTHING, *, timeout: float | None = None) -> T:
        """Wait for its output, read as this type; any other outcome than success is raised."""
        return await self._verbs.result(self, type, timeout=timeout)

    def events(self, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[wire.Event]:
        """What happens to it, as it happens, until it has ended."""
        return self._verbs.events(self, after=after, timeout=timeout)

    def logs(self, *, after: int = 0) -> AsyncIterator[wire.LogLine]:
        """The lines of its log so far."""
        return self._verbs.logs(self, after=after)

    async def cancel(self) -> wire.Canceled:
        """Stop it, or ask its worker to."""
        return await self._verbs.cancel(self)

    async def retry(self) -> Self:
        """Run it once more; the handle is of the job that runs now."""
        return await self._verbs.retry(self)

    async def answer(self, answer: Any) -> wire.State:
        """Give it what it waits for."""
        return await self._verbs.answer(self, answer)

    async def token(
        self, scopes: Sequence[wire.TokenScope] = ("read",), *, expires_in: timedelta | str | float = "15m"
    ) -> wire.Token:
        """A token with which a browser may watch it, or cancel it too."""
        return await self._verbs.token(self, scopes, expires_in=expires_in)


def _verb(awaited: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Handle, P], T]:
    """A verb of the blocking handle."""

    @functools.wraps(awaited)
    def call(self: Handle, /, *args: P.args, **options: P.kwargs) -> T:
        return run(awaited(self, *args, **options))

    return call


def _same(awaited: Callable[Concatenate[Any, P], Coroutine[Any, Any, Handle]]) -> Callable[Concatenate[S, P], S]:
    """A verb that gives a handle of the same sort."""
    return cast("Callable[Concatenate[S, P], S]", _verb(awaited))


def _list(awaited: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Handle, P], Iterator[T]]:
    """A verb that gives one thing after the other."""

    @functools.wraps(awaited)
    def call(self: Handle, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return iterate(awaited(self, *args, **options))

    return call


class JobHandle(Handle):
    """A job in the hand of a :class:`Client`'s user."""

    refresh = _same(AsyncJobHandle.refresh)
    wait = _same(AsyncJobHandle.wait)
    result = _verb(AsyncJobHandle.result)
    events = _list(AsyncJobHandle.events)
    logs = _list(AsyncJobHandle.logs)
    cancel = _verb(AsyncJobHandle.cancel)
    retry = _same(AsyncJobHandle.retry)
    answer = _verb(AsyncJobHandle.answer)
    token = _verb(AsyncJobHandle.token)
