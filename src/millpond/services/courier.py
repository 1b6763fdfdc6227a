"""The courier: sends what is due to the URLs that are to be told, so that none of them keeps another waiting.

Each receiver has room for so many requests at once. One that was never met has little; with each quick answer it gets
more, up to its limit. One that fails has room for one, and rests a little longer after each failure. Those that have
yet to prove themselves, all together, never have more than half of what a courier has under way: so the quick ones are
served however many of the others there are. What is taken in hand is bounded, in number and in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.engine import deliveries, endpoints
from millpond.engine.batcher import Batcher
from millpond.engine.deliveries import Result, Settlement
from millpond.errors import (
    MillpondError,
    OutboundFailedError,
    OutboundRefusedError,
    UnavailableError,
    UnknownKindError,
    VaultError,
)
from millpond.retry import Backoff
from millpond.webhooks import SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.engine.deliveries import Claimed, Parcel
    from millpond.engine.engine import Engine
    from millpond.engine.vault import Vault
    from millpond.settings import Settings
    from millpond.store.db import Database

OUT_MAX: Final = 512
"""How many deliveries a courier has in hand at once."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""And how many bytes of them, more or less."""
ROOM: Final = 8
"""How many requests a receiver that answers well is sent at once, unless its endpoint has a limit of its own."""
_ROOM_FIRST: Final = 2
_AHEAD: Final = 4  # so many times its room are taken in hand for a quick receiver, to have the next ready
_CLAIM_MAX: Final = 128
_QUICK: Final = 1.0
_SLOW: Final = 3.0
_REST_FIRST: Final = 0.5
_REST_MAX: Final = 10.0
_REST_ASKED_MAX: Final = 60.0
_KNOWN_MAX: Final = 10_000
_PAGE: Final = 1_000
_GAP: Final = 0.02  # between two looks of which the first found nothing
_GAP_MAX: Final = 1.0
_LOOK_SHARE: Final = 10  # a home rests so many times as long as such a look took; as long as it took, if there is news
_LEFT_EVERY: Final = 5.0
_LEFT_MAX: Final = 500
_SIZE_FIRST: Final = 16_384
_ANSWER_MAX: Final = 4_096
_BUSY: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_MARGIN: Final = timedelta(seconds=15)


@dataclass(slots=True)
class _Receiver:
    """What a courier knows of whom it sends to."""

    limit: int = ROOM
    room: int = _ROOM_FIRST
    out: int = 0
    """How many deliveries to it are in hand."""
    size: int = 0
    """And of how many bytes."""
    sending: int = 0
    failures: int = 0
    """One after another."""
    rests_until: float = 0.0
    served_at: float = 0.0
    """When something was last taken in hand for it."""
    is_quick: bool = False
    waiting: deque[tuple[Database, Claimed, float]] = field(default_factory=deque[tuple["Database", "Claimed", float]])

    def left(self, now: float) -> int:
        """For how many more there is room."""
        if now < self.rests_until:
            return 0
        return max(self.room * (_AHEAD if self.is_quick else 1) - self.out, 0)

    def answered(self, result: Result, now: float) -> None:
        """Give it more room, or less."""
        if result.status is None or result.status >= _SERVER_ERROR or result.status in _BUSY:
            self.failures += 1
            self.room, self.is_quick = 1, False
            rest = 0.0 if self.failures == 1 else min(_REST_FIRST * 2 ** min(self.failures - 2, 10), _REST_MAX)
            asked = result.retry_after
            rest = max(rest, min(asked.total_seconds(), _REST_ASKED_MAX) if asked is not None else 0.0)
            self.rests_until = now + rest
            return
        self.failures, self.rests_until = 0, 0.0
        self.is_quick = result.seconds < _QUICK
        grown = self.room + 1 if self.is_quick else self.room // 2 if result.seconds > _SLOW else self.room
        self.room = max(1, min(grown, self.limit))


_STRANGER: Final = _Receiver()
"""What is known of one that was never met."""


