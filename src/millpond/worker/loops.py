"""The event loop and the signal handlers of a process that runs until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from millpond import lifeline, logs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run_async(main: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine on uvloop if that is installed; returns whether all tasks of the loop have ended.

    Like asyncio.Runner, except that a task that ignores its cancellation does not keep the process alive.
    """
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - optional

        factory = uvloop.new_event_loop
    runner = asyncio.Runner(loop_factory=factory)
    try:
        runner.run(main)
    finally:
        is_clean = _end_tasks(runner.get_loop())
        if is_clean:
            runner.close()
        logs.drain()  # what the caller prints next, such as the error that ended the loop, comes after the log
    return is_clean


def _end_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        return True
    _, unended = loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    return not unended


def exit_at_once(status: int = 0) -> NoReturn:
    """End the process although tasks of its loop still run; the lines of its log are written before."""
    logs.drain()
    os._exit(status)


def stop_on_signals(*, at_once: Callable[[], object] = lambda: None) -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; the second ends the process, after calling ``at_once``.

    The end of the parent process counts as a SIGTERM, if the parent asked for that.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        if stop.is_set():
            at_once()
            exit_at_once(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    lifeline.stop_with_parent()
    return stop
