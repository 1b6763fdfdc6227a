"""A store in a local folder. Files are served by :mod:`millpond.storage.files`, at URLs that are signed here.

A file is written under a temporary name, synced to the disk, and then renamed or linked: it is there completely or not
at all. Signed URLs link it, which fails if the path is taken: what was uploaded once does not change.
Its last 512 bytes are a footer with its size, type and checksum: so these change with the same rename, and a file that
a failing disk has truncated is never served. Folders are opened one level at a time and links are not followed, so no
path leads out of the store.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from millpond.errors import (
    ArtifactStoredError,
    BadSignatureError,
    InvalidError,
    NotFoundError,
    StorageUnavailableError,
    UrlExpiredError,
)
from millpond.storage.storage import SIZE_MAX, Object, check_lifetime, check_path, check_sha256, check_size, check_type
from millpond.wire import Signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

CHUNK: Final = 1024 * 1024
"""How many bytes are read or written at once."""
FOOTER: Final = 512
_MAGIC: Final = b"PSF1"
_KEY: Final = ".key"
_DRAFTS: Final = ".drafts"
_KEY_BYTES: Final = 32
_STALE: Final = timedelta(minutes=15)
"""The age at which a draft is no longer being written: the file server waits half a minute for the next piece."""
_TRIES: Final = 5
_STEP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ASTRAY: Final = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
_NOWHERE: Final = (errno.ENOENT, *_ASTRAY)
_QUERY: Final = ("expires", "type", "size", "sha256", "filename")


class _Footer(msgspec.Struct):
    size: int
    type: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What a signed URL allows."""

    path: str
    content_type: str
    size: int | None
    """None: any size up to the store's limit."""
    sha256: str | None
    filename: str | None


