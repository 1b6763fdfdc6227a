"""Lets one test speak to both clients: a blocking one is called in threads, so that it can be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio.to_thread

from millpond import BatchHandle, Client, JobHandle
from millpond.client import WaitTimeoutError

LISTS = {
    "accounts",
    "as_completed",
    "chunks",
    "audit",
    "batch_jobs",
    "batches",
    "deliveries",
    "entries",
    "events",
    "find_jobs",
    "fires",
    "jobs",
    "keys",
    "logs",
    "pages",
    "schedules",
    "stream_text",
    "tenants",
    "watch",
}
_OVER = object()


class Awaited:
    """A blocking client, or a handle of one, as if it were awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found
        if name in {"job", "batch_of"}:
            return lambda job_id: wrapped(found(job_id))
        if name in LISTS:
            return lambda *args, **options: _iterate(found, args, options)

        async def call(*args: Any, **options: Any) -> Any:
            return wrapped(await anyio.to_thread.run_sync(lambda: found(*map(unwrapped, args), **options)))

        return call


async def _iterate(found: Any, args: Any, options: Any) -> AsyncIterator[Any]:
    things: Iterator[Any] = found(*map(unwrapped, args), **options)
    try:
        while (thing := await anyio.to_thread.run_sync(next, things, _OVER)) is not _OVER:
            yield wrapped(thing)
    finally:
        things.close()  # type: ignore[attr-defined]


async def begun(read: Callable[[float], AsyncIterator[Any]]) -> tuple[Any, AsyncIterator[Any]]:
    """The first of a list that ends with the caller's patience, and the rest of it; the busier the machine, the longer
    the patience."""
    for seconds in (1.0, 5.0, 25.0):
        rest = read(seconds)
        with suppress(WaitTimeoutError):
            return await anext(rest), rest
    raise AssertionError("nothing came")


def wrapped(thing: Any) -> Any:
    if isinstance(thing, list):
        return [wrapped(each) for each in thing]
    return Awaited(thing) if isinstance(thing, BatchHandle | Client | JobHandle) else thing


def unwrapped(thing: Any) -> Any:
    if isinstance(thing, list):
        return [unwrapped(each) for each in thing]
    return thing.inner if isinstance(thing, Awaited) else thing
