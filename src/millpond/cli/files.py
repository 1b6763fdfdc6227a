"""``millpond files``: the file server of a local store, a separate process that ``up`` and ``serve`` start."""

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
    from millpond.settings import Settings
    from millpond.supervisor import Supervisor


app = single()


@app.command("files")
def files(
    inherited: Annotated[int, typer.Option("--socket", help="The file descriptor of the open socket to serve.")],
) -> None:
    """Serve the files of the storage folder on an inherited socket."""
    import socket

    from millpond.cli.processes import configure_logs, exit_at_once, run_async
    from millpond.settings import Settings
    from millpond.supervisor import report_ready

    settings = Settings.from_env()
    configure_logs(settings)
    sock = socket.socket(fileno=inherited)
    if not run_async(serve_files(settings, sock, report_ready)):
        exit_at_once()


async def serve_files(settings: Settings, sock: socket.socket, on_ready: Callable[[], object]) -> None:
    """Serve until stopped, after removing the remains of interrupted uploads."""
    from millpond.api.server import UploadConnection, serve
    from millpond.cli.processes import stop_on_signals
    from millpond.storage.files import FileServer
    from millpond.storage.local import Local
    from millpond.storage.storage import local_root

    stop = stop_on_signals()
    store = Local(local_root(settings), size_max=settings.upload_max)
    await store.tidy()
    await serve(
        FileServer(store), host="", port=0, sock=sock, stop=stop, on_ready=on_ready, connection=UploadConnection
    )


def supervisor(settings: Settings, sock: socket.socket) -> Supervisor:
    """Restarts the file server. This process owns the socket, so that clients wait meanwhile and are not refused."""
    from millpond.storage.storage import local_root
    from millpond.supervisor import Supervisor

    words = [sys.executable, "-m", "millpond", "files", "--socket", str(sock.fileno())]
    root = str(local_root(settings).absolute())
    return Supervisor(words, os.environ | {"MILLPOND_STORAGE": root}, (sock.fileno(),), 1)


def beside(settings: Settings, sock: socket.socket | None) -> list[Part]:
    """The file server as a part of this command; none if files are in a bucket."""
    if sock is None:
        return []
    kept = supervisor(settings, sock)
    return [lambda stop: kept.run(stop, lambda: None)]
