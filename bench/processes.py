"""Processes that end with what started them, and waits that end some day.

Standard library only, as the peers' harness is.
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

STOP_SECONDS = 40.0  # a server gives those it serves half a minute
WAIT_SECONDS = 600.0
"""Longer than anything here takes when all is well."""
BENCHMARK_SECONDS = 3_600.0


@contextlib.contextmanager
def started(
    command: Sequence[object], *, stop: signal.Signals = signal.SIGTERM, **how: Any
) -> Iterator[subprocess.Popen[Any]]:
    """A process that is gone when the block is left: told to stop, and killed if it does not."""
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
                with contextlib.suppress(ProcessLookupError):  # those it left behind, if it led a session
                    os.killpg(process.pid, signal.SIGKILL)


def has_succeeded(process: subprocess.Popen[Any]) -> bool:
    """Wait until a measuring process ends by itself."""
    try:
        return process.wait(BENCHMARK_SECONDS) == 0
    except subprocess.TimeoutExpired as error:
        print(error, file=sys.stderr)
        return False


@contextlib.contextmanager
def serving(module: str, *words: str) -> Iterator[tuple[int, int]]:
    """A module that prints its port once it serves: the port, and the id of the process."""
    with started([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True) as process:
        readable, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
        port = process.stdout.readline() if readable else ""
        if not port:
            raise RuntimeError(f"{module} {'ended' if readable else f'waited {WAIT_SECONDS:g} s'} before it served")
        yield int(port), process.pid


def end_in_order() -> None:
    """From here on SIGTERM is a failure like another: what was started is stopped, what was made is dropped."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """A wait that fails with its name."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}") from None
        raise
