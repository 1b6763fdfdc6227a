"""The bell: one LISTEN connection and many waiters. It makes waiting short; polling makes it sure."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import MillpondError
from millpond.retry import Backoff
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.engine.engine import Engine

SQL: Final = queries("millpond.services", "bell")

CHANNEL: Final = "millpond"
_GAP: Final = 0.005  # a busy system need not ring more often than this
_PAYLOAD_MAX: Final = 7_000


class Bell:
    """Rings for the topics of commits made here, and calls whoever listens for those made elsewhere."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listeners: list[Callable[[frozenset[str]], None]] = [engine.access.hear, engine.workers.hear]
        self._pending: set[str] = set()
        self._ringing: asyncio.Task[None] | None = None
        self._quiet_until = 0.0
        engine.bell = self

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        """Call ``heard`` with the topics whenever it rings: names of queues, or ``cancel:`` and a job's id."""
        self._listeners.append(heard)

    def ring(self, topics: set[str], *, carried: bool = False) -> None:
        """Wake this process at once and the others soon, unless a statement has carried it to them."""
        if not topics:
            return
        self._call(frozenset(topics))
        if carried:
            return
        self._pending |= topics
        if self._ringing is None or self._ringing.done():
            self._ringing = asyncio.create_task(self._ring_others())

    def carry(self, topics: set[str]) -> str | None:
        """What a statement should ring for on its way; nothing, if the others have only just been woken."""
        now = time.monotonic()
        if now < self._quiet_until or self._pending:
            return None
        self._quiet_until = now + _GAP
        return _payload(topics)

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until told to stop, again after every cut."""
        failures = 0
        while not stop.is_set():
            try:
                async with self._engine.db.listen(CHANNEL, self._heard) as cut:
                    failures = 0
                    await _first(stop, cut)
            except Exception as error:  # noqa: BLE001 - without it waiting is longer, and no more
                failures += 1
                logs.emit("db.unavailable", service="bell", error=str(error))
                pause = Backoff().delay(failures, random.random())  # noqa: S311 - jitter
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await stop.wait()

    async def _ring_others(self) -> None:
        while self._pending:
            topics = _payload(self._pending)
            self._pending.clear()
            self._quiet_until = time.monotonic() + _GAP
            with contextlib.suppress(MillpondError):  # They will look by themselves.
                await self._engine.db.run(SQL["ring"], topics)
            await asyncio.sleep(_GAP)

    def _heard(self, payload: str) -> None:
        self._call(frozenset(payload.split("\n")))

    def _call(self, topics: frozenset[str]) -> None:
        for heard in self._listeners:
            heard(topics)


def _payload(topics: set[str]) -> str:
    return "\n".join(sorted(topics))[:_PAYLOAD_MAX]


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
