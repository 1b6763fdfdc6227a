"""The loop and the signals of a process that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

from millpond import lifeline

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run_async(main: Coroutine[Any, Any, None]) -> bool:
    """On the fastest loop there is; tells whether all that ran in it has ended.

    As asyncio.Runner, except that a task that takes no notice of its end does not keep the process.
    """
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - it may not be there

        factory = uvloop.new_event_loop
    runner = asyncio.Runner(loop_factory=factory)
    try:
        runner.run(main)
    finally:
        is_clean = _end_tasks(runner.get_loop())
        if is_clean:
            runner.close()
    return is_clean


def _end_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        return True
    _, deaf = loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    return not deaf


def stop_on_signals(*, at_once: Callable[[], object] = lambda: None) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process, after ``at_once``.

    The end of who started us counts as a SIGTERM, if he asked for it.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        if stop.is_set():
            at_once()
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    lifeline.heed()
    return stop
