"""A local HTTP proxy, through which an external program reaches only what the outbound guard allows.

Such a program resolves names and follows redirects by itself. So it is configured to use this proxy for every
connection: each target is checked like a user-supplied URL, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final, Self

import msgspec

from millpond.errors import OutboundFailedError, OutboundRefusedError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond.outbound.network import Wire
    from millpond.outbound.outbound import Outbound, Streamed

_HEAD_MAX: Final = 32 * 1024
_BODY_MAX: Final = 8 * 1024 * 1024
"""The largest body of a request, in bytes."""
_PIECE: Final = 64 * 1024
_SECONDS: Final = 30.0
"""The time to receive a request, and to open a connection."""
_HOPS: Final = frozenset(
    {
        "connection",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""The hop-by-hop headers, which are not forwarded."""
_REASONS: Final = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}


class _Head(msgspec.Struct, frozen=True):
    """The request line and the headers of a request."""

    method: str
    place: str
    headers: dict[str, str]


class Proxy:
    """Serves one program, over any number of connections: ``async with Proxy(outbound, …) as proxy``.

    ``size_max`` limits all responses together, and ``seconds`` each one. The last errors are kept here, because the
    program itself may report them differently, or not at all.
    """

    def __init__(self, outbound: Outbound, *, size_max: int, seconds: float) -> None:
        self._outbound = outbound
        self._size_max = size_max
        self._seconds = seconds
        self._password = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.size = 0
        """The number of bytes of all responses so far."""
        self.refusal: OutboundRefusedError | None = None
        """The error of the last target that the guard rejected."""
        self.failure: OutboundFailedError | None = None
        """The error of the last call that failed."""

    def __repr__(self) -> str:
        return f"<Proxy at port {self.port}>"

    @property
    def port(self) -> int:
        listening = () if self._server is None else self._server.sockets
        return listening[0].getsockname()[1] if listening else 0

    @property
    def url(self) -> str:
        """The URL with a password, so that no other user of this machine can use the proxy. Not for logs."""
        return f"http://millpond:{self._password}@127.0.0.1:{self.port}"

    @property
    def is_spent(self) -> bool:
        """Whether the responses have exceeded the size limit."""
        return self.size > self._size_max

    def hide(self, text: str) -> str:
        """Remove the password from a text."""
        return text.replace(self._password, "…")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, limit=_HEAD_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve in a task created here: one created by asyncio would log an error when it is canceled."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the program disconnected, or does not speak HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; the connection is closed after it."""
        async with asyncio.timeout(_SECONDS):
            head = _read_head(await reader.readuntil(b"\r\n\r\n"))
        if not self._is_known(head.headers.get("proxy-authorization", "")):
            await _respond(writer, 407, {"proxy-authenticate": 'Basic realm="millpond"'})
            return
        try:
            if head.method == "CONNECT":
                await self._connect(head, reader, writer)
            else:
                await self._forward(head, reader, writer)
        except OutboundRefusedError as error:
            self.refusal = error
            await _respond(writer, 403)
        except OutboundFailedError as error:
            self.failure = error
            await _respond(writer, 502)  # breaks a response that has begun, so that the program notices too

    def _is_known(self, authorization: str) -> bool:
        expected = base64.b64encode(f"millpond:{self._password}".encode()).decode()
        return hmac.compare_digest(authorization.encode(), f"Basic {expected}".encode())

    # Tunnels, for https

    async def _connect(self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = await self._outbound.dial(f"https://{head.place}", seconds=_SECONDS)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            sending = asyncio.ensure_future(_send(reader, wire))
            try:
                await self._bring(wire, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            await wire.aclose()

    async def _bring(self, wire: Wire, writer: asyncio.StreamWriter) -> None:
        from millpond.outbound import network  # noqa: PLC0415 - already imported by the call

        with contextlib.suppress(*network.FAILURES):
            while piece := await wire.read(_PIECE):
                self._count(piece)
                writer.write(piece)
                await writer.drain()

    # Whole requests, for http

    async def _forward(self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a request that is built anew, so that its length and its host cannot be read in two ways."""
        body = await _read_body(head, reader, writer)
        headers = {name: text for name, text in head.headers.items() if name not in _HOPS}
        left = max(self._size_max - self.size, 0)
        try:
            async with self._outbound.stream(
                head.method, head.place, headers=headers, body=body, seconds=self._seconds, size_max=left
            ) as streamed:
                await _respond(writer, streamed.status, _response_headers(streamed), has_body=True)
                async for piece in streamed:
                    self._count(piece)
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except TooLargeError:
            self.size = self._size_max + 1

    def _count(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.is_spent:
            raise ConnectionError("The response exceeds the size limit.")


async def _send(reader: asyncio.StreamReader, wire: Wire) -> None:
    from millpond.outbound import network  # noqa: PLC0415 - already imported by the call

    with contextlib.suppress(*network.FAILURES):
        while piece := await reader.read(_PIECE):
            await wire.write(piece)


def _read_head(raw: bytes) -> _Head:
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, place, _ = first.split(" ")
    headers = dict(line.split(":", 1) for line in lines if line)
    return _Head(method, place, {name.strip().lower(): text.strip() for name, text in headers.items()})


async def _read_body(head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    if head.headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    async with asyncio.timeout(_SECONDS):
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join([piece async for piece in _chunks(reader)])
        size = int(head.headers.get("content-length", "0"))
        if not 0 <= size <= _BODY_MAX:
            raise ValueError("The request exceeds the size limit.")
        return await reader.readexactly(size)


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    left = _BODY_MAX
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        left -= size
        if size < 0 or left < 0:
            raise ValueError("The request exceeds the size limit.")
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass


def _response_headers(streamed: Streamed) -> dict[str, str]:
    return {name: text for name, text in streamed.headers.items() if name not in _HOPS and name != "content-length"}


async def _respond(
    writer: asyncio.StreamWriter, status: int, headers: dict[str, str] | None = None, *, has_body: bool = False
) -> None:
    form = {"transfer-encoding": "chunked"} if has_body else {"content-length": "0"}
    sent = {**(headers or {}), **form, "connection": "close"}
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{name}: {text}" for name, text in sent.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
    await writer.drain()
