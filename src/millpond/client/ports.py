"""The differences between the blocking and the asynchronous client.

The client is written once, as coroutines over a :class:`Port`. The coroutines of a blocking port never suspend, so
:func:`run` executes them in one step, without an event loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

R = TypeVar("R")
T = TypeVar("T")

_OVER: Final = object()


class ClientResponse(NamedTuple):
    """A response that was read completely."""

    status: int
    headers: httpx2.Headers
    body: bytes


class ResponseStream(NamedTuple):
    """A response that is still being received."""

    status: int
    headers: httpx2.Headers
    chunks: AsyncGenerator[bytes]


class Port(Protocol):
    """How requests are sent and time is measured."""

    def build(self, method: str, path: str, **options: Any) -> httpx2.Request: ...

    def body(self, pieces: Iterator[bytes]) -> Any:
        """Chunks, which may be read from disk, as the body of a request."""
        ...

    async def send(self, request: httpx2.Request, seconds: float) -> ClientResponse:
        """Send a request and read its response, within the given seconds."""
        ...

    def open(self, request: httpx2.Request) -> AbstractAsyncContextManager[ResponseStream]:
        """Send a request and stream its response."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def merge(self, lanes: Sequence[AsyncIterator[T]]) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        """The items of several iterators that run concurrently, as they arrive."""
        ...

    async def close(self) -> None: ...


@dataclass
class AwaitingPort:
    """For asyncio."""

    http: httpx2.AsyncClient

    def build(self, method: str, path: str, **options: Any) -> httpx2.Request:
        return self.http.build_request(method, path, **options)

    async def body(self, pieces: Iterator[bytes]) -> AsyncGenerator[bytes]:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    async def send(self, request: httpx2.Request, seconds: float) -> ClientResponse:
        try:
            async with asyncio.timeout(seconds):
                response = await self.http.send(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the timeout has passed", request=request) from error
        return ClientResponse(response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def open(self, request: httpx2.Request) -> AsyncGenerator[ResponseStream]:
        response = await self.http.send(request, stream=True)

        async def chunks() -> AsyncGenerator[bytes]:
            async for chunk in response.aiter_bytes():
                yield chunk

        try:
            yield ResponseStream(response.status_code, response.headers, chunks())
        finally:
            await response.aclose()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def merge(self, lanes: Sequence[AsyncIterator[T]]) -> AsyncGenerator[AsyncIterator[T]]:
        found: asyncio.Queue[Any] = asyncio.Queue()

        async def follow(lane: AsyncIterator[T]) -> None:
            try:
                async for thing in lane:
                    found.put_nowait(thing)
                found.put_nowait(_OVER)
            except Exception as error:  # noqa: BLE001 - it is raised to the caller
                found.put_nowait(_Raised(error))

        async def all_found() -> AsyncIterator[T]:
            open_lanes = len(lanes)
            while open_lanes:
                thing = _unwrap(await found.get())
                open_lanes -= thing is _OVER
                if thing is not _OVER:
                    yield thing

        tasks = [asyncio.create_task(follow(lane)) for lane in lanes]
        try:
            yield all_found()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.http.aclose()


@dataclass
class BlockingPort:
    """For threads."""

    http: httpx2.Client

    def build(self, method: str, path: str, **options: Any) -> httpx2.Request:
        return self.http.build_request(method, path, **options)

    def body(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        return pieces

    async def send(self, request: httpx2.Request, seconds: float) -> ClientResponse:
        until = time.monotonic() + seconds
        response = self.http.send(request, stream=True)
        try:
            parts: list[bytes] = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx2.ReadTimeout("the timeout has passed", request=request)
        finally:
            response.close()
        return ClientResponse(response.status_code, response.headers, b"".join(parts))

    @asynccontextmanager
    async def open(self, request: httpx2.Request) -> AsyncGenerator[ResponseStream]:
        response = self.http.send(request, stream=True)

        async def chunks() -> AsyncGenerator[bytes]:
            for chunk in response.iter_bytes():
                yield chunk

        try:
            yield ResponseStream(response.status_code, response.headers, chunks())
        finally:
            response.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocking is what this port is for

    @asynccontextmanager
    async def merge(self, lanes: Sequence[AsyncIterator[T]]) -> AsyncGenerator[AsyncIterator[T]]:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def follow(lane: AsyncIterator[T]) -> None:
            try:
                for thing in iterate(lane):
                    found.put(thing)
                found.put(_OVER)
            except Exception as error:  # noqa: BLE001 - it is raised to the caller
                found.put(_Raised(error))

        async def all_found() -> AsyncIterator[T]:
            open_lanes = len(lanes)
            while open_lanes:
                thing = _unwrap(found.get())
                open_lanes -= thing is _OVER
                if thing is not _OVER:
                    yield thing

        # An abandoned lane ends after its current request; as a daemon, it does not delay the end of the program.
        for lane in lanes:
            threading.Thread(target=follow, args=(lane,), name="millpond-client", daemon=True).start()
        yield all_found()

    async def close(self) -> None:
        self.http.close()


class _Raised(NamedTuple):
    """An error in a thread."""

    error: Exception


def _unwrap(thing: Any) -> Any:
    if isinstance(thing, _Raised):
        raise thing.error
    return thing


# From coroutines to plain calls


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine over a blocking port to its end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("The coroutine of a blocking port suspended.")


def iterate(things: AsyncIterator[T]) -> Iterator[T]:
    """An asynchronous iterator over a blocking port, as a plain iterator."""

    async def step() -> Any:
        return await anext(things, _OVER)

    async def close() -> None:
        async with aclosing(things):  # pyright: ignore[reportArgumentType] - ours are all generators
            pass

    try:
        while (thing := run(step())) is not _OVER:
            yield thing
    finally:
        run(close())
