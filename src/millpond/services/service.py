"""A service: a piece of background work with a rhythm. Any number of each may run side by side."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from millpond import logs
from millpond.errors import UnavailableError
from millpond.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta

_JITTER: Final = 0.2


class Part(Protocol):
    """What runs in the background until it is told to stop."""

    @property
    def name(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None: ...


@dataclass(slots=True)
class Service:
    """``run_once`` does what is due now and tells how much that was; the rest is the rhythm."""

    name: str
    every: timedelta
    run_once: Callable[[], Awaitable[int]]
    backoff: Backoff = field(default_factory=Backoff)

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; an error is logged, waited out, and never the end."""
        failures = 0
        while not stop.is_set():
            try:
                await self.run_once()
                failures = 0
            except UnavailableError as error:
                failures += 1
                logs.emit("db.unavailable", service=self.name, error=str(error))
            except Exception as error:  # noqa: BLE001 - a service must outlive whatever happens to it
                failures += 1
                logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {error}")
            await _wait(stop, self._pause(failures))

    def _pause(self, failures: int) -> float:
        if failures:
            return self.backoff.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
        return self.every.total_seconds() * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter


async def run_services(services: Iterable[Part], stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run(stop), name=service.name)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
