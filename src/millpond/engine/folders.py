"""Folders: one for each piece of work on a worker, removed when that is over.

A folder is locked as long as its worker lives. Those that a killed worker has left behind are locked by nobody, and are
removed before the next worker makes its first.
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
"""Seconds in which a folder may not be locked yet."""


class Folders:
    """Those of one kind of work, by what their names begin with."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._is_swept = False

    @asynccontextmanager
    async def new(self) -> AsyncGenerator[Path]:
        """A new one. Much may be left in it: it is removed beside the loop, whatever cuts the job off."""
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
        """Remove what dead workers of this user have left on this machine."""
        for left in Path(tempfile.gettempdir()).glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):  # another's, in use, or gone meanwhile
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
