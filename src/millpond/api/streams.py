"""Live streams: every event of a job, to all who watch it, soon after its commit.

The hub of a process asks the database about all watched jobs at once, in a rhythm; what is written in this very
process it hears of at once. Each new event is read and put into its frame once for each form in which it is told, and
all streams of its job in that form send the same bytes. A stream keeps nothing but the number of the event it came to:
one that falls behind reads the rest from the database, and one that stops reading is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from millpond import logs, wire
from millpond.engine.batcher import Batcher
from millpond.engine.engine import CANCEL_TOPIC
from millpond.engine.split import passed_over
from millpond.errors import MillpondError, UnavailableError
from millpond.retry import Backoff
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millpond.engine.engine import Engine
    from millpond.services.bell import Bell
    from millpond.store.db import Database, Row

SQL: Final = queries("millpond.api", "streams")

LOOK_EVERY: Final = 0.1
LOOK_AT_LEAST_EVERY: Final = 0.4
"""However dear a look has become."""
PING_EVERY: Final = 15.0
RETRY: Final = b"retry: 2000\n\n"
PING: Final = b": ping\n\n"
PAGE: Final = 100

_LOOK_MAX: Final = 5_000  # watched jobs in one statement
_LOOK_SHARE: Final = 10  # looking may take one part in so many of the time
_READ_MAX: Final = 500  # of these, those whose new events are read in one statement
_GAP: Final = 0.005  # what is written meanwhile is looked at together
_FRAMES_MAX: Final = 128
_BYTES_MAX: Final = 256 * 1024  # of frames at hand, for a job
_BYTES_MIN: Final = 16 * 1024
_BYTES_ALL: Final = 64 * 1024 * 1024
_OVER: Final = 3_600_000  # milliseconds until a reader that does not understand `end` asks again


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """In which words events are told."""

    frame: Callable[[Row], bytes | None]
    """An event as a frame; none where this form does not tell of it. Its number counts all the same."""
    end: Callable[[Row], bytes]
    """What is sent after the last event, from how the job ended."""
    tells_output: bool = False
    """Whether that needs the job's output, which is read for it once."""


class Page(NamedTuple):
    """What a stream lacks: the events of a job after one that it has seen."""

    job_id: UUID
    tenant: str | None
    seen: int
    form: Form


class Frame(NamedTuple):
    """An event, ready to be sent; without a text where its form does not tell of it."""

    seq: int
    text: bytes


class Listener:
    """Somebody who waits for a job."""

    __slots__ = ("_sleep",)

    def __init__(self) -> None:
        self._sleep: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def ping(self) -> None:
        """A sign of life is due."""

    async def sleep(self) -> None:
        """Until woken; what is to be waited for must have been looked at before, without a pause in between."""
        self._sleep = asyncio.get_running_loop().create_future()
        await self._sleep


