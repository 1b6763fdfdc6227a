"""Notices that the machine under a worker will be taken away, each told once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import UnavailableError
from millpond.work import Notice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from millpond.aws.metadata import Metadata

INTERVAL: Final = 5.0  # what Amazon advises
_TRIES: Final = 3  # before it is believed that there is no metadata service
_SPOT_SECONDS: Final = 120.0
_SCALE_IN_SECONDS: Final = 60.0
_REBALANCE_SECONDS: Final = 3600.0


@dataclass
class Notices:
    """Looks every few seconds whether a Spot interruption or a scale-in is announced. Iterate over it once.

    If asked, it also passes on Amazon's advice to go elsewhere in time, which sets no end: what runs may finish. How
    long a scale-in leaves is not told anywhere: as long as the group's termination hook waits, or a moment if it has
    none.
    """

    metadata: Metadata
    interval: float = INTERVAL
    with_rebalance: bool = False
    scale_in_seconds: float = _SCALE_IN_SECONDS
    rebalance_seconds: float = _REBALANCE_SECONDS
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _told: set[str] = field(default_factory=set[str], init=False)
    _failing: set[str] = field(default_factory=set[str], init=False)
    _was_reached: bool = field(default=False, init=False)

    async def __aiter__(self) -> AsyncGenerator[Notice]:
        while await self._is_worthwhile():
            for look in (self._interruption, self._scale_in, self._rebalance):
                for notice in await self._try(look):
                    yield notice
            await self.sleep(self.interval)

    async def _is_worthwhile(self) -> bool:
        """Not where no metadata service ever answered: that is no EC2 instance."""
        if self._was_reached:
            return True
        for _ in range(_TRIES):
            if await self.metadata.is_there():
                self._was_reached = True
                return True
            await self.sleep(self.interval / _TRIES)
        logs.emit("notices.absent", url=self.metadata.url)
        return False

    async def _try(self, look: Callable[[], Awaitable[list[Notice]]]) -> list[Notice]:
        """What a look finds; a service that is out of order for a while ends nothing, and is told of once."""
        name = look.__name__.strip("_")
        try:
            found = await look()
        except UnavailableError as error:
            if name not in self._failing:
                logs.emit("notices.unseen", look=name, error=str(error))
            self._failing.add(name)
            return []
        self._failing.discard(name)
        return found

    async def _interruption(self) -> list[Notice]:
        found = await self.metadata.interruption()
        if found is None or not self._is_new(f"spot {found.action} {found.at}"):
            return []
        seconds = _SPOT_SECONDS if found.seconds_left is None else found.seconds_left
        return [Notice(0.0 if found.action == "hibernate" else seconds, f"spot {found.action}")]

    async def _scale_in(self) -> list[Notice]:
        state = await self.metadata.target_state()
        if state != "Terminated" or not self._is_new("scale-in"):
            return []
        return [Notice(self.scale_in_seconds, "scale-in")]

    async def _rebalance(self) -> list[Notice]:
        if not self.with_rebalance or await self.metadata.rebalance_at() is None or not self._is_new("rebalance"):
            return []
        return [Notice(self.rebalance_seconds, "rebalance")]

    def _is_new(self, what: str) -> bool:
        is_new = what not in self._told
        self._told.add(what)
        return is_new
