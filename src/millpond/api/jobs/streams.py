"""Live streams: every event of a job is sent to all its readers soon after its commit, and the text that it emits.

The hub of a process polls the database for all watched jobs in one statement; a write in the same process makes it poll
at once. Each new event is read and encoded once per form, and all streams of its job in that form send the same bytes.
A stream stores only its position: one that falls behind reads the rest from the database, and one whose reader stops
reading is dropped.

Text does not change the job, so a poll does not notice it. A job that begins to emit writes an event, and from then on
the hub reads its chunks at each poll, or at once if they were written in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import msgspec

from millpond import logs, wire
from millpond.engine.batcher import Batcher
from millpond.engine.engine import CANCEL_TOPIC
from millpond.engine.reads import streams
from millpond.engine.reads.streams import Position
from millpond.errors import MillpondError, UnavailableError
from millpond.retry import DATABASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millpond.engine.engine import Engine
    from millpond.services.notifier import Notifier
    from millpond.store.db import Row

LOOK_EVERY: Final = 0.1
LOOK_AT_LEAST_EVERY: Final = 0.4
"""The longest pause between two polls, however slow they are."""
PING_EVERY: Final = 15.0
RETRY: Final = b"retry: 2000\n\n"
PING: Final = b": ping\n\n"
PAGE: Final = 100

_LOOK_MAX: Final = 5_000  # watched jobs in one statement
_LOOK_SHARE: Final = 10  # the time between two polls is this many times the duration of a poll
_READ_MAX: Final = 500  # watched jobs whose new events are read in one statement
_PAGES_MAX: Final = 50  # whole pages that are read in one statement
_CHUNKS_MAX: Final = 8  # chunks of each job where more jobs emit: more are rare, and each may be large
_GAP: Final = 0.005  # seconds; writes in this time are read by one poll
_FRAMES_MAX: Final = 128
_BYTES_MAX: Final = 256 * 1024  # of the cached frames of a job
_BYTES_MIN: Final = 16 * 1024
_BYTES_ALL: Final = 64 * 1024 * 1024
_OVER: Final = 3_600_000  # milliseconds until a reader that ignores `end` reconnects


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The format of the events of a stream."""

    frame: Callable[[Row], bytes | None]
    """Encodes an event as a frame; None if the form omits the event. Its number counts as seen nevertheless."""
    end: Callable[[Row], bytes]
    """Encodes the last frame, from the row of the ended job."""
    chunk: Callable[[Row], bytes] | None = None
    """Encodes a chunk of text as a frame; without it, the form omits the text."""
    needs_output: bool = False
    """Whether the last frame needs the job's output, which is then read once."""


class MissedEvents(NamedTuple):
    """A request for the events of a job after the position ``seen``."""

    job_id: UUID
    tenant: str | None
    seen: Position
    form: Form
    with_text: bool = True


class StreamFrame(NamedTuple):
    """An encoded event or chunk; its text is empty if its form omits the event."""

    position: Position
    text: bytes


class Listener:
    """A stream or a request that waits for a job."""

    __slots__ = ("_sleep",)

    def __init__(self) -> None:
        self._sleep: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def ping(self) -> None:
        """Called when a heartbeat is due."""

    async def sleep(self) -> None:
        """Wait for ``wake``. Check the condition before, without an ``await`` in between: a wake-up would be lost."""
        self._sleep = asyncio.get_running_loop().create_future()
        await self._sleep


