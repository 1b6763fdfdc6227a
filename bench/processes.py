"""Processes that are stopped at the end of a block, and waits with a time limit.

Standard library only, like the peers' harness.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

STOP_SECONDS = 40.0  # a server gives its clients half a minute
WAIT_SECONDS = 600.0
"""Longer than any step takes without an error."""
BENCHMARK_SECONDS = 3_600.0


@contextlib.contextmanager
def started(
    command: Sequence[object], *, stop: signal.Signals = signal.SIGTERM, **how: Any
) -> Iterator[subprocess.Popen[Any]]:
    """A process that is stopped at the end of the block, and killed if it does not stop."""
    with subprocess.Popen([str(word) for word in command], **how) as process:
        try:
            yield process
        finally:
            process.send_signal(stop)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"killed, because it did not stop: {process.args}", file=sys.stderr)
            finally:
                process.kill()
                # Its remaining children, if it was started in a session of its own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def has_succeeded(process: subprocess.Popen[Any]) -> bool:
    """Wait until a measuring process ends, and return whether it succeeded."""
    try:
        return process.wait(BENCHMARK_SECONDS) == 0
    except subprocess.TimeoutExpired as error:
        print(error, file=sys.stderr)
        return False


@contextlib.contextmanager
def serving(module: str, *words: str) -> Iterator[tuple[int, int]]:
    """Run a module that prints its port when it serves; yields the port and the process id."""
    with started([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True) as process:
        readable, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
        port = process.stdout.readline() if readable else ""
        if not port:
            raise RuntimeError(f"{module} {'ended' if readable else f'waited {WAIT_SECONDS:g} s'} before it served")
        yield int(port), process.pid


def cancel_on_sigterm() -> None:
    """From now on, SIGTERM cancels this task, so that processes are stopped and databases are dropped."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """A time limit; its error contains what was waited for."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}") from None
        raise