class Local:
    """A store in a folder; the folder and its key are created when they are first needed."""

    def __init__(self, root: Path, url: str | None = None, *, size_max: int = SIZE_MAX) -> None:
        self.root = root
        self.size_max = size_max
        self.url = None if url is None else url.rstrip("/")
        """The URL of the file server; without one, no URLs can be signed."""
        self._key: bytes | None = None

    # Signing

    def sign_get(
        self,
        path: str,
        *,
        lifetime: timedelta,
        filename: str | None = None,
        content_type: str | None = None,  # noqa: ARG002 - stored in the file
    ) -> Signed:
        return self._sign("GET", path, lifetime, {"filename": filename}, {})

    def sign_put(
        self, path: str, *, lifetime: timedelta, content_type: str, size: int | None, sha256: str | None = None
    ) -> Signed:
        given = {
            "type": check_type(content_type),
            "size": None if size is None else str(check_size(size, self.size_max)),
            "sha256": check_sha256(sha256),
        }
        return self._sign("PUT", path, lifetime, given, {"Content-Type": content_type})

    def _sign(
        self, method: str, path: str, lifetime: timedelta, given: Mapping[str, str | None], headers: dict[str, str]
    ) -> Signed:
        if self.url is None:
            raise StorageUnavailableError(
                "No file server is configured for the storage directory.",
                hint="Set MILLPOND_FILES_URL to the URL of `millpond serve --role files`, or use a bucket.",
            )
        expires = int(time.time()) + check_lifetime(lifetime)
        query = {"expires": str(expires)} | {name: value for name, value in given.items() if value is not None}
        query["signature"] = self._signature(method, check_path(path), query)
        return Signed(
            method=method,
            url=f"{self.url}/{quote(path)}?{urlencode(query)}",
            headers=headers,
            expires_at=datetime.fromtimestamp(expires, UTC),
        )

    def _signature(self, method: str, path: str, query: Mapping[str, str]) -> str:
        text = msgspec.json.encode([method, path, *(query.get(name) for name in _QUERY)])
        digest = hmac.digest(self._secret(), text, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def check(self, method: str, path: str, query: Mapping[str, str]) -> Grant:
        """Check the signature and the expiry of a URL, and return what it allows."""
        signed = "GET" if method == "HEAD" else method
        known = {name: value for name, value in query.items() if name in _QUERY}
        given = query.get("signature", "")
        if len(known) + 1 != len(query) or not given.isascii():
            raise BadSignatureError("The URL was not signed by this server.")
        if not hmac.compare_digest(self._signature(signed, path, known), given):
            raise BadSignatureError(f"The URL is not signed for {method[:10]} with this path and these parameters.")
        if int(known["expires"]) < time.time():
            at = datetime.fromtimestamp(int(known["expires"]), UTC)
            raise UrlExpiredError(f"The URL expired at {at:%Y-%m-%dT%H:%M:%SZ}.", expired_at=at)
        return Grant(
            check_path(path),
            known.get("type", ""),
            int(known["size"]) if "size" in known else None,
            known.get("sha256"),
            known.get("filename"),
        )

    def _secret(self) -> bytes:
        if self._key is None:
            with _translated():
                self._key = self._read_key() or self._make_key()
        return self._key

    def _read_key(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.root / _KEY).read_bytes()
        return None

    def _make_key(self) -> bytes:
        """Create the key. If several processes do so at once, all use the first one."""
        draft = self._drafts() / secrets.token_hex(16)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, self.root / _KEY)
        finally:
            draft.unlink()
        return (self.root / _KEY).read_bytes()

    # Files

    async def head(self, path: str) -> Object | None:
        return await in_thread(self._head, check_path(path))

    def _head(self, path: str) -> Object | None:
        try:
            with self.open(path) as file:
                return file.about
        except NotFoundError:
            return None

    async def read(self, path: str) -> bytes:
        return b"".join([piece async for piece in self.stream(path)])

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        file = await in_thread(self.open, check_path(path))
        try:
            for start in range(0, file.about.size, CHUNK):
                yield await in_thread(file.read, start, min(CHUNK, file.about.size - start))
        finally:
            file.close()

    async def write(
        self, path: str, data: bytes | AsyncIterator[bytes], *, content_type: str = "application/octet-stream"
    ) -> Object:
        check_path(path)
        check_type(content_type)
        draft = await in_thread(self.draft)
        try:
            async for chunk in _chunks(data):
                await in_thread(draft.write, chunk)
            return await in_thread(draft.commit, path, content_type, replace=True)
        finally:
            await in_thread(draft.close)

    async def delete(self, path: str) -> None:
        await in_thread(self._delete, check_path(path))

    def _delete(self, path: str) -> None:
        *parts, name = path.split("/")
        with _translated():
            try:
                with self._folder(parts) as folder:
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
            except OSError as error:
                if error.errno not in _NOWHERE:
                    raise
            else:
                self._prune(parts)

    def _prune(self, parts: list[str]) -> None:
        """Remove the folders that are empty now; the next write creates them again."""
        while parts:
            name = parts.pop()
            try:
                with self._folder(parts) as folder:
                    os.rmdir(name, dir_fd=folder)
            except OSError:
                return

    async def list(self, prefix: str = "", *, after: str = "", limit: int = 1_000) -> list[Object]:
        if prefix:
            check_path(prefix.removesuffix("/"))
        return await in_thread(self._list, prefix, after, limit)

    def _list(self, prefix: str, after: str, limit: int) -> list[Object]:
        found: list[Object] = []
        with _translated():
            for each in self._walk(prefix, after):
                found.append(each)
                if len(found) == limit:
                    break
        return found

    def _walk(self, place: str, after: str) -> Iterator[Object]:
        """List the files in the order of a bucket: by their whole paths, not by folders."""
        entries: list[tuple[str, os.DirEntry[str]]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / place) as below:
            for entry in below:
                if not entry.name.startswith("."):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    entries.append((f"{place}{entry.name}{'/' if is_folder else ''}", entry))
        for path, entry in sorted(entries, key=lambda pair: pair[0]):
            if path.endswith("/"):
                if path > after or after.startswith(path):
                    yield from self._walk(path, after)
            elif path > after and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    yield Object(path, max(about.st_size - FOOTER, 0), _time(about.st_mtime))

    async def refuses_replacement(self) -> bool:
        return True

    async def tidy(self) -> int:
        return await in_thread(self._tidy)

    def _tidy(self) -> int:
        removed = 0
        with _translated(), contextlib.suppress(FileNotFoundError), os.scandir(self.root / _DRAFTS) as drafts:
            for draft in drafts:
                with contextlib.suppress(FileNotFoundError):
                    if draft.stat(follow_symlinks=False).st_mtime < time.time() - _STALE.total_seconds():
                        Path(draft.path).unlink()
                        removed += 1
        return removed

    async def close(self) -> None: ...

    # The disk

    def open(self, path: str) -> Opened:
        """Open a file for reading; raises NotFoundError if it does not exist or is incomplete."""
        *parts, name = path.split("/")
        with _translated():
            try:
                with self._folder(parts) as folder:
                    return Opened.of(path, os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
            except OSError as error:
                if error.errno in _NOWHERE:
                    raise _absent() from None
                raise

    def check_vacant(self, path: str) -> None:
        """Raise an error if a file is stored at this path."""
        if self._head(path) is not None:
            raise ArtifactStoredError(field="path")

    def draft(self) -> Draft:
        """Create a temporary file, which becomes a file when it is committed."""
        with _translated():
            return Draft(self, self._drafts() / secrets.token_hex(16))

    def _drafts(self) -> Path:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        drafts = self.root / _DRAFTS
        drafts.mkdir(mode=0o700, exist_ok=True)
        return drafts

    def place(self, draft: Path, path: str, *, replace: bool) -> None:
        """Give a draft its path; repeated if the folder is removed at the same time.

        Without ``replace`` the draft is linked and not renamed, because a link never replaces a file: of several
        writers of one path, one succeeds.
        """
        *parts, name = path.split("/")
        for left in reversed(range(_TRIES)):
            try:
                with self._folder(parts, make=True) as folder:
                    if replace:
                        os.rename(draft, name, dst_dir_fd=folder)
                    else:
                        _link(draft, name, folder)
                    os.fsync(folder)
                return
            except FileNotFoundError:
                if not left or not draft.exists():
                    raise
            except OSError as error:
                if error.errno in _ASTRAY:
                    raise InvalidError(
                        "The path is a directory, or leads through a file or a symbolic link.", field="path"
                    ) from error
                raise

    @contextlib.contextmanager
    def _folder(self, parts: list[str], *, make: bool = False) -> Generator[int]:
        """The descriptor of a folder, opened from the root one level at a time."""
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                below = _step(folder, part, make=make)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def _step(folder: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _STEP, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=folder)
        os.fsync(folder)
    return os.open(part, _STEP, dir_fd=folder)


def _link(draft: Path, name: str, folder: int) -> None:
    try:
        os.link(draft, name, dst_dir_fd=folder)
    except FileExistsError:
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise ArtifactStoredError(field="path") from None
        raise


class Opened:
    """A file that is open for reading. It does not change for the reader when another file replaces it."""

    def __init__(self, descriptor: int, about: Object) -> None:
        self.about = about
        self._descriptor = descriptor

    @classmethod
    def of(cls, path: str, descriptor: int) -> Opened:
        try:
            return cls(descriptor, _about(path, descriptor))
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, start)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _about(path: str, descriptor: int) -> Object:
    found = os.fstat(descriptor)
    size = found.st_size - FOOTER
    text = os.pread(descriptor, FOOTER, size) if stat.S_ISREG(found.st_mode) and size >= 0 else b""
    if not text.startswith(_MAGIC):
        raise _absent()
    try:
        footer = msgspec.json.decode(text[len(_MAGIC) :], type=_Footer)
    except msgspec.DecodeError:
        raise _absent() from None
    if footer.size != size:
        raise _absent()
    return Object(path, size, _time(found.st_mtime), footer.type, footer.sha256)