class Courier:
    """Sends what is due. Any number may work side by side: what one has in hand the others pass over."""

    def __init__(self, engine: Engine, *, timeout: timedelta, every: timedelta) -> None:
        self.name = "courier"
        self._engine = engine
        self._timeout = timeout.total_seconds()
        self._every = every.total_seconds()
        self._lease = timeout * 2 + _MARGIN
        self._receivers: dict[str, _Receiver] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._out = 0
        self._bytes = 0
        self._size = float(_SIZE_FIRST)
        self._after: dict[Database, str] = {}
        self._left_at = 0.0
        self._rests: dict[Database, tuple[float, float]] = {}
        self._settles: Batcher[tuple[Database, Settlement], str] = Batcher(
            self._settle, lanes=2, apart=lambda item: item[0]
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; what is under way then is waited for."""
        self._engine.deliveries.listen(self._wake.set)
        failures = 0
        try:
            while not stop.is_set():
                is_woken = self._wake.is_set()
                self._wake.clear()
                try:
                    found = await self._look(is_woken=is_woken)
                    failures = 0
                except Exception as error:  # noqa: BLE001 - a service must outlive whatever happens to it
                    found, failures = 0, failures + 1
                    self._tell(error)
                if not found:
                    await self._pause(stop, failures)
        finally:
            self._engine.deliveries.unlisten(self._wake.set)
            await self._idle()

    async def run_once(self) -> int:
        """Send what is due now, all of it that has room, and wait for the answers; tells how many it were."""
        done = 0
        self._rests.clear()
        while found := await self._look():
            done += found
            await self._idle()
        return done

    # What is due

    async def _look(self, *, is_woken: bool = True) -> int:
        """Take in hand what is due and has room; tells how much that was."""
        if self._engine.safe.vault is None:  # Whoever made what is due has the key.
            return 0
        found = 0
        for home in self._engine.all_homes():
            soonest, latest = self._rests.get(home, (0.0, 0.0))
            if time.monotonic() < (soonest if is_woken else latest):
                if is_woken:  # It is looked at as soon as it has rested.
                    self._wake.set()
                continue
            try:
                found += await self._look_at(home)
            except UnavailableError as error:  # The others are looked at all the same, and do not wait for it.
                self._rests[home] = time.monotonic() + _GAP_MAX, time.monotonic() + _GAP_MAX
                self._tell(error)
        if time.monotonic() >= self._left_at:
            self._left_at = time.monotonic() + _LEFT_EVERY
            await self._clear_up()
        return found

    async def _look_at(self, home: Database) -> int:
        """There may be very many receivers: a home where a look finds nothing rests by how long that took."""
        began = time.monotonic()
        found = await self._look_in(home)
        now = time.monotonic()
        rest = 0.0 if found else now - began
        self._rests[home] = now + min(rest, _GAP_MAX), now + min(rest * _LOOK_SHARE, _GAP_MAX)
        return found

    async def _look_in(self, home: Database) -> int:
        """From one page of receivers to the next, until something was found or all were looked at."""
        after = began = self._after.get(home, "")
        while self._most():
            names = await deliveries.due(home, after, _PAGE)
            after = self._after[home] = names[-1] if len(names) == _PAGE else ""
            if names and (found := await self._claim(home, names, await self._engine.safe.opened())):
                return found
            if not after:
                if not began:
                    break
                began = ""  # It came to the end: now those before.
        return 0

    async def _claim(self, home: Database, names: Sequence[str], vault: Vault) -> int:
        """Take what is due at these: for who was served longest ago first, and behind them for who is known to fail.

        Those that have yet to prove themselves come before the quick ones, for of these there are only so many in hand.
        """
        now, found = time.monotonic(), 0
        known = [(name, self._receivers.get(name, _STRANGER)) for name in names]
        known.sort(key=lambda each: (each[1].failures > 0, each[1].served_at))
        for is_quick in (False, True):
            rooms: dict[str, int] = {
                name: each.left(now) for name, each in known if each.is_quick == is_quick and each.left(now)
            }
            while rooms and (most := self._most() if is_quick else self._most_unproven()):
                share = max(most // len(rooms), 1)  # One for each, before a second for any.
                asked = {name: min(room, share) for name, room in rooms.items()}
                claimed = await deliveries.claim(home, asked, most, self._lease)
                rooms = self._beyond(asked, most, now)
                for item in claimed:
                    self._take(home, item, now, vault)
                found += len(claimed)
                if claimed:
                    break
        return found

    def _beyond(self, asked: dict[str, int], most: int, now: float) -> dict[str, int]:
        """All but those that were reached for certain: they had their turn, even if theirs had to step back."""
        rest: dict[str, int] = {}
        for name, room in asked.items():
            if most > 0:
                self._known(name).served_at = now
            else:
                rest[name] = room
            most -= room
        return rest

    def _most(self) -> int:
        """How many more may be taken in hand."""
        fitting = int(max(BYTES_MAX - self._bytes, 0) / self._size)
        return max(min(_CLAIM_MAX, OUT_MAX - self._out, max(fitting, 0 if self._out else 1)), 0)

    def _most_unproven(self) -> int:
        """And how many for receivers that have yet to prove themselves: all together they never have more than half."""
        unproven = [receiver for receiver in self._receivers.values() if receiver.out and not receiver.is_quick]
        out, size = sum(receiver.out for receiver in unproven), sum(receiver.size for receiver in unproven)
        fitting = int(max(BYTES_MAX // 2 - size, 0) / self._size)
        return max(min(self._most(), OUT_MAX // 2 - out, max(fitting, 0 if out else 1)), 0)

    def _take(self, home: Database, item: Claimed, now: float, vault: Vault) -> None:
        self._out += 1
        self._bytes += len(item.data)
        self._size += (len(item.data) + 1_024 - self._size) / 16
        receiver = self._known(item.receiver or "")
        receiver.limit = item.in_flight_max or ROOM
        receiver.room = min(receiver.room, receiver.limit)
        receiver.out += 1
        receiver.size += len(item.data)
        receiver.served_at = now
        receiver.waiting.append((home, item, now))
        self._start(receiver, vault)

    def _start(self, receiver: _Receiver, vault: Vault) -> None:
        """Send the next, as many as there is room for."""
        while receiver.waiting and receiver.sending < receiver.room:
            now = time.monotonic()
            if now < receiver.rests_until:
                asyncio.get_running_loop().call_later(receiver.rests_until - now, self._start, receiver, vault)
                return
            home, item, since = receiver.waiting.popleft()
            if now + self._timeout > since + self._lease.total_seconds():  # It comes due again, perhaps elsewhere.
                self._done(receiver, item)
                continue
            receiver.sending += 1
            task = asyncio.create_task(self._send(home, receiver, item, vault))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _done(self, receiver: _Receiver, item: Claimed) -> None:
        self._out -= 1
        self._bytes -= len(item.data)
        receiver.out -= 1
        receiver.size -= len(item.data)
        if not receiver.waiting:
            self._wake.set()

    def _known(self, name: str) -> _Receiver:
        if name not in self._receivers:
            self._forget_some()
            self._receivers[name] = _Receiver()
        return self._receivers[name]

    def _forget_some(self) -> None:
        """Who is neither busy nor in trouble need not be known."""
        if len(self._receivers) >= _KNOWN_MAX:
            idle = [name for name, receiver in self._receivers.items() if not receiver.out and not receiver.failures]
            for name in idle or list(self._receivers)[:1]:
                if not self._receivers[name].out:
                    del self._receivers[name]

    # Sending one

    async def _send(self, home: Database, receiver: _Receiver, item: Claimed, vault: Vault) -> None:
        try:
            try:
                settlement = await self._tried(receiver, item, vault)
            finally:
                receiver.sending -= 1
                self._start(receiver, vault)  # while the database is at this one
            await self._settled(home, settlement)
        except UnknownKindError as error:
            logs.emit("delivery.postponed", job_id=item.job_id, delivery=item.id, error=error.message)
        except Exception as error:  # noqa: BLE001 - it comes due again
            self._tell(error)
        finally:
            self._done(receiver, item)

    async def _tried(self, receiver: _Receiver, item: Claimed, vault: Vault) -> Settlement:
        if item.url is None or item.secret is None:
            return _withdrawn(item)
        try:
            body, words = deliveries.body_of(self._engine.app.kinds, item)
            parcel = deliveries.parcel(vault, item, body)
        except Exception as error:  # noqa: BLE001 - a body may be made by any code
            return self._unmade(item, error)
        result = await self._post(item.url, parcel)
        try:
            receiver.answered(result, time.monotonic())
            return deliveries.judged(item, result, words)
        except Exception as error:  # noqa: BLE001 - it was sent: whatever the answer does to us, that was a try
            self._tell(error)
            result = _without_answer(result, "The answer could not be read.")
            receiver.answered(result, time.monotonic())
            return deliveries.judged(item, result, words)

    def _unmade(self, item: Claimed, error: Exception) -> Settlement:
        """What cannot be made is a try like any other, or it would come again for ever and nobody would know.

        Words that are not known here may be known to another process, as long as a schedule lasts.
        """
        if isinstance(error, UnknownKindError):
            if item.due_at - self._lease < item.at + sum(SCHEDULE, timedelta(0)):
                raise error
            return Settlement(item, Result(None, "Nobody knew the words of its kind."), "failed", timedelta(0))
        self._tell(error)
        said = "Its secret could not be opened." if isinstance(error, VaultError) else "Its body could not be made."
        return deliveries.judged(item, Result(None, said), deliveries.words_of(self._engine.app.kinds, item))

    async def _settled(self, home: Database, settlement: Settlement) -> None:
        """Write down what came of a try. It was made: what cannot be kept of the answer is left out, and it counts."""
        try:
            await self._settles.add((home, settlement))
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - otherwise it would be sent again and again
            self._tell(error)
            bare = _without_answer(settlement.result, "The answer could not be kept.")
            await self._settles.add((home, dataclasses.replace(settlement, result=bare)))

    async def _post(self, url: str, parcel: Parcel) -> Result:
        began = time.perf_counter()
        sent = dict(parcel.headers)
        try:
            answer = await self._engine.outbound.send(
                "POST", url, headers=sent, body=parcel.body, seconds=self._timeout, size_max=_ANSWER_MAX
            )
        except (OutboundRefusedError, OutboundFailedError) as error:
            return Result(None, error.message, time.perf_counter() - began, request_headers=sent)
        except Exception as error:  # noqa: BLE001 - it may have been sent: that was a try, and it counts
            self._tell(error)
            return Result(None, "It could not be sent.", time.perf_counter() - began, request_headers=sent)
        return Result(answer.status, None, answer.seconds, answer.headers, answer.body, sent)

    async def _settle(self, batch: Sequence[tuple[Database, Settlement]]) -> list[str | Exception]:
        return list(await deliveries.settle(self._engine, batch[0][0], [settlement for _, settlement in batch]))

    async def _clear_up(self) -> None:
        """What others left: jobs to conclude, by one who died before he could, and deliveries behind their endpoint."""
        for home in self._engine.all_homes():
            with contextlib.suppress(UnavailableError):
                while await deliveries.conclude_left(self._engine, home, _LEFT_MAX) == _LEFT_MAX:
                    pass
                if followed := await endpoints.follow(home, endpoints.FOLLOW_MAX):
                    self._wake.set()
                if followed == endpoints.FOLLOW_MAX:  # There is more of it: at the next look.
                    self._left_at = 0.0

    # Rhythm

    async def _pause(self, stop: asyncio.Event, failures: int) -> None:
        if failures:
            pause = Backoff().delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
            await _first(pause, stop)
        else:
            await _first(_GAP, stop)
            await _first(max(self._every - _GAP, 0.0), stop, self._wake)

    async def _idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _tell(self, error: Exception) -> None:
        if isinstance(error, UnavailableError):
            logs.emit("db.unavailable", service=self.name, error=str(error))
        else:
            said = str(error) if isinstance(error, MillpondError) else ""
            logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {said}")


def courier(engine: Engine, settings: Settings | None = None, *, every: timedelta = timedelta(seconds=0.5)) -> Courier:
    timeout = timedelta(seconds=15) if settings is None else settings.webhook_timeout
    return Courier(engine, timeout=timeout, every=every)


def _withdrawn(item: Claimed) -> Settlement:
    """Its endpoint was removed, or its job is so old that it was forgotten."""
    outcome = "failed" if item.endpoint_id is None else "withdrawn"
    return Settlement(item, Result(None, "There is nobody to tell any more."), outcome, timedelta(0))


def _without_answer(result: Result, error: str) -> Result:
    """A try of which no more is known than that it was made; a status that was told is a status."""
    status = result.status if result.is_taken else None
    return Result(status, error, result.seconds, request_headers=result.request_headers)


async def _first(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of these, and no longer than this."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
