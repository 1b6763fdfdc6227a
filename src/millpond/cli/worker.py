"""``millpond worker``: run an app's jobs in a process of its own, on the database or over HTTP."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Slots, Url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.api.blueprint import Blueprint
    from millpond.cli.apps import Product
    from millpond.engine.engine import Engine
    from millpond.settings import Settings
    from millpond.worker.worker import Worker


app = single()


@app.command("worker")
def worker(
    app: Annotated[str, typer.Argument(help="A file (app.py) or a module (shop.jobs) that makes a Millpond().")],
    url: Url = None,
    route: Annotated[
        list[str] | None, typer.Option(help="With --url: a queue to serve; may be given again.", show_default=False)
    ] = None,
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    slots: Slots = None,
    name: Annotated[str | None, typer.Option(help="What to call this worker.", show_default=False)] = None,
    grace: Annotated[
        str | None, typer.Option(help="How long a job may take to end once it is told to.", show_default=False)
    ] = None,
    stall_limit: Annotated[
        str | None, typer.Option(help="How long a job's code may give no sign.", show_default=False)
    ] = None,
    services: Annotated[bool, typer.Option(help="Also run the background services.")] = True,
    drain: Annotated[bool, typer.Option(help="End when nothing is ready any more.")] = False,
    spot: Annotated[
        bool, typer.Option("--spot", help="With --url: this is an EC2 instance; heed its notices, protect it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run an app's jobs until told to stop: those of a database, or with --url those that a server has for the fleet.

    With --url it registers by the key of scope worker in MILLPOND_FLEET_SECRET. The first SIGTERM or SIGINT lets
    running jobs finish within the grace and gives back the rest; a second one ends at once. With --json it prints a
    line when it begins.
    """
    from millpond.cli.apps import declared
    from millpond.cli.database import opened, settings_with
    from millpond.cli.processes import configure_logs, run_async

    if url is not None:
        _work_remotely(app, url, route or (), slots, name, grace, stall_limit, drain=drain, spot=spot, as_json=as_json)
        return
    settings = settings_with(database_url, data_dir, slots=slots, grace=_length(grace, "grace"))
    configure_logs(settings)
    product = declared(app)
    with opened(settings) as dsn:
        is_clean = run_async(
            _work(
                dsn,
                product,
                settings,
                name=name,
                stall_limit=_length(stall_limit, "stall_limit"),
                with_services=services,
                drain=drain,
                as_json=as_json,
            )
        )
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)


def make_worker(
    engine: Engine,
    settings: Settings,
    name: str | None = None,
    stall_limit: timedelta | None = None,
    blueprints: Sequence[Blueprint] = (),
) -> Worker:
    """One beside the database; make the bell first, so that it is heard."""
    from millpond.api.blueprint import bound
    from millpond.worker.worker import Worker

    source = engine.source(lease=settings.lease, heartbeat=settings.heartbeat, name=name or "")
    app = bound(engine, settings, blueprints)
    return Worker(source, app, slots=settings.slots, grace=settings.grace, stall_limit=stall_limit)


def _length(given: str | None, field: str) -> timedelta | None:
    from millpond import values

    return None if given is None else values.duration(given, field=field)


def _work_remotely(
    app: str,
    url: str,
    routes: Sequence[str],
    slots: int | None,
    name: str | None,
    grace: str | None,
    stall_limit: str | None,
    *,
    drain: bool,
    spot: bool,
    as_json: bool,
) -> None:
    from millpond.cli.apps import load_app
    from millpond.cli.output import print_json
    from millpond.cli.processes import configure_logs
    from millpond.settings import Settings
    from millpond.worker.process import find_machine, remote_worker, run_worker

    configure_logs(Settings.from_env())
    loaded = load_app(app)
    machine = find_machine() if spot else None
    hands = remote_worker(
        loaded,
        url=url,
        routes=routes,
        name=name,
        slots=slots,
        grace=grace,
        stall_limit=stall_limit,
        machine=machine,
    )
    if as_json:
        print_json({"worker": hands.name, "slots": hands.slots, "kinds": sorted(loaded.kinds), "pid": os.getpid()})
    run_worker(hands, drain=drain, machine=machine)


async def _work(
    dsn: str,
    product: Product,
    settings: Settings,
    *,
    name: str | None,
    stall_limit: timedelta | None,
    with_services: bool,
    drain: bool,
    as_json: bool,
) -> None:
    from millpond.api.blueprint import hang
    from millpond.blueprints.catalog import BLUEPRINTS
    from millpond.cli.outbound import outbound
    from millpond.cli.output import print_json
    from millpond.cli.processes import run_in_order, services, stop_on_signals
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.vault import open_vault
    from millpond.services.bell import Bell
    from millpond.storage import open_storage

    stop = stop_on_signals()
    storage = open_storage(settings)
    engine = await Engine.open(
        dsn,
        product.app,
        storage=storage,
        tenant_databases=settings.tenant_databases,
        outbound=outbound(settings, is_development=settings.database_url is None),
        vault=open_vault(settings),
    )
    provide(engine, settings)
    hang(engine, (*product.blueprints, *BLUEPRINTS))
    bell = Bell(engine)
    hands = make_worker(engine, settings, name, stall_limit, product.blueprints)
    if as_json:
        print_json({"worker": hands.name, "slots": hands.slots, "kinds": sorted(product.app.kinds), "pid": os.getpid()})
    try:
        if drain:
            await hands.drain(stop)
            return
        background = services(engine, settings, product.blueprints) if with_services else []
        await run_in_order([hands.run, *background, bell.run], stop)
    finally:
        await engine.close()
        await storage.close()
