"""Locks that are released when their holder ends, and descriptors that a fork must not keep."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Descriptors that a fork of this process must not keep: with a copy of the lifeline, the watcher would not
# notice the end of this process; a copy of the lock would outlive the server.
_unshared: set[int] = set()


@contextmanager
def try_lock(path: Path) -> Generator[int | None]:
    """The lock's descriptor, or None while another opener or a server holds it."""
    with opened(path) as descriptor:
        yield descriptor if _take(descriptor, fcntl.LOCK_EX) else None


def hold(path: Path) -> int:
    """Show that this process runs, by a lock that is released when it ends.

    The file is created anew each time, because an opener whose server has ended may still hold the old one.
    """
    path.unlink(missing_ok=True)
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return not _take(file.fileno(), fcntl.LOCK_SH)
    return False


def _take(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def opened(path: Path) -> Generator[int]:
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        close(descriptor)


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    unshare(descriptor)
    if os.geteuid() == 0:  # what root creates, the directory's owner can use later
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def unshare(descriptor: int) -> None:
    _unshared.add(descriptor)


def close(descriptor: int) -> None:
    _unshared.discard(descriptor)
    os.close(descriptor)


def _close_unshared() -> None:
    for descriptor in list(_unshared):
        close(descriptor)


os.register_at_fork(after_in_child=_close_unshared)
