"""The server's log: limited in size, and read for errors and for signs of progress."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from pathlib import Path

_BYTES_MAX = 16 * 2**20
_BYTES_KEPT = 2 * 2**20
_LINES_SHOWN = 20

_POLL_SECONDS = 0.01
_SILENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Log:
    """The file that the server appends to; there is none before its first start."""

    path: Path

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def trim(self) -> None:
        """Keep only the end of a log that is too long; safe while the server appends to it."""
        if self.size() <= _BYTES_MAX:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "r+b") as file:
            file.seek(-_BYTES_KEPT, os.SEEK_END)
            kept = file.read()
            file.truncate(0)
            file.write(kept)

    def last_lines(self, start: int) -> str:
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(max(start, self.size() - _BYTES_KEPT))
            lines = file.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]
            if lines:
                return "\n  " + "\n  ".join(lines) + "\n"
        return ""


@dataclass(slots=True)
class Patience:
    """Waits as long as the log grows: a crash recovery reports its progress every ten seconds."""

    log: Log
    log_start: int = 0
    seen: int = -1
    deadline: float = 0.0

    def wait(self) -> None:
        size = self.log.size()
        if size != self.seen:
            self.seen, self.deadline = size, time.monotonic() + _SILENCE_SECONDS
        if time.monotonic() > self.deadline:
            raise EmbeddedPostgresError(
                f"PostgreSQL in {self.log.path.parent} is running but did not become ready, and wrote "
                f"nothing for {_SILENCE_SECONDS:.0f} s.{self.log.last_lines(self.log_start)}",
                hint="Check for a server process that hangs, or try again.",
            )
        time.sleep(_POLL_SECONDS)