class WatchedJob:
    """A watched job with its newest events."""

    __slots__ = (
        "_frames",
        "_size",
        "emitted_at",
        "end",
        "floor",
        "form",
        "is_blocked",
        "is_emitting",
        "job_id",
        "known",
        "last",
        "listeners",
        "streams",
        "tenant",
    )

    def __init__(self, tenant: str | None, job_id: UUID, seen: Position, form: Form) -> None:
        self.tenant = tenant
        self.job_id = job_id
        self.form = form
        self.last = seen
        """The position of the last known event or chunk."""
        self.known = -1
        """The job's number of events when none of them was missing here; -1 before the first poll."""
        self.is_emitting = False
        """Whether there may be more text without more events."""
        self.is_blocked = False
        """Whether the job has ended as blocked. From then on, nobody gets its text."""
        self.emitted_at = 0.0
        """When this process last wrote text of the job, which it then reads without waiting for a poll."""
        self.floor = seen
        """All frames after this position are cached."""
        self.end: bytes | None = None
        """The last frame, once the job has ended; empty if there is no such job."""
        self.listeners: set[Listener] = set()
        self.streams = 0
        self._frames: deque[StreamFrame] = deque()
        self._size = 0

    def missed(self, seen: Position) -> MissedEvents:
        return MissedEvents(self.job_id, self.tenant, seen, self.form, with_text=not self.is_blocked)

    def add(self, frames: Iterable[StreamFrame], limit: int = _BYTES_MAX) -> None:
        """Append frames, and drop the oldest ones beyond ``limit`` bytes or the limit of their number."""
        for frame in frames:
            self._frames.append(frame)
            self._size += len(frame.text)
            self.last = frame.position
        while self._size > limit or len(self._frames) > _FRAMES_MAX:
            dropped = self._frames.popleft()
            self._size -= len(dropped.text)
            self.floor = dropped.position

    def skip(self, last: Position) -> None:
        """Advance without frames: no stream needs the events themselves."""
        self._frames.clear()
        self._size = 0
        self.last = self.floor = last

    def after(self, seen: Position) -> list[StreamFrame]:
        fresh: list[StreamFrame] = []
        for frame in reversed(self._frames):
            if frame.position <= seen:
                break
            fresh.append(frame)
        return fresh[::-1]

    def wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Stream(Listener):
    """The frames of one job for one reader, after a position; it ends with the job, or when the hub closes."""

    __slots__ = ("_form", "_hub", "_is_begun", "_is_open", "_is_pinged", "_job_id", "_seen", "_tenant", "_watch")

    def __init__(self, hub: Hub, tenant: str | None, job_id: UUID, seen: Position, form: Form) -> None:
        super().__init__()
        self._hub = hub
        self._tenant = tenant
        self._job_id = job_id
        self._seen = seen
        self._form = form
        self._watch: WatchedJob | None = None
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
        except MillpondError as error:  # the stream ends, and its reader reconnects
            logs.emit("db.unavailable", service="stream", error=str(error))
        except BaseException:
            self._close()
            raise
        self._close()
        raise StopAsyncIteration

    async def _next(self, watch: WatchedJob) -> bytes:
        """The bytes that can be sent now; empty if there are none."""
        while fresh := await self._fresh(watch):
            self._seen = fresh[-1].position
            if text := fresh[0].text if len(fresh) == 1 else b"".join(frame.text for frame in fresh):
                return text
        if watch.end is not None and self._seen >= watch.last:
            self._close()
            return watch.end
        pinged, self._is_pinged = self._is_pinged, False
        return PING if pinged else b""

    async def _fresh(self, watch: WatchedJob) -> list[StreamFrame]:
        return await self._hub.page(watch, self._seen) if self._seen < watch.floor else watch.after(self._seen)

    def ping(self) -> None:
        self._is_pinged = True
        self.wake()

    async def aclose(self) -> None:
        """Stop watching the job; the stream yields nothing more."""
        self._close()

    def _close(self) -> None:
        self._is_open = False
        if self._watch is not None:
            self._hub.leave(self, self._watch)


