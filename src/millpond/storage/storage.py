"""The interface of storage, what may be a path, and how the settings choose a store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from millpond.errors import InvalidError, SettingsError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime, timedelta

    from millpond.settings import Settings
    from millpond.wire import Signed

SIZE_MAX: Final = 5 * 1024**3
"""Bytes of a file; S3 takes no more at once."""
PATH_MAX: Final = 1_000
"""Bytes of a path; S3 takes 1,024, and a prefix stands before ours."""
PART_MAX: Final = 240
"""Bytes of what stands between two slashes; file systems take 255."""
LIFETIME_MAX: Final = 7 * 24 * 3600
"""Seconds; S3 signs nothing for longer."""
TYPE_MAX: Final = 200
SCHEME: Final = "s3://"

_BAD: Final = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")
_UNPLAIN: Final = re.compile(r'[^ -~]|["\\%]')
_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w.+-]+=(?:[\w.+-]+|\"[\w .+-]*\"))*", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHOWN: Final = re.compile(r"(?:image/(?!svg)|video/|audio/|text/plain\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Object:
    """What a store knows of a file. Where it does not tell a thing in a list, that is none."""

    path: str
    size: int
    changed_at: datetime
    content_type: str | None = None
    sha256: str | None = None


class Storage(Protocol):
    """A store of files by path. All paths are checked as :func:`check_path` does."""

    size_max: int
    """How many bytes a file that is uploaded may have."""

    @property
    def is_binding(self) -> bool:
        """Whether what is signed holds an upload to its type, size and checksum."""
        ...

    def sign_get(
        self, path: str, *, lifetime: timedelta, filename: str | None = None, content_type: str | None = None
    ) -> Signed:
        """A request that reads a file. With a name, browsers save it under that."""
        ...

    def sign_put(
        self, path: str, *, lifetime: timedelta, content_type: str, size: int | None, sha256: str | None = None
    ) -> Signed:
        """A request that writes a file of this type and size, and with this checksum if one is given; nothing else.

        Without a size, which a worker does not know before it has begun, it may have any up to ``size_max``.

        Its sender sends ``headers`` as they are, and the length of the body as Content-Length.
        """
        ...

    async def head(self, path: str) -> Object | None:
        """What is known of a file; none where there is none."""
        ...

    async def read(self, path: str) -> bytes:
        """A whole file; raises NotFoundError where there is none."""
        ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """A file in pieces."""
        ...

    async def write(
        self, path: str, data: bytes | AsyncIterator[bytes], *, content_type: str = "application/octet-stream"
    ) -> Object:
        """Put a file in place, at once and whole, instead of whatever was there."""
        ...

    async def delete(self, path: str) -> None:
        """Remove a file; none is as good."""
        ...

    async def list(self, prefix: str = "", *, after: str = "", limit: int = 1_000) -> list[Object]:
        """The files below a prefix, which ends in a slash, in the order of their paths after this one."""
        ...

    async def tidy(self) -> int:
        """Remove what uploads that broke off have left; tells how much that was."""
        ...

    async def close(self) -> None: ...


def open_storage(settings: Settings, url: str | None = None) -> Storage:
    """The store that the settings name. ``url`` is that of a file server that is started with it."""
    if is_bucket(settings):
        from millpond.storage.s3 import S3  # noqa: PLC0415 - its library is for those who have a bucket

        return S3.from_url(settings.storage, size_max=settings.upload_max)
    from millpond.storage.local import Local  # noqa: PLC0415 - as above

    return Local(local_root(settings), settings.files_url or url, size_max=settings.upload_max)


def is_bucket(settings: Settings) -> bool:
    return settings.storage.startswith(SCHEME)


def local_root(settings: Settings) -> Path:
    """The folder in which files are, where they are in one."""
    if "://" in settings.storage:
        raise SettingsError(
            f"{settings.storage[:80]!r} is no storage.", field="storage", hint="Name a folder or s3://…"
        )
    return Path(settings.storage).expanduser() if settings.storage else settings.data_dir.expanduser() / "files"


# What may come in


def check_path(given: str, *, field: str = "path") -> str:
    """A path that every store takes and that cannot lead out of it; what begins with a dot is the store's own."""
    if not given or len(given) > PATH_MAX or _BAD.search(given) or len(given.encode()) > PATH_MAX:
        raise InvalidError(
            f"It must be 1 to {PATH_MAX:,} bytes of text, without control characters and backslashes.", field=field
        )
    for part in given.split("/"):
        if not part or part.startswith(".") or len(part.encode()) > PART_MAX:
            raise InvalidError(
                f"{part[:20]!r} cannot stand between its slashes.",
                field=field,
                hint=f"A path is relative, and has parts of 1 to {PART_MAX} bytes that do not begin with a dot.",
            )
    return given


def check_type(given: str, *, field: str = "content_type") -> str:
    """A media type as it may stand in a header."""
    if len(given) > TYPE_MAX or not _TYPE.fullmatch(given):
        raise InvalidError(f"It is no media type of up to {TYPE_MAX} characters.", field=field, hint="E.g. image/png.")
    return given


def check_sha256(given: str | None, *, field: str = "sha256") -> str | None:
    if given is not None and not _SHA256.fullmatch(given):
        raise InvalidError("It must be 64 hexadecimal digits in lower case.", field=field)
    return given


def check_size(given: int, most: int) -> int:
    if given < 0:
        raise InvalidError("It must not be less than nothing.", field="size")
    if given > most:
        raise TooLargeError(f"It is {given:,} bytes; a file may have {most:,}.", field="size", limit=most)
    return given


def check_lifetime(lifetime: timedelta) -> int:
    """Seconds for which something is signed."""
    seconds = int(lifetime.total_seconds())
    if not 1 <= seconds <= LIFETIME_MAX:
        raise InvalidError(f"It must be from 1 to {LIFETIME_MAX:,} seconds.", field="lifetime")
    return seconds


# What goes out


def disposition(filename: str, content_type: str | None) -> str:
    """The Content-Disposition of a file: shown where it cannot hold script, saved otherwise."""
    verb = "inline" if content_type and _SHOWN.match(content_type) else "attachment"
    plain = _UNPLAIN.sub("_", filename)
    return f"{verb}; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
