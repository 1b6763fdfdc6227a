"""Receivers of webhooks on one port, well and sick: the path says how each behaves.

http://127.0.0.1:PORT/healthy/NAME        takes everything, and remembers it under its name
http://127.0.0.1:PORT/flaky/NAME?times=2  answers 500 to the first tries of a message, and then takes it;
                                          with &of=4, only to those of about one message in four
http://127.0.0.1:PORT/slow/NAME?seconds=3 takes its time
… and see SICK

python -m tests.doubles.receivers         runs it as a process: prints its port; GET /received tells what came
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

GIGABYTE = 1 << 30
FOREVER = 3_600.0


class Received(msgspec.Struct, frozen=True):
    """A webhook as it came."""

    name: str
    at: float
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class Call:
    """A request whose head was read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    method: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]

    async def body(self) -> bytes:
        return await self.reader.readexactly(int(self.headers.get("content-length", "0")))

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        fields = {"content-length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"HTTP/1.1 {status} So\r\n{lines}\r\n".encode() + body)
        await self.writer.drain()


@dataclass
class Receivers:
    """All of them, and what the healthy ones were told."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    """How often each path was called."""
    connections: int = 0
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _closed_port: int = 0
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)

    def url(self, mode: str, name: str = "one", **query: Any) -> str:
        port = self._closed_port if mode == "down" else self.port
        words = "&".join(f"{key}={value}" for key, value in query.items())
        return f"http://127.0.0.1:{port}/{mode}/{name}" + (f"?{words}" if words else "")

    def of(self, name: str) -> list[Received]:
        return [each for each in self.received if each.name == name]

    # How they behave

    async def healthy(self, call: Call) -> None:
        body = await call.body()
        self.received.append(Received(call.name, time.time(), call.headers, body))
        await call.answer(204 if "empty" in call.query else 200, b"" if "empty" in call.query else b"taken")

    async def flaky(self, call: Call) -> None:
        key = (call.name, call.headers.get("webhook-id", ""))
        is_spared = zlib.crc32(key[1].encode()) % int(call.query.get("of", "1")) != 0
        if is_spared or self.failed[key] >= int(call.query.get("times", "1")):
            return await self.healthy(call)
        self.failed[key] += 1
        await call.body()
        return await call.answer(int(call.query.get("status", "500")))

    async def slow(self, call: Call) -> None:
        await asyncio.sleep(float(call.query.get("seconds", FOREVER)))
        await self.healthy(call)

    async def resets(self, call: Call) -> None:
        call.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call.writer.transport.abort()

    async def half_closes(self, call: Call) -> None:
        """Will say nothing more, and never hangs up."""
        call.writer.write_eof()
        await asyncio.sleep(FOREVER)

    async def error(self, call: Call) -> None:
        await call.body()
        await call.answer(int(call.query.get("status", "500")), b"no")

    async def limited(self, call: Call) -> None:
        await call.body()
        await call.answer(429, retry_after=call.query.get("seconds", "1"))

    async def gone(self, call: Call) -> None:
        await call.body()
        await call.answer(410)

    async def redirects(self, call: Call) -> None:
        await call.body()
        there = call.query.get("to", f"http://127.0.0.1:{self.port}/healthy/{call.name}")
        await call.answer(302, location=there)

    async def dribbles(self, call: Call) -> None:
        """An answer that is right, a byte a second."""
        await call.body()
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n":
            call.writer.write(bytes([byte]))
            await call.writer.drain()
            await asyncio.sleep(float(call.query.get("seconds", "1")))

    async def dribbles_body(self, call: Call) -> None:
        await call.body()
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            call.writer.write(b".")
            await call.writer.drain()
            await asyncio.sleep(float(call.query.get("seconds", "1")))

    async def never_reads(self, call: Call) -> None:
        call.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(FOREVER)

    async def huge(self, call: Call) -> None:
        await call.body()
        await self._flood(call, f"content-length: {GIGABYTE}".encode())

    async def huge_chunked(self, call: Call) -> None:
        await call.body()
        await self._flood(call, b"transfer-encoding: chunked", b"10000\r\n", b"\r\n")

    async def _flood(self, call: Call, header: bytes, before: bytes = b"", after: bytes = b"") -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n")
        piece = before + b"x" * 65_536 + after
        for _ in range(GIGABYTE // 65_536):
            call.writer.write(piece)
            await call.writer.drain()

    async def endless_head(self, call: Call) -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            call.writer.write(b"x-more: " + b"y" * 8_000 + b"\r\n")
            await call.writer.drain()

    async def endless_hints(self, call: Call) -> None:
        """An answer that is always about to come."""
        while True:
            call.writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
            await call.writer.drain()
            await asyncio.sleep(0.01)

    async def garbage(self, call: Call) -> None:
        await call.body()
        call.writer.write(b"SSH-2.0-OpenSSH_9.7\r\n" * 10 + b"\r\n")
        await call.writer.drain()
        call.writer.close()

    async def cuts(self, call: Call) -> None:
        await call.body()
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await call.writer.drain()
        call.writer.close()

    async def reported(self, call: Call) -> None:
        """What came, for another process: one JSON object a line, from the number that it has seen."""
        rows = self.received[int(call.query.get("since", "0")) :]
        lines = [
            msgspec.json.encode(
                {
                    "name": each.name,
                    "at": each.at,
                    "headers": each.headers,
                    "body": base64.b64encode(each.body).decode(),
                }
            )
            for each in rows
        ]
        await call.answer(200, b"\n".join(lines))

    # The server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        serving = cast("asyncio.Task[Any]", asyncio.current_task())
        self._serving.add(serving)
        try:
            while (call := await self._read(reader, writer)) is not None:
                path = call.query.pop("mode")
                self.tries[f"{path}/{call.name}"] += 1
                behave: Callable[[Call], Awaitable[None]] = self.reported if path == "received" else getattr(self, path)
                await behave(call)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(serving)
            writer.transport.abort()

    async def hang_up(self) -> None:
        """End those that still take their time, so that the loop may end too."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        parts = urlsplit(target)
        mode, _, name = parts.path.strip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()} | {"mode": mode}
        pairs = (line.partition(":") for line in lines)
        headers = {key.lower(): value.strip() for key, _, value in pairs}
        return Call(reader, writer, method, name, query, headers)


SICK = (
    "down",
    "slow",
    "resets",
    "half_closes",
    "error",
    "limited",
    "gone",
    "redirects",
    "dribbles",
    "never_reads",
    "huge",
    "endless_head",
    "garbage",
)
"""Ways not to take a webhook."""


@contextlib.asynccontextmanager
async def receivers(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Receivers]:
    made = Receivers()
    server = await asyncio.start_server(made.serve, host, port, limit=1 << 20, backlog=1_024)
    made.port = server.sockets[0].getsockname()[1]
    with socket.socket() as closed:  # bound and not listening: nobody else gets the port, and who calls it is refused
        closed.bind(("127.0.0.1", 0))
        made._closed_port = closed.getsockname()[1]
        try:
            yield made
        finally:
            server.close()
            await made.hang_up()


async def main() -> None:
    async with receivers() as made:
        sys.stdout.write(f"{made.port} {made._closed_port}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
