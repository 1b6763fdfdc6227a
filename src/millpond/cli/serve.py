"""``millpond serve``: the API, the background services and workers, for production."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import single
from millpond.cli.options import App, AsJson, AtRoot, DatabaseUrl, Host, Port, Products, ReadyFile, Slots

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping, Sequence

    from millpond.cli.apps import Selection
    from millpond.cli.processes import Part
    from millpond.companions import Started
    from millpond.settings import Settings
    from millpond.supervisor import Supervisor


app = single()

FILES: Final = ("files",)
ROLES: Final = ("api", "services", "worker", "files")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@app.command("serve")
def serve(
    app: App = None,
    database_url: DatabaseUrl = None,
    role: Annotated[
        str,
        typer.Option(
            help="The roles to run, separated by commas: api, services, worker, files, or the companion of a product."
        ),
    ] = "api,services",
    processes: Annotated[int, typer.Option(help="The number of processes, each with all roles.", min=1, max=256)] = 1,
    host: Host = None,
    port: Port = None,
    product: Products = None,
    at_root: AtRoot = False,
    slots: Slots = None,
    ready_file: ReadyFile = None,
    expose: Annotated[
        bool, typer.Option("--expose", help="Allow a public address without an admin key, or with development keys.")
    ] = False,
    as_json: AsJson = False,
    inherited: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
) -> None:
    """Run the API, the background services and workers in production.

    The role files serves the storage folder, on its own port if it runs alone and on the next port otherwise. The
    companion of a product, such as renderer, runs in addition to other roles. A process that exits is restarted. The
    first SIGTERM or SIGINT shuts down gracefully; the second one exits immediately.
    """
    from millpond.app import Millpond
    from millpond.cli.apps import Selection, chosen
    from millpond.cli.processes import configure_logs

    products = None if product is None else ",".join(product)
    given = {"app": app, "host": host, "port": port, "slots": slots, "products": products}
    words = [word.strip() for word in role.split(",") if word.strip()]
    settings = _settings(database_url, needs_database=words != list(FILES), **given)
    configure_logs(settings)
    selection = (
        Selection(Millpond()) if words == list(FILES) else chosen(settings.app, settings.product_names, at_root=at_root)
    )
    roles = _roles(role, words, selection)
    if roles == FILES:
        _serve_files(settings, processes, Announcement(None, ready_file, as_json=as_json), inherited)
        return
    if inherited is not None:
        _run_child(settings, roles, inherited, selection)
        return
    with contextlib.ExitStack() as stack:
        sock = None
        if "api" in roles:
            from millpond.cli.deployment import bind

            sock = stack.enter_context(bind(settings))
        _check(settings, is_exposed="api" in roles and not expose)
        files = stack.enter_context(_files(settings)) if "files" in roles else None
        if files is not None:
            from millpond.cli.deployment import url_of

            settings = dataclasses.replace(settings, files_url=settings.files_url or url_of(files))
        given, companions = settings, _companions(stack, settings, selection, roles)
        settings = companions[-1].settings if companions else settings
        beside = _beside(settings, files, companions)
        serving = Announcement(sock, ready_file, as_json=as_json, files_url=settings.files_url)
        if processes == 1:
            _run(_serve(settings, roles, sock, serving, selection, beside))
        else:
            found = _differences(given, settings)
            supervisor = _supervisor(settings, roles, processes, sock, at_root=at_root, found=found)
            _run(_supervise(supervisor, serving, beside))
            sys.exit(supervisor.refusal)


def _roles(text: str, given: Sequence[str], selection: Selection) -> tuple[str, ...]:
    from millpond.cli.output import UsageError

    known = (*ROLES, *selection.companions)
    strange = [word for word in given if word not in known] or ([] if given else [text])
    if strange:
        hint = f"Roles: {', '.join(known)}. Each companion of a product that is named with --product is a role too."
        raise UsageError(f"There is no role {strange[0]!r}.", field="--role", hint=hint)
    if not set(given).intersection(ROLES):
        raise UsageError("A companion cannot run alone.", field="--role", hint=f"Add one of {', '.join(ROLES)}.")
    return tuple(given)


def _settings(database_url: str | None, *, needs_database: bool = True, **options: Any) -> Settings:
    from millpond.cli.database import settings_with
    from millpond.errors import SettingsError

    settings = settings_with(database_url, **options)
    if settings.database_url is None and needs_database:
        raise SettingsError(
            "millpond serve requires a database.",
            field="database_url",
            hint="Set DATABASE_URL, or use `millpond up` for development.",
        )
    log_format = "json" if settings.log_format == "auto" else settings.log_format
    return dataclasses.replace(settings, log_format=log_format)


def _check(settings: Settings, *, is_exposed: bool) -> None:
    """Check the database before anything is served; here, so that only one process reports what is wrong."""
    import asyncio

    from millpond.api.startup import report_isolation, report_storage
    from millpond.cli.deployment import check_exposure
    from millpond.engine.engine import Engine
    from millpond.storage import open_storage

    async def look() -> None:
        engine = await Engine.open(settings.database_url or "", pool_size=1, tenant_databases=settings.tenant_databases)
        try:
            await report_isolation(engine)
            await report_storage(open_storage(settings))
            if is_exposed:
                await check_exposure(engine, settings.host)
        finally:
            await engine.close()

    asyncio.run(look())


def _run(main: Any) -> None:
    from millpond.cli.processes import exit_at_once, run_async

    if not run_async(main):
        exit_at_once()


async def _serve(
    settings: Settings,
    roles: tuple[str, ...],
    sock: socket.socket | None,
    serving: Announcement,
    selection: Selection,
    beside: Sequence[Part] = (),
) -> None:
    from millpond.api.product import prepare
    from millpond.api.startup import check_encryption_key
    from millpond.cli.deployment import parts
    from millpond.cli.outbound import outbound
    from millpond.cli.processes import closing, run_in_order, stop_on_signals
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.webhooks.vault import open_vault
    from millpond.storage import open_storage

    stop = stop_on_signals()
    engine = await Engine.open(
        settings.database_url or "",
        selection.app,
        storage=open_storage(settings),
        tenant_databases=settings.tenant_databases,
        outbound=outbound(settings, is_development=False),
        vault=open_vault(settings, is_development=False),
    )
    provide(engine, settings)
    with serving:
        async with closing(engine, stop):
            await check_encryption_key(engine, is_needed=not {"api", "services"}.isdisjoint(roles))
            await prepare(engine, selection.products)
            made = parts(engine, settings, roles, sock, serving.announce, selection)
            if sock is None:
                serving.announce()
            await run_in_order([*made, *beside], stop)


def _files(settings: Settings) -> socket.socket:
    """The socket of the file server that runs with other roles."""
    from millpond.cli.deployment import bind_files
    from millpond.errors import SettingsError

    sock = bind_files(settings, strict=True)
    if sock is None:
        raise SettingsError(
            "Files are stored in a bucket, which serves them itself.", field="storage", hint="Remove the role files."
        )
    return sock


def _companions(
    stack: contextlib.ExitStack, settings: Settings, selection: Selection, roles: Sequence[str]
) -> list[Started]:
    """The companions among the roles, each with its socket."""
    from millpond.errors import SettingsError

    started: list[Started] = []
    for name, companion in selection.companions.items():
        if name not in roles:
            continue
        if (command := companion.missing()) is not None:
            raise SettingsError(f"The companion {name} is not installed.", field="role", hint=f"Run {command}.")
        started.append(stack.enter_context(companion.start(settings, settings.outbound_allow)))
        settings = started[-1].settings
    return started


def _beside(settings: Settings, files: socket.socket | None, companions: Sequence[Started]) -> list[Part]:
    from functools import partial

    from millpond.cli.files import beside

    return [*(partial(_run_companion, each) for each in companions), *beside(settings, files)]


async def _run_companion(companion: Started, stop: asyncio.Event) -> None:
    await companion.run(stop, lambda: None)


def _serve_files(settings: Settings, processes: int, serving: Announcement, inherited: int | None) -> None:
    """Run only the file server, which needs no database."""
    import socket

    from millpond.cli.deployment import bind
    from millpond.cli.files import serve_files
    from millpond.supervisor import report_ready

    if inherited is not None:
        _run(serve_files(settings, socket.socket(fileno=inherited), report_ready))
        return
    _files(dataclasses.replace(settings, port=0)).close()  # raises if files are in a bucket
    with bind(settings) as sock:
        serving.sock = sock
        if processes == 1:
            with serving:
                _run(serve_files(settings, sock, serving.announce))
        else:
            supervisor = _supervisor(settings, FILES, processes, sock)
            _run(_supervise(supervisor, serving))
            sys.exit(supervisor.refusal)


class Announcement:
    """Announces once that the server is ready, and withdraws that at the end."""

    def __init__(
        self, sock: socket.socket | None, ready_file: Any, *, as_json: bool, files_url: str | None = None
    ) -> None:
        self.sock = sock
        self._files_url = files_url
        self._file = ready_file
        self._as_json = as_json
        self._withdrawal = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._withdrawal.__enter__()

    def __exit__(self, *reason: object) -> None:
        self._withdrawal.close()

    def announce(self) -> None:
        from millpond import logs
        from millpond.cli.deployment import url_of
        from millpond.cli.development import announced
        from millpond.cli.output import announce
        from millpond.cli.processes import notify_systemd
        from millpond.supervisor import report_ready

        line: dict[str, Any] = {"url": self.sock and url_of(self.sock), "pid": os.getpid()}
        line |= {"files_url": self._files_url} if self._files_url else {}
        self._withdrawal.enter_context(announced(line, self._file))
        logs.emit("server.started", **line)
        self._withdrawal.callback(logs.emit, "server.stopped", **line)
        if self._as_json:
            announce(line)
        report_ready()
        notify_systemd("READY=1")


# Several processes


def _supervisor(
    settings: Settings,
    roles: tuple[str, ...],
    processes: int,
    sock: socket.socket | None,
    *,
    at_root: bool = False,
    found: Mapping[str, str] = _NOTHING,
) -> Supervisor:
    """``found`` is what companions add to the environment."""
    from millpond.supervisor import Supervisor

    descriptor = -1 if sock is None else sock.fileno()
    own = [role for role in roles if role in ROLES and role != "files"] or roles  # this process runs the others
    words = [sys.executable, "-m", "millpond", "serve", "--role", ",".join(own), "--socket", str(descriptor)]
    words += ["--at-root"] if at_root else []
    variables = {"MILLPOND_DATABASE_URL": settings.database_url, "MILLPOND_APP": settings.app}
    variables |= {"MILLPOND_SLOTS": str(settings.slots), "MILLPOND_HOST": settings.host}
    variables |= {"MILLPOND_FILES_URL": settings.files_url, "MILLPOND_PRODUCTS": settings.products}
    environment = os.environ | {name: value for name, value in variables.items() if value is not None} | dict(found)
    return Supervisor(words, environment, () if sock is None else (descriptor,), processes)


def _differences(given: Settings, settled: Settings) -> dict[str, str]:
    """The settings that companions have set, as environment variables: the other processes need them too."""
    names = (each.name for each in dataclasses.fields(settled))
    changed = (name for name in names if getattr(settled, name) != getattr(given, name))
    return {f"MILLPOND_{name.upper()}": str(getattr(settled, name)) for name in changed}


async def _supervise(supervisor: Supervisor, serving: Announcement, beside: Sequence[Part] = ()) -> None:
    from millpond.cli.processes import run_in_order, stop_on_signals

    stop = stop_on_signals(at_once=supervisor.kill)
    with serving:
        await run_in_order([lambda stop: supervisor.run(stop, serving.announce), *beside], stop)


def _run_child(settings: Settings, roles: tuple[str, ...], descriptor: int, selection: Selection) -> None:
    """Run one of several processes: it inherits the socket, and reports to its parent when it is ready."""
    import socket

    sock = None if descriptor < 0 else socket.socket(fileno=descriptor)
    serving = Announcement(sock, None, as_json=False)
    _run(_serve(settings, roles, sock, serving, selection))
