"""Where log lines go: a thread writes them, so that a full disk or an unread pipe does not stop the process.

A write to a pipe that nobody reads blocks, and a write to a full disk fails. Neither may reach the caller, which may be
the event loop. So a caller only appends to a buffer of limited size; a line that does not fit, or that cannot be
written, is dropped and counted.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
from itertools import accumulate
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_MAX: Final = 4 * 1024 * 1024
"""How many bytes of lines wait to be written."""
FLUSH_SECONDS: Final = 1.0
"""How long the end of the process waits for the remaining lines."""
_BATCH: Final = 64 * 1024  # bytes in one write, which is also what a pipe holds on Linux


class Sink(Protocol):
    """Takes lines of text. No method blocks for long or raises."""

    dropped: int
    """How many lines were not written."""

    def write(self, text: str) -> object: ...

    def flush(self) -> object: ...

    def drain(self, seconds: float | None = None) -> bool:
        """Wait until the lines so far are written or dropped; returns whether they are.

        Without ``seconds``, all calls together wait as long as the end of the process may.
        """
        ...


def open_sink(stream: Any, render: Callable[..., str]) -> Sink:
    """A sink for a stream. ``render`` makes a line of an event and its fields: the sink reports dropped lines."""
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):  # in memory, or closed
        return StreamSink(stream)
    return DescriptorSink(descriptor, render)


def write_soon(stream: Any, text: str) -> None:
    """Write what a command prints while it runs: as with the log, neither a full disk nor an unread pipe stops it."""
    open_sink(stream, lambda *_, **_fields: "").write(text)


class StreamSink:
    """Writes to an object that has no file descriptor, such as a buffer in memory, immediately."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.dropped = 0

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)  # in one call: other threads write too
            self._stream.flush()
        except (OSError, ValueError):
            self.dropped += 1

    def flush(self) -> None:
        """Do nothing: each line is flushed when it is written."""

    def drain(self, seconds: float | None = None) -> bool:  # noqa: ARG002 - as in the protocol
        return True


class DescriptorSink:
    """Writes to a file descriptor, in a thread that starts with the first line."""

    def __init__(self, descriptor: int, render: Callable[..., str], limit: int = BUFFER_MAX) -> None:
        self._descriptor = descriptor
        self._render = render
        self._limit = limit
        self._queue: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._size = 0
        self._lock = threading.RLock()  # reentrant: the garbage collector may run code that logs
        self._thread: threading.Thread | None = None
        self._is_blocked = False
        """Whether nothing was written since a drain waited in vain; another one would wait as long."""
        self._is_torn = False
        """Whether the last line was written in part only."""
        self._unreported = 0
        self.dropped = 0

    def write(self, text: str) -> None:
        line = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if self._size + len(line) > self._limit:
                self._drop(1)
                return
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="millpond log", daemon=True)
                self._thread.start()
                atexit.register(self.drain)
        self._queue.put(line)

    def flush(self) -> None:
        """Do nothing: the thread writes what there is."""

    def drain(self, seconds: float | None = None) -> bool:
        if self._thread is None:
            return True
        written = threading.Event()
        self._queue.put(written)
        is_written = written.wait(FLUSH_SECONDS * (not self._is_blocked) if seconds is None else seconds)
        self._is_blocked = not is_written
        return is_written

    def _drop(self, lines: int) -> None:
        with self._lock:
            self.dropped += lines
            self._unreported += lines

    # In the thread

    def _run(self) -> None:
        while True:
            lines, waiting = self._take()
            if lines:
                self._write_lines(lines)
                self._is_blocked = False
                with self._lock:
                    self._size -= sum(map(len, lines))
            for each in waiting:
                each.set()

    def _take(self) -> tuple[list[bytes], list[threading.Event]]:
        """The next lines, for one write; and what waits until they are written."""
        lines, waiting, size = list[bytes](), list[threading.Event](), 0
        with contextlib.suppress(Empty):
            item = self._queue.get()
            while True:
                if isinstance(item, threading.Event):
                    waiting.append(item)
                    break
                lines.append(item)
                size += len(item)
                if size >= _BATCH:
                    break
                item = self._queue.get_nowait()
        return lines, waiting

    def _write_lines(self, lines: list[bytes]) -> None:
        with self._lock:
            unreported = self._unreported
        before = (b"\n" if self._is_torn else b"") + (self._report(unreported) if unreported else b"")
        text = before + b"".join(lines)
        written = self._write(text)
        if written:
            self._is_torn = not text[:written].endswith(b"\n")
        with self._lock:
            if written >= len(before):
                self._unreported -= unreported
            self._drop(sum(end > written - len(before) for end in accumulate(map(len, lines))))

    def _report(self, lines: int) -> bytes:
        return self._render("log.dropped", lines=lines).encode()

    def _write(self, text: bytes) -> int:
        """Write as much as possible; returns how many bytes were written before a write failed."""
        done = 0
        while done < len(text):
            try:
                done += os.write(self._descriptor, memoryview(text)[done:])
            except BlockingIOError:  # another process has set the descriptor to non-blocking
                self._await_room()
            except OSError:
                break
        return done

    def _await_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll()
