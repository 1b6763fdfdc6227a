"""``penstock worker``: run an app's jobs in a process of its own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import single
from penstock.cli.options import AsJson, DatabaseUrl, DataDir, Slots

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.engine.engine import Engine
    from penstock.services.bell import Bell
    from penstock.settings import Settings
    from penstock.worker.worker import Worker


app = single()


@app.command("worker")
def worker(
    app: Annotated[str, typer.Argument(help="A file (app.py) or a module (shop.jobs) that makes a Penstock().")],
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    slots: Slots = None,
    name: Annotated[str | None, typer.Option(help="What to call this worker.", show_default=False)] = None,
    services: Annotated[bool, typer.Option(help="Also run the background services.")] = True,
    drain: Annotated[bool, typer.Option(help="End when nothing is ready any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an app's jobs until told to stop.

    The first SIGTERM or SIGINT lets running jobs finish within the grace and gives back the rest; a second one
    ends at once. With --json it prints a line when it begins.
    """
    from penstock.cli.apps import load_app
    from penstock.cli.database import opened, settings_with
    from penstock.cli.processes import configure_logs, run_async

    settings = settings_with(database_url, data_dir, slots=slots)
    configure_logs(settings)
    loaded = load_app(app)
    with opened(settings) as dsn:
        is_clean = run_async(
            _work(dsn, loaded, settings, name=name, with_services=services, drain=drain, as_json=as_json)
        )
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)


def make_worker(engine: Engine, bell: Bell, settings: Settings, name: str | None = None) -> Worker:
    from penstock.worker.worker import Worker

    made = Worker(
        engine, bell, slots=settings.slots, lease=settings.lease, heartbeat=settings.heartbeat, grace=settings.grace
    )
    made.name = name or made.name
    return made


async def _work(
    dsn: str, app: Penstock, settings: Settings, *, name: str | None, with_services: bool, drain: bool, as_json: bool
) -> None:
    from penstock.cli.output import print_json
    from penstock.cli.processes import run_in_order, services, stop_on_signals
    from penstock.engine.engine import Engine
    from penstock.services.bell import Bell

    stop = stop_on_signals()
    engine = await Engine.open(dsn, app)
    bell = Bell(engine)
    hands = make_worker(engine, bell, settings, name)
    if as_json:
        print_json({"worker": hands.name, "slots": hands.slots, "kinds": sorted(app.kinds), "pid": os.getpid()})
    try:
        if drain:
            await hands.drain(stop)
            return
        await run_in_order([hands.run, *(services(engine, settings) if with_services else ()), bell.run], stop)
    finally:
        await engine.close()
