"""The notifier: one LISTEN connection and many waiters. It makes waiting short; polling makes it reliable."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import MillpondError
from millpond.retry import DATABASE
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.engine.engine import Engine

SQL: Final = queries("millpond.services", "notifier")

CHANNEL: Final = "millpond"
_GAP: Final = 0.005  # seconds between two notifications
_PAYLOAD_MAX: Final = 7_000


class Notifier:
    """Notifies other processes of commits made here, and calls the listeners for commits made elsewhere."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listeners: list[Callable[[frozenset[str]], None]] = [engine.access.hear, engine.workers.hear]
        self._pending: set[str] = set()
        self._notifying: asyncio.Task[None] | None = None
        self._quiet_until = 0.0
        engine.notifier = self

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        """Call ``heard`` with the topics of each notification: names of queues, or ``cancel:`` and a job's id."""
        self._listeners.append(heard)

    def notify(self, topics: set[str], *, is_sent: bool = False) -> None:
        """Wake this process at once and the others soon, unless a statement has notified them already."""
        if not topics:
            return
        self._call(frozenset(topics))
        if is_sent:
            return
        self._pending |= topics
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify_others())

    def payload_for_statement(self, topics: set[str]) -> str | None:
        """The payload that a statement should send itself; none if the others were notified just now."""
        now = time.monotonic()
        if now < self._quiet_until or self._pending:
            return None
        self._quiet_until = now + _GAP
        return _payload(topics)

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until ``stop`` is set; reconnect after every disconnect."""
        failures = 0
        while not stop.is_set():
            try:
                async with self._engine.db.listen(CHANNEL, self._heard) as cut:
                    failures = 0
                    await _first(stop, cut)
            except Exception as error:  # noqa: BLE001 - without notifications, waits are longer, but they end
                failures += 1
                logs.emit("db.unavailable", service="notifier", error=str(error))
                pause = DATABASE.delay(failures, random.random())  # noqa: S311 - jitter
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await stop.wait()

    async def _notify_others(self) -> None:
        while self._pending:
            topics = _payload(self._pending)
            self._pending.clear()
            self._quiet_until = time.monotonic() + _GAP
            with contextlib.suppress(MillpondError):  # The others also poll.
                await self._engine.db.run(SQL["notify"], topics)
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
