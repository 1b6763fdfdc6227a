"""The events of one job, each once and in order, over connections that may break at any moment."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
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
    from millpond.client.ports import Port, Stream
    from millpond.client.requests import Deadline
    from millpond.client.sse import Frame

# The server pings every 15 seconds: a stream that is silent for longer does not come through.
SILENCE_MAX: Final = 40.0
# A read of a stream cannot be cut short, so the end of a deadline is not left to one.
_PING: Final = 16.0
# So many streams may bring not one byte before we stop believing in them.
_BARREN_MAX: Final = 2
_PAUSE_MAX: Final = 2.0
_POLL: Final = 1.0
_OK: Final = 200
_SERVER_ERROR: Final = 500
# A stream may be refused where a page would not be.
_STREAM_ALONE: Final = frozenset({406, 408, 429})
_BROKEN: Final = (httpx2.HTTPError, msgspec.DecodeError, ValueError)


@dataclass
class Watch:
    """One reader of one job's events."""

    port: Port
    job: Handle
    path: str
    read: Callable[[float], Coroutine[Any, Any, wire.Job]]
    """Reads the job, once it has ended or so many seconds are over; tries again while the server is away."""
    page: Callable[[int], AsyncIterator[wire.Event]]
    """All events there are after a number; tries again as well."""
    deadline: Deadline
    seen: int
    is_over: bool = False
    barren: int = 0

    async def events(self, *, can_stream: bool) -> AsyncGenerator[wire.Event]:
        """What happens to the job: as a stream while streams come through, otherwise by asking again and again."""
        breaks = 0
        while not self.is_over:
            seen = self.seen
            is_live = can_stream and self.barren < _BARREN_MAX and self.deadline.left() > _PING
            if is_live:
                async with aclosing(self._streamed()) as streamed:
                    async for event in streamed:
                        yield event
            if self.is_over:
                return
            # It broke, or there is none: what was missed is read in pages, which also waits for a server to come back.
            async for event in self._caught_up(0 if is_live else _POLL):
                yield event
            self._check_time()
            breaks = 0 if self.seen > seen else breaks + 1
            if breaks > 1:
                await self.port.sleep(self.deadline.left(min(0.1 * 2**breaks, _PAUSE_MAX)))

    def _check_time(self) -> None:
        if self.deadline.is_over and not self.is_over:
            raise WaitTimeoutError(f"{self.job.id} has not ended in the time that was given; it goes on.", job=self.job)

    async def _caught_up(self, wait: float) -> AsyncGenerator[wire.Event]:
        record = await self.read(self.deadline.left(wait))
        self.job.learn(record)
        async for event in self.page(self.seen):
            self.seen = event.seq
            yield event
        self.is_over = record.phase == "ended"  # what came before its end stood in the pages, which were read after it

    async def _streamed(self) -> AsyncGenerator[wire.Event]:
        """The events of one stream, until it ends, breaks, or falls silent."""
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # what is compressed comes late
            "Last-Event-ID": str(self.seen),
        }
        limits = httpx2.Timeout(10.0, read=self.deadline.left(SILENCE_MAX))
        request = self.port.build("GET", self.path, headers=headers, timeout=limits)
        parser = Parser()
        try:
            async with self.port.open(request) as stream, aclosing(stream.chunks) as chunks:
                if not await self._is_live(stream):
                    return
                self.barren += 1
                async for chunk in chunks:
                    self.barren = 0
                    for event in filter(None, map(self._take, parser.feed(chunk))):
                        yield event
                    if self.is_over or self.deadline.left() <= _PING:
                        return
        except _BROKEN:
            return

    async def _is_live(self, stream: Stream) -> bool:
        """Whether it is a stream; a refusal that is for good is raised."""
        kind = stream.headers.get("content-type", "")
        if stream.status == _OK and kind.startswith("text/event-stream"):
            return True
        if stream.status < _SERVER_ERROR and stream.status not in _STREAM_ALONE and stream.status != _OK:
            body = b"".join([chunk async for chunk in stream.chunks])
            raise from_reply(stream.status, stream.headers, body)
        self.barren += 1
        return False

    def _take(self, frame: Frame) -> wire.Event | None:
        """The event of a frame, unless it was seen before; a gap breaks the stream."""
        if frame.event == "end":
            self.is_over = True
            return None
        event = msgspec.json.decode(frame.data, type=wire.Event)
        if event.seq <= self.seen:
            return None
        if event.seq > self.seen + 1:
            raise ValueError(f"event {event.seq} after {self.seen}")
        self.seen = event.seq
        return event
