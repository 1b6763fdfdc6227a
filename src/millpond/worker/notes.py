"""Buffers the notes of a fleet worker's jobs: a burst becomes few requests, and the order is kept."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from millpond import wire
from millpond.errors import LeaseLostError, MillpondError, UnavailableError
from millpond.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Send = Callable[[list[Any]], Awaitable[None]]

GAP: Final = 0.3
"""Seconds between two requests about one job."""
KEPT_MAX: Final = 2_000
"""How many notes wait while the server is unavailable; after that, the oldest are dropped for new ones."""
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=10), jitter=0.5)


class Notes:
    """The notes of one lease that are not sent yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[wire.WorkerNote] = deque(maxlen=KEPT_MAX)
        self._turn = asyncio.Lock()
        self._sender: asyncio.Task[None] | None = None

    def add(self, note: wire.WorkerNote) -> None:
        self._waiting.append(note)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_on())

    async def flush(self) -> None:
        """Send all remaining notes now."""
        async with self._turn:
            while self._waiting:
                await self._send_some()

    def drop(self) -> None:
        """Discard the remaining notes, because the lease is over."""
        self._waiting.clear()
        if self._sender is not None:
            self._sender.cancel()

    async def _send_on(self) -> None:
        failures = 0
        while self._waiting:
            pause = GAP
            try:
                async with self._turn:
                    if self._waiting:
                        await self._send_some()
                failures = 0
            except LeaseLostError:
                self._waiting.clear()
            except UnavailableError:
                failures += 1
                pause = _BACKOFF.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
            await asyncio.sleep(pause)

    async def _send_some(self) -> None:
        """Send the oldest notes. They are removed once they are sent, or if the server rejects them for good."""
        batch = [self._waiting[n] for n in range(min(len(self._waiting), wire.NOTES_MAX))]
        try:
            await self._send(batch)
        except (LeaseLostError, UnavailableError):
            raise
        except MillpondError:
            pass
        while self._waiting and self._waiting[0].number <= batch[-1].number:
            self._waiting.popleft()
