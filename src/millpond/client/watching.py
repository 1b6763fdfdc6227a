"""The events of a job and the text that it emits, once and in order, over connections that may break at any time."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec

from millpond import wire
from millpond.client.errors import WaitTimeoutError, from_reply
from millpond.client.sse import Parser

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
    from typing import Any

    from millpond.client.handles import Handle
    from millpond.client.ports import Port, ResponseStream
    from millpond.client.requests import Deadline
    from millpond.client.sse import StreamMessage

# The server pings every 15 seconds, so a stream that is silent for this long is broken.
SILENCE_MAX: Final = 40.0
# A read of a stream cannot be interrupted, so polling takes over this long before the deadline.
_PING: Final = 16.0
# After this many streams in a row without a byte, the client only polls.
_EMPTY_STREAMS_MAX: Final = 2
_PAUSE_MAX: Final = 2.0
_POLL: Final = 1.0
_OK: Final = 200
_SERVER_ERROR: Final = 500
# With these statuses, a stream may be rejected although a page would not be.
_STREAM_ALONE: Final = frozenset({406, 408, 429})
_BROKEN: Final = (httpx2.HTTPError, msgspec.DecodeError, ValueError)


@dataclass
class TextReader:
    """The text of a job, as far as it was read. It is needed to continue where streams do not work."""

    read: Callable[[], Coroutine[Any, Any, wire.JobText]]
    """Read the whole text so far; retries while the server is unavailable."""
    number: int = 0
    """The number of the last chunk."""
    position: str = "0"
    """Where the stream continues, as its server named it."""
    _pieces: list[str] = field(default_factory=list[str])

    def take(self, chunk: wire.Chunk) -> wire.Chunk | None:
        """A chunk from a stream, unless it was seen before; a gap breaks the stream."""
        if 1 < chunk.number <= self.number:
            return None
        if chunk.number == 1:
            self._pieces = []
        elif chunk.number > self.number + 1:
            raise ValueError(f"chunk {chunk.number} after {self.number}")
        self._pieces.append(chunk.text)
        self.number = chunk.number
        return chunk

    async def catch_up(self) -> wire.Chunk | None:
        """What is new since the last chunk, as one chunk; it has number 1 if the text was restarted."""
        found, known = await self.read(), "".join(self._pieces)
        self.position = found.last_event_id
        if not found.number or (found.number == self.number and found.text == known):
            return None
        is_restart = not known or not found.text.startswith(known)
        self.number, self._pieces = found.number, [found.text]
        return wire.Chunk(
            seq=int(found.last_event_id.partition(".")[0]),
            number=1 if is_restart else found.number,
            at=found.at or datetime.now(UTC),
            text=found.text if is_restart else found.text[len(known) :],
        )


@dataclass
class EventReader:
    """A reader of a job's events and, with a reader of its text, of the chunks between them."""

    port: Port
    job: Handle
    path: str
    read: Callable[[float], Coroutine[Any, Any, wire.Job]]
    """Read the job once it has ended or the seconds have passed; retry while the server is unavailable."""
    page: Callable[[int], AsyncIterator[wire.Event]]
    """All events after a number; retries while the server is unavailable."""
    deadline: Deadline
    seen: int
    text: TextReader | None = None
    is_over: bool = False
    empty_streams: int = 0

    async def events(self, *, can_stream: bool) -> AsyncGenerator[wire.Event]:
        """The events of the job only."""
        async with aclosing(self.items(can_stream=can_stream)) as items:
            async for item in items:
                if isinstance(item, wire.Event):
                    yield item

    async def chunks(self, *, can_stream: bool) -> AsyncGenerator[wire.Chunk]:
        """The chunks of the job's text only."""
        async with aclosing(self.items(can_stream=can_stream)) as items:
            async for item in items:
                if isinstance(item, wire.Chunk):
                    yield item

    async def items(self, *, can_stream: bool) -> AsyncGenerator[wire.Event | wire.Chunk]:
        """The events and chunks of the job: as a stream if streams work, otherwise by polling."""
        breaks = 0
        while not self.is_over:
            seen = self.seen
            is_live = can_stream and self.empty_streams < _EMPTY_STREAMS_MAX and self.deadline.left() > _PING
            if is_live:
                async with aclosing(self._streamed()) as streamed:
                    async for item in streamed:
                        yield item
            if self.is_over:
                return
            # The stream broke, or there is none: read the missed events in pages, which also waits for the server.
            async for item in self._caught_up(0 if is_live else _POLL):
                yield item
            self._check_time()
            breaks = 0 if self.seen > seen else breaks + 1
            if breaks > 1:
                await self.port.sleep(self.deadline.left(min(0.1 * 2**breaks, _PAUSE_MAX)))

    def _check_time(self) -> None:
        if self.deadline.is_over and not self.is_over:
            raise WaitTimeoutError(
                f"{self.job.id} has not ended within the timeout. It continues to run.", job=self.job
            )

    async def _caught_up(self, wait: float) -> AsyncGenerator[wire.Event | wire.Chunk]:
        record = await self.read(self.deadline.left(wait))
        self.job.learn(record)
        if self.text is not None and (chunk := await self.text.catch_up()) is not None:
            yield chunk
        async for event in self.page(self.seen):
            self.seen = event.seq
            yield event
        self.is_over = record.phase == "ended"  # the rest was read after the record, so nothing is missing

    async def _streamed(self) -> AsyncGenerator[wire.Event | wire.Chunk]:
        """The events and chunks of one stream, until it ends, breaks or stalls."""
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # compression delays events
            "Last-Event-ID": str(self.seen) if self.text is None else self.text.position,
        }
        limits = httpx2.Timeout(10.0, read=self.deadline.left(SILENCE_MAX))
        request = self.port.build("GET", self.path, headers=headers, timeout=limits)
        parser = Parser()
        try:
            async with self.port.open(request) as stream, aclosing(stream.chunks) as chunks:
                if not await self._is_live(stream):
                    return
                self.empty_streams += 1
                async for chunk in chunks:
                    self.empty_streams = 0
                    for item in filter(None, map(self._take, parser.feed(chunk))):
                        yield item
                    if self.is_over or self.deadline.left() <= _PING:
                        return
        except _BROKEN:
            return

    async def _is_live(self, stream: ResponseStream) -> bool:
        """Whether the response is a stream; permanent errors are raised."""
        kind = stream.headers.get("content-type", "")
        if stream.status == _OK and kind.startswith("text/event-stream"):
            return True
        if stream.status < _SERVER_ERROR and stream.status not in _STREAM_ALONE and stream.status != _OK:
            body = b"".join([chunk async for chunk in stream.chunks])
            raise from_reply(stream.status, stream.headers, body)
        self.empty_streams += 1
        return False

    def _take(self, frame: StreamMessage) -> wire.Event | wire.Chunk | None:
        """The event of a frame, unless it was seen before; a gap breaks the stream."""
        if frame.event == "end":
            self.is_over = True
            return None
        item = self._take_chunk(frame) if frame.event == "chunk" else self._take_event(frame)
        if self.text is not None and frame.id:
            self.text.position = frame.id
        return item

    def _take_chunk(self, frame: StreamMessage) -> wire.Chunk | None:
        return None if self.text is None else self.text.take(msgspec.json.decode(frame.data, type=wire.Chunk))

    def _take_event(self, frame: StreamMessage) -> wire.Event | None:
        event = msgspec.json.decode(frame.data, type=wire.Event)
        if event.seq <= self.seen:
            return None
        if event.seq > self.seen + 1:
            raise ValueError(f"event {event.seq} after {self.seen}")
        self.seen = event.seq
        return event
