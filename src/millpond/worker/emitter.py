"""Writes the text that the jobs of a worker emit: at most twenty times a second, and for all of its jobs together.

The chunks of an attempt are numbered, and one that was written is not written again. So chunks that were sent stay as
they are until they are known to be written, and text that is emitted meanwhile waits for the next ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.errors import CanceledError, LeaseLostError, UnavailableError
from millpond.retry import Backoff
from millpond.work import CHUNK_MAX, TEXT_MAX, Chunk, too_long
from millpond.worker import job_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.work import Lease
    from millpond.worker.source import JobSource

GAP: Final = 0.05
"""Seconds between two writes. All jobs are written at the same times, so that they share statements and requests."""
UNWRITTEN_MAX: Final = CHUNK_MAX
"""How many bytes of the text of a job may wait to be written; beyond that, the job waits too."""
CHUNKS_MAX: Final = 2
"""The number of chunks of a job that are sent at once."""
BATCH_JOBS: Final = 500
BATCH_BYTES: Final = CHUNKS_MAX * CHUNK_MAX
TEXT_TIMEOUT: Final = 5.0
"""Seconds for writing the text of an attempt that has failed."""
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=2), jitter=0.5)


class TextBuffer:
    """The text that a job emits, as far as it is not written yet.

    ``stop`` lets the job stop, and ``stopped`` is why it must stop, if it must.
    """

    __slots__ = (
        "_numbered",
        "_pieces",
        "_waiting",
        "due",
        "error",
        "failures",
        "lease",
        "sent",
        "size",
        "stop",
        "stopped",
        "unwritten",
    )

    def __init__(
        self, lease: Lease, stop: Callable[[Exception], None], stopped: Callable[[], Exception | None]
    ) -> None:
        self.lease = lease
        self.stop = stop
        self.stopped = stopped
        self.size = 0
        """How many bytes were emitted."""
        self.unwritten = 0
        """How many of them are not known to be written."""
        self.sent: tuple[Chunk, ...] = ()
        """The chunks that were sent, and are not known to be written."""
        self.due = 0.0
        """When they, or the next ones, are sent."""
        self.failures = 0
        self.error: Exception | None = None
        """Why no more text is accepted."""
        self._numbered = 0
        self._pieces: list[str] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def add(self, piece: str, size: int) -> None:
        if self.error is not None:
            raise self.error
        if self.size + size > TEXT_MAX:
            raise too_long()
        self._pieces.append(piece)
        self.size += size
        self.unwritten += size

    def wait(self) -> asyncio.Future[None]:
        """Is done when all that was emitted so far is written, or cannot be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.size, future))
        return future

    @property
    def is_waited_for(self) -> bool:
        return any(not future.done() for _, future in self._waiting)

    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks to send: those that were sent before, or else the next ones."""
        if not self.sent:
            parts = _split("".join(self._pieces))
            self._pieces = parts[CHUNKS_MAX:]
            self.sent = tuple(
                Chunk(self.lease, number, part) for number, part in enumerate(parts[:CHUNKS_MAX], self._numbered + 1)
            )
            self._numbered += len(self.sent)
        return self.sent

    def written(self) -> None:
        """The chunks that were sent are written."""
        self.unwritten -= sum(len(chunk.text.encode()) for chunk in self.sent)
        self.sent = ()
        self.failures = 0
        self._settle(self.size - self.unwritten, None)

    def fail(self, error: Exception) -> None:
        """Accept no more text, and forget what is not written."""
        self.error = error
        self.sent, self._pieces, self.unwritten = (), [], 0
        self._settle(self.size, error)

    def _settle(self, size: int, error: Exception | None) -> None:
        done = [future for until, future in self._waiting if until <= size]
        self._waiting = [(until, future) for until, future in self._waiting if until > size]
        for future in done:
            with contextlib.suppress(asyncio.InvalidStateError):  # the caller no longer waits
                future.set_result(None) if error is None else future.set_exception(error)


class Emitter:
    """Writes the text of all jobs of a worker."""

    def __init__(self, source: JobSource) -> None:
        self._source = source
        self._texts: dict[TextBuffer, None] = {}
        """Those that are not written yet, in the order in which they are."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, text: TextBuffer, piece: str, size: int) -> asyncio.Future[None] | None:
        """Add a piece; the result, if any, must be waited for.

        The first piece of a job is written at once: its reader waits for it, and so it is known that text is accepted.
        """
        is_first = not text.size
        text.add(piece, size)
        if is_first:
            return self.flush(text)
        if text not in self._texts:
            text.due = _next_tick()
            self._write_later(text)
        return text.wait() if text.unwritten > UNWRITTEN_MAX else None

    def is_late(self, text: TextBuffer) -> bool:
        """Whether text should have been written by now: a handler that awaits nothing occupies the event loop."""
        return text in self._texts and time.monotonic() > text.due

    def flush(self, text: TextBuffer) -> asyncio.Future[None] | None:
        """Write all text of a job now; the result, if any, is done when it is written, or cannot be."""
        if not text.unwritten:
            return None
        if not text.failures:
            text.due = 0.0
        self._write_later(text)
        self._wake.set()
        return text.wait()

    def drop(self, text: TextBuffer) -> None:
        """Forget the text of a job, because its lease is over."""
        self._texts.pop(text, None)
        text.fail(LeaseLostError())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _write_later(self, text: TextBuffer) -> None:
        self._texts[text] = None
        if self._task is None or self._task.done():
            with job_logging.outside():  # what is logged by writing text is not of the job that emitted it
                self._task = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._texts:
            self._wake.clear()
            left = min(text.due for text in self._texts) - time.monotonic()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._wake.wait()
            if batch := self._next_batch():
                await self._write(batch)

    def _next_batch(self) -> list[TextBuffer]:
        """The jobs whose text is due, up to the limits of a batch."""
        now, size, batch = time.monotonic(), 0, list[TextBuffer]()
        for text in self._texts:
            if text.due <= now:
                size += sum(len(chunk.text) for chunk in text.chunks())
                if batch and size > BATCH_BYTES:
                    break
                batch.append(text)
                if len(batch) == BATCH_JOBS:
                    break
        return batch

    async def _write(self, batch: Sequence[TextBuffer]) -> None:
        try:
            results = await self._source.emit(*(text.chunks() for text in batch))
        except Exception as error:  # noqa: BLE001 - it is raised to the jobs
            results = [error] * len(batch)
        for text, result in zip(batch, results, strict=True):
            if text in self._texts:  # otherwise it was dropped meanwhile
                del self._texts[text]
                self._settle(text, result)

    def _settle(self, text: TextBuffer, result: bool | Exception) -> None:  # noqa: FBT001 - the result of a source
        if isinstance(result, UnavailableError) and text.stopped() is None:
            text.failures += 1
            pause = _BACKOFF.delay(text.failures, random.random()).total_seconds()  # noqa: S311 - jitter
            text.due = time.monotonic() + pause
            self._texts[text] = None
        elif isinstance(result, Exception):
            if isinstance(result, LeaseLostError):
                text.stop(result)
            text.fail(text.stopped() or result)
        else:
            text.written()
            if result:
                text.stop(CanceledError())
            if text.unwritten:
                text.due = 0.0 if text.is_waited_for else _next_tick()
                self._texts[text] = None


def _next_tick() -> float:
    return (time.monotonic() // GAP + 1) * GAP


def _split(text: str) -> list[str]:
    """Parts of a text that fit into a chunk."""
    if len(text) <= CHUNK_MAX // 4:  # a character has at most four bytes
        return [text]
    data, parts = text.encode(), list[str]()
    while data:
        part = data[:CHUNK_MAX].decode(errors="ignore")  # without a character that is cut off at the end
        parts.append(part)
        data = data[len(part.encode()) :]
    return parts