class Watch:
    """A job that somebody waits for, with its newest events."""

    __slots__ = (
        "_frames",
        "_size",
        "end",
        "floor",
        "form",
        "job_id",
        "known",
        "last",
        "listeners",
        "streams",
        "tenant",
    )

    def __init__(self, tenant: str | None, job_id: UUID, seen: int, form: Form) -> None:
        self.tenant = tenant
        self.job_id = job_id
        self.form = form
        self.last = seen
        """The number of the last event that was heard of."""
        self.known = -1
        """How many events the job had when all of them were heard of."""
        self.floor = seen
        """The frames of all events after this one are at hand."""
        self.end: bytes | None = None
        """What is sent after the last event, once the job has ended."""
        self.listeners: set[Listener] = set()
        self.streams = 0
        self._frames: deque[Frame] = deque()
        self._size = 0

    def add(self, frames: Iterable[Frame], most: int = _BYTES_MAX) -> None:
        """Put new frames to the others, and let the oldest go where they are more bytes than that."""
        for frame in frames:
            self._frames.append(frame)
            self._size += len(frame.text)
            self.last = frame.seq
        while self._size > most or len(self._frames) > _FRAMES_MAX:
            dropped = self._frames.popleft()
            self._size -= len(dropped.text)
            self.floor = dropped.seq

    def skip(self, last: int) -> None:
        """Nobody wants the events themselves."""
        self._frames.clear()
        self._size = 0
        self.last = self.floor = last

    def after(self, seen: int) -> list[Frame]:
        fresh: list[Frame] = []
        for frame in reversed(self._frames):
            if frame.seq <= seen:
                break
            fresh.append(frame)
        return fresh[::-1]

    def wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Stream(Listener):
    """The frames of one job for one reader, from after an event on; ends with the job, or with the hub."""

    __slots__ = ("_form", "_hub", "_is_begun", "_is_open", "_is_pinged", "_job_id", "_seen", "_tenant", "_watch")

    def __init__(self, hub: Hub, tenant: str | None, job_id: UUID, seen: int, form: Form) -> None:
        super().__init__()
        self._hub = hub
        self._tenant = tenant
        self._job_id = job_id
        self._seen = seen
        self._form = form
        self._watch: Watch | None = None
        self._is_begun = False
        self._is_open = True
        self._is_pinged = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            return RETRY
        try:
            watch = self._watch = self._watch or self._hub.join(
                self, self._tenant, self._job_id, self._seen, self._form
            )
            while self._is_open and self._hub.is_open:
                if text := await self._next(watch):
                    return text
                if self._is_open:
                    await self.sleep()
        except MillpondError as error:  # its reader asks again
            logs.emit("db.unavailable", service="stream", error=str(error))
        except BaseException:
            self._close()
            raise
        self._close()
        raise StopAsyncIteration

    async def _next(self, watch: Watch) -> bytes:
        """What can be sent now."""
        while fresh := await self._fresh(watch):
            self._seen = fresh[-1].seq
            if text := fresh[0].text if len(fresh) == 1 else b"".join(frame.text for frame in fresh):
                return text
        if watch.end is not None and self._seen >= watch.last:
            self._close()
            return watch.end
        pinged, self._is_pinged = self._is_pinged, False
        return PING if pinged else b""

    async def _fresh(self, watch: Watch) -> list[Frame]:
        return await self._hub.page(watch, self._seen) if self._seen < watch.floor else watch.after(self._seen)

    def ping(self) -> None:
        self._is_pinged = True
        self.wake()

    async def aclose(self) -> None:
        """Leave; it gives no more."""
        self._close()

    def _close(self) -> None:
        self._is_open = False
        if self._watch is not None:
            self._hub.leave(self, self._watch)


Asking = TypeVar("Asking", Watch, Page)