class Draft:
    """A file that is being written: it is not visible before :meth:`commit`, and removed without it."""

    def __init__(self, store: Local, path: Path) -> None:
        self._store = store
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> None:
        with _translated():
            self._put(piece)
        self._hash.update(piece)
        self.size += len(piece)

    def _put(self, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def commit(self, path: str, content_type: str, *, replace: bool) -> Object:
        footer = msgspec.json.encode(_Footer(self.size, content_type, self.sha256))
        with _translated():
            self._put((_MAGIC + footer).ljust(FOOTER))
            os.fsync(self._file.fileno())
            self._store.place(self._path, path, replace=replace)
        return Object(path, self.size, datetime.now(UTC), content_type, self.sha256)

    def close(self) -> None:
        """Remove the temporary name. To be called after a commit too."""
        self._file.close()
        with _translated():
            self._path.unlink(missing_ok=True)


# Helpers


async def in_thread(call: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Run a call in a thread. A cancellation waits for it, so that the file is not closed while the thread writes."""
    working = asyncio.ensure_future(asyncio.to_thread(call, *arguments, **options))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def _chunks(data: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data in pieces large enough for a write to the disk."""
    if isinstance(data, bytes):
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]
        return
    kept = bytearray()
    async for piece in data:
        kept += piece
        if len(kept) >= CHUNK:
            yield bytes(kept)
            kept.clear()
    if kept:
        yield bytes(kept)


@contextlib.contextmanager
def _translated() -> Any:
    """Translate the errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailableError(f"The storage directory cannot be used: {error.strerror}.") from error


def _absent() -> NotFoundError:
    return NotFoundError("The file does not exist.", field="path")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
