"""The courier: sends due deliveries, such that no receiver delays another.

Each receiver has room for a number of concurrent requests. A new receiver starts with little room, and gets more with
each quick response, up to its limit. A failing one has room for one request, and rests longer after each further
failure. The receivers that are not known to be quick get at most half of a courier's capacity together, so that quick
ones are served however many others there are. The deliveries that a courier holds are limited in number and in bytes.
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
from millpond.engine.batcher import Batcher
from millpond.engine.webhooks import deliveries, endpoints
from millpond.engine.webhooks.deliveries import Settlement, TryResult
from millpond.errors import (
    MillpondError,
    OutboundFailedError,
    OutboundRefusedError,
    UnavailableError,
    UnknownKindError,
    VaultError,
)
from millpond.retry import DATABASE
from millpond.webhooks import SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.engine.engine import Engine
    from millpond.engine.webhooks.deliveries import Claimed, SignedRequest
    from millpond.engine.webhooks.vault import Vault
    from millpond.settings import Settings
    from millpond.store.db import Database

OUT_MAX: Final = 512
"""How many deliveries a courier holds at once."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""How many bytes of deliveries a courier holds at once, approximately."""
ROOM: Final = 8
"""The limit of concurrent requests to a receiver, unless its endpoint has its own."""
_ROOM_FIRST: Final = 2
_AHEAD: Final = 4  # for a quick receiver, this many times its room is claimed, to have the next deliveries ready
_CLAIM_MAX: Final = 128
_QUICK: Final = 1.0
_SLOW: Final = 3.0
_REST_FIRST: Final = 0.5
_REST_MAX: Final = 10.0
_REST_ASKED_MAX: Final = 60.0
_KNOWN_MAX: Final = 10_000
_PAGE: Final = 1_000
_GAP: Final = 0.02  # seconds between two looks if the first found nothing
_GAP_MAX: Final = 1.0
# After a look that found nothing, a database rests for this many times its duration, or once if a notification comes.
_LOOK_SHARE: Final = 10
_LEFT_EVERY: Final = 5.0
_LEFT_MAX: Final = 500
_SIZE_FIRST: Final = 16_384
_ANSWER_MAX: Final = 4_096
_BUSY: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_MARGIN: Final = timedelta(seconds=15)


@dataclass(slots=True)
class _Receiver:
    """What a courier knows about a receiver."""

    limit: int = ROOM
    room: int = _ROOM_FIRST
    out: int = 0
    """The number of deliveries held for it."""
    size: int = 0
    """The bytes of these deliveries."""
    sending: int = 0
    failures: int = 0
    """The number of consecutive failures."""
    rests_until: float = 0.0
    served_at: float = 0.0
    """When a delivery was last claimed for it."""
    is_quick: bool = False
    waiting: deque[tuple[Database, Claimed, float]] = field(default_factory=deque[tuple["Database", "Claimed", float]])

    def left(self, now: float) -> int:
        """How many more deliveries may be claimed for it."""
        if now < self.rests_until:
            return 0
        return max(self.room * (_AHEAD if self.is_quick else 1) - self.out, 0)

    def answered(self, result: TryResult, now: float) -> None:
        """Adjust its room after a request."""
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


_UNKNOWN_RECEIVER: Final = _Receiver()
"""The values of a receiver that is not known yet."""


