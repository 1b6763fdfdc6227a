"""A worker over HTTP as a process, for every command that runs one."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from millpond import logs, values
from millpond.settings import Settings
from millpond.worker.loops import run_async, stop_on_signals
from millpond.worker.remote import RemoteSource
from millpond.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.app import Millpond
    from millpond.aws.machine import Machine


def remote_worker(
    app: Millpond,
    *,
    url: str | None = None,
    routes: Sequence[str] = (),
    name: str | None = None,
    slots: int | None = None,
    grace: timedelta | str | float | None = None,
    stall_limit: timedelta | str | float | None = None,
    machine: Machine | None = None,
    **options: Any,
) -> Worker:
    """A worker on the server at a URL; what is not given comes from the environment, and one slot is the default.

    On an EC2 machine it is called as its instance, proves that it is, heeds its notices, and protects it while busy.
    """
    settings = Settings.from_env()
    source = RemoteSource(url or settings.url, settings.fleet_secret, routes, name or "")
    if machine is not None:
        source.name = name or machine.instance_id
        source.identify = machine.identify
        options = {"notices": machine.notices, "on_busy": machine.on_busy} | options
    return Worker(
        source,
        app,
        slots=slots or (settings.slots if os.environ.get("MILLPOND_SLOTS") else 1),
        grace=settings.grace if grace is None else values.duration(grace, field="grace"),
        stall_limit=None if stall_limit is None else values.duration(stall_limit, field="stall_limit"),
        **options,
    )


def find_machine() -> Machine:
    """The EC2 instance that this process runs on."""
    from millpond.aws.machine import this_machine  # noqa: PLC0415 - only where it is asked for

    return asyncio.run(this_machine())


def run_worker(worker: Worker, *, drain: bool = False, machine: Machine | None = None) -> None:
    """Run a worker until a signal, or until nothing is ready; raises where it is let in no more.

    The first SIGTERM or SIGINT lets running jobs finish within the grace and gives back the rest; a second one ends
    at once.
    """

    async def work() -> None:
        stop = stop_on_signals()
        if machine is not None:
            machine.on_busy(is_busy=False)  # an earlier life may have left its protection on
        try:
            await (worker.drain(stop) if drain else worker.run(stop))
        finally:
            if machine is not None:
                await machine.close()

    if not run_async(work()):
        sys.stderr.flush()
        os._exit(0)


def configure_logs() -> None:
    settings = Settings.from_env()
    as_json = {"json": True, "console": False}.get(settings.log_format)
    logs.configure(settings.log_level, as_json=as_json)  # pyright: ignore[reportArgumentType]
