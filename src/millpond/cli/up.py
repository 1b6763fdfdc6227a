"""``millpond up``: a complete server in one process, for development."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import single
from millpond.cli.options import (
    App,
    AsJson,
    AtRoot,
    DatabaseUrl,
    DataDir,
    Host,
    Port,
    Products,
    ReadyFile,
    Slots,
    optional,
)

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from millpond.cli.apps import Selection
    from millpond.cli.development import DevelopmentFolder, DevelopmentKeys, RunningUp
    from millpond.companions import Started
    from millpond.engine.engine import Engine
    from millpond.settings import Settings
    from millpond.store.embedded import Keeper


app = single()


@app.command("up")
def up(
    app: App = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    host: Host = None,
    port: Port = None,
    ready_file: ReadyFile = None,
    worker: Annotated[bool, typer.Option(help="Run jobs in this process.")] = True,
    product: Products = None,
    at_root: AtRoot = False,
    companions: Annotated[
        list[str] | None,
        optional("--with", metavar="NAME", text="Also run this companion of a product, such as llm. Repeatable."),
    ] = None,
    slots: Slots = None,
    expose: Annotated[bool, typer.Option("--expose", help="Allow a public address with development keys.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a complete development server on this machine.

    The database, the API, the background services and a worker run in one process. Without an app, the server has an
    example, the kind `hello`. API keys are created on the first start. The first SIGTERM or SIGINT shuts down
    gracefully; the second one exits immediately.
    """
    from millpond.cli.apps import chosen
    from millpond.cli.database import kept, settings_with
    from millpond.cli.deployment import bind, bind_files
    from millpond.cli.development import DevelopmentFolder, claimed
    from millpond.cli.processes import configure_logs, exit_at_once, run_async

    settings = settings_with(database_url, data_dir, app=app, host=host, port=port, slots=slots)
    if not expose:
        _check_host(settings.host)
    configure_logs(settings)
    selection = chosen(settings.app, product or settings.product_names, at_root=at_root, with_example=True)
    folder = DevelopmentFolder(settings.data_dir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(claimed(folder))
        sock = stack.enter_context(bind(settings))
        files = bind_files(settings)
        if files is not None:
            stack.enter_context(files)
        started = _start(stack, settings, selection, companions or [], worker=worker)
        settings = started[-1].settings if started else settings
        dsn, keeper = stack.enter_context(kept(settings))
        roles = ("api", "services", "worker") if worker else ("api", "services")
        serving = Serving(
            settings, selection, folder, sock, roles, ready_file, files=files, companions=started, as_json=as_json
        )
        is_clean = run_async(serving.run(dsn, keeper))
    if not is_clean:
        exit_at_once()


def _start(
    stack: contextlib.ExitStack, settings: Settings, selection: Selection, names: Sequence[str], *, worker: bool
) -> list[Started]:
    """Open the sockets of the companions that are named, or needed by a kind whose jobs run here."""
    from millpond.cli.outbound import opened
    from millpond.companions import Started
    from millpond.errors import SettingsError

    known, kinds, started = selection.companions, selection.app.kinds.values(), list[Started]()
    if strange := sorted(set(names).difference(known)):
        served = f"Companions of the products that are served: {', '.join(sorted(known)) or 'none'}."
        hint = f"{served} Name the product that has it with --product."
        raise SettingsError(f"There is no companion {strange[0]!r}.", field="with", hint=hint)
    for name, companion in known.items():
        if name not in names and not (worker and companion.is_wanted(settings, kinds)):
            continue
        if (command := companion.missing()) is None:
            one = stack.enter_context(companion.start(settings, opened(settings, is_development=True)))
            settings = one.settings
            started.append(one)
        elif name in names:
            raise SettingsError(f"The companion {name} is not installed.", field="with", hint=f"Run {command}.")
        else:
            started.append(Started(settings=settings, run=_absent, lines={name: f"not started: {command}"}))
    return started


async def _absent(stop: asyncio.Event, on_ready: Callable[[], object]) -> None:  # noqa: ARG001 - the signature is given
    await stop.wait()


def _check_host(host: str) -> None:
    from millpond.cli.deployment import is_public
    from millpond.errors import ForbiddenError

    if is_public(host):
        raise ForbiddenError(
            f"{host} is a public address, but the keys of `millpond up` are for development.",
            field="host",
            hint="Use `millpond serve`, or allow it with --expose.",
        )


def _last_of(count: int, on_ready: Callable[[], object]) -> Callable[[], object]:
    """A callback for ``count`` calls, the last of which calls ``on_ready``."""
    waiting = iter(range(count - 1))
    return lambda: on_ready() if next(waiting, None) is None else None


class Serving:
    """One run of ``millpond up``, from an open database to the end."""

    def __init__(
        self,
        settings: Settings,
        selection: Selection,
        folder: DevelopmentFolder,
        sock: socket.socket,
        roles: tuple[str, ...],
        ready_file: Path | None,
        *,
        files: socket.socket | None,
        companions: Sequence[Started],
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._selection = selection
        self._app = selection.app
        self._folder = folder
        self._sock = sock
        self._roles = roles
        self._ready_file = ready_file
        self._files = files
        self._companions = companions
        self._as_json = as_json

    async def run(self, dsn: str, keeper: Keeper | None) -> None:
        from millpond.api.webhooks.inbox import Inbox
        from millpond.cli.deployment import parts, url_of
        from millpond.cli.development import ensure_keys
        from millpond.cli.files import beside
        from millpond.cli.outbound import outbound
        from millpond.cli.processes import closing, run_in_order, stop_on_signals
        from millpond.cli.providers import provide
        from millpond.engine.engine import Engine
        from millpond.engine.webhooks.vault import open_vault
        from millpond.storage import open_storage

        stop = stop_on_signals()
        storage = open_storage(self._settings, self._files_url())
        engine = await Engine.open(
            dsn,
            self._app,
            storage=storage,
            tenant_databases=self._settings.tenant_databases,
            outbound=outbound(self._settings, is_development=True),
            vault=open_vault(self._settings, is_development=True),
        )
        provide(engine, self._settings, url_of(self._sock))
        with contextlib.ExitStack() as words:
            async with closing(engine, stop):
                keys = await ensure_keys(engine, self._folder)
                await self._prepare(engine)
                awaited = sum(each.is_awaited for each in self._companions)
                ready = _last_of(1 + awaited, partial(self._announce, keys, words))
                made = parts(engine, self._settings, self._roles, self._sock, ready, self._selection, Inbox())
                made += [partial(self._run_companion, each, ready) for each in self._companions]
                made += [] if keeper is None else [partial(keeper.run, engine.db)]
                await run_in_order([*made, *beside(self._settings, self._files)], stop)

    async def _prepare(self, engine: Engine) -> None:
        """Migrate the tables of products, and add their development data."""
        from millpond.api.product import prepare

        await prepare(engine, self._selection.products)
        for product in self._selection.products:
            if product.seed is not None and engine.artifacts.has_store:
                await product.seed(engine)

    @staticmethod
    async def _run_companion(companion: Started, ready: Callable[[], object], stop: asyncio.Event) -> None:
        await companion.run(stop, ready if companion.is_awaited else lambda: None)

    def _announce(self, keys: DevelopmentKeys, words: contextlib.ExitStack) -> None:
        """Write the ready files for programs, and print the welcome text for people."""
        import msgspec

        from millpond import logs
        from millpond.cli.deployment import url_of
        from millpond.cli.development import RunningUp, announced
        from millpond.cli.output import announce

        line = RunningUp(
            url=url_of(self._sock), pid=os.getpid(), files_url=self._files_url(), **msgspec.structs.asdict(keys)
        )
        words.enter_context(announced(line, self._folder.running, self._ready_file))
        if self._as_json:
            announce(line)
        logs.write(f"{self._welcome(line)}\n")

    def _files_url(self) -> str | None:
        """The URL of the file server; None if files are in a bucket."""
        from millpond.cli.deployment import url_of

        return None if self._files is None else self._settings.files_url or url_of(self._files)

    def _welcome(self, line: RunningUp) -> str:
        from millpond.cli.outbound import opened

        url = line.url
        entries = {
            **self._dashboard(line),
            "docs": f"{url}/docs",
            "inbox": f"{url}/ui/inbox" if self._settings.ui else f"{url}/inbox.json",
            "files": self._files_url() or self._settings.storage.partition("?")[0],
            **{label: text for each in self._companions for label, text in each.lines.items()},
            "keys": f"{self._folder.keys}",
            "kinds": ", ".join(self._app.kinds) or "none",
            "webhooks": f"may be sent to public addresses and to {opened(self._settings, is_development=True)}",
            **self._first_steps(url),
        }
        lines = [f"  {name:<9} {text}" for name, text in entries.items()]
        return "\n".join([f"Millpond is up at {url}", *lines, "Press Ctrl-C to stop."])

    def _dashboard(self, line: RunningUp) -> dict[str, str]:
        """The URL of the dashboard; in a terminal, also a link that signs in. Its fragment is never sent to a server.

        Anything but a terminal may be a log, which must not contain a key.
        """
        if not self._settings.ui:
            return {}
        urls = {"dashboard": f"{line.url}/ui/"}
        return urls | {"sign in": f"{line.url}/ui/#key={line.admin_key}"} if sys.stderr.isatty() else urls

    def _first_steps(self, url: str) -> dict[str, str]:
        """Commands to copy and run."""
        header = shlex.quote(f"@{self._folder.header}")
        if "hello" not in self._app.kinds:
            return {"try": f"curl -H {header} {url}/v1/kinds"}
        job: Any = """'{"kind": "hello", "input": {"name": "Ada"}}'"""
        return {
            "try": "millpond run hello --input name=Ada",
            "or": f"curl -H {header} -H 'Content-Type: application/json' {url}/v1/jobs -d {job}",
        }