class Courier:
    """Sends due deliveries. Any number may run concurrently: each skips the deliveries that others have claimed."""

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
        """Run until ``stop`` is set, then wait for the running requests."""
        self._engine.deliveries.listen(self._wake.set)
        failures = 0
        try:
            while not stop.is_set():
                is_woken = self._wake.is_set()
                self._wake.clear()
                try:
                    found = await self._look(is_woken=is_woken)
                    failures = 0
                except Exception as error:  # noqa: BLE001 - a service must survive any error
                    found, failures = 0, failures + 1
                    self._log_failure(error)
                if not found:
                    await self._pause(stop, failures)
        finally:
            self._engine.deliveries.unlisten(self._wake.set)
            await self._idle()

    async def run_once(self) -> int:
        """Send all due deliveries that have room, and wait for the responses; returns the number of deliveries."""
        done = 0
        self._rests.clear()
        while found := await self._look():
            done += found
            await self._idle()
        return done

    # Claiming

    async def _look(self, *, is_woken: bool = True) -> int:
        """Claim due deliveries that have room; returns their number."""
        if self._engine.safe.vault is None:  # The processes that create deliveries have the vault's key.
            return 0
        found = 0
        for database in self._engine.databases():
            soonest, latest = self._rests.get(database, (0.0, 0.0))
            if time.monotonic() < (soonest if is_woken else latest):
                if is_woken:  # Look again as soon as it has rested.
                    self._wake.set()
                continue
            try:
                found += await self._look_at(database)
            except UnavailableError as error:  # The other databases do not wait for it.
                self._rests[database] = time.monotonic() + _GAP_MAX, time.monotonic() + _GAP_MAX
                self._log_failure(error)
        if time.monotonic() >= self._left_at:
            self._left_at = time.monotonic() + _LEFT_EVERY
            await self._clear_up()
        return found

    async def _look_at(self, database: Database) -> int:
        """Look at a database. If nothing is found, it rests in proportion to the time taken: receivers may be many."""
        began = time.monotonic()
        found = await self._look_in(database)
        now = time.monotonic()
        rest = 0.0 if found else now - began
        self._rests[database] = now + min(rest, _GAP_MAX), now + min(rest * _LOOK_SHARE, _GAP_MAX)
        return found

    async def _look_in(self, database: Database) -> int:
        """Read page after page of receivers, until something was claimed or all were read."""
        after = began = self._after.get(database, "")
        while self._limit():
            names = await deliveries.due(database, after, _PAGE)
            after = self._after[database] = names[-1] if len(names) == _PAGE else ""
            if names and (found := await self._claim(database, names, await self._engine.safe.opened())):
                return found
            if not after:
                if not began:
                    break
                began = ""  # The end is reached: continue with the first page.
        return 0

    async def _claim(self, database: Database, names: Sequence[str], vault: Vault) -> int:
        """Claim deliveries of these receivers: the least recently served first, failing ones last.

        Receivers that are not quick come before the quick ones, because their share is limited.
        """
        now, found = time.monotonic(), 0
        known = [(name, self._receivers.get(name, _UNKNOWN_RECEIVER)) for name in names]
        known.sort(key=lambda each: (each[1].failures > 0, each[1].served_at))
        for is_quick in (False, True):
            rooms: dict[str, int] = {
                name: each.left(now) for name, each in known if each.is_quick == is_quick and each.left(now)
            }
            while rooms and (limit := self._limit() if is_quick else self._unproven_limit()):
                share = max(limit // len(rooms), 1)  # One for each receiver before a second for any.
                asked = {name: min(room, share) for name, room in rooms.items()}
                claimed = await deliveries.claim(database, asked, limit, self._lease)
                rooms = self._unreached(asked, limit, now)
                for item in claimed:
                    self._take(database, item, now, vault)
                found += len(claimed)
                if claimed:
                    break
        return found

    def _unreached(self, asked: dict[str, int], limit: int, now: float) -> dict[str, int]:
        """The receivers that the limit may not have reached. The others had their turn, even if nothing was claimed."""
        rest: dict[str, int] = {}
        for name, room in asked.items():
            if limit > 0:
                self._known(name).served_at = now
            else:
                rest[name] = room
            limit -= room
        return rest

    def _limit(self) -> int:
        """How many more deliveries may be claimed."""
        fitting = int(max(BYTES_MAX - self._bytes, 0) / self._size)
        return max(min(_CLAIM_MAX, OUT_MAX - self._out, max(fitting, 0 if self._out else 1)), 0)

    def _unproven_limit(self) -> int:
        """How many of these may be for receivers that are not quick: they get at most half of the capacity together."""
        unproven = [receiver for receiver in self._receivers.values() if receiver.out and not receiver.is_quick]
        out, size = sum(receiver.out for receiver in unproven), sum(receiver.size for receiver in unproven)
        fitting = int(max(BYTES_MAX // 2 - size, 0) / self._size)
        return max(min(self._limit(), OUT_MAX // 2 - out, max(fitting, 0 if out else 1)), 0)

    def _take(self, database: Database, item: Claimed, now: float, vault: Vault) -> None:
        self._out += 1
        self._bytes += len(item.data)
        self._size += (len(item.data) + 1_024 - self._size) / 16
        receiver = self._known(item.receiver or "")
        receiver.limit = item.in_flight_max or ROOM
        receiver.room = min(receiver.room, receiver.limit)
        receiver.out += 1
        receiver.size += len(item.data)
        receiver.served_at = now
        receiver.waiting.append((database, item, now))
        self._start(receiver, vault)

    def _start(self, receiver: _Receiver, vault: Vault) -> None:
        """Send waiting deliveries as far as there is room."""
        while receiver.waiting and receiver.sending < receiver.room:
            now = time.monotonic()
            if now < receiver.rests_until:
                asyncio.get_running_loop().call_later(receiver.rests_until - now, self._start, receiver, vault)
                return
            database, item, since = receiver.waiting.popleft()
            if now + self._timeout > since + self._lease.total_seconds():  # Too late for this claim: it is due again.
                self._done(receiver, item)
                continue
            receiver.sending += 1
            task = asyncio.create_task(self._send(database, receiver, item, vault))
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
        """Limit the number of known receivers: forget those without deliveries and failures first."""
        if len(self._receivers) >= _KNOWN_MAX:
            idle = [name for name, receiver in self._receivers.items() if not receiver.out and not receiver.failures]
            for name in idle or list(self._receivers)[:1]:
                if not self._receivers[name].out:
                    del self._receivers[name]

    # Sending

    async def _send(self, database: Database, receiver: _Receiver, item: Claimed, vault: Vault) -> None:
        try:
            try:
                settlement = await self._attempt(receiver, item, vault)
            finally:
                receiver.sending -= 1
                self._start(receiver, vault)  # while the result is being stored
            await self._store_settlement(database, settlement)
        except UnknownKindError as error:
            logs.emit("delivery.postponed", job_id=item.job_id, delivery=item.id, error=error.message)
        except Exception as error:  # noqa: BLE001 - it becomes due again
            self._log_failure(error)
        finally:
            self._done(receiver, item)

    async def _attempt(self, receiver: _Receiver, item: Claimed, vault: Vault) -> Settlement:
        if item.url is None or item.secret is None:
            return _withdrawn(item)
        try:
            body, words = deliveries.body_of(self._engine.app.kinds, item)
            request = deliveries.signed_request(vault, item, body)
        except Exception as error:  # noqa: BLE001 - a body is made by code of the kind
            return self._settle_unmade(item, error)
        result = await self._post(item.url, request)
        try:
            receiver.answered(result, time.monotonic())
            return deliveries.judged(item, result, words)
        except Exception as error:  # noqa: BLE001 - it was sent, so it counts as a try
            self._log_failure(error)
            result = _without_answer(result, "The response could not be read.")
            receiver.answered(result, time.monotonic())
            return deliveries.judged(item, result, words)

    def _settle_unmade(self, item: Claimed, error: Exception) -> Settlement:
        """Count a body that cannot be created as a try; otherwise it would be repeated for ever, unnoticed.

        A kind that is unknown here may be known to another process: it has the time of a whole retry schedule for that.
        """
        if isinstance(error, UnknownKindError):
            if item.due_at - self._lease < item.at + sum(SCHEDULE, timedelta(0)):
                raise error
            return Settlement(item, TryResult(None, "No process knew the job's kind."), "failed", timedelta(0))
        self._log_failure(error)
        is_secret = isinstance(error, VaultError)
        reason = "The secret could not be decrypted." if is_secret else "The body could not be created."
        return deliveries.judged(item, TryResult(None, reason), deliveries.words_of(self._engine.app.kinds, item))

    async def _store_settlement(self, database: Database, settlement: Settlement) -> None:
        """Store the result of a try. If its response cannot be stored, the try still counts, without the response."""
        try:
            await self._settles.add((database, settlement))
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - otherwise it would be sent again and again
            self._log_failure(error)
            bare = _without_answer(settlement.result, "The response could not be stored.")
            await self._settles.add((database, dataclasses.replace(settlement, result=bare)))

    async def _post(self, url: str, request: SignedRequest) -> TryResult:
        began = time.perf_counter()
        sent = dict(request.headers)
        try:
            answer = await self._engine.outbound.send(
                "POST", url, headers=sent, body=request.body, seconds=self._timeout, size_max=_ANSWER_MAX
            )
        except (OutboundRefusedError, OutboundFailedError) as error:
            return TryResult(None, error.message, time.perf_counter() - began, request_headers=sent)
        except Exception as error:  # noqa: BLE001 - it may have been sent, so it counts as a try
            self._log_failure(error)
            return TryResult(None, "The request could not be sent.", time.perf_counter() - began, request_headers=sent)
        return TryResult(answer.status, None, answer.seconds, answer.headers, answer.body, sent)

    async def _settle(self, batch: Sequence[tuple[Database, Settlement]]) -> list[str | Exception]:
        return list(await deliveries.settle(self._engine, batch[0][0], [settlement for _, settlement in batch]))

    async def _clear_up(self) -> None:
        """Finish what others left: jobs of a killed courier to conclude, deliveries to update after their endpoint."""
        for database in self._engine.databases():
            with contextlib.suppress(UnavailableError):
                while await deliveries.conclude_unfinished(self._engine, database, _LEFT_MAX) == _LEFT_MAX:
                    pass
                if followed := await endpoints.follow(database, endpoints.FOLLOW_MAX):
                    self._wake.set()
                if followed == endpoints.FOLLOW_MAX:  # There is more: continue at the next look.
                    self._left_at = 0.0

    # Pauses

    async def _pause(self, stop: asyncio.Event, failures: int) -> None:
        if failures:
            pause = DATABASE.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
            await _first(pause, stop)
        else:
            await _first(_GAP, stop)
            await _first(max(self._every - _GAP, 0.0), stop, self._wake)

    async def _idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _log_failure(self, error: Exception) -> None:
        if isinstance(error, UnavailableError):
            logs.emit("db.unavailable", service=self.name, error=str(error))
        else:
            text = str(error) if isinstance(error, MillpondError) else ""
            logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {text}")


def courier(engine: Engine, settings: Settings | None = None, *, every: timedelta = timedelta(seconds=0.5)) -> Courier:
    timeout = timedelta(seconds=15) if settings is None else settings.webhook_timeout
    return Courier(engine, timeout=timeout, every=every)


def _withdrawn(item: Claimed) -> Settlement:
    """The settlement of a delivery whose endpoint was deleted, or whose job was pruned because of its age."""
    outcome = "failed" if item.endpoint_id is None else "withdrawn"
    return Settlement(item, TryResult(None, "The receiver no longer exists."), outcome, timedelta(0))


def _without_answer(result: TryResult, error: str) -> TryResult:
    """A result without the response; a status of success is kept."""
    status = result.status if result.is_taken else None
    return TryResult(status, error, result.seconds, request_headers=result.request_headers)


async def _first(seconds: float, *events: asyncio.Event) -> None:
    """Wait for the first of these events, at most for the given seconds."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
