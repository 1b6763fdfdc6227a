"""Lines: the output of a program as lines of a job's log, while the program runs.

A program may never end a line, write bytes that are not text, or write a gigabyte. So a long line is split, an
unfinished line is logged after a moment, and only the first part of the output is kept: the rest is counted and
dropped. Output is read only once the previous output is in the log, so a program that is faster than the log waits.
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
"""Seconds after which an unfinished line is logged."""
_CHUNK: Final = 64 * 1024
_BATCH: Final = 500  # lines that are written to the database in one statement
_TAIL: Final = 4_096
_LAST: Final = 10
# Terminal escape sequences: colours, titles, cursor positions.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class OutputBudget:
    """How much output may still be kept, and how much was dropped."""

    def __init__(self) -> None:
        self.lines = LINES_MAX
        self.bytes = BYTES_MAX
        self.dropped_lines = 0
        self.dropped_bytes = 0
        self.is_reported = False

    @property
    def is_spent(self) -> bool:
        return self.lines <= 0 or self.bytes <= 0

    def take(self, lines: Sequence[str]) -> list[str]:
        """Return the lines that may be kept, and count the others as dropped."""
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
    """Splits a stream of bytes into lines of text."""

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
        """Return the unfinished line, and start a new one."""
        rest, self._rest = self._rest, ""
        return [plain(piece) for piece in _pieces(rest)] if rest else []


def _pieces(line: str) -> list[str]:
    return [line[start : start + LENGTH_MAX] for start in range(0, len(line), LENGTH_MAX)] or [""]


def plain(line: str) -> str:
    """The line without escape sequences and control characters, so that a terminal can show it safely."""
    return _CONTROLS.sub("\ufffd", _ESCAPES.sub("", line))


class Pipe(asyncio.StreamReader):
    """The output of a program and of its child processes, until all of them have closed it or :meth:`end` is called."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._left: int | None = None
        self._is_over = False

    def end(self) -> None:
        """Read what is in the pipe now, and ignore what any process writes later."""
        if not self._is_over:
            self._left = int.from_bytes(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
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


class OutputLogger:
    """Logs one output of a program as lines of one level."""

    def __init__(self, job: Any, reader: Pipe, budget: OutputBudget, level: str) -> None:
        self._job = job
        self._reader = reader
        self._budget = budget
        self._level = level
        self._splitter = Splitter()
        self._tail = b""

    def end(self) -> None:
        """Log what has been written so far, and nothing that comes later."""
        self._reader.end()

    async def run(self) -> None:
        """Read to the end."""
        while (chunk := await self._read()) != b"":
            if chunk is None:
                await self._log(self._splitter.flush())
                continue
            self._tail = (self._tail + chunk)[-_TAIL:] if len(chunk) < _TAIL else chunk[-_TAIL:]
            if self._budget.is_spent:
                self._budget.drop(chunk)
            else:
                await self._log(self._splitter.feed(chunk))
        await self._log([*self._splitter.feed(b"", is_last=True), *self._splitter.flush()])

    @property
    def last_lines(self) -> list[str]:
        """The last lines of the output, even if they were dropped."""
        return [plain(line) for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()][-_LAST:]

    async def _read(self) -> bytes | None:
        """The next chunk, or None if a line has been unfinished for :data:`FLUSH` seconds."""
        if not self._splitter.has_rest:
            return await self._reader.read(_CHUNK)
        try:
            async with asyncio.timeout(FLUSH):
                return await self._reader.read(_CHUNK)
        except TimeoutError:
            return None

    async def _log(self, lines: Sequence[str]) -> None:
        kept = self._budget.take(lines)
        for start in range(0, len(kept), _BATCH):
            await log_all(self._job, kept[start : start + _BATCH], self._level)
        if self._budget.is_spent and not self._budget.is_reported:
            self._budget.is_reported = True
            message = f"The output exceeds {LINES_MAX:,} lines or {BYTES_MAX:,} bytes; the rest is dropped."
            await self._job.log(message, level="warning")


async def log_all(job: Any, lines: Sequence[str], level: str) -> None:
    """Log lines in their order, concurrently, so that they are written in one statement."""
    for error in await asyncio.gather(*(job.log(line, level=level) for line in lines), return_exceptions=True):
        if isinstance(error, BaseException):
            raise error
