"""A proxy on this machine, through which a program of others reaches what the guard admits, and nothing else.

Such a program looks names up and follows redirects by itself. So it is told to ask us for every connection: what it
names is checked as any URL of a user is, each time, and the connection goes to the very address that was checked.
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
"""Bytes of what the program sends in one request."""
_PIECE: Final = 64 * 1024
_SECONDS: Final = 30.0
"""For a request to be told, and for a connection to be made."""
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
"""What is said from one hop to the next only."""
_REASONS: Final = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}


class _Head(msgspec.Struct, frozen=True):
    """The first lines of a request."""

    method: str
    place: str
    headers: dict[str, str]


class Proxy:
    """Serves one program, over as many connections as it likes: ``async with Proxy(outbound, …) as proxy``.

    ``size_max`` is for all that it is sent back, ``seconds`` for each answer. What went wrong is kept, since the
    program itself tells of it in words of its own, if at all.
    """

    def __init__(self, outbound: Outbound, *, size_max: int, seconds: float) -> None:
        self._outbound = outbound
        self._size_max = size_max
        self._seconds = seconds
        self._password = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.size = 0
        """How many bytes came back so far."""
        self.refusal: OutboundRefusedError | None = None
        """The last place that the guard did not admit."""
        self.failure: OutboundFailedError | None = None
        """The last connection that came to nothing."""

    def __repr__(self) -> str:
        return f"<Proxy at port {self.port}>"

    @property
    def port(self) -> int:
        listening = () if self._server is None else self._server.sockets
        return listening[0].getsockname()[1] if listening else 0

    @property
    def url(self) -> str:
        """With a password, so that nobody else on this machine comes through it. Not for logs."""
        return f"http://millpond:{self._password}@127.0.0.1:{self.port}"

    @property
    def is_spent(self) -> bool:
        """Whether more came back than may."""
        return self.size > self._size_max

    def hide(self, text: str) -> str:
        """A text without the password."""
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
        """In a task of our own: one that asyncio makes complains when it is canceled."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it hung up, or does not speak HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request; the connection ends with it."""
        async with asyncio.timeout(_SECONDS):
            head = _read_head(await reader.readuntil(b"\r\n\r\n"))
        if not self._is_known(head.headers.get("proxy-authorization", "")):
            await _say(writer, 407, {"proxy-authenticate": 'Basic realm="millpond"'})
            return
        try:
            if head.method == "CONNECT":
                await self._connect(head, reader, writer)
            else:
                await self._pass_on(head, reader, writer)
        except OutboundRefusedError as error:
            self.refusal = error
            await _say(writer, 403)
        except OutboundFailedError as error:
            self.failure = error
            await _say(writer, 502)  # where the head of an answer is out, this tears it, which tells the program too

    def _is_known(self, said: str) -> bool:
        expected = base64.b64encode(f"millpond:{self._password}".encode()).decode()
        return hmac.compare_digest(said.encode(), f"Basic {expected}".encode())

    # Bare connections, for https

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
        from millpond.outbound import network  # noqa: PLC0415 - whoever got here has it

        with contextlib.suppress(*network.FAILURES):
            while piece := await wire.read(_PIECE):
                self._count(piece)
                writer.write(piece)
                await writer.drain()

    # Whole requests, for http

    async def _pass_on(self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Made anew, so that nothing of it is read in two ways: not its length, nor which host it is for."""
        body = await _read_body(head, reader, writer)
        headers = {name: text for name, text in head.headers.items() if name not in _HOPS}
        left = max(self._size_max - self.size, 0)
        try:
            async with self._outbound.stream(
                head.method, head.place, headers=headers, body=body, seconds=self._seconds, size_max=left
            ) as streamed:
                await _say(writer, streamed.status, _told(streamed), has_body=True)
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
            raise ConnectionError("More came back than may.")


async def _send(reader: asyncio.StreamReader, wire: Wire) -> None:
    from millpond.outbound import network  # noqa: PLC0415 - whoever got here has it

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
            raise ValueError("It sends more than may be sent.")
        return await reader.readexactly(size)


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    left = _BODY_MAX
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        left -= size
        if size < 0 or left < 0:
            raise ValueError("It sends more than may be sent.")
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass


def _told(streamed: Streamed) -> dict[str, str]:
    return {name: text for name, text in streamed.headers.items() if name not in _HOPS and name != "content-length"}


async def _say(
    writer: asyncio.StreamWriter, status: int, headers: dict[str, str] | None = None, *, has_body: bool = False
) -> None:
    form = {"transfer-encoding": "chunked"} if has_body else {"content-length": "0"}
    told = {**(headers or {}), **form, "connection": "close"}
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Told')}", *(f"{name}: {text}" for name, text in told.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
    await writer.drain()
