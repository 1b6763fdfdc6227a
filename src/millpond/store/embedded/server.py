"""Starts the server, or attaches to a running one, and stops it."""

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

_ORPHAN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """The server of a data directory, started by this process or found running."""

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
        """Stop the server if this process started it."""
        if self._process is not None:
            self._process.stop()

    def is_alive(self) -> bool:
        """Whether the server that this process started runs."""
        return self._process is not None and self._process.is_alive()

    def trim_log(self) -> None:
        """Limit the size of the server's log; every opening does so too."""
        Layout(self.data_dir).log.trim()


def open_embedded(data_dir: Path) -> EmbeddedPostgres:
    """Attach to the running server of a data directory, or create the directory if needed and start the server."""
    try:
        return _open(prepare(data_dir))
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The embedded PostgreSQL in {data_dir} cannot be opened: {error}.",
            hint="Choose a data directory that this user can write to.",
        ) from error


def _open(layout: Layout) -> EmbeddedPostgres:
    patience = Patience(layout.log)
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while True:
        attached = _attach(layout)
        # A server whose opener has ended still responds for a moment. If it does so for longer, its
        # watcher must have ended too, and it can be used as any other.
        if attached is not None and (not _is_orphaned(layout) or time.monotonic() > deadline):
            return attached
        with try_lock(layout.lock) as lock:
            if lock is not None:
                return _start(layout, lock)
        # Another process is starting or stopping the server, so one of these two attempts succeeds soon.
        patience.wait()


def _attach(layout: Layout) -> EmbeddedPostgres | None:
    """The server, if it responds. The pid file only shows when an attempt would be useless."""
    pid, status = recorded(layout.data)
    socket_dir = Path(os.path.realpath(layout.run))
    if status != "ready" or not is_private(socket_dir, layout.data.stat().st_uid):
        return None
    version = greet(socket_dir)
    if version is None:
        return None
    return EmbeddedPostgres(layout.root, dsn(socket_dir), is_owner=False, pid=pid, version=version)


def _is_orphaned(layout: Layout) -> bool:
    """Whether the server was started by a process of Millpond that is gone."""
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
        # Earlier attempts would fill the log with refusals, each of which would look like progress.
        if recorded(layout.data) == (process.pid, "ready"):
            version = greet(socket_dir)
            if version is not None:
                return version
        patience.wait()
    raise EmbeddedPostgresError(
        f"PostgreSQL did not start in {layout.root}.{layout.log.last_lines(log_start)}",
        hint=f"See the complete log in {layout.log.path}.",
    )
