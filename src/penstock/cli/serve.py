"""``penstock serve``: the API, the services and workers, for production."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import single
from penstock.cli.options import App, AsJson, DatabaseUrl, Host, Port, ReadyFile, Slots

if TYPE_CHECKING:
    import socket

    from penstock.cli.supervisor import Supervisor
    from penstock.settings import Settings


app = single()


@app.command("serve")
def serve(
    app: App = None,
    database_url: DatabaseUrl = None,
    role: Annotated[str, typer.Option(help="What to run: any of api, services, worker.")] = "api,services",
    processes: Annotated[int, typer.Option(help="How many processes, each with these roles.", min=1, max=256)] = 1,
    host: Host = None,
    port: Port = None,
    slots: Slots = None,
    ready_file: ReadyFile = None,
    expose: Annotated[
        bool, typer.Option("--expose", help="Serve a public address without an admin key, or with development keys.")
    ] = False,
    as_json: AsJson = False,
    inherited: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
) -> None:
    """Run the API, the services and workers on a database of its own.

    A process that dies is started again. The first SIGTERM or SIGINT ends all in order; a second one ends at once.
    """
    from penstock.cli.processes import configure_logs

    roles = _roles(role)
    settings = _settings(database_url, app=app, host=host, port=port, slots=slots)
    configure_logs(settings)
    if inherited is not None:
        _run_child(settings, roles, inherited)
        return
    with contextlib.ExitStack() as stack:
        sock = None
        if "api" in roles:
            from penstock.cli.deployment import bind

            sock = stack.enter_context(bind(settings))
            _check(settings, expose=expose)
        serving = Announcement(sock, ready_file, as_json=as_json)
        if processes == 1:
            _run(_serve(settings, roles, sock, serving))
        else:
            supervisor = _supervisor(settings, roles, processes, sock)
            _run(_supervise(supervisor, serving))
            sys.exit(supervisor.refusal)


def _roles(text: str) -> tuple[str, ...]:
    from penstock.cli.output import UsageError

    known = ("api", "services", "worker")
    given = tuple(word.strip() for word in text.split(",") if word.strip())
    strange = [word for word in given if word not in known]
    if strange or not given:
        raise UsageError(f"There is no role {text!r}.", field="--role", hint=f"Roles: {', '.join(known)}.")
    return given


def _settings(database_url: str | None, **said: Any) -> Settings:
    from penstock.cli.database import settings_with
    from penstock.errors import SettingsError

    settings = settings_with(database_url, **said)
    if settings.database_url is None:
        raise SettingsError(
            "penstock serve needs a database.",
            field="database_url",
            hint="Set DATABASE_URL; for development there is `penstock up`.",
        )
    log_format = "json" if settings.log_format == "auto" else settings.log_format
    return dataclasses.replace(settings, log_format=log_format)


def _check(settings: Settings, *, expose: bool) -> None:
    """Look at the database before anything is served; here, so that a refusal is told once and by one process."""
    import asyncio

    from penstock.cli.deployment import check_exposure
    from penstock.engine.engine import Engine

    async def look() -> None:
        engine = await Engine.open(settings.database_url or "", pool_size=1)
        try:
            await check_exposure(engine, settings.host)
        finally:
            await engine.close()

    if not expose:
        asyncio.run(look())


def _run(main: Any) -> None:
    from penstock.cli.processes import run_async

    if not run_async(main):
        sys.stderr.flush()
        os._exit(0)


async def _serve(
    settings: Settings, roles: tuple[str, ...], sock: socket.socket | None, serving: Announcement, **options: Any
) -> None:
    from penstock.app import Penstock
    from penstock.cli.apps import load_app
    from penstock.cli.deployment import parts
    from penstock.cli.processes import run_in_order, stop_on_signals
    from penstock.engine.engine import Engine

    stop = stop_on_signals(**options)
    app = load_app(settings.app) if settings.app else Penstock()
    engine = await Engine.open(settings.database_url or "", app)
    with serving:
        try:
            made = parts(engine, settings, roles, sock, serving.tell)
            if sock is None:
                serving.tell()
            await run_in_order(made, stop)
        finally:
            await engine.close()


class Announcement:
    """Tells once that it serves, and takes it back at the end."""

    def __init__(self, sock: socket.socket | None, ready_file: Any, *, as_json: bool) -> None:
        self._sock = sock
        self._file = ready_file
        self._as_json = as_json
        self._words = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._words.__enter__()

    def __exit__(self, *reason: object) -> None:
        self._words.close()

    def tell(self) -> None:
        from penstock import logs
        from penstock.cli.deployment import url_of
        from penstock.cli.development import announced
        from penstock.cli.output import print_json
        from penstock.cli.processes import notify_systemd

        line: dict[str, Any] = {"url": self._sock and url_of(self._sock), "pid": os.getpid()}
        self._words.enter_context(announced(line, self._file))
        logs.emit("server.started", **line)
        self._words.callback(logs.emit, "server.stopped", **line)
        if self._as_json:
            print_json(line)
        notify_systemd("READY=1")


# Several processes


def _supervisor(settings: Settings, roles: tuple[str, ...], processes: int, sock: socket.socket | None) -> Supervisor:
    from penstock.cli.supervisor import Supervisor

    descriptor = -1 if sock is None else sock.fileno()
    words = [sys.executable, "-m", "penstock", "serve", "--role", ",".join(roles), "--socket", str(descriptor)]
    said = {"PENSTOCK_DATABASE_URL": settings.database_url, "PENSTOCK_APP": settings.app}
    said |= {"PENSTOCK_SLOTS": str(settings.slots), "PENSTOCK_HOST": settings.host}
    environment = os.environ | {name: value for name, value in said.items() if value is not None}
    return Supervisor(words, environment, () if sock is None else (descriptor,), processes)


async def _supervise(supervisor: Supervisor, serving: Announcement) -> None:
    from penstock.cli.processes import stop_on_signals

    stop = stop_on_signals(at_once=supervisor.kill)
    with serving:
        await supervisor.run(stop, serving.tell)


def _run_child(settings: Settings, roles: tuple[str, ...], descriptor: int) -> None:
    """A process of several: the socket is the parent's, and so is the word that it serves."""
    import socket

    sock = None if descriptor < 0 else socket.socket(fileno=descriptor)
    _run(_serve(settings, roles, sock, Announcement(sock, None, as_json=True), lifeline=sys.stdin.fileno()))