class Hub:
    """All who wait for jobs in this process."""

    def __init__(self, engine: Engine, bell: Bell | None = None) -> None:
        self._homes = engine.homes
        self._watches: dict[UUID, dict[tuple[str | None, Form], Watch]] = {}
        self._touched: set[UUID] = set()
        self._wake = asyncio.Event()
        self._took = 0.0
        self.is_open = True
        """Until it is told to stop; then nobody waits any more."""
        self.closed = asyncio.Event()
        """Set when it is not open any more."""
        self.is_alive = False
        """Whether it looks: before it runs, and after, nothing new is heard of."""
        self._pages: Batcher[Page, list[Frame]] = Batcher(self._read, size=50)
        engine.audience = self
        if bell is not None:
            bell.listen(self._heard)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(watch.streams for watch in self._all())

    def stream(self, tenant: str | None, job_id: UUID, after: int = 0, *, form: Form | None = None) -> Stream:
        """The frames of a job after this event; whoever does not read it to its end must close it."""
        return Stream(self, tenant, job_id, after, form or NATIVE)

    async def wait(
        self, tenant: str | None, job_id: UUID, *, seen: int, seconds: float, until_ended: bool = True
    ) -> None:
        """Until the job has ended, or any event after ``seen`` has come where that is enough; or time is up."""
        listener = Listener()
        watch = self.join(listener, tenant, job_id, seen)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self.is_open and watch.end is None and (until_ended or watch.last <= seen):
                        await listener.sleep()
        finally:
            self.leave(listener, watch)

    def touch(self, job_ids: Iterable[UUID]) -> None:
        """Something was just written about these jobs."""
        if self._watches:
            touched = [job_id for job_id in job_ids if job_id in self._watches]
            if touched:
                self._touched.update(touched)
                self._wake.set()

    # For those who listen

    def join(self, listener: Listener, tenant: str | None, job_id: UUID, seen: int, form: Form | None = None) -> Watch:
        form = form or NATIVE
        watches = self._watches.setdefault(job_id, {})
        watch = watches.get((tenant, form))
        if watch is None:
            watch = watches[tenant, form] = Watch(tenant, job_id, seen, form)
        watch.listeners.add(listener)
        watch.streams += isinstance(listener, Stream)
        self.touch((job_id,))
        return watch

    def leave(self, listener: Listener, watch: Watch) -> None:
        if listener not in watch.listeners:
            return
        watch.listeners.discard(listener)
        watch.streams -= isinstance(listener, Stream)
        if not watch.listeners:
            watches = self._watches[watch.job_id]
            del watches[watch.tenant, watch.form]
            if not watches:
                del self._watches[watch.job_id]

    async def page(self, watch: Watch, seen: int) -> list[Frame]:
        """Events that are no longer at hand."""
        return await self._pages.add(Page(watch.job_id, watch.tenant, seen, watch.form))

    # Looking

    async def run(self, stop: asyncio.Event) -> None:
        """Look and tell until told to stop; then every stream ends, and its reader may ask again elsewhere."""
        helpers = [asyncio.create_task(self._heed(stop)), asyncio.create_task(self._keep_alive())]
        due, failures = 0.0, 0
        self.is_alive = True
        try:
            while not stop.is_set():
                await self._rest(due)
                touched, self._touched = self._touched, set()
                began = time.monotonic()
                is_due = began >= due
                try:
                    await self._look(self._watches if is_due else touched)
                    failures = 0
                except Exception as error:  # noqa: BLE001 - all who wait depend on it
                    failures += 1
                    self._report(error)
                    due = began + Backoff().delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
                else:
                    pause = max(LOOK_EVERY, min(self._took * _LOOK_SHARE, LOOK_AT_LEAST_EVERY))
                    due = began + pause if is_due else due
        finally:
            for helper in helpers:
                helper.cancel()
            self.close()

    def close(self) -> None:
        self.is_open = self.is_alive = False
        self.closed.set()
        for watch in self._all():
            for listener in watch.listeners:
                listener.wake()

    async def _heed(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def ping(self) -> None:
        """Let every stream give a sign of life, so that nobody on the way takes it for dead."""
        for watch in self._all():
            for listener in watch.listeners:
                listener.ping()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY)
            self.ping()

    async def _rest(self, due: float) -> None:
        """Until something was written here, or it is time to look at all that is watched."""
        await asyncio.sleep(_GAP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - time.monotonic()) if self._watches else None):
                await self._wake.wait()
        self._wake.clear()

    async def _look(self, job_ids: Iterable[UUID]) -> None:
        watches = [watch for job_id in job_ids for watch in self._watches.get(job_id, {}).values()]
        self._took = 0.0
        for start in range(0, len(watches), _LOOK_MAX):
            await self._look_at(watches[start : start + _LOOK_MAX])

    async def _look_at(self, watches: Sequence[Watch]) -> None:
        began = time.monotonic()
        changed = await self._changes(watches)
        self._took += time.monotonic() - began
        behind = [watch for watch, row in changed if watch.streams and (row["events"] or 0) > watch.last]
        for start in range(0, len(behind), _READ_MAX):
            await self._catch_up(behind[start : start + _READ_MAX])
        outputs = await self._outputs([watch for watch, row in changed if row["is_ended"] and watch.form.tells_output])
        for watch, row in changed:
            self._renew(watch, row, outputs.get(id(watch)))
            watch.wake()

    async def _outputs(self, watches: Sequence[Watch]) -> dict[int, Row]:
        """How these jobs ended, with their output."""
        found: dict[int, Row] = {}
        for db, own in self._by_home(watches) if watches else ():
            with contextlib.nullcontext() if db is self._homes.central else passed_over():
                rows: Sequence[Row] = await db.run(
                    SQL["ended"], [watch.job_id for watch in own], [watch.tenant for watch in own]
                )
                found |= {id(own[int(row["n"]) - 1]): row for row in rows}
        return found

    async def _changes(self, watches: Sequence[Watch]) -> list[tuple[Watch, Row]]:
        """What is new of each job; nothing of those whose database cannot be reached."""
        changed: list[tuple[Watch, Row]] = []
        for db, own in self._by_home(watches):
            with contextlib.nullcontext() if db is self._homes.central else passed_over():
                rows: Sequence[Row] = await db.run(
                    SQL["look"],
                    [watch.job_id for watch in own],
                    [watch.tenant for watch in own],
                    [watch.known for watch in own],
                )
                changed += [(own[int(row["n"]) - 1], row) for row in rows]
        if not self._homes.away:
            return changed
        # Who may see all asks everywhere: that it is not here is true only where it is nowhere.
        found = {id(watch) for watch, row in changed if row["events"] is not None}
        absent = Counter(id(watch) for watch, row in changed if row["events"] is None)
        asked = {id(watch): 1 if watch.tenant else len(self._homes.all) for watch, _ in changed}
        return [
            (watch, row)
            for watch, row in changed
            if row["events"] is not None or (id(watch) not in found and absent[id(watch)] == asked[id(watch)])
        ]

    def _by_home(self, asking: Sequence[Asking]) -> list[tuple[Database, list[Asking]]]:
        """Those who ask, by where what they ask for may be; a watcher without a tenant may see all."""
        if not self._homes.away:
            return [(self._homes.central, list(asking))]
        groups = {db: list[Asking]() for db in self._homes.all}
        for one in asking:
            for db in self._homes.all if one.tenant is None else (self._homes.of(one.tenant),):
                groups[db].append(one)
        return [(db, group) for db, group in groups.items() if group]

    async def _catch_up(self, watches: Sequence[Watch]) -> None:
        pages = await self._read([Page(watch.job_id, watch.tenant, watch.last, watch.form) for watch in watches])
        share = _BYTES_ALL // max(1, len(self._watches))
        for watch, frames in zip(watches, pages, strict=True):
            watch.add(frames, max(_BYTES_MIN, min(share, _BYTES_MAX)))

    def _renew(self, watch: Watch, row: Row, ended: Row | None) -> None:
        """Take over what a look has shown."""
        if row["events"] is None:
            watch.end = b""
            return
        if not watch.streams and row["events"] > watch.last:
            watch.skip(row["events"])
        if watch.last < row["events"]:  # there is more than a page
            self.touch((watch.job_id,))
        elif not row["is_ended"]:
            watch.known = row["events"]
            watch.end = None
        elif ended is not None or not watch.form.tells_output:  # else its database went away just now
            watch.known = row["events"]
            watch.end = watch.form.end(ended or row)

    async def _read(self, pages: Sequence[Page]) -> list[list[Frame]]:
        frames = {page: list[Frame]() for page in pages}
        for db, own in self._by_home(list(frames)):
            job_ids, tenants, seen, _ = map(list, zip(*own, strict=True))
            rows: Sequence[Row] = await db.run(SQL["after"], job_ids, tenants, seen, PAGE)
            for row in rows:
                page = own[int(row["n"]) - 1]
                frames[page].append(Frame(row["seq"], page.form.frame(row) or b""))
        return [frames[page] for page in pages]

    def _all(self) -> list[Watch]:
        return [watch for watches in self._watches.values() for watch in watches.values()]

    def _heard(self, topics: frozenset[str]) -> None:
        """A cancel elsewhere."""
        named = [topic[len(CANCEL_TOPIC) :] for topic in topics if topic.startswith(CANCEL_TOPIC)]
        with contextlib.suppress(ValueError):  # the last of a long list may have been cut
            self.touch([UUID(name) for name in named])

    def _report(self, error: Exception) -> None:
        if isinstance(error, UnavailableError):
            logs.emit("db.unavailable", service="hub", error=str(error))
        else:
            logs.emit("service.failed", service="hub", error=f"{type(error).__name__}: {error}")


def _frame(row: Row) -> bytes:
    event = wire.Event(
        seq=row["seq"],
        at=row["at"],
        type=row["type"],
        state=row["state"],
        data=None if row["data"] is None else msgspec.Raw(row["data"].encode()),
    )
    head = f"id: {event.seq}\nevent: {event.type}\ndata: ".encode()
    return head + msgspec.json.encode(event) + b"\n\n"


def _end(row: Row) -> bytes:
    told = msgspec.json.encode({"state": row["state"], "outcome": row["outcome"]})
    return b"retry: %d\nevent: end\ndata: %s\n\n" % (_OVER, told)


NATIVE: Final = Form(_frame, _end)
