"""Long-running commands: their log, event loop and signals, and how their parts stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from millpond.worker.job_logging import Relay, relay_warnings
from millpond.worker.loops import exit_at_once, run_async, stop_on_signals

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from millpond.api.product import Product
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

    Part = Callable[[asyncio.Event], Awaitable[Any]]

__all__ = [
    "QUIET_LIBRARIES",
    "Relay",
    "closing",
    "configure_logs",
    "exit_at_once",
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
    relay_warnings()
    for name in QUIET_LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = [Relay(logging.WARNING)]
        library.propagate = False


async def run_in_order(parts: Sequence[Part], stop: asyncio.Event) -> None:
    """Run all parts concurrently. When ``stop`` is set, or when one ends by itself, stop them one after another."""
    stops = [asyncio.Event() for _ in parts]
    tasks = [asyncio.ensure_future(part(its_stop)) for part, its_stop in zip(parts, stops, strict=True)]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        for its_stop, task in zip(stops, tasks, strict=True):
            its_stop.set()
            await asyncio.wait([task])
    for task in tasks:
        task.result()


@contextlib.asynccontextmanager
async def closing(engine: Engine, stop: asyncio.Event) -> AsyncGenerator[None]:
    """Close the engine at the end. Once ``stop`` is set, nothing waits for a database that does not respond."""

    async def expedite() -> None:
        await stop.wait()
        await engine.expedite()

    expediting = asyncio.create_task(expedite())
    try:
        yield
    finally:
        await engine.close()
        expediting.cancel()


def services(engine: Engine, settings: Settings, products: Sequence[Product] = ()) -> list[Part]:
    """The background services, including those of products, as one part."""
    from millpond.api.jobs.jobs import export_line
    from millpond.services import all_services
    from millpond.services.service import run_services

    more = [service for product in products for service in product.services(engine, settings)]
    return [lambda stop: run_services([*all_services(engine, settings, export_line), *more], stop)]


def notify_systemd(word: str) -> None:
    """Notify the service manager, if one listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(word.encode(), "\0" + address[1:] if address.startswith("@") else address)
