"""``millpond serve``: the API, the services and workers, for production."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import single
from millpond.cli.options import App, AsJson, DatabaseUrl, Host, Port, ReadyFile, Slots

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from millpond.cli.processes import Part
    from millpond.cli.supervisor import Supervisor
    from millpond.settings import Settings


app = single()

FILES: Final = ("files",)


@app.command("serve")
def serve(
    app: App = None,
    database_url: DatabaseUrl = None,
    role: Annotated[
        str, typer.Option(help="What to run: any of api, services, worker, files, renderer.")
    ] = "api,services",
    processes: Annotated[int, typer.Option(help="How many processes, each with these roles.", min=1, max=256)] = 1,
    host: Host = None,
    port: Port = None,
    blueprint: Annotated[str | None, typer.Option(help="Serve this blueprint alone, at /.", show_default=False)] = None,
    slots: Slots = None,
    ready_file: ReadyFile = None,
    expose: Annotated[
        bool, typer.Option("--expose", help="Serve a public address without an admin key, or with development keys.")
    ] = False,
    as_json: AsJson = False,
    inherited: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
) -> None:
    """Run the API, the services and workers on a database of its own.

    The role files serves the storage folder: alone on its port, beside others on the port after theirs. The role
    renderer makes ads for the others on this machine, where no account at Replicate does. A process that dies is
    started again. The first SIGTERM or SIGINT ends all in order; a second one ends at once.
    """
    from millpond.cli.processes import configure_logs

    roles = _roles(role)
    settings = _settings(database_url, needs_database=roles != FILES, app=app, host=host, port=port, slots=slots)
    configure_logs(settings)
    if roles == FILES:
        _serve_files(settings, processes, Announcement(None, ready_file, as_json=as_json), inherited)
        return
    if inherited is not None:
        _run_child(settings, roles, inherited, blueprint)
        return
    with contextlib.ExitStack() as stack:
        sock = None
        if "api" in roles:
            from millpond.cli.deployment import bind

            sock = stack.enter_context(bind(settings))
            _check(settings, expose=expose)
        files = stack.enter_context(_files(settings)) if "files" in roles else None
        if files is not None:
            from millpond.cli.deployment import url_of

            settings = dataclasses.replace(settings, files_url=settings.files_url or url_of(files))
        rendering = stack.enter_context(_rendering(settings)) if "renderer" in roles else None
        if rendering is not None:
            from millpond.cli.renderer import settled

            settings = settled(settings, rendering)
        serving = Announcement(sock, ready_file, as_json=as_json, files_url=settings.files_url)
        if processes == 1:
            _run(_serve(settings, roles, sock, serving, blueprint, files=files, rendering=rendering))
        else:
            supervisor = _supervisor(settings, roles, processes, sock, blueprint)
            _run(_supervise(supervisor, serving, _beside(settings, files, rendering)))
            sys.exit(supervisor.refusal)


def _roles(text: str) -> tuple[str, ...]:
    from millpond.cli.output import UsageError

    known = ("api", "services", "worker", "files", "renderer")
    given = tuple(word.strip() for word in text.split(",") if word.strip())
    strange = [word for word in given if word not in known]
    if strange or not given:
        raise UsageError(f"There is no role {text!r}.", field="--role", hint=f"Roles: {', '.join(known)}.")
    if given == ("renderer",):
        raise UsageError(
            "A renderer serves those beside it.", field="--role", hint="One by itself is `millpond renderer`."
        )
    return given


def _settings(database_url: str | None, *, needs_database: bool = True, **said: Any) -> Settings:
    from millpond.cli.database import settings_with
    from millpond.errors import SettingsError

    settings = settings_with(database_url, **said)
    if settings.database_url is None and needs_database:
        raise SettingsError(
            "millpond serve needs a database.",
            field="database_url",
            hint="Set DATABASE_URL; for development there is `millpond up`.",
        )
    log_format = "json" if settings.log_format == "auto" else settings.log_format
    return dataclasses.replace(settings, log_format=log_format)


def _check(settings: Settings, *, expose: bool) -> None:
    """Look at the database before anything is served; here, so that a refusal is told once and by one process."""
    import asyncio

    from millpond.cli.deployment import check_exposure
    from millpond.engine.engine import Engine

    async def look() -> None:
        engine = await Engine.open(settings.database_url or "", pool_size=1, tenant_databases=settings.tenant_databases)
        try:
            await check_exposure(engine, settings.host)
        finally:
            await engine.close()

    if not expose:
        asyncio.run(look())


def _run(main: Any) -> None:
    from millpond.cli.processes import run_async

    if not run_async(main):
        sys.stderr.flush()
        os._exit(0)


async def _serve(
    settings: Settings,
    roles: tuple[str, ...],
    sock: socket.socket | None,
    serving: Announcement,
    blueprint: str | None,
    *,
    files: socket.socket | None = None,
    rendering: socket.socket | None = None,
) -> None:
    from millpond.api.blueprint import prepare
    from millpond.cli.apps import chosen
    from millpond.cli.deployment import parts
    from millpond.cli.outbound import outbound
    from millpond.cli.processes import run_in_order, stop_on_signals
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.vault import open_vault
    from millpond.storage import open_storage

    stop = stop_on_signals()
    product = chosen(settings.app, blueprint)
    engine = await Engine.open(
        settings.database_url or "",
        product.app,
        storage=open_storage(settings),
        tenant_databases=settings.tenant_databases,
        outbound=outbound(settings, is_development=False),
        vault=open_vault(settings),
    )
    provide(engine, settings)
    with serving:
        try:
            await prepare(engine, product.blueprints)
            made = parts(engine, settings, roles, sock, serving.tell, product)
            if sock is None:
                serving.tell()
            await run_in_order([*made, *_beside(settings, files, rendering)], stop)
        finally:
            await engine.close()


def _files(settings: Settings) -> socket.socket:
    """The socket of the file server beside others."""
    from millpond.cli.deployment import bind_files
    from millpond.errors import SettingsError

    sock = bind_files(settings, strict=True)
    if sock is None:
        raise SettingsError(
            "Files are in a bucket, which serves them itself.", field="storage", hint="Leave the role files out."
        )
    return sock


def _rendering(settings: Settings) -> socket.socket:
    """The socket of the renderer beside others."""
    from millpond.cli.deployment import bind_renderer
    from millpond.cli.renderer import check_parts
    from millpond.errors import SettingsError

    check_parts()
    if settings.replicate_api_token is not None or settings.renderer_url is not None:
        raise SettingsError(
            "Another provider is set already.",
            field="replicate_api_token" if settings.replicate_api_token else "renderer_url",
            hint="Leave the role renderer out, or take that away.",
        )
    return bind_renderer(settings)


def _beside(settings: Settings, files: socket.socket | None, rendering: socket.socket | None) -> list[Part]:
    from millpond.cli import renderer
    from millpond.cli.files import beside

    return [*renderer.beside(settings, rendering, allow=settings.outbound_allow), *beside(settings, files)]


def _serve_files(settings: Settings, processes: int, serving: Announcement, inherited: int | None) -> None:
    """The file server and nothing else: it needs no database."""
    import socket

    from millpond.cli.deployment import bind
    from millpond.cli.files import serve_files
    from millpond.cli.output import print_json

    if inherited is not None:
        sock, tell = socket.socket(fileno=inherited), lambda: print_json({"pid": os.getpid()})
        _run(serve_files(settings, sock, tell))
        return
    _files(dataclasses.replace(settings, port=0)).close()  # there are files to serve
    with bind(settings) as sock:
        serving.sock = sock
        if processes == 1:
            with serving:
                _run(serve_files(settings, sock, serving.tell))
        else:
            supervisor = _supervisor(settings, FILES, processes, sock, None)
            _run(_supervise(supervisor, serving))
            sys.exit(supervisor.refusal)


class Announcement:
    """Tells once that it serves, and takes it back at the end."""

    def __init__(
        self, sock: socket.socket | None, ready_file: Any, *, as_json: bool, files_url: str | None = None
    ) -> None:
        self.sock = sock
        self._files_url = files_url
        self._file = ready_file
        self._as_json = as_json
        self._words = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._words.__enter__()

    def __exit__(self, *reason: object) -> None:
        self._words.close()

    def tell(self) -> None:
        from millpond import logs
        from millpond.cli.deployment import url_of
        from millpond.cli.development import announced
        from millpond.cli.output import print_json
        from millpond.cli.processes import notify_systemd

        line: dict[str, Any] = {"url": self.sock and url_of(self.sock), "pid": os.getpid()}
        line |= {"files_url": self._files_url} if self._files_url else {}
        self._words.enter_context(announced(line, self._file))
        logs.emit("server.started", **line)
        self._words.callback(logs.emit, "server.stopped", **line)
        if self._as_json:
            print_json(line)
        notify_systemd("READY=1")


# Several processes


def _supervisor(
    settings: Settings, roles: tuple[str, ...], processes: int, sock: socket.socket | None, blueprint: str | None
) -> Supervisor:
    from millpond.cli.supervisor import Supervisor

    descriptor = -1 if sock is None else sock.fileno()
    own = [role for role in roles if role not in ("files", "renderer")] or roles  # those are beside them
    words = [sys.executable, "-m", "millpond", "serve", "--role", ",".join(own), "--socket", str(descriptor)]
    words += [] if blueprint is None else ["--blueprint", blueprint]
    said = {"MILLPOND_DATABASE_URL": settings.database_url, "MILLPOND_APP": settings.app}
    said |= {"MILLPOND_SLOTS": str(settings.slots), "MILLPOND_HOST": settings.host}
    said |= {"MILLPOND_FILES_URL": settings.files_url}
    said |= {"MILLPOND_RENDERER_URL": settings.renderer_url, "MILLPOND_RENDERER_TOKEN": settings.renderer_token}
    environment = os.environ | {name: value for name, value in said.items() if value is not None}
    return Supervisor(words, environment, () if sock is None else (descriptor,), processes)


async def _supervise(supervisor: Supervisor, serving: Announcement, beside: Sequence[Part] = ()) -> None:
    from millpond.cli.processes import run_in_order, stop_on_signals

    stop = stop_on_signals(at_once=supervisor.kill)
    with serving:
        await run_in_order([lambda stop: supervisor.run(stop, serving.tell), *beside], stop)


def _run_child(settings: Settings, roles: tuple[str, ...], descriptor: int, blueprint: str | None) -> None:
    """A process of several: the socket is the parent's, and so is the word that it serves."""
    import socket

    sock = None if descriptor < 0 else socket.socket(fileno=descriptor)
    serving = Announcement(sock, None, as_json=True)
    _run(_serve(settings, roles, sock, serving, blueprint))
