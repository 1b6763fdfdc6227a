"""Worker processes of a measurement, and the shared memory through which they report.

A store into a mapped file costs the handler well under a microsecond, where a pipe or a growing
file would show in the result.
"""

from __future__ import annotations

import asyncio
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

POLL_SECONDS = 0.005
STOP_SECONDS = 10
WAIT_SECONDS = 600


class Board:
    """64-bit cells: the gate, three for each worker, then one start stamp per numbered job."""

    READY, COUNT, LAST = range(3)
    STAMPS_AT = 1 + 3 * 16
    STAMPS_MAX = 1_000

    def __init__(self, path: Path, worker: int = 0) -> None:
        size = 8 * (self.STAMPS_AT + self.STAMPS_MAX)
        with path.open("r+b") as file:
            file.truncate(size)
            self.cells = memoryview(mmap.mmap(file.fileno(), size)).cast("q")
        self.base = 1 + 3 * worker
        self.stamps = self.cells[self.STAMPS_AT :]

    # The worker's side.

    def wait_at_gate(self) -> None:
        """Report this worker ready and block until the measuring process opens the gate."""
        self.cells[self.base + self.READY] = 1
        while not self.cells[0]:
            time.sleep(0.001)

    def count(self) -> None:
        """Note that this worker's handler ran once more."""
        cells, base = self.cells, self.base
        cells[base + self.COUNT] += 1
        cells[base + self.LAST] = time.monotonic_ns()

    def stamp(self, sequence: int, started_ns: int) -> None:
        """Note when the handler of one numbered job began."""
        self.stamps[sequence] = started_ns

    # The measuring process's side.

    def open_gate(self) -> int:
        """Let the workers go, and return when that was."""
        now = time.monotonic_ns()
        self.cells[0] = 1
        return now

    def column(self, cell: int) -> list[int]:
        """One cell of every worker; of workers that do not exist it is zero."""
        return list(self.cells[1 + cell : self.STAMPS_AT : 3])


class Crew:
    """Worker processes that wait at the gate; leaving the context stops them."""

    def __init__(self, command: Sequence[str], size: int) -> None:
        self.command = command
        self.size = size
        self.folder = tempfile.TemporaryDirectory(prefix="bench-")
        self.path = Path(self.folder.name) / "board"
        self.path.touch()
        self.board = Board(self.path)
        self.processes: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Self:
        try:
            self.start()
            await self.until(lambda: sum(self.board.column(Board.READY)) == self.size)
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    async def until(self, is_done: Callable[[], bool]) -> None:
        """Poll `is_done`, watching that no worker dies and that it ends some day."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_done():
            if any(process.poll() is not None for process in self.processes):
                raise RuntimeError("a worker process ended before its work was done")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done after {WAIT_SECONDS} s")
            await asyncio.sleep(POLL_SECONDS)

    def start(self) -> None:
        for worker in range(self.size):
            command = [*self.command, "--board", str(self.path), "--worker", str(worker)]
            # What a worker prints must not mix with the JSON lines on standard output.
            self.processes.append(subprocess.Popen(command, stdout=sys.stderr))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()
