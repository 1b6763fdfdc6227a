"""The data directory: its layout, and private folders."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import EmbeddedPostgresError
from millpond.store.embedded.log import Log
from millpond.store.embedded.wire import SOCKET

if TYPE_CHECKING:
    from millpond.store.embedded.account import Account

_OF_UP = ("client.header", "keys.json", "up.json", "up.lock")  # what `millpond up` keeps beside the server
_SOCKET_BYTES_MAX = 103  # macOS allows 103, Linux 107


class Layout:
    """The paths in a data directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "postgres"
        self.draft = root / "postgres.new"
        self.lock = root / "postgres.lock"
        self.log = Log(root / "postgres.log")
        self.opener = root / "postgres.opener"
        self.run = root / "run"
        self.settings = root / "postgres.conf"

    def foreign_files(self) -> set[Path]:
        """The files that a data directory must not contain before it is first opened."""
        own = {self.data, self.draft, self.lock, self.log.path, self.opener, self.run, self.settings}
        own |= {self.root / name for name in _OF_UP}
        found = {path for path in self.root.iterdir() if not path.name.startswith(".")}
        return found - own - {self.root / "lost+found"}


def prepare(data_dir: Path) -> Layout:
    layout = Layout(data_dir.expanduser().resolve())
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_known = layout.lock.exists() or (layout.data / "PG_VERSION").exists()
    if not is_known and layout.foreign_files():
        raise foreign(layout.root)
    return layout


def foreign(folder: Path) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"{folder} is not empty and is not a Millpond data directory.",
        hint="Choose an empty or a new directory.",
    )


def ensure_socket_dir(layout: Layout, account: Account) -> Path:
    """The socket's folder: run/, or a short one that run/ links to if its own path does not fit."""
    if _fits(layout.run):
        if layout.run.is_symlink() or not is_private(layout.run, account.uid):
            remove(layout.run)
        return make_private(layout.run, account)
    digest = hashlib.sha256(os.fsencode(layout.root)).hexdigest()[:16]
    bases = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - the folder is checked to be private
    folders = (Path(base, f"millpond-{digest}") for base in bases)
    short = make_private(next(filter(_fits, folders)), account)
    # Later openers follow the link, because their temporary folder may be another one.
    remove(layout.run)
    layout.run.symlink_to(short)
    return short


def _fits(folder: Path) -> bool:
    """Whether the server, libpq and asyncpg accept the folder: they split lists at commas."""
    path = os.fsencode(folder / SOCKET)
    return len(path) <= _SOCKET_BYTES_MAX and not any(sign in path for sign in b',"')


def make_private(folder: Path, account: Account) -> Path:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
    if not is_private(folder, account.uid):
        raise EmbeddedPostgresError(
            f"{folder} belongs to another user or is accessible to others.",
            hint="Remove it, or choose a data directory with a shorter path.",
        )
    return folder


def is_private(folder: Path, uid: int) -> bool:
    with suppress(FileNotFoundError):
        found = folder.lstat()
        is_closed = stat.S_IMODE(found.st_mode) & 0o077 == 0
        return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and is_closed
    return False


def remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
