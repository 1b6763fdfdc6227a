"""A wire between a client and PostgreSQL that can be cut at any message, before or after the server has heard it.

It reads just enough of the protocol (https://www.postgresql.org/docs/current/protocol-message-formats.html) to know
where a message ends. A statement commits when the server gets the Sync after it; the server says ReadyForQuery when
it has. A wire cut before the one or before the other is what a client cannot tell apart.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

When = Literal["before", "after"]

_PORT = 5432
_FLUSHES = b"SQ"  # Sync and Query: the server answers these with ReadyForQuery
_IDLE = b"DEH"  # Describe, Execute, Flush: what came with them in one piece is lost either way, unless a Sync follows
_GOODBYE = b"X"
_READY = b"Z"


@dataclass(slots=True)
class Wire:
    """The server's socket, as seen through the wire."""

    upstream: str
    dsn: str
    messages: int = 0
    has_cut: bool = False
    _number: int = 0
    _when: When = "before"
    _links: set[Link] = field(default_factory=set)

    def cut_at(self, number: int, when: When) -> None:
        """Cut once: before the server hears the n-th message, or after it has answered the n-th it answers."""
        self.messages = 0
        self.has_cut = False
        self._number = number
        self._when = when

    def heal(self) -> None:
        self._number = 0

    def part(self) -> None:
        """Cut every client off; the server does not notice and goes on with what it was told."""
        for link in self._links:
            link.is_parted = True
            link.writer.transport.abort()

    def judge(self, kind: bytes) -> When | None:
        """Whether this message of a client is the one, and on which side of it to cut."""
        if kind == _GOODBYE or kind in _IDLE or (self._when == "after" and kind not in _FLUSHES):
            return None
        self.messages += 1
        if self.messages != self._number:
            return None
        self.has_cut = True
        self._number = 0
        return self._when

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        link.task = asyncio.create_task(link.run())  # its own: the loop reports a connection's task that is canceled
        self._links.add(link)
        try:
            await asyncio.wait([link.task])
        finally:
            self._links.discard(link)


@dataclass(eq=False, slots=True)
class Link:
    """One connection through the wire."""

    wire: Wire
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_ready: bool = False
    is_withholding: bool = False
    is_parted: bool = False
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self.wire.upstream)
        pumps = [
            asyncio.create_task(self._to_server(writer)),
            asyncio.create_task(self._to_client(reader)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self.is_parted:
                await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, self.writer):
                end.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _to_server(self, writer: asyncio.StreamWriter) -> None:
        size = await self.reader.readexactly(4)
        writer.write(size + await self.reader.readexactly(int.from_bytes(size) - 4))
        while True:
            kind, body = await _message(self.reader)
            cut = self.wire.judge(kind) if self.is_ready else None
            if cut == "before":
                return
            self.is_withholding = cut == "after"
            writer.write(kind + body)
            await writer.drain()

    async def _to_client(self, reader: asyncio.StreamReader) -> None:
        while True:
            kind, body = await _message(reader)
            if self.is_withholding or self.is_parted:
                if kind == _READY:
                    return
                continue
            self.is_ready = self.is_ready or kind == _READY
            self.writer.write(kind + body)
            await self.writer.drain()


@asynccontextmanager
async def wire(dsn: str, make: Callable[[str, str], Wire] | None = None) -> AsyncIterator[Wire]:
    """A wire to the database of this address, of another make if one is given."""
    upstream = parse_qs(urlsplit(dsn).query)
    with tempfile.TemporaryDirectory(prefix="wire-") as folder:
        address = urlsplit(dsn)._replace(query=f"host={quote(folder, safe='')}&port={_PORT}").geturl()
        made = (make or Wire)(f"{upstream['host'][0]}/.s.PGSQL.{upstream['port'][0]}", address)
        server = await asyncio.start_unix_server(made.connect, Path(folder, f".s.PGSQL.{_PORT}"))
        try:
            yield made
        finally:
            server.close()
            tasks = [link.task for link in made._links if link.task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    size = await reader.readexactly(4)
    return kind, size + await reader.readexactly(int.from_bytes(size) - 4)
