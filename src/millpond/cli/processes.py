"""How a long-running command lives: its log, its loop, its signals, and how its parts leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from millpond.worker.loops import run_async, stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from millpond.api.blueprint import Blueprint
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

    Part = Callable[[asyncio.Event], Awaitable[Any]]

__all__ = [
    "QUIET_LIBRARIES",
    "Relay",
    "configure_logs",
    "notify_systemd",
    "run_async",
    "run_in_order",
    "services",
    "stop_on_signals",
]

QUIET_LIBRARIES = ("asyncio", "asyncpg", "uvicorn")


def configure_logs(settings: Settings) -> None:
    from millpond import logs

    as_json = {"json": True, "console": False}.get(settings.log_format)
    logs.configure(settings.log_level, as_json=as_json)  # pyright: ignore[reportArgumentType]
    for name in QUIET_LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = [Relay(logging.WARNING)]
        library.propagate = False


class Relay(logging.Handler):
    """What a library writes to Python's log, as one event of ours rather than as loose lines between them."""

    def emit(self, record: logging.LogRecord) -> None:
        from millpond import logs

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


def services(engine: Engine, settings: Settings, blueprints: Sequence[Blueprint] = ()) -> list[Part]:
    """The background services, as one part; those of blueprints too."""
    from millpond.services import all_services
    from millpond.services.service import run_services

    more = [service for blueprint in blueprints for service in blueprint.services(engine, settings)]
    return [lambda stop: run_services([*all_services(engine, settings), *more], stop)]


def notify_systemd(word: str) -> None:
    """Tell the service manager, where there is one that listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(word.encode(), "\0" + address[1:] if address.startswith("@") else address)
