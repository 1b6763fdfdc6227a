"""``millpond renderer``: the local renderer, by hand or as the process that ``up`` and ``serve`` keep beside them."""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, Host, ReadyFile

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Iterable

    from millpond.cli.processes import Part
    from millpond.kinds import Kind
    from millpond.settings import Settings

app = single()

_PARTS: Final = ("av", "espeakng_loader", "PIL")
"""What the extra brings."""
INSTALL: Final = "pip install 'millpond[server,renderer]'"


@app.command("renderer")
def renderer(
    host: Host = None,
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any.", min=0, max=65_535)] = 8688,
    public_url: Annotated[
        str | None, typer.Option(help="Where clients reach it.  [default: where it listens]", show_default=False)
    ] = None,
    presses: Annotated[int, typer.Option(help="How many predictions run at once.", min=1, max=64)] = 2,
    ready_file: ReadyFile = None,
    as_json: AsJson = False,
    inherited: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
) -> None:
    """Make pictures, films and speech on this machine, by the HTTP API of Replicate.

    Clients show the token in MILLPOND_RENDERER_TOKEN; without one, it makes one up and says it. Pictures are fetched
    from outside alone, unless MILLPOND_OUTBOUND_ALLOW opens something of the inside.
    """
    import socket

    from millpond.cli.processes import configure_logs, run_async
    from millpond.renderer.process import HOST, Options, listen
    from millpond.settings import Settings

    check_parts()
    settings = Settings.from_env()
    configure_logs(settings)
    options = Options(
        token=settings.renderer_token or secrets.token_urlsafe(24),
        url=public_url,
        allow=settings.outbound_allow,
        presses=presses,
    )
    with listen(host or HOST, port) if inherited is None else socket.socket(fileno=inherited) as sock:
        serving = Serving(options, sock, ready_file, as_json=as_json, is_child=inherited is not None)
        is_clean = run_async(serving.run())
    if not is_clean:
        os._exit(0)


class Serving:
    """One run of it."""

    def __init__(self, options: Any, sock: socket.socket, ready_file: Any, *, as_json: bool, is_child: bool) -> None:
        self._options = options
        self._sock = sock
        self._ready_file = ready_file
        self._as_json = as_json
        self._is_child = is_child

    async def run(self) -> None:
        import contextlib

        from millpond.cli.processes import stop_on_signals
        from millpond.renderer.process import serve

        stop = stop_on_signals()
        with contextlib.ExitStack() as words:
            await serve(self._options, self._sock, stop, lambda: self._tell(words))

    def _tell(self, words: Any) -> None:
        from millpond.cli.development import announced
        from millpond.cli.output import print_json, say
        from millpond.renderer.process import address_of

        if self._is_child:
            print_json({"pid": os.getpid()})  # a word to the parent
            return
        url = self._options.url or address_of(self._sock)
        line = {"url": url, "token": self._options.token, "pid": os.getpid()}
        words.enter_context(announced(line, self._ready_file))
        if self._as_json:
            print_json(line)
            return
        say(f"The renderer is up at {url}. To use it:")
        say(f"  export MILLPOND_RENDERER_URL={url} MILLPOND_RENDERER_TOKEN={self._options.token}")
        say("Ctrl-C ends it.")


def check_parts() -> None:
    from millpond.errors import SettingsError

    if not is_installed():
        raise SettingsError("The renderer's libraries are not installed.", hint=f"Run {INSTALL}.")


def is_installed() -> bool:
    return all(find_spec(part) for part in _PARTS)


# Beside others


def is_wanted(settings: Settings, kinds: Iterable[Kind]) -> bool:
    """Whether there are kinds that need a provider, and there is no other."""
    is_alone = settings.replicate_api_token is None and settings.renderer_url is None
    return is_alone and any(kind.needs for kind in kinds)


def settled(settings: Settings, sock: socket.socket) -> Settings:
    """The settings of who has a renderer on this socket beside him."""
    from millpond.cli.deployment import url_of

    token = settings.renderer_token or secrets.token_urlsafe(24)
    return dataclasses.replace(settings, renderer_url=url_of(sock), renderer_token=token)


def beside(settings: Settings, sock: socket.socket | None, *, allow: str) -> list[Part]:
    """The renderer as a part of what runs here, begun when somebody first speaks to it.

    The socket stays ours: who comes waits while it starts, also when it starts again.
    """
    from millpond.cli.supervisor import Supervisor

    if sock is None:
        return []
    words = [sys.executable, "-m", "millpond", "renderer", "--socket", str(sock.fileno())]
    said = {"MILLPOND_RENDERER_TOKEN": settings.renderer_token or "", "MILLPOND_OUTBOUND_ALLOW": allow}
    kept = Supervisor(words, os.environ | said, (sock.fileno(),), 1)

    async def run(stop: asyncio.Event) -> None:
        await _first_call(sock, stop)
        await kept.run(stop, lambda: None)

    return [run]


async def _first_call(sock: socket.socket, stop: asyncio.Event) -> None:
    """Until there is somebody at the door, or all is over."""
    import asyncio

    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_reader(sock.fileno(), called.set)
    waiting = [asyncio.create_task(event.wait()) for event in (called, stop)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(sock.fileno())
        for task in waiting:
            task.cancel()
