"""A service: a background task that runs periodically. Any number of each may run concurrently."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from millpond import logs
from millpond.errors import UnavailableError
from millpond.retry import DATABASE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta

_JITTER: Final = 0.2


class BackgroundTask(Protocol):
    """A background task that runs until ``stop`` is set."""

    @property
    def name(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None: ...


@dataclass(slots=True)
class Service:
    """Calls ``run_once`` periodically, which does what is due now and returns how much that was."""

    name: str
    every: timedelta
    run_once: Callable[[], Awaitable[int]]

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. After an error, which is logged, it pauses and continues."""
        failures = 0
        while not stop.is_set():
            try:
                await self.run_once()
                failures = 0
            except UnavailableError as error:
                failures += 1
                logs.emit("db.unavailable", service=self.name, error=str(error))
            except Exception as error:  # noqa: BLE001 - a service must survive any error
                failures += 1
                logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {error}")
            await _wait(stop, self._pause(failures))

    def _pause(self, failures: int) -> float:
        if failures:  # whatever the error: an outage has many, and what it has delayed must not wait for long
            return DATABASE.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
        return self.every.total_seconds() * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter


async def run_services(services: Iterable[BackgroundTask], stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run(stop), name=service.name)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
