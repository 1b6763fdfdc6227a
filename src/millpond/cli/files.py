"""``millpond files``: the file server of a local store, as the process that ``up`` and ``serve`` keep beside them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import single

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from millpond.cli.processes import Part
    from millpond.cli.supervisor import Supervisor
    from millpond.settings import Settings


app = single()


@app.command("files")
def files(
    inherited: Annotated[int, typer.Option("--socket", help="The socket to serve, which is open already.")],
) -> None:
    """Serve the files of the storage folder on a socket that was handed down."""
    import socket

    from millpond.cli.output import print_json
    from millpond.cli.processes import configure_logs, run_async
    from millpond.settings import Settings

    settings = Settings.from_env()
    configure_logs(settings)
    sock = socket.socket(fileno=inherited)
    tell = lambda: print_json({"pid": os.getpid()})  # noqa: E731 - a word to the parent
    if not run_async(serve_files(settings, sock, tell)):
        os._exit(0)


async def serve_files(settings: Settings, sock: socket.socket, on_ready: Callable[[], object]) -> None:
    """Serve until told to stop; what broke off before is cleared away first."""
    from millpond.api.server import Patient, serve
    from millpond.cli.processes import stop_on_signals
    from millpond.storage.files import FileServer
    from millpond.storage.local import Local
    from millpond.storage.storage import local_root

    stop = stop_on_signals()
    store = Local(local_root(settings), size_max=settings.upload_max)
    await store.tidy()
    await serve(FileServer(store), host="", port=0, sock=sock, stop=stop, on_ready=on_ready, connection=Patient)


def supervisor(settings: Settings, sock: socket.socket) -> Supervisor:
    """Keeps the file server alive. The socket stays ours: while it starts again, who comes waits and is not refused."""
    from millpond.cli.supervisor import Supervisor
    from millpond.storage.storage import local_root

    words = [sys.executable, "-m", "millpond", "files", "--socket", str(sock.fileno())]
    root = str(local_root(settings).absolute())
    return Supervisor(words, os.environ | {"MILLPOND_STORAGE": root}, (sock.fileno(),), 1)


def beside(settings: Settings, sock: socket.socket | None) -> list[Part]:
    """The file server as a part of what runs here; none where files are in a bucket."""
    if sock is None:
        return []
    kept = supervisor(settings, sock)
    return [lambda stop: kept.run(stop, lambda: None)]
