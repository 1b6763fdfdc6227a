"""``penstock worker``: run an app's jobs in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.database import DatabaseUrl, DataDir, opened, settings_with
from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from penstock.app import Penstock
    from penstock.settings import Settings


def worker(
    app: Annotated[str, typer.Argument(help="A file (app.py) or a module (shop.jobs) that makes a Penstock().")],
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    slots: Annotated[int | None, typer.Option(help="How many jobs to run at once.", min=1, show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="What to call this worker.", show_default=False)] = None,
    services: Annotated[bool, typer.Option(help="Also run the background services.")] = True,
    drain: Annotated[bool, typer.Option(help="End when nothing is ready any more.")] = False,
) -> None:
    """Run an app's jobs until told to stop.

    The first SIGTERM or SIGINT lets running jobs finish within the grace and gives back the rest; a second one
    ends at once.
    """
    settings = settings_with(database_url, data_dir)
    if slots is not None:
        settings = dataclasses.replace(settings, slots=slots)
    configure_logs(settings)
    loaded = load_app(app)
    with opened(settings) as dsn:
        is_clean = run_async(_work(dsn, loaded, settings, name=name, with_services=services, drain=drain))
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)


async def _work(
    dsn: str, app: Penstock, settings: Settings, *, name: str | None, with_services: bool, drain: bool
) -> None:
    from penstock.engine.engine import Engine
    from penstock.services import all_services
    from penstock.services.bell import Bell
    from penstock.services.service import run_services
    from penstock.worker.worker import Worker

    stop = stop_on_signals()
    engine = await Engine.open(dsn, app)
    bell = Bell(engine)
    named = {} if name is None else {"name": name}
    hands = Worker(
        engine,
        bell,
        slots=settings.slots,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        grace=settings.grace,
        **named,
    )
    try:
        if drain:
            await hands.drain(stop)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(bell.run(stop))
            if with_services:
                group.create_task(run_services(all_services(engine, settings), stop))
            group.create_task(hands.run(stop))
    finally:
        await engine.close()


def configure_logs(settings: Settings) -> None:
    from penstock import logs

    as_json = {"json": True, "console": False}.get(settings.log_format)
    logs.configure(settings.log_level, as_json=as_json)  # pyright: ignore[reportArgumentType]
    for name in ("asyncio", "asyncpg"):
        library = logging.getLogger(name)
        library.handlers = [Relay(logging.WARNING)]
        library.propagate = False


class Relay(logging.Handler):
    """What a library writes to Python's log, as one event of ours rather than as loose lines between them."""

    def emit(self, record: logging.LogRecord) -> None:
        from penstock import logs

        logs.emit("library.warned", library=record.name, text=self.format(record))


def load_app(name: str) -> Penstock:
    """The one Penstock() that a file or module makes."""
    from penstock.app import Penstock

    module = _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
    found = {id(value): value for value in vars(module).values() if isinstance(value, Penstock)}
    if len(found) != 1:
        count = "no" if not found else "more than one"
        raise SettingsError(f"{name} makes {count} Penstock().", field="app", hint="Give it exactly one.")
    return next(iter(found.values()))


def _import_file(path: Path) -> object:
    if not path.is_file():
        raise SettingsError(f"There is no file {str(path)!r}.", field="app")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{str(path)!r} is not a Python file.", field="app")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that its types can be resolved
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> object:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SettingsError(f"There is no module {name!r}: {error}.", field="app") from error


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


def stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    return stop
