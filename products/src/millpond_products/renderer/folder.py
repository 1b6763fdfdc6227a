"""The folder of a renderer: outputs and uploads, until they expire."""

from __future__ import annotations

import contextlib
import fcntl
import mimetypes
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

_PREFIX: Final = "millpond-renderer-"
_LOCK: Final = ".lock"
_NEW_SECONDS: Final = 60


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can be downloaded with its secret."""

    secret: str
    name: str
    content_type: str
    path: Path
    size: int
    kept_at: float


class Folder:
    """A folder in the system's temporary folder, which its process removes at the end.

    A process that was killed leaves it behind; the next one removes it.
    """

    def __init__(self) -> None:
        self._sweep()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = _locked(self.path)
        self._files: dict[str, PublishedFile] = {}

    @property
    def size(self) -> int:
        return sum(file.size for file in self._files.values())

    def new(self) -> Path:
        """A path for a new file, without its extension."""
        return self.path / secrets.token_urlsafe(24)

    def keep(self, path: Path, name: str, content_type: str) -> PublishedFile:
        """Make a file that was written here available for download."""
        file = PublishedFile(
            secret=secrets.token_urlsafe(24),
            name=name,
            content_type=content_type,
            path=path,
            size=path.stat().st_size,
            kept_at=time.monotonic(),
        )
        self._files[file.secret] = file
        return file

    def find(self, secret: str) -> PublishedFile | None:
        return self._files.get(secret)

    def remove(self, file: PublishedFile) -> None:
        self._files.pop(file.secret, None)
        file.path.unlink(missing_ok=True)

    def remove_old(self, seconds: float) -> None:
        """Remove the files that are older."""
        horizon = time.monotonic() - seconds
        for file in [file for file in self._files.values() if file.kept_at <= horizon]:
            self.remove(file)

    def remove_all(self, stem: Path, *, but: PublishedFile | None = None) -> None:
        """Remove all files whose names start with ``stem``, except ``but``."""
        for path in self.path.glob(f"{stem.name}*"):
            if but is None or path != but.path:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def _sweep(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                about = path.stat()
                is_new = time.time() - about.st_mtime < _NEW_SECONDS  # its process may be about to lock it
                lock = None if is_new or about.st_uid != os.getuid() else _locked(path)
                if lock is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)


def _locked(path: Path) -> int | None:
    """Lock a folder. Return None if another process has locked it."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def ending(content_type: str) -> str:
    return mimetypes.guess_extension(content_type, strict=False) or ""
