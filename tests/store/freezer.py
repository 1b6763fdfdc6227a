"""A server that can hang, or forget the connections that are open."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Freezer:
    """A server's socket that can hang: it accepts connections, and answers nothing on new ones, open ones or both."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._flows = asyncio.Event()
        """Set while what is sent on the connections made since the last freeze is passed on."""
        self._flows.set()
        self._accepts = asyncio.Event()
        self._accepts.set()
        self._serving: set[asyncio.Task[object]] = set()
        """What waits for a flow that never comes is known to nobody else, and would be collected as garbage."""
        self.accepted = 0
        self.delay = 0.0
        """How many seconds a login takes."""
        self.greets_only = False
        """Whether new connections hang after the login, as with a pooler whose server hangs."""

    def freeze(self) -> None:
        self.freeze_open()
        self.freeze_new()

    def freeze_new(self) -> None:
        self._accepts.clear()

    def freeze_open(self) -> None:
        self._flows.clear()
        self._flows = asyncio.Event()
        self._flows.set()

    async def stop(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.accepted += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._accepts.wait()
            await asyncio.sleep(self.delay)
            flows = self._flows
            login = await reader.read(65_536)
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
            up_writer.write(login)
            if self.greets_only:
                flows = asyncio.Event()
            pumps = [
                asyncio.create_task(self._pump(reader, up_writer, flows)),
                asyncio.create_task(self._pump(up_reader, writer, self._flows)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                up_writer.transport.abort()
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        while data := await reader.read(65_536):
            await flows.wait()
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def freezer_of(dsn: str, folder: Path) -> AsyncIterator[tuple[Freezer, str]]:
    """A freezer in front of the database of a URL, and the URL of the freezer."""
    names = parse_qs(urlsplit(dsn).query)
    freezer = Freezer(f"{names['host'][0]}/.s.PGSQL.{names['port'][0]}")
    folder.mkdir()
    server = await asyncio.start_unix_server(freezer.serve, folder / ".s.PGSQL.5432")
    try:
        yield freezer, urlsplit(dsn)._replace(query=f"host={quote(str(folder), safe='')}&port=5432").geturl()
    finally:
        server.close()
        await freezer.stop()
