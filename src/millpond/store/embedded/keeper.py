"""Keeps an embedded server running: one that has ended is started again, with back-off."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import EmbeddedPostgresError
from millpond.retry import Backoff
from millpond.store.embedded.server import EmbeddedPostgres, open_embedded

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from millpond.store.db import Database

RESTARTING: Final = "the embedded server has ended and is being restarted"
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=5))
_SETTLED: Final = 60.0  # seconds after which an end of the server resets the backoff
_CHECK: Final = 0.25  # seconds between two checks


class Keeper:
    """An embedded server that runs as long as this object is open, also if its process is killed.

    If another process has started the server, and has ended together with it, this one starts it again.
    """

    def __init__(self, data_dir: Path) -> None:
        self.server = open_embedded(data_dir)
        self._data_dir = data_dir
        self._report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    @property
    def dsn(self) -> str:
        """The address, which remains the same."""
        return self.server.dsn

    async def run(self, db: Database, stop: asyncio.Event) -> None:
        """Restart the server whenever it has ended, until ``stop`` is set; ``db`` reports that for the readiness."""
        failures = 0
        while not stop.is_set():
            began = time.monotonic()
            await self._until_ended(stop)
            if stop.is_set():
                return
            db.repair = RESTARTING
            logs.emit("db.embedded_ended", data_dir=str(self._data_dir), pid=self.server.pid)
            failures = 1 if time.monotonic() - began > _SETTLED else failures + 1
            failures = await self._restart(stop, failures)
            db.repair = None

    async def _until_ended(self, stop: asyncio.Event) -> None:
        while is_running(self.server) and not stop.is_set():
            await _wait(stop, _CHECK)

    async def _restart(self, stop: asyncio.Event, failures: int) -> int:
        """Start the server again; returns the number of failures, including the end of the server."""
        while True:
            pause = _BACKOFF.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
            await _wait(stop, pause if failures > 1 else 0)
            if stop.is_set():
                return failures
            self.server.stop()  # reaps the process
            try:
                self.server = await asyncio.to_thread(open_embedded, self._data_dir)
            except EmbeddedPostgresError as error:
                failures += 1
                logs.emit("db.embedded_failed", data_dir=str(self._data_dir), error=str(error))
            else:
                self._report()
                return failures

    def _report(self) -> None:
        if self.server.is_owner:
            logs.emit("db.embedded_started", data_dir=str(self._data_dir), pid=self.server.pid)


def is_running(server: EmbeddedPostgres) -> bool:
    """Whether the process of a server runs, be it of this process or of another."""
    if server.is_owner:
        return server.is_alive()
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
