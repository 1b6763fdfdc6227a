"""``millpond worker``: run the jobs of an app in a separate process, on the database or over HTTP."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Grace, Products, Slots, optional

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.api.product import Product
    from millpond.cli.apps import Selection
    from millpond.engine.engine import Engine
    from millpond.settings import Settings
    from millpond.store.embedded import Keeper
    from millpond.worker.worker import Worker


app = single()


@app.command("worker")
def worker(
    app: Annotated[str, typer.Argument(help="The file (app.py) or module (shop.jobs) that defines a Millpond().")],
    url: Annotated[str | None, optional("--url", text="Run the jobs of the fleet of this server.")] = None,
    route: Annotated[
        list[str] | None, optional("--route", text="With --url: a route whose jobs to run. Repeatable.")
    ] = None,
    product: Products = None,
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    slots: Slots = None,
    name: Annotated[str | None, optional("--name", text="The name of this worker.", default="host:pid")] = None,
    grace: Grace = None,
    stall_limit: Annotated[
        str | None, optional("--stall-limit", text="Fail a job that reports nothing for this long.", default="no limit")
    ] = None,
    services: Annotated[bool, typer.Option(help="Run the background services too.")] = True,
    drain: Annotated[bool, typer.Option(help="Exit when no job is ready.")] = False,
    spot: Annotated[
        bool, typer.Option("--spot", help="With --url, on EC2: handle interruption notices and protect the instance.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of an app until stopped.

    The jobs come from a database, or with --url from a server. With --url, the worker registers with the key of scope
    worker in MILLPOND_FLEET_SECRET. The first SIGTERM or SIGINT lets running jobs finish within the grace period and
    returns the others to the queue; the second one ends the worker immediately. With --json, the worker prints a line
    when it starts.
    """
    from millpond.cli.apps import chosen
    from millpond.cli.database import kept, settings_with
    from millpond.cli.processes import configure_logs, exit_at_once, run_async

    if url is not None:
        _work_remotely(app, url, route or (), slots, name, grace, stall_limit, drain=drain, spot=spot, as_json=as_json)
        return
    settings = settings_with(database_url, data_dir, slots=slots, grace=_length(grace, "grace"))
    configure_logs(settings)
    selection = chosen(app, product or settings.product_names)
    with kept(settings) as (dsn, keeper):
        is_clean = run_async(
            _work(
                dsn,
                selection,
                settings,
                keeper=keeper if keeper is not None and keeper.server.is_owner else None,
                name=name,
                stall_limit=_length(stall_limit, "stall_limit"),
                with_services=services,
                drain=drain,
                as_json=as_json,
            )
        )
    if not is_clean:
        exit_at_once()


def make_worker(
    engine: Engine,
    settings: Settings,
    name: str | None = None,
    stall_limit: timedelta | None = None,
    products: Sequence[Product] = (),
) -> Worker:
    """A worker beside the database. Attach the notifier first, so that its notifications arrive."""
    from millpond.api.product import bound
    from millpond.worker.worker import Worker

    source = engine.source(lease=settings.lease, heartbeat=settings.heartbeat, name=name or "")
    app = bound(engine, settings, products)
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
    from millpond.cli.output import announce
    from millpond.cli.processes import configure_logs
    from millpond.settings import Settings
    from millpond.worker.process import remote_worker, run_worker

    configure_logs(Settings.from_env())
    loaded = load_app(app)
    machine = None
    if spot:
        from millpond.integrations.aws.machine import find_machine

        machine = find_machine()
    worker = remote_worker(
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
        announce({"worker": worker.name, "slots": worker.slots, "kinds": sorted(loaded.kinds), "pid": os.getpid()})
    run_worker(worker, drain=drain, machine=machine)


async def _work(
    dsn: str,
    selection: Selection,
    settings: Settings,
    *,
    keeper: Keeper | None,
    name: str | None,
    stall_limit: timedelta | None,
    with_services: bool,
    drain: bool,
    as_json: bool,
) -> None:
    from millpond.api.product import register_gates
    from millpond.api.startup import check_encryption_key, report_isolation
    from millpond.cli.outbound import outbound
    from millpond.cli.output import announce
    from millpond.cli.processes import closing, run_in_order, services, stop_on_signals
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.webhooks.vault import open_vault
    from millpond.services.notifier import Notifier
    from millpond.storage import open_storage

    stop = stop_on_signals()
    storage = open_storage(settings)
    engine = await Engine.open(
        dsn,
        selection.app,
        storage=storage,
        tenant_databases=settings.tenant_databases,
        outbound=outbound(settings, is_development=settings.database_url is None),
        vault=open_vault(settings, is_development=settings.database_url is None),
    )
    provide(engine, settings)
    register_gates(engine, selection.products)
    notifier = Notifier(engine)
    worker = make_worker(engine, settings, name, stall_limit, selection.products)
    if as_json:
        announce(
            {"worker": worker.name, "slots": worker.slots, "kinds": sorted(selection.app.kinds), "pid": os.getpid()}
        )
    try:
        async with closing(engine, stop):
            if settings.database_url is not None:  # in development, the key is created with the first secret
                await report_isolation(engine)
                await check_encryption_key(engine, is_needed=with_services)
            if drain:
                await worker.drain(stop)
                return
            background = services(engine, settings, selection.products) if with_services else []
            keeping = [] if keeper is None else [partial(keeper.run, engine.db)]
            await run_in_order([worker.run, *background, notifier.run, *keeping], stop)
    finally:
        await storage.close()
