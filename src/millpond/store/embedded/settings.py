"""The server's settings: fixed ones as flags, others in a file that the user's file overrides."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.store.embedded.wire import NAME, PORT

if TYPE_CHECKING:
    from millpond.store.embedded.account import Account
    from millpond.store.embedded.folder import Layout

# Settings that cannot be changed: passed as flags, which override every file and ALTER SYSTEM.
_FIXED = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "port": str(PORT),
    "synchronous_commit": "on",
    "unix_socket_permissions": "0700",
}

# Settings that the user's postgres.conf may override.
_TUNED = {
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_naptime": "15s",
    "autovacuum_vacuum_cost_limit": "1000",
    "autovacuum_vacuum_scale_factor": "0.05",
    "cluster_name": NAME,
    "jit": "off",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "max_connections": "200",
    "max_wal_size": "2GB",  # fewer checkpoints: after each one, the first change of a page logs the whole page
    "random_page_cost": "1.1",
    "timezone": "UTC",
}

_FILE = "millpond.conf"  # in PGDATA


def flags(data: str, socket_dir: str) -> list[str]:
    settings = _FIXED | {"config_file": f"{data}/{_FILE}", "unix_socket_directories": f'"{socket_dir}"'}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def write_settings(layout: Layout, account: Account) -> None:
    """Write Millpond's settings to a file that users do not edit, so that an upgrade can change them."""
    settings = _TUNED | {"shared_buffers": _shared_buffers()}
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    text = "\n".join(["# Written at every start. Put your own settings into ../postgres.conf.", *lines])
    target, draft = layout.data / _FILE, layout.data / f"{_FILE}.new"
    # The account owns the folder: a link that it places there must not make root write to another file.
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n{_user_settings(layout, account)}\n")
        os.fchown(descriptor, account.uid, account.gid)
    draft.replace(target)


def _user_settings(layout: Layout, account: Account) -> str:
    if account.can_enter(layout.root):
        path = str(layout.settings).replace("'", "''")
        return f"include_if_exists = '{path}'"
    # The account cannot access the file, so root reads it.
    return layout.settings.read_text() if layout.settings.exists() else ""


def _shared_buffers() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # a container's limit; "max" when there is none
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return "256MB" if memory >= 4 * 2**30 else "128MB"
