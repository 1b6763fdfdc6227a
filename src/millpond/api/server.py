"""The server: uvicorn in an existing event loop, with limits for each connection.

uvicorn's fast parser accepts headers of any size, at any pace, and as many pipelined requests as fit into its buffer.
Here all of these are limited, and a refused request receives a problem like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from millpond.api import problems
from millpond.api.calls import WHOLE_ANSWER
from millpond.errors import HeadTooLargeError, MalformedError, TooSlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from millpond.api.calls import Headers
    from millpond.errors import MillpondError

HEAD_MAX: Final = 32 * 1024
"""The maximum size of a request line with its headers, in bytes."""
PIPELINE_MAX: Final = 16
"""The maximum number of requests that may be sent before the first of them is answered."""
HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0
_SECONDS: Final = {"head": HEAD_SECONDS, "body": BODY_SECONDS}
DISCARD_MAX: Final = 1024 * 1024
"""How many bytes of a refused request are still read and dropped."""
CLOSE_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 65  # longer than the minute that proxies keep a connection
_STEP_SECONDS: Final = 0.005
"""Between two looks whether all responses were sent, while the server stops."""
_SWEEP_SECONDS: Final = 0.5
_BACKLOG: Final = 2_048
_NEVER: Final = float("inf")


async def serve(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    sock: socket.socket | None = None,
    stop: asyncio.Event,
    on_ready: Callable[[], object] = lambda: None,
    drain: float = DRAIN_SECONDS,
    connection: type[Connection] | None = None,
) -> None:
    """Serve until ``stop`` is set; then accept no more, and let open requests finish within ``drain`` seconds."""
    listening = sock or listen(host, port)
    server = _Server(_config(app, drain, connection or Connection), stop, on_ready)
    sweeping = asyncio.create_task(server.sweep())
    try:
        await server.serve([listening])
    finally:
        sweeping.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises at once if the address is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _config(app: ASGIApp, drain: float, connection: type[Connection]) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # invalid requests are not logged
    return uvicorn.Config(
        app,
        loop="none",
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain)),
    )


class _Server(uvicorn.Server):
    """A server that leaves the signals to its caller, ends slow connections, and stops as soon as it can."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._stop = stop
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def main_loop(self) -> None:
        while not self._stop.is_set():
            await self.on_tick(0)  # renews the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Like that of the base class, which waits in steps of 0.1 seconds."""
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(_STEP_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()

    async def sweep(self) -> None:
        """End connections that are too slow; checking all of them at once costs less than a timer for each request."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in cast("list[Connection]", list(self.server_state.connections)):
                connection.check_pace(now)


class Connection(HttpToolsProtocol):
    """A connection with limits on the size and the pace of its requests."""

    seconds: ClassVar = _SECONDS
    """How long each part of a request may take to arrive."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part = ""
        """The part of a request that is being read: ``head``, ``body``, or empty between requests."""
        self._size = 0
        """A lower bound of the bytes received of an unfinished head."""
        self._chunk = 0
        self._until = _NEVER
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._until = self.loop.time() + HEAD_SECONDS

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._discard(data)
            return
        before = self._part
        self._chunk = len(data)
        super().data_received(data)
        if not self._part:
            self._until = _NEVER
        elif self._part != before:
            self._until = self.loop.time() + self.seconds[self._part]
        self._size = self._size + len(data) if self._part == "head" else 0
        if self._size > HEAD_MAX and not self._is_refused:
            self.refuse(_head_too_large())

    def _discard(self, data: bytes) -> None:
        """Drop the rest of a refused request. Closing the connection now could reset it before the refusal is read."""
        self._size += len(data)
        if self._size > DISCARD_MAX:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._part = "head"
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._is_refused:
            return
        self._part = "body"
        if max(self._size, 0) + self._chunk > HEAD_MAX and self._head_size() > HEAD_MAX:
            self.refuse(_head_too_large())
        elif len(self.pipeline) >= PIPELINE_MAX:
            self.refuse(MalformedError(f"More than {PIPELINE_MAX} requests were sent before a response was read."))
        else:
            super().on_headers_complete()
            cast("dict[str, Any]", self.scope)["extensions"] = {WHOLE_ANSWER: partial(_write, self.cycle)}

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._part, self._size = "", -self._chunk  # how much of this chunk belongs to the next head is unknown
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser does not understand."""
        if not self._is_refused:
            self.refuse(MalformedError(msg))

    def check_pace(self, now: float) -> None:
        """End a connection that takes too long to send its request, or to read the last response."""
        if now < self._until:
            if self.transport.is_closing() and self._until == _NEVER:
                self._until = now + CLOSE_SECONDS
        elif self._is_refused or self.transport.is_closing():
            self.transport.abort()
        else:
            self.refuse(TooSlowError(hint="Send the whole request without long pauses."))

    def refuse(self, error: MillpondError) -> None:
        """Send the error, unless another response has begun, and close the connection."""
        self._is_refused = True
        if not self._is_answering():
            self.transport.write(_problem(error))
        self._size = 0
        self._until = self.loop.time() + CLOSE_SECONDS
        self.transport.write_eof()

    def _is_answering(self) -> bool:
        """Whether a refusal would be mixed up with the bytes of another response."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or self._part != "body"


class UploadConnection(Connection):
    """A connection whose requests may be large files; the application itself checks their pace."""

    seconds: ClassVar = {"head": HEAD_SECONDS, "body": 48 * 3600.0}


def _write(cycle: Any, status: int, headers: Headers, body: bytes) -> bool:
    """Write a whole response at once, and return whether that was possible.

    uvicorn checks each header twice, because it does not know the application, and writes head and body separately. For
    this application, which creates its headers itself, that is a fifth of the time of a short request.
    """
    if cycle.flow.write_paused or cycle.response_started:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    if not cycle.disconnected:
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"\r\n", b"" if cycle.scope["method"] == "HEAD" else body)
        cycle.transport.write(b"".join(lines))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
    return True


def _head_too_large() -> HeadTooLargeError:
    return HeadTooLargeError(f"The headers are larger than {HEAD_MAX:,} bytes.", limit=HEAD_MAX)


def _problem(error: MillpondError) -> bytes:
    """A problem as a whole HTTP response, which does not pass through the application."""
    problem = problems.describe(error)
    body = msgspec.json.encode(problem)
    headers = [*problems.headers(error, problem), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return STATUS_LINE[error.status] + lines + b"\r\n" + body
