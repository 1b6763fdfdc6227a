"""PgBouncer in front of a test's database: Debian's package, or any on the PATH."""

from __future__ import annotations

import os
import shutil
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from millpond.store.hosts import hosts
from tests.acceptance.processes import free_port
from tests.children import running_other
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
NO_PGBOUNCER = "poolers need PgBouncer: install the package pgbouncer"


@contextmanager
def running_pgbouncer(dsn: str, **settings: str) -> Iterator[str]:
    """The DSN of the same database through a PgBouncer with these settings."""
    assert PGBOUNCER is not None, NO_PGBOUNCER
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    host = unquote(query.get("host", [parts.hostname or ""])[0])
    backend_port = query.get("port", [str(parts.port or 5432)])[0]
    backend = f"host={host} port={backend_port}"
    folder, port = Path(mkdtemp(prefix="pgbouncer-")), free_port()
    hosts.cache_clear()  # what is known of another pooler that had this port
    try:
        folder.chmod(0o755)
        (folder / "users.txt").write_text(f'"{unquote(parts.username or "")}" "{unquote(parts.password or "")}"\n')
        given = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(folder / "users.txt"),
        }
        lines = [f"{name} = {value}" for name, value in (given | settings).items()]
        (folder / "pgbouncer.ini").write_text("\n".join(["[databases]", f"* = {backend}", "[pgbouncer]", *lines, ""]))
        with running_other([*_as_user(), PGBOUNCER, str(folder / "pgbouncer.ini")]) as process:
            _wait(process, port)
            yield f"postgresql://{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}{parts.path}"
    finally:
        shutil.rmtree(folder)


def _as_user() -> list[str]:
    """PgBouncer refuses to run as root. As another user it may still reach the server's socket."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def _wait(process: Any, port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"PgBouncer does not listen; its exit status is {process.poll()}")
