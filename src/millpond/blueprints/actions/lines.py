"""Lines: what a program writes, as lines of a job's log, while it writes.

It may write no line end for ever, bytes that are no text, or a gigabyte. So a line is cut where it gets long, what
stays unfinished for a moment is told as it is, and of all that is written only the first part is kept: the rest is
counted and let go. Nothing is read before what was read last is in the log, so a program that is faster than the log
waits for it.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import io
import re
import sys
import termios
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH_MAX: Final = 8_192
"""Characters of a line; a longer one becomes several."""
LINES_MAX: Final = 10_000
BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of a program's output is kept."""
FLUSH: Final = 0.5
"""Seconds after which a line that has no end yet is told."""
_CHUNK: Final = 64 * 1024
_TOGETHER: Final = 500  # lines that go to the database as one statement
_TAIL: Final = 4_096
_LAST: Final = 10
# What a terminal takes for an order: colours, titles, places.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Budget:
    """How much of an output may still be kept, and how much was not."""

    def __init__(self) -> None:
        self.lines = LINES_MAX
        self.bytes = BYTES_MAX
        self.dropped_lines = 0
        self.dropped_bytes = 0
        self.is_told = False

    @property
    def is_spent(self) -> bool:
        return self.lines <= 0 or self.bytes <= 0

    def take(self, lines: Sequence[str]) -> list[str]:
        """Those of the lines that may be kept."""
        kept: list[str] = []
        for line in lines:
            if self.is_spent:
                self.dropped_lines += 1
                self.dropped_bytes += len(line.encode()) + 1
            else:
                self.lines -= 1
                self.bytes -= len(line.encode()) + 1
                kept.append(line)
        return kept

    def drop(self, chunk: bytes) -> None:
        self.dropped_bytes += len(chunk)
        self.dropped_lines += chunk.count(b"\n")


class Splitter:
    """Bytes, as they come, into lines of text."""

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._rest = ""

    @property
    def has_rest(self) -> bool:
        return bool(self._rest)

    def feed(self, chunk: bytes, *, is_last: bool = False) -> list[str]:
        *whole, self._rest = (self._rest + self._decoder.decode(chunk, final=is_last)).split("\n")
        found = [piece for line in whole for piece in _pieces(line)]
        if len(self._rest) >= LENGTH_MAX:
            *full, self._rest = _pieces(self._rest)
            found += full
        return [plain(line) for line in found]

    def flush(self) -> list[str]:
        """What is there of a line without an end."""
        rest, self._rest = self._rest, ""
        return [plain(piece) for piece in _pieces(rest)] if rest else []


def _pieces(line: str) -> list[str]:
    return [line[start : start + LENGTH_MAX] for start in range(0, len(line), LENGTH_MAX)] or [""]


def plain(line: str) -> str:
    """A line that does nothing to whoever looks at it."""
    return _CONTROLS.sub("\ufffd", _ESCAPES.sub("", line))


class Pipe(asyncio.StreamReader):
    """What comes out of a program, and of whatever it has started: until an end that is its own, or ours."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self._side = side
        self._left: int | None = None
        self._is_over = False

    def end(self) -> None:
        """Take what is there by now, and nothing that comes later, whoever still writes."""
        if not self._is_over:
            self._left = int.from_bytes(fcntl.ioctl(self._side, termios.FIONREAD, bytes(4)), sys.byteorder)
            self.feed_data(b"")

    def feed_data(self, data: Any) -> None:
        if self._is_over:
            return
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        super().feed_data(data)
        if self._left == 0:
            self.feed_eof()

    def feed_eof(self) -> None:
        self._is_over = True
        super().feed_eof()


class Output:
    """One of a program's outputs, told as lines of this level."""

    def __init__(self, job: Any, reader: Pipe, budget: Budget, level: str) -> None:
        self._job = job
        self._reader = reader
        self._budget = budget
        self._level = level
        self._splitter = Splitter()
        self._tail = b""

    def end(self) -> None:
        """Tell what is there, and nothing that comes later."""
        self._reader.end()

    async def run(self) -> None:
        """Read to the end."""
        while (chunk := await self._read()) != b"":
            if chunk is None:
                await self._tell(self._splitter.flush())
                continue
            self._tail = (self._tail + chunk)[-_TAIL:] if len(chunk) < _TAIL else chunk[-_TAIL:]
            if self._budget.is_spent:
                self._budget.drop(chunk)
            else:
                await self._tell(self._splitter.feed(chunk))
        await self._tell([*self._splitter.feed(b"", is_last=True), *self._splitter.flush()])

    @property
    def last_lines(self) -> list[str]:
        """The end of it, whether that was kept or not."""
        return [plain(line) for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()][-_LAST:]

    async def _read(self) -> bytes | None:
        """Some of it; none where a line has waited for its end long enough."""
        if not self._splitter.has_rest:
            return await self._reader.read(_CHUNK)
        try:
            async with asyncio.timeout(FLUSH):
                return await self._reader.read(_CHUNK)
        except TimeoutError:
            return None

    async def _tell(self, lines: Sequence[str]) -> None:
        kept = self._budget.take(lines)
        for start in range(0, len(kept), _TOGETHER):
            await log_all(self._job, kept[start : start + _TOGETHER], self._level)
        if self._budget.is_spent and not self._budget.is_told:
            self._budget.is_told = True
            told = f"More than {LINES_MAX:,} lines or {BYTES_MAX:,} bytes: what is written from here on is not kept."
            await self._job.log(told, level="warning")


async def log_all(job: Any, lines: Sequence[str], level: str) -> None:
    """Lines that are written in their order, and together."""
    for error in await asyncio.gather(*(job.log(line, level=level) for line in lines), return_exceptions=True):
        if isinstance(error, BaseException):
            raise error
