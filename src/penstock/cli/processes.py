"""How a long-running command lives: its log, its loop, its signals, and how its parts leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from penstock.engine.engine import Engine
    from penstock.settings import Settings

    Part = Callable[[asyncio.Event], Awaitable[Any]]

QUIET_LIBRARIES = ("asyncio", "asyncpg", "uvicorn")


def configure_logs(settings: Settings) -> None:
    from penstock import logs

    as_json = {"json": True, "console": False}.get(settings.log_format)
    logs.configure(settings.log_level, as_json=as_json)  # pyright: ignore[reportArgumentType]
    for name in QUIET_LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = [Relay(logging.WARNING)]
        library.propagate = False


class Relay(logging.Handler):
    """What a library writes to Python's log, as one event of ours rather than as loose lines between them."""

    def emit(self, record: logging.LogRecord) -> None:
        from penstock import logs

        logs.emit("library.warned", library=record.name, text=self.format(record))


async def run_in_order(parts: Sequence[Part], stop: asyncio.Event) -> None:
    """Run all parts at once. When told to stop, or when one ends by itself, they leave one after another."""
    stops = [asyncio.Event() for _ in parts]
    tasks = [asyncio.ensure_future(part(its_stop)) for part, its_stop in zip(parts, stops, strict=True)]
    told = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([told, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        for its_stop, task in zip(stops, tasks, strict=True):
            its_stop.set()
            await asyncio.wait([task])
    for task in tasks:
        task.result()


def services(engine: Engine, settings: Settings) -> list[Part]:
    """The background services, as one part."""
    from penstock.services import all_services
    from penstock.services.service import run_services

    return [lambda stop: run_services(all_services(engine, settings), stop)]


def run_async(main: Coroutine[Any, Any, None]) -> bool:
    """On the fastest loop there is; tells whether all that ran in it has ended.

    As asyncio.Runner, except that a task that takes no notice of its end does not keep the process.
    """
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

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


def stop_on_signals(*, at_once: Callable[[], object] = lambda: None, lifeline: int | None = None) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process, after ``at_once``.

    The end of a lifeline, a pipe from a parent, counts as the first.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        if stop.is_set():
            at_once()
            os._exit(1)
        stop.set()

    def orphaned() -> None:
        if lifeline is not None and not os.read(lifeline, 1):
            loop.remove_reader(lifeline)
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    if lifeline is not None:
        loop.add_reader(lifeline, orphaned)
    return stop


def notify_systemd(word: str) -> None:
    """Tell the service manager, where there is one that listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(word.encode(), "\0" + address[1:] if address.startswith("@") else address)
