"""The server: uvicorn in our own loop, with limits on what a connection may cost.

uvicorn's fast parser takes headers of any size, at any pace, and as many requests in advance as fit into what it has
read. Here each of these has an end, and a refusal is a problem like any other.
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
"""Bytes of a request's first line and headers."""
PIPELINE_MAX: Final = 16
"""Requests that may be sent before the first of them is answered."""
HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0
_SECONDS: Final = {"head": HEAD_SECONDS, "body": BODY_SECONDS}
DISCARD_MAX: Final = 1024 * 1024
"""Bytes of a refused request that may still come in."""
CLOSE_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 65  # longer than the minute that proxies keep a connection
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
    """Serve until told to stop; then take no more, and let what runs finish within ``drain`` seconds."""
    listening = sock or listen(host, port)
    server = _Server(_config(app, drain, connection or Connection), on_ready)
    watching = [asyncio.create_task(server.stop_with(stop)), asyncio.create_task(server.sweep())]
    try:
        await server.serve([listening])
    finally:
        for task in watching:
            task.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises at once where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _config(app: ASGIApp, drain: float, connection: type[Connection]) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what callers send amiss is not our log's business
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
    """A server whose signals are somebody else's, and that looks after its slow connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.should_exit = True

    async def sweep(self) -> None:
        """Look for connections that are too slow: one look at all costs less than a timer for each request."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in cast("list[Connection]", list(self.server_state.connections)):
                connection.check_pace(now)


class Connection(HttpToolsProtocol):
    """One connection with bounds on the size and the pace of what it sends."""

    seconds: ClassVar = _SECONDS
    """How long each part of a request may take to come in."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part = ""
        """What is being read: nothing, the head of a request, or its body."""
        self._size = 0
        """Bytes of an unfinished head: at least so many have come."""
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
        """Let the rest of a refused request run off: to hang up on it would take the refusal away with it."""
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
            self.refuse(MalformedError(f"More than {PIPELINE_MAX} requests were sent before an answer was read."))
        else:
            super().on_headers_complete()
            cast("dict[str, Any]", self.scope)["extensions"] = {WHOLE_ANSWER: partial(_write, self.cycle)}

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._part, self._size = "", -self._chunk  # of what follows in this chunk, the length is not known
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser's complaint."""
        if not self._is_refused:
            self.refuse(MalformedError(msg))

    def check_pace(self, now: float) -> None:
        """End a connection that takes too long to send its request, or to take what it was sent last."""
        if now < self._until:
            if self.transport.is_closing() and self._until == _NEVER:
                self._until = now + CLOSE_SECONDS
        elif self._is_refused or self.transport.is_closing():
            self.transport.abort()
        else:
            self.refuse(TooSlowError(hint="Send the whole request without long pauses."))

    def refuse(self, error: MillpondError) -> None:
        """Tell what is wrong, unless an answer is under way already, and hang up."""
        self._is_refused = True
        if not self._is_answering():
            self.transport.write(_problem(error))
        self._size = 0
        self._until = self.loop.time() + CLOSE_SECONDS
        self.transport.write_eof()

    def _is_answering(self) -> bool:
        """Whether bytes of another answer would get mixed up with ours."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or self._part != "body"


class Patient(Connection):
    """One whose requests may be large files: the application itself looks at the pace of those."""

    seconds: ClassVar = {"head": HEAD_SECONDS, "body": 48 * 3600.0}


def _write(cycle: Any, status: int, headers: Headers, body: bytes) -> bool:
    """Write a whole answer at once; tells whether it could.

    uvicorn looks at each header twice, to be safe from an application that it does not know, and takes head and body in
    turns. For ours, which makes its own headers, that is a fifth of a short request.
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
    """An answer from below the application."""
    told = problems.told(error)
    body = msgspec.json.encode(told)
    headers = [*problems.headers(error, told), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return STATUS_LINE[error.status] + lines + b"\r\n" + body
