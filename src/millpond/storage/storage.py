"""The interface of storage, the rules for paths, and the choice of a store by the settings."""

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
"""The largest file, in bytes: the limit of S3 for one request."""
PATH_MAX: Final = 1_000
"""The longest path, in bytes; S3 accepts 1,024, which includes the prefix."""
PART_MAX: Final = 240
"""The longest segment of a path, in bytes; file systems accept 255."""
LIFETIME_MAX: Final = 7 * 24 * 3600
"""The longest lifetime of a signed URL, in seconds: the limit of S3."""
TYPE_MAX: Final = 200
SCHEME: Final = "s3://"

_BAD: Final = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")
_UNPLAIN: Final = re.compile(r'[^ -~]|["\\%]')
_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w.+-]+=(?:[\w.+-]+|\"[\w .+-]*\"))*", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHOWN: Final = re.compile(r"(?:image/(?!svg)|video/|audio/|text/plain\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Object:
    """A file's metadata in a store. What a listing does not return is None."""

    path: str
    size: int
    changed_at: datetime
    content_type: str | None = None
    sha256: str | None = None


class Storage(Protocol):
    """A store of files by path. All paths are checked as :func:`check_path` does."""

    size_max: int
    """The largest upload, in bytes."""

    def sign_get(
        self, path: str, *, lifetime: timedelta, filename: str | None = None, content_type: str | None = None
    ) -> Signed:
        """Sign a request that reads a file. With ``filename``, browsers save it under this name."""
        ...

    def sign_put(
        self, path: str, *, lifetime: timedelta, content_type: str, size: int | None, sha256: str | None = None
    ) -> Signed:
        """Sign a request that writes a file with exactly this type and size, and this checksum if one is given.

        Without a size, which a worker does not know in advance, the file may have any size up to ``size_max``. The
        request is refused with HTTP 412 if a file is stored at the path, so that no URL can replace a stored file.

        The client must send ``headers`` unchanged, and the length of the body as Content-Length.
        """
        ...

    async def head(self, path: str) -> Object | None:
        """The metadata of a file; None if it does not exist."""
        ...

    async def read(self, path: str) -> bytes:
        """Read a whole file; raises NotFoundError if it does not exist."""
        ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """Read a file in pieces."""
        ...

    async def write(
        self, path: str, data: bytes | AsyncIterator[bytes], *, content_type: str = "application/octet-stream"
    ) -> Object:
        """Write a file atomically; replaces a file at this path."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        ...

    async def list(self, prefix: str = "", *, after: str = "", limit: int = 1_000) -> list[Object]:
        """The files below a prefix, which ends in a slash, ordered by path; only those after the path ``after``."""
        ...

    async def refuses_replacement(self) -> bool:
        """Whether the store keeps its promise that no upload replaces a file. A bucket is tried."""
        ...

    async def tidy(self) -> int:
        """Remove the remains of interrupted uploads, and return their number."""
        ...

    async def close(self) -> None: ...


def open_storage(settings: Settings, url: str | None = None) -> Storage:
    """The store that the settings name. ``url`` is the URL of a file server that is started with it."""
    if is_bucket(settings):
        from millpond.storage.s3 import S3  # noqa: PLC0415 - its library is only needed for buckets

        return S3.from_url(settings.storage, size_max=settings.upload_max)
    from millpond.storage.local import Local  # noqa: PLC0415 - as above

    return Local(local_root(settings), settings.files_url or url, size_max=settings.upload_max)


def is_bucket(settings: Settings) -> bool:
    return settings.storage.startswith(SCHEME)


def local_root(settings: Settings) -> Path:
    """The folder of a local store."""
    if "://" in settings.storage:
        raise SettingsError(
            f"{settings.storage[:80]!r} is not a valid storage.", field="storage", hint="Use a directory or s3://…."
        )
    return Path(settings.storage).expanduser() if settings.storage else settings.data_dir.expanduser() / "files"


# Checks of input


def check_path(given: str, *, field: str = "path") -> str:
    """Check that every store accepts a path, and that it does not lead out. Names with a leading dot are reserved."""
    if not given or len(given) > PATH_MAX or _BAD.search(given) or len(given.encode()) > PATH_MAX:
        raise InvalidError(
            f"The path must have 1 to {PATH_MAX:,} bytes, without control characters and backslashes.", field=field
        )
    for part in given.split("/"):
        if not part or part.startswith(".") or len(part.encode()) > PART_MAX:
            raise InvalidError(
                f"The path segment {part[:20]!r} is not allowed.",
                field=field,
                hint=f"Use a relative path with segments of 1 to {PART_MAX} bytes that do not begin with a dot.",
            )
    return given


def check_type(given: str, *, field: str = "content_type") -> str:
    """Check that a media type is valid in a header."""
    if len(given) > TYPE_MAX or not _TYPE.fullmatch(given):
        raise InvalidError(
            f"The value is not a media type of at most {TYPE_MAX} characters.",
            field=field,
            hint="Use a media type such as image/png.",
        )
    return given


def check_sha256(given: str | None, *, field: str = "sha256") -> str | None:
    if given is not None and not _SHA256.fullmatch(given):
        raise InvalidError("The hash must have 64 lower-case hexadecimal digits.", field=field)
    return given


def check_size(given: int, limit: int) -> int:
    if given < 0:
        raise InvalidError("The size must not be negative.", field="size")
    if given > limit:
        raise TooLargeError(f"The file has {given:,} bytes; the limit is {limit:,}.", field="size", limit=limit)
    return given


def check_lifetime(lifetime: timedelta) -> int:
    """Check the lifetime of a signed URL, and return it in seconds."""
    seconds = int(lifetime.total_seconds())
    if not 1 <= seconds <= LIFETIME_MAX:
        raise InvalidError(f"The lifetime must be from 1 to {LIFETIME_MAX:,} seconds.", field="lifetime")
    return seconds


# Headers of responses


def disposition(filename: str, content_type: str | None) -> str:
    """The Content-Disposition of a file: inline if its type cannot contain scripts, attachment otherwise."""
    verb = "inline" if content_type and _SHOWN.match(content_type) else "attachment"
    plain = _UNPLAIN.sub("_", filename)
    return f"{verb}; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
