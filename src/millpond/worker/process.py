"""A fleet worker as a process, for all commands that run one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from millpond import logs, values
from millpond.settings import Settings
from millpond.worker.job_logging import relay_warnings
from millpond.worker.loops import exit_at_once, run_async, stop_on_signals
from millpond.worker.remote import RemoteSource
from millpond.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence
    from datetime import timedelta

    from millpond.app import Millpond
    from millpond.work import Notice


class Machine(Protocol):
    """The machine that a worker runs on, if its owner may terminate it at short notice: an EC2 instance."""

    @property
    def instance_id(self) -> str: ...

    @property
    def notices(self) -> AsyncIterable[Notice]: ...

    def on_busy(self, is_busy: bool) -> None: ...  # noqa: FBT001 - the worker's hook

    async def identify(self) -> dict[str, str] | None: ...

    async def close(self) -> None: ...


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
    """A worker for the server at a URL. Omitted arguments are read from the environment; the default is one slot.

    With ``machine``, the worker is named after the instance, proves that it runs there, reacts to its notices, and
    protects it while busy.
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


def run_worker(worker: Worker, *, drain: bool = False, machine: Machine | None = None) -> None:
    """Run a worker until a signal, or with ``drain`` until no job is ready. Raises if the server does not admit it.

    The first SIGTERM or SIGINT lets running jobs finish within the grace and gives back the rest; a second one ends
    the process immediately.
    """

    async def work() -> None:
        stop = stop_on_signals()
        if machine is not None:
            machine.on_busy(is_busy=False)  # an earlier process may have left the protection on
        try:
            await (worker.drain(stop) if drain else worker.run(stop))
        finally:
            if machine is not None:
                await machine.close()

    if not run_async(work()):
        exit_at_once()


def configure_logs() -> None:
    settings = Settings.from_env()
    as_json = {"json": True, "console": False}.get(settings.log_format)
    logs.configure(settings.log_level, as_json=as_json)  # pyright: ignore[reportArgumentType]
    relay_warnings()
