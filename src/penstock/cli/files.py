"""``penstock files``: the file server of a local store, as the process that ``up`` and ``serve`` keep beside them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import single

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from penstock.cli.processes import Part
    from penstock.cli.supervisor import Supervisor
    from penstock.settings import Settings


app = single()


@app.command("files")
def files(
    inherited: Annotated[int, typer.Option("--socket", help="The socket to serve, which is open already.")],
) -> None:
    """Serve the files of the storage folder on a socket that was handed down."""
    import socket

    from penstock.cli.output import print_json
    from penstock.cli.processes import configure_logs, run_async
    from penstock.settings import Settings

    settings = Settings.from_env()
    configure_logs(settings)
    sock = socket.socket(fileno=inherited)
    tell = lambda: print_json({"pid": os.getpid()})  # noqa: E731 - a word to the parent
    if not run_async(serve_files(settings, sock, tell)):
        os._exit(0)


async def serve_files(settings: Settings, sock: socket.socket, on_ready: Callable[[], object]) -> None:
    """Serve until told to stop; what broke off before is cleared away first."""
    from penstock.api.server import Patient, serve
    from penstock.cli.processes import stop_on_signals
    from penstock.storage.files import FileServer
    from penstock.storage.local import Local
    from penstock.storage.storage import local_root

    stop = stop_on_signals()
    store = Local(local_root(settings), size_max=settings.upload_max)
    await store.tidy()
    await serve(FileServer(store), host="", port=0, sock=sock, stop=stop, on_ready=on_ready, connection=Patient)


def supervisor(settings: Settings, sock: socket.socket) -> Supervisor:
    """Keeps the file server alive. The socket stays ours: while it starts again, who comes waits and is not refused."""
    from penstock.cli.supervisor import Supervisor
    from penstock.storage.storage import local_root

    words = [sys.executable, "-m", "penstock", "files", "--socket", str(sock.fileno())]
    root = str(local_root(settings).absolute())
    return Supervisor(words, os.environ | {"PENSTOCK_STORAGE": root}, (sock.fileno(),), 1)


def beside(settings: Settings, sock: socket.socket | None) -> list[Part]:
    """The file server as a part of what runs here; none where files are in a bucket."""
    if sock is None:
        return []
    kept = supervisor(settings, sock)
    return [lambda stop: kept.run(stop, lambda: None)]
