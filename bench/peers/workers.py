"""The worker processes of a measurement, and the shared memory in which they report.

A write to a mapped file takes the handler well under a microsecond; a pipe or a growing file would
affect the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import WAIT_SECONDS, started, within

POLL_SECONDS = 0.005


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
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.cells[0]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {WAIT_SECONDS:g} s in vain for the gate to open")
            time.sleep(0.001)

    def count(self) -> None:
        """Record one more call of this worker's handler."""
        cells, base = self.cells, self.base
        cells[base + self.COUNT] += 1
        cells[base + self.LAST] = time.monotonic_ns()

    def stamp(self, sequence: int, started_ns: int) -> None:
        """Record when the handler of one numbered job began."""
        self.stamps[sequence] = started_ns

    # The measuring process's side.

    def open_gate(self) -> int:
        """Open the gate for the workers, and return the time."""
        now = time.monotonic_ns()
        self.cells[0] = 1
        return now

    def column(self, cell: int) -> list[int]:
        """One cell of every worker; zero for workers that do not exist."""
        return list(self.cells[1 + cell : self.STAMPS_AT : 3])


@dataclass(frozen=True, slots=True)
class Crew:
    """Worker processes, and the board that they report on."""

    board: Board
    processes: Sequence[subprocess.Popen[bytes]]

    async def until(self, what: str, is_done: Callable[[], bool]) -> None:
        """Poll `is_done`; raises an error if a worker ends, or after a time limit."""
        async with within(WAIT_SECONDS, what):
            while not is_done():
                if any(process.poll() is not None for process in self.processes):
                    raise RuntimeError(f"a worker process ended while waiting for {what}")
                await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def hired(command: Sequence[str], size: int) -> AsyncIterator[Crew]:
    """Start workers that wait at the gate; they are stopped at the end of the block."""
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))) / "board"
        path.touch()
        commands = [[*command, "--board", path, "--worker", worker] for worker in range(size)]
        # What a worker prints must not mix with the JSON lines on standard output.
        processes = [stack.enter_context(started(each, stdout=sys.stderr)) for each in commands]
        crew = Crew(Board(path), processes)
        stack.callback(crew.board.open_gate)  # a worker that still waits at the gate does not handle the signal to stop
        await crew.until(f"{size} workers to be ready", lambda: sum(crew.board.column(Board.READY)) == size)
        yield crew
