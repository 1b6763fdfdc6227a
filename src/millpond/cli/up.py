"""``millpond up``: everything in one process, for development."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import single
from millpond.cli.options import App, AsJson, DatabaseUrl, DataDir, Host, Port, ReadyFile, Slots

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from millpond.cli.apps import Product
    from millpond.cli.development import Home, Keys, Running
    from millpond.engine.engine import Engine
    from millpond.settings import Settings


app = single()


@app.command("up")
def up(
    app: App = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    host: Host = None,
    port: Port = None,
    ready_file: ReadyFile = None,
    worker: Annotated[bool, typer.Option(help="Also run jobs.")] = True,
    blueprint: Annotated[str | None, typer.Option(help="Serve this blueprint alone, at /.", show_default=False)] = None,
    slots: Slots = None,
    llm: Annotated[bool, typer.Option("--llm", help="Also run a small language model, which writes copy.")] = False,
    expose: Annotated[bool, typer.Option("--expose", help="Use the development keys on a public address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start everything: database, API, services and a worker, in one process, on this machine alone.

    Without an app it serves an example, the kind `hello`. The keys are made on the first start. The first SIGTERM or
    SIGINT ends all in order; a second one ends at once.
    """
    from millpond.cli import renderer
    from millpond.cli.apps import chosen
    from millpond.cli.database import opened, settings_with
    from millpond.cli.deployment import bind, bind_files, bind_renderer
    from millpond.cli.development import Home, claimed
    from millpond.cli.processes import configure_logs, run_async

    settings = settings_with(database_url, data_dir, app=app, host=host, port=port, slots=slots)
    if not expose:
        _check_host(settings.host)
    configure_logs(settings)
    if llm:
        settings = _with_model(settings)
    product = chosen(settings.app, blueprint, with_example=True)
    home = Home(settings.data_dir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(claimed(home))
        sock = stack.enter_context(bind(settings))
        files = bind_files(settings)
        if files is not None:
            stack.enter_context(files)
        rendering = None
        if worker and renderer.is_wanted(settings, product.app.kinds.values()) and renderer.is_installed():
            rendering = stack.enter_context(bind_renderer(settings))
            settings = renderer.settled(settings, rendering)
        dsn = stack.enter_context(opened(settings))
        roles = ("api", "services", "worker") if worker else ("api", "services")
        serving = Serving(
            settings,
            product,
            home,
            sock,
            roles,
            ready_file,
            files=files,
            rendering=rendering,
            has_model=llm,
            as_json=as_json,
        )
        is_clean = run_async(serving.run(dsn))
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)


def _with_model(settings: Settings) -> Settings:
    from millpond.cli.llm import check_parts, settled
    from millpond.errors import SettingsError

    check_parts()
    if settings.chat_url is not None:
        raise SettingsError("Another model is set already.", field="chat_url", hint="Leave out --llm, or take it away.")
    return settled(settings)


def _check_host(host: str) -> None:
    from millpond.cli.deployment import is_public
    from millpond.errors import ForbiddenError

    if is_public(host):
        raise ForbiddenError(
            f"{host} is a public address, and the keys of `millpond up` are for development.",
            field="host",
            hint="Use `millpond serve`, or say --expose if that is meant.",
        )


def _last_of(count: int, tell: Callable[[], object]) -> Callable[[], object]:
    """What is called by each of several that begin, and tells when the last of them has."""
    waiting = iter(range(count - 1))
    return lambda: tell() if next(waiting, None) is None else None


