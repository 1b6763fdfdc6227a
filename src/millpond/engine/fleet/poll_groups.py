"""Poll groups: polls that wait for jobs of the same routes share one claim."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.engine.queue.dispatches import BACK_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.queue.dispatches import Lanes
    from millpond.engine.queue.leases import ClaimRequest
    from millpond.work import Lease

_LOOK_EVERY: Final = 1.0
"""After how many seconds waiting polls claim without a notification."""
_ROUND_MIN: Final = 16
_ROUND_MAX: Final = 500
"""For how many waiting polls one claim is made; the number doubles while all of them receive jobs."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A waiting poll."""

    want: ClaimRequest
    future: asyncio.Future[list[Lease]]
    until: float


@dataclass(eq=False, slots=True)
class PollGroup:
    """The polls that wait for jobs of the same routes: one claim serves many of them."""

    engine: Engine
    lease: timedelta
    lanes: Lanes
    _fresh: list[Waiter] = field(default_factory=list["Waiter"], init=False)
    """The polls for which no claim was made yet."""
    _waiting: dict[Waiter, None] = field(default_factory=dict["Waiter", None], init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_notified: bool = field(default=False, init=False)
    _round: int = field(default=_ROUND_MIN, init=False)
    _serving: asyncio.Task[None] | None = field(default=None, init=False)
    _returning: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)

    @property
    def waiters(self) -> int:
        return len(self._fresh) + len(self._waiting)

    async def ask(self, want: ClaimRequest, wait: float) -> list[Lease]:
        loop = asyncio.get_running_loop()
        waiter = Waiter(want, loop.create_future(), loop.time() + wait)
        self._fresh.append(waiter)
        self._wake.set()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                self._return(waiter)
            raise

    def hear(self, topics: frozenset[str], changed: set[str]) -> None:
        if changed:
            for waiter in [*self._fresh, *self._waiting]:
                if waiter.want.worker in changed:
                    _settle(waiter, [])
        ours = topics.intersection(self.lanes.queues)
        back = any(f"{BACK_TOPIC}{queue}" in topics for queue in self.lanes.queues)
        if back:
            self.lanes.rescan()
        elif ours:
            self.lanes.notified(ours)
        if ours or back:
            self._is_notified = True
            self._wake.set()

    def close(self) -> None:
        for waiter in [*self._fresh, *self._waiting]:
            _settle(waiter, [])
        self._wake.set()

    async def _serve(self) -> None:
        """Claim jobs for new polls and, after a notification, for those that have waited longest."""
        while self._fresh or self._waiting:
            self._wake.clear()
            waiters = self._next()
            is_filled = bool(waiters) and await self._look(waiters)
            self._round = min(self._round * 2, _ROUND_MAX) if is_filled else _ROUND_MIN
            self._is_notified = self._is_notified or is_filled
            self._dismiss()
            if not (self._fresh or (self._is_notified and self._waiting)):
                await self._pause()

    def _next(self) -> list[Waiter]:
        """The polls to claim for: after a notification, those that have waited longest; otherwise the new ones."""
        fresh, self._fresh = self._fresh, []
        self._waiting.update(dict.fromkeys(fresh))
        is_fresh = bool(fresh) and not self._is_notified
        waiters = [waiter for waiter in (fresh if is_fresh else self._waiting) if not waiter.future.done()]
        self._is_notified = False
        turn, rest = waiters[: self._round], waiters[self._round :]
        self._fresh = rest if is_fresh else []
        for waiter in turn:  # a poll that gets nothing goes behind those whose turn it was not
            del self._waiting[waiter]
            self._waiting[waiter] = None
        return turn

    async def _look(self, waiters: Sequence[Waiter]) -> bool:
        """Make one claim for these polls; return whether each of them received jobs."""
        try:
            claimed = await self.engine.claim_for(self.lanes, [waiter.want for waiter in waiters], self.lease)
        except Exception as error:  # noqa: BLE001 - the polls raise it
            for waiter in waiters:
                _settle(waiter, error)
            return False
        given: dict[UUID, list[Lease]] = {}
        for lease in claimed:
            given.setdefault(lease.token, []).append(lease)
        for waiter in waiters:
            if waiter.want.token in given and not _settle(waiter, given[waiter.want.token]):
                self._return(waiter)
        self._is_notified |= self.lanes.is_full
        return len(given) == len(waiters)

    def _dismiss(self) -> None:
        """Answer the polls whose time is up, and remove all that were answered."""
        now = asyncio.get_running_loop().time()
        for waiter in list(self._waiting):
            if waiter.until <= now:
                _settle(waiter, [])
            if waiter.future.done():
                del self._waiting[waiter]

    async def _pause(self) -> None:
        """Wait for a notification, a new poll, or the end of the shortest wait; at most a second."""
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        rest = min(waiter.until for waiter in self._waiting) - now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(rest, _LOOK_EVERY))):
                await self._wake.wait()

    def _return(self, waiter: Waiter) -> None:
        """Give back the jobs of a poll that was canceled, at once."""
        task = asyncio.create_task(self.engine.abandon(waiter.want.token))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)


def _settle(waiter: Waiter, result: list[Lease] | Exception) -> bool:
    """Answer a poll; return whether it was still waiting."""
    if waiter.future.done():
        return False
    if isinstance(result, Exception):
        waiter.future.set_exception(result)
    else:
        waiter.future.set_result(result)
    return True
