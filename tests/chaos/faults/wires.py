"""Wires between processes: everything passes through, until they are cut or freeze."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Wire:
    """A listener that passes bytes on to another address, in both directions."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._links: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._server: asyncio.Server | None = None

    @classmethod
    async def to_socket(cls, target: Path, path: Path) -> Wire:
        made = cls(lambda: asyncio.open_unix_connection(target))
        made._server = await asyncio.start_unix_server(made._connect, path)
        return made

    @classmethod
    async def to_port(cls, target: int) -> Wire:
        made = cls(lambda: asyncio.open_connection("127.0.0.1", target))
        made._server = await asyncio.start_server(made._connect, "127.0.0.1", 0)
        return made

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def freeze(self) -> None:
        """Nothing passes, and nobody hears why."""
        self._flows.clear()

    def cut(self) -> None:
        """All connections end; new ones end at once."""
        self._is_cut = True
        for link in self._links:
            link.cancel()

    def heal(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        link = asyncio.create_task(self._run(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends: list[Any] = [writer]
        try:
            far_reader, far_writer = await self._dial()
            ends.append(far_writer)
            pumps = [
                asyncio.ensure_future(each) for each in (self._pump(reader, far_writer), self._pump(far_reader, writer))
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