class Hub:
    """All streams and requests of this process that wait for jobs, including the polls of fleet workers."""

    def __init__(self, engine: Engine, notifier: Notifier | None = None) -> None:
        self._tenant_databases = engine.tenant_databases
        self._workers = engine.workers
        self._watches: dict[UUID, dict[tuple[str | None, Form], WatchedJob]] = {}
        self._touched: set[UUID] = set()
        self._emitted: set[UUID] = set()
        self._wake = asyncio.Event()
        self._took = 0.0
        self.is_open = True
        """False once the hub stops; from then on nothing waits."""
        self.closed = asyncio.Event()
        """Set when the hub is no longer open."""
        self.is_alive = False
        """Whether it polls: before and after ``run``, no new events arrive."""
        self._pages: Batcher[MissedEvents, list[StreamFrame]] = Batcher(self._read, size=_PAGES_MAX)
        engine.audience = self
        if notifier is not None:
            notifier.listen(self._on_topics)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(watch.streams for watch in self._all())

    def stream(
        self, tenant: str | None, job_id: UUID, after: int | Position = 0, *, form: Form | None = None
    ) -> Stream:
        """The frames of a job after this event. A caller that does not read to the end must close the stream."""
        seen = Position(after) if isinstance(after, int) else after
        return Stream(self, tenant, job_id, seen, form or NATIVE)

    async def wait(
        self, tenant: str | None, job_id: UUID, *, seen: int, seconds: float, until_ended: bool = True
    ) -> None:
        """Wait until the job has ended or the time is up; without ``until_ended``, an event after ``seen`` suffices."""
        listener = Listener()
        watch = self.join(listener, tenant, job_id, Position(seen))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self.is_open and watch.end is None and (until_ended or watch.last.seq <= seen):
                        await listener.sleep()
        finally:
            self.leave(listener, watch)

    def touch(self, job_ids: Iterable[UUID]) -> None:
        """Poll these jobs at once: something was just written about them."""
        if self._watches:
            touched = [job_id for job_id in job_ids if job_id in self._watches]
            if touched:
                self._touched.update(touched)
                self._wake.set()

    def emitted(self, job_ids: Iterable[UUID]) -> None:
        """Read the text of these jobs at once: more of it was just written."""
        if self._watches:
            now = time.monotonic()
            for watch in self._watching(job_ids):
                watch.emitted_at = now
                self._read_soon(watch)

    # Called by listeners

    def join(
        self, listener: Listener, tenant: str | None, job_id: UUID, seen: Position, form: Form | None = None
    ) -> WatchedJob:
        form = form or NATIVE
        watches = self._watches.setdefault(job_id, {})
        watch = watches.get((tenant, form))
        if watch is None:
            watch = watches[tenant, form] = WatchedJob(tenant, job_id, seen, form)
        watch.listeners.add(listener)
        watch.streams += isinstance(listener, Stream)
        self.touch((job_id,))
        return watch

    def leave(self, listener: Listener, watch: WatchedJob) -> None:
        if listener not in watch.listeners:
            return
        watch.listeners.discard(listener)
        watch.streams -= isinstance(listener, Stream)
        if not watch.listeners:
            watches = self._watches[watch.job_id]
            del watches[watch.tenant, watch.form]
            if not watches:
                del self._watches[watch.job_id]

    async def page(self, watch: WatchedJob, seen: Position) -> list[StreamFrame]:
        """Frames that are no longer cached."""
        return await self._pages.add(watch.missed(seen))

    # Polling

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until stopped; then every stream ends, and its reader may reconnect to another process."""
        helpers = [asyncio.create_task(self._close_on_stop(stop)), asyncio.create_task(self._keep_alive())]
        due, failures = 0.0, 0
        self.is_alive = True
        try:
            while not stop.is_set():
                await self._rest(due)
                began = time.monotonic()
                is_due = began >= due
                try:
                    await self._poll(is_due=is_due)
                    failures = 0
                except Exception as error:  # noqa: BLE001 - all streams depend on this loop
                    failures += 1
                    self._report(error)
                    due = began + DATABASE.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
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
        self._workers.end_polls()

    async def _close_on_stop(self, stop: asyncio.Event) -> None:
        """Close at once, also while a poll waits for the database."""
        await stop.wait()
        self.close()
        self._wake.set()

    def ping(self) -> None:
        """Send a heartbeat on every stream, so that no proxy closes it as idle."""
        for watch in self._all():
            for listener in watch.listeners:
                listener.ping()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY)
            self.ping()

    async def _rest(self, due: float) -> None:
        """Wait until this process has written something, or the next poll of all watched jobs is due."""
        await asyncio.sleep(_GAP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - time.monotonic()) if self._watches else None):
                await self._wake.wait()
        self._wake.clear()

    async def _poll(self, *, is_due: bool) -> None:
        """Look at all watched jobs if that is due, or else at those that were touched; read text that was written."""
        touched, self._touched = self._touched, set()
        emitted, self._emitted = self._emitted, set()
        touched |= self._beginning(emitted)
        if is_due or touched:
            await self._look(self._watches if is_due else touched)
        await self._read_chunks(self._watching(emitted))

    def _watching(self, job_ids: Iterable[UUID]) -> list[WatchedJob]:
        return [watch for job_id in job_ids for watch in self._watches.get(job_id, {}).values()]

    def _beginning(self, job_ids: Iterable[UUID]) -> set[UUID]:
        """Those of these jobs of which it is not known yet that they emit text."""
        watches = self._watching(job_ids)
        return {watch.job_id for watch in watches if watch.form.chunk is not None and not watch.is_emitting}

    async def _look(self, job_ids: Iterable[UUID]) -> None:
        watches = self._watching(job_ids)
        self._took = 0.0
        for start in range(0, len(watches), _LOOK_MAX):
            await self._look_at(watches[start : start + _LOOK_MAX])

    async def _look_at(self, watches: Sequence[WatchedJob]) -> None:
        began = time.monotonic()
        seen = [(watch.job_id, watch.tenant, watch.known) for watch in watches]
        changed = [(watches[n], row) for n, row in await streams.changed(self._tenant_databases, seen)]
        self._took += time.monotonic() - began
        for watch, row in changed:
            watch.is_emitting = bool(row["is_emitting"]) and watch.form.chunk is not None
            watch.is_blocked = row["outcome"] == "blocked"
        behind = [watch for watch, row in changed if watch.streams and (row["events"] or 0) > watch.last.seq]
        for start in range(0, len(behind), _READ_MAX):
            await self._catch_up(behind[start : start + _READ_MAX])
        # No other process writes text of a job while this one does.
        rest = set(watches).difference(behind)
        await self._read_chunks(watch for watch in rest if watch.emitted_at + LOOK_EVERY < began)
        ended = [watch for watch, row in changed if row["is_ended"] and watch.form.needs_output]
        outputs = await self._outputs(ended) if ended else {}
        for watch, row in changed:
            self._renew(watch, row, outputs.get(id(watch)))
            watch.wake()

    async def _outputs(self, watches: Sequence[WatchedJob]) -> dict[int, Row]:
        """How these jobs ended, with their output."""
        ended = await streams.ended(self._tenant_databases, [(watch.job_id, watch.tenant) for watch in watches])
        return {id(watches[n]): row for n, row in ended}

    def _read_soon(self, watch: WatchedJob) -> None:
        self._emitted.add(watch.job_id)
        self._wake.set()

    async def _read_chunks(self, watches: Iterable[WatchedJob]) -> None:
        """Read the text that those of these jobs that emit have emitted since."""
        emitting = [watch for watch in watches if watch.is_emitting and watch.streams]
        limit = PAGE if len(emitting) <= _PAGES_MAX else _CHUNKS_MAX
        for start in range(0, len(emitting), _READ_MAX):
            await self._catch_up(emitting[start : start + _READ_MAX], limit)

    async def _catch_up(self, watches: Sequence[WatchedJob], limit: int = PAGE) -> None:
        pages = await self._read([watch.missed(watch.last) for watch in watches], limit)
        share = _BYTES_ALL // max(1, len(self._watches))
        for watch, frames in zip(watches, pages, strict=True):
            watch.add(frames, max(_BYTES_MIN, min(share, _BYTES_MAX)))
            if frames and watch.is_emitting:
                watch.wake()
                if len(frames) == limit:  # another page is missing
                    self._read_soon(watch)

    def _renew(self, watch: WatchedJob, row: Row, ended: Row | None) -> None:
        """Update a watch from a polled row."""
        if row["events"] is None:
            watch.end = b""
            return
        if not watch.streams and row["events"] > watch.last.seq:
            watch.skip(Position(row["events"]))
        if watch.last.seq < row["events"]:  # another page is missing
            self.touch((watch.job_id,))
        elif not row["is_ended"]:
            watch.known = row["events"]
            watch.end = None
        elif ended is not None or not watch.form.needs_output:  # otherwise its database became unreachable in between
            watch.known = row["events"]
            watch.end = watch.form.end(ended or row)

    async def _read(self, pages: Sequence[MissedEvents], limit: int = PAGE) -> list[list[StreamFrame]]:
        frames = {page: list[StreamFrame]() for page in pages}
        wanted = list(frames)
        missed = [
            (page.job_id, page.tenant, page.seen, page.with_text and page.form.chunk is not None) for page in wanted
        ]
        for n, row in await streams.after(self._tenant_databases, missed, limit):
            frames[wanted[n]].append(_stream_frame(wanted[n].form, row))
        return [frames[page] for page in pages]

    def _all(self) -> list[WatchedJob]:
        return [watch for watches in self._watches.values() for watch in watches.values()]

    def _on_topics(self, topics: frozenset[str]) -> None:
        """Poll the jobs for which another process has requested a cancel."""
        named = [topic[len(CANCEL_TOPIC) :] for topic in topics if topic.startswith(CANCEL_TOPIC)]
        with contextlib.suppress(ValueError):  # the last id of a long list may be truncated
            self.touch([UUID(name) for name in named])

    def _report(self, error: Exception) -> None:
        if isinstance(error, UnavailableError):
            logs.emit("db.unavailable", service="hub", error=str(error))
        else:
            logs.emit("service.failed", service="hub", error=f"{type(error).__name__}: {error}")


def _stream_frame(form: Form, row: Row) -> StreamFrame:
    position = Position(row["seq"], row["number"])
    encode = form.chunk if position.number and form.chunk is not None else form.frame
    return StreamFrame(position, encode(row) or b"")


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
    data = msgspec.json.encode({"state": row["state"], "outcome": row["outcome"]})
    return b"retry: %d\nevent: end\ndata: %s\n\n" % (_OVER, data)


def _chunk(row: Row) -> bytes:
    chunk = wire.Chunk(seq=row["seq"], number=row["number"], at=row["at"], text=row["data"])
    head = f"id: {chunk.seq}.{chunk.number}\nevent: chunk\ndata: ".encode()
    return head + msgspec.json.encode(chunk) + b"\n\n"


NATIVE: Final = Form(_frame, _end, _chunk)
