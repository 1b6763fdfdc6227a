"""Folders: a temporary directory for each piece of work on a worker, removed when the work is over.

A worker holds a lock on each of its folders as long as it lives. The folders of a killed worker are not locked any
more: the next worker removes them before it creates its first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

YOUNG: Final = 60.0
"""A folder younger than this many seconds is not swept: its worker may not have locked it yet."""


class Folders:
    """The folders of one kind of work: their names share a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._is_swept = False

    @asynccontextmanager
    async def new(self) -> AsyncGenerator[Path]:
        """Create a folder. It may contain many files, so it is removed in a thread, even if the job is canceled."""
        if not self._is_swept:
            self._is_swept = True
            await asyncio.to_thread(self.sweep)
        made = tempfile.TemporaryDirectory(prefix=self._prefix, ignore_cleanup_errors=True)
        lock = os.open(made.name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(made.name)
        finally:
            await asyncio.shield(asyncio.to_thread(_remove, made, lock))

    def sweep(self) -> None:
        """Remove the folders that dead workers of this user left on this machine."""
        for left in Path(tempfile.gettempdir()).glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):  # it belongs to another user, is in use, or was removed meanwhile
                _sweep(left)


def _remove(made: tempfile.TemporaryDirectory[str], lock: int) -> None:
    made.cleanup()
    os.close(lock)


def _sweep(left: Path) -> None:
    lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(lock)
        if found.st_uid == os.geteuid() and time.time() - found.st_ctime > YOUNG:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)