class Serving:
    """One run of ``millpond up``, from an open database to the end."""

    def __init__(
        self,
        settings: Settings,
        product: Product,
        home: Home,
        sock: socket.socket,
        roles: tuple[str, ...],
        ready_file: Path | None,
        *,
        files: socket.socket | None,
        rendering: socket.socket | None,
        has_model: bool,
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._product = product
        self._app = product.app
        self._home = home
        self._sock = sock
        self._roles = roles
        self._ready_file = ready_file
        self._files = files
        self._rendering = rendering
        self._has_model = has_model
        self._as_json = as_json

    async def run(self, dsn: str) -> None:
        from millpond.api.inbox import Inbox
        from millpond.cli import llm, renderer
        from millpond.cli.deployment import parts, url_of
        from millpond.cli.development import ensure_keys
        from millpond.cli.files import beside
        from millpond.cli.outbound import opened, outbound
        from millpond.cli.processes import run_in_order, stop_on_signals
        from millpond.cli.providers import provide
        from millpond.engine.engine import Engine
        from millpond.engine.vault import open_vault
        from millpond.storage import open_storage

        stop = stop_on_signals()
        storage = open_storage(self._settings, self._files_url())
        engine = await Engine.open(
            dsn,
            self._app,
            storage=storage,
            tenant_databases=self._settings.tenant_databases,
            outbound=outbound(self._settings, is_development=True),
            vault=open_vault(self._settings),
        )
        provide(engine, self._settings, url_of(self._sock))
        with contextlib.ExitStack() as words:
            try:
                keys = await ensure_keys(engine, self._home)
                await self._prepare(engine)
                ready = _last_of(2 if self._has_model else 1, partial(self._announce, keys, words))
                made = parts(engine, self._settings, self._roles, self._sock, ready, self._product, Inbox())
                allow = opened(self._settings, is_development=True)
                made += renderer.beside(self._settings, self._rendering, allow=allow)
                made += llm.beside(self._settings, ready) if self._has_model else []
                await run_in_order([*made, *beside(self._settings, self._files)], stop)
            finally:
                await engine.close()

    async def _prepare(self, engine: Engine) -> None:
        """The tables of blueprints, and what a developer finds in them."""
        from millpond.api.blueprint import prepare

        await prepare(engine, self._product.blueprints)
        for blueprint in self._product.blueprints:
            if blueprint.seed is not None and engine.artifacts.has_store:
                await blueprint.seed(engine)

    def _announce(self, keys: Keys, words: contextlib.ExitStack) -> None:
        """Tell programs by files, and people in words."""
        import msgspec

        from millpond.cli.deployment import url_of
        from millpond.cli.development import Running, announced
        from millpond.cli.output import print_json, say

        line = Running(
            url=url_of(self._sock), pid=os.getpid(), files_url=self._files_url(), **msgspec.structs.asdict(keys)
        )
        words.enter_context(announced(line, self._home.running, self._ready_file))
        if self._as_json:
            print_json(line)
        say(self._welcome(line))

    def _files_url(self) -> str | None:
        """Where files are served; none where they are in a bucket."""
        from millpond.cli.deployment import url_of

        return None if self._files is None else self._settings.files_url or url_of(self._files)

    def _welcome(self, line: Running) -> str:
        from millpond.cli.outbound import opened

        url = line.url
        told = {
            **self._dashboard(line),
            "docs": f"{url}/docs",
            "inbox": f"{url}/inbox",
            "files": self._files_url() or self._settings.storage.partition("?")[0],
            **self._renders(),
            "keys": f"{self._home.keys}",
            "kinds": ", ".join(self._app.kinds) or "none",
            "opened": f"{opened(self._settings, is_development=True)}: webhooks may go there, and else to the world",
            **self._first_steps(url),
        }
        lines = [f"  {name:<9} {text}" for name, text in told.items()]
        return "\n".join([f"Millpond is up at {url}", *lines, "Ctrl-C ends it."])

    def _dashboard(self, line: Running) -> dict[str, str]:
        """Where the dashboard is; a person is also given a link that signs in, whose end never reaches a server.

        What is no terminal may be a log, and a key does not belong there.
        """
        if not self._settings.ui:
            return {}
        told = {"dashboard": f"{line.url}/ui/"}
        return told | {"sign in": f"{line.url}/ui/#key={line.admin_key}"} if sys.stderr.isatty() else told

    def _renders(self) -> dict[str, str]:
        """Who makes pictures, films and speech; nothing is said where nobody is asked for any."""
        from millpond.cli.renderer import INSTALL, is_wanted

        if self._rendering is not None:
            return {"ads": f"{self._settings.renderer_url} makes them, on this machine"}
        if is_wanted(self._settings, self._app.kinds.values()):
            return {"ads": f"nobody makes them: {INSTALL}"}
        return {}

    def _first_steps(self, url: str) -> dict[str, str]:
        """Commands that work when they are pasted."""
        header = shlex.quote(f"@{self._home.header}")
        if "hello" not in self._app.kinds:
            return {"try": f"curl -H {header} {url}/v1/kinds"}
        job: Any = """'{"kind": "hello", "input": {"name": "Ada"}}'"""
        return {
            "try": "millpond run hello --input name=Ada",
            "or": f"curl -H {header} -H 'Content-Type: application/json' {url}/v1/jobs -d {job}",
        }
