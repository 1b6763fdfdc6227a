"""Notices that the instance of a worker will be terminated, each emitted once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import UnavailableError
from millpond.work import Notice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from millpond.integrations.aws.metadata import Metadata

INTERVAL: Final = 5.0  # recommended by Amazon
_TRIES: Final = 3  # before the metadata service counts as absent
_SPOT_SECONDS: Final = 120.0
_SCALE_IN_SECONDS: Final = 60.0
_REBALANCE_SECONDS: Final = 3600.0


@dataclass
class Notices:
    """Polls for announced Spot interruptions and scale-ins. Iterate over it once.

    With ``with_rebalance``, it also emits Amazon's rebalance recommendations. These set no deadline, so running jobs
    may finish. The time that a scale-in leaves is not announced: it is as long as the termination hook of the group
    waits, or a moment without a hook.
    """

    metadata: Metadata
    interval: float = INTERVAL
    with_rebalance: bool = False
    scale_in_seconds: float = _SCALE_IN_SECONDS
    rebalance_seconds: float = _REBALANCE_SECONDS
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _emitted: set[str] = field(default_factory=set[str], init=False)
    _failing: set[str] = field(default_factory=set[str], init=False)
    _was_reached: bool = field(default=False, init=False)

    async def __aiter__(self) -> AsyncGenerator[Notice]:
        while await self._is_worthwhile():
            for look in (self._interruption, self._scale_in, self._rebalance):
                for notice in await self._try(look):
                    yield notice
            await self.sleep(self.interval)

    async def _is_worthwhile(self) -> bool:
        """Whether polling makes sense: not if no metadata service ever responded, as this is no EC2 instance then."""
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
        """The notices that a look finds. An outage of the service ends nothing, and is logged once."""
        name = look.__name__.strip("_")
        try:
            found = await look()
        except UnavailableError as error:
            if name not in self._failing:
                logs.emit("notices.unavailable", look=name, error=str(error))
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
        is_new = what not in self._emitted
        self._emitted.add(what)
        return is_new
