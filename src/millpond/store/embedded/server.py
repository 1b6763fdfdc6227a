"""The server as its users see it: found alive, or started, and stopped."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from millpond.errors import EmbeddedPostgresError
from millpond.store.embedded.account import choose_account
from millpond.store.embedded.binaries import find_binaries
from millpond.store.embedded.cluster import ensure_cluster
from millpond.store.embedded.folder import Layout, ensure_socket_dir, is_private, prepare
from millpond.store.embedded.locks import is_locked, try_lock
from millpond.store.embedded.log import Patience
from millpond.store.embedded.process import ServerProcess, launch, recorded
from millpond.store.embedded.settings import write_settings
from millpond.store.embedded.wire import dsn, greet

_FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """A server that serves one data directory, started by us or found alive."""

    data_dir: Path
    dsn: str
    is_owner: bool
    pid: int
    version: str
    _process: ServerProcess | None = field(default=None, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the server we started; does nothing to one that we only found."""
        if self._process is not None:
            self._process.stop()

    def trim_log(self) -> None:
        """Keeps the server's log below its bound; every opening does so too."""
        Layout(self.data_dir).log.trim()


def open_embedded(data_dir: Path) -> EmbeddedPostgres:
    """Attaches to the server of a data directory, or makes the directory and starts the server."""
    try:
        return _open(prepare(data_dir))
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The embedded PostgreSQL in {data_dir} cannot be opened: {error}.",
            hint="Choose a data directory that this user may write to.",
        ) from error


def _open(layout: Layout) -> EmbeddedPostgres:
    patience = Patience(layout.log)
    farewell = time.monotonic() + _FAREWELL_SECONDS
    while True:
        attached = _attach(layout)
        # A server whose opener died answers for a moment more. When it does so for long, its
        # watcher must have died too, and it is as good as any other.
        if attached is not None and (not _is_bereft(layout) or time.monotonic() > farewell):
            return attached
        with try_lock(layout.lock) as lock:
            if lock is not None:
                return _start(layout, lock)
        # Somebody else is starting or stopping the server: one of the two will succeed soon.
        patience.wait()


def _attach(layout: Layout) -> EmbeddedPostgres | None:
    """The server if it really answers; the pid file only says when there is no need to ask."""
    pid, status = recorded(layout.data)
    socket_dir = Path(os.path.realpath(layout.run))
    if status != "ready" or not is_private(socket_dir, layout.data.stat().st_uid):
        return None
    version = greet(socket_dir)
    if version is None:
        return None
    return EmbeddedPostgres(layout.root, dsn(socket_dir), is_owner=False, pid=pid, version=version)


def _is_bereft(layout: Layout) -> bool:
    """Whether the server is ours and its opener is gone."""
    return is_locked(layout.lock) and not is_locked(layout.opener)


def _start(layout: Layout, lock: int) -> EmbeddedPostgres:
    account = choose_account(layout.root, layout.data)
    binaries = find_binaries(account)
    ensure_cluster(layout, account, binaries, lock)
    write_settings(layout, account)
    socket_dir = ensure_socket_dir(layout, account)
    layout.log.trim()
    log_start = layout.log.size()
    process = launch(layout, account, binaries, socket_dir, lock)
    try:
        version = _wait_until_ready(layout, process, socket_dir, log_start)
    except BaseException:
        process.stop()
        raise
    return EmbeddedPostgres(
        layout.root,
        dsn(socket_dir),
        is_owner=True,
        pid=process.pid,
        version=version,
        _process=process,
    )


def _wait_until_ready(layout: Layout, process: ServerProcess, socket_dir: Path, log_start: int) -> str:
    patience = Patience(layout.log, log_start)
    while process.is_alive():
        # Asking sooner would fill the log with refusals, and each would look like progress.
        if recorded(layout.data) == (process.pid, "ready"):
            version = greet(socket_dir)
            if version is not None:
                return version
        patience.wait()
    raise EmbeddedPostgresError(
        f"PostgreSQL did not start in {layout.root}.{layout.log.last_lines(log_start)}",
        hint=f"The whole log is {layout.log.path}.",
    )
