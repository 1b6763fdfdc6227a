"""Halls: where polls wait for jobs. One look at the line serves all who wait for the same routes."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.engine.dispatches import BACK_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.dispatches import Lanes
    from millpond.engine.engine import Engine
    from millpond.engine.leases import Want
    from millpond.work import Lease

_LOOK_EVERY: Final = 1.0
"""How often those who wait look without having been rung for."""
_ROUND_MIN: Final = 16
_ROUND_MAX: Final = 500
"""For how many of those who wait one claim asks: for more, once all of them have got something."""


@dataclass(eq=False, slots=True)
class _Guest:
    """A poll that waits."""

    want: Want
    future: asyncio.Future[list[Lease]]
    until: float


@dataclass(eq=False, slots=True)
class Hall:
    """Those who wait for jobs of the same routes: one looks for all of them."""

    engine: Engine
    lease: timedelta
    lanes: Lanes
    _fresh: list[_Guest] = field(default_factory=list["_Guest"], init=False)
    """Those for whom nobody has looked yet."""
    _waiting: dict[_Guest, None] = field(default_factory=dict["_Guest", None], init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_rung: bool = field(default=False, init=False)
    _round: int = field(default=_ROUND_MIN, init=False)
    _serving: asyncio.Task[None] | None = field(default=None, init=False)
    _returning: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)

    @property
    def guests(self) -> int:
        return len(self._fresh) + len(self._waiting)

    async def ask(self, want: Want, wait: float) -> list[Lease]:
        loop = asyncio.get_running_loop()
        guest = _Guest(want, loop.create_future(), loop.time() + wait)
        self._fresh.append(guest)
        self._wake.set()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        try:
            return await guest.future
        except asyncio.CancelledError:
            if guest.future.done() and not guest.future.cancelled() and guest.future.exception() is None:
                self._return(guest)
            raise

    def hear(self, topics: frozenset[str], changed: set[str]) -> None:
        if changed:
            for guest in [*self._fresh, *self._waiting]:
                if guest.want.worker in changed:
                    _settle(guest, [])
        ours = topics.intersection(self.lanes.queues)
        back = any(f"{BACK_TOPIC}{queue}" in topics for queue in self.lanes.queues)
        if back:
            self.lanes.rung_back()
        elif ours:
            self.lanes.rung(ours)
        if ours or back:
            self._is_rung = True
            self._wake.set()

    def close(self) -> None:
        for guest in [*self._fresh, *self._waiting]:
            _settle(guest, [])
        self._wake.set()

    async def _serve(self) -> None:
        """Look for jobs for whoever has come or, when it rings, for whoever has waited longest; until all are gone."""
        while self._fresh or self._waiting:
            self._wake.clear()
            guests = self._next()
            is_filled = bool(guests) and await self._look(guests)
            self._round = min(self._round * 2, _ROUND_MAX) if is_filled else _ROUND_MIN
            self._is_rung = self._is_rung or is_filled
            self._dismiss()
            if not (self._fresh or (self._is_rung and self._waiting)):
                await self._pause()

    def _next(self) -> list[_Guest]:
        """Whose turn it is. Those who are new have not been looked for at all; the others wait until it rings."""
        fresh, self._fresh = self._fresh, []
        self._waiting.update(dict.fromkeys(fresh))
        is_fresh = bool(fresh) and not self._is_rung
        guests = [guest for guest in (fresh if is_fresh else self._waiting) if not guest.future.done()]
        self._is_rung = False
        turn, rest = guests[: self._round], guests[self._round :]
        self._fresh = rest if is_fresh else []
        for guest in turn:  # who is given nothing goes behind those who were not looked for
            del self._waiting[guest]
            self._waiting[guest] = None
        return turn

    async def _look(self, guests: Sequence[_Guest]) -> bool:
        """One claim for these; tells whether each of them was given something."""
        try:
            claimed = await self.engine.claim_for(self.lanes, [guest.want for guest in guests], self.lease)
        except Exception as error:  # noqa: BLE001 - it belongs to those who asked
            for guest in guests:
                _settle(guest, error)
            return False
        given: dict[UUID, list[Lease]] = {}
        for lease in claimed:
            given.setdefault(lease.token, []).append(lease)
        for guest in guests:
            if guest.want.token in given and not _settle(guest, given[guest.want.token]):
                self._return(guest)
        return len(given) == len(guests)

    def _dismiss(self) -> None:
        """Let those go whose time is up."""
        now = asyncio.get_running_loop().time()
        for guest in list(self._waiting):
            if guest.until <= now:
                _settle(guest, [])
            if guest.future.done():
                del self._waiting[guest]

    async def _pause(self) -> None:
        """Until it rings, somebody comes or has waited long enough; at most for a moment."""
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        rest = min(guest.until for guest in self._waiting) - now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(rest, _LOOK_EVERY))):
                await self._wake.wait()

    def _return(self, guest: _Guest) -> None:
        """Whoever asked has gone: what they were given goes back at once."""
        task = asyncio.create_task(self.engine.abandon(guest.want.token))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)


def _settle(guest: _Guest, result: list[Lease] | Exception) -> bool:
    """Answer a poll; tells whether somebody was still there to hear it."""
    if guest.future.done():
        return False
    if isinstance(result, Exception):
        guest.future.set_exception(result)
    else:
        guest.future.set_result(result)
    return True
