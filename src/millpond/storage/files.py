"""The file server of a local store: receives and serves files at signed URLs, as a bucket does.

It is a process of its own, so that files do not pass through the API. It uses neither keys nor the database: a URL
contains everything. Its files may come from untrusted users and are shown on its origin, so its headers keep browsers
from running scripts in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from millpond import logs, wire
from millpond.errors import (
    ArtifactMismatchError,
    BadSignatureError,
    MalformedError,
    MethodNotAllowedError,
    MillpondError,
    RangeError,
    StorageUnavailableError,
    TooLargeError,
    TooSlowError,
)
from millpond.storage.local import CHUNK, in_thread
from millpond.storage.storage import disposition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping

    from millpond.storage.local import Grant, Local, Opened
    from millpond.storage.storage import Object

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Headers = list[tuple[bytes, bytes]]

IDLE_SECONDS: Final = 30.0
"""The longest pause between two pieces of a file, in either direction."""
PACE: Final = 64 * 1024
"""The lowest average speed of an upload, in bytes per second."""
GRACE_SECONDS: Final = 60.0
DISCARD_MAX: Final = 1024 * 1024
"""How many bytes of a rejected upload are read and discarded, so that the client can read the error."""
DISCARD_SECONDS: Final = 5.0
_PIECE: Final = 256 * 1024
_METHODS: Final = "GET, HEAD, OPTIONS, PUT"
_RANGE: Final = re.compile(r"bytes=(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18}))")
_DOCS: Final = "/docs/problems/"

_ANYWHERE: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag"),
    (b"cross-origin-resource-policy", b"cross-origin"),
]
_PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-methods", _METHODS.encode()),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match, If-Range, Range"),
    (b"access-control-max-age", b"86400"),
]
_HARMLESS: Final[Headers] = [
    (
        b"content-security-policy",  # a browser shows a video in a page of its own, which must be able to load it
        b"default-src 'none'; img-src 'self'; media-src 'self'; frame-ancestors 'none'; sandbox",
    ),
    (b"referrer-policy", b"no-referrer"),  # the URL is a secret
    (b"x-content-type-options", b"nosniff"),
]


class PeerDisconnectedError(Exception):
    """The client has disconnected."""


class FileServer:
    """The files of a local store over HTTP."""

    def __init__(self, store: Local) -> None:
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = FileRequest(scope, receive, send)
        try:
            await self._serve(request)
        except PeerDisconnectedError:
            pass
        except Exception as error:  # noqa: BLE001 - every error is answered
            if not isinstance(error, MillpondError):
                logs.emit("request.failed", request_id=None, path=scope["path"], error=repr(error))
            with contextlib.suppress(PeerDisconnectedError):
                await request.refuse(error if isinstance(error, MillpondError) else StorageUnavailableError())

    async def _serve(self, request: FileRequest) -> None:
        if request.method == "OPTIONS":
            await request.reply(204, headers=[*_PREFLIGHT, (b"allow", _METHODS.encode())])
        elif request.path == "healthz":
            await request.reply(200, b"ok", [(b"content-type", b"text/plain")])
        elif request.method == "PUT":
            await self._take(request, self._store.check("PUT", request.path, request.query()))
        elif request.method in ("GET", "HEAD"):
            await self._give(request, self._store.check(request.method, request.path, request.query()))
        else:
            raise MethodNotAllowedError(f"The method {request.method[:20]} is not allowed.", allow=_METHODS)

    # In

    async def _take(self, request: FileRequest, grant: Grant) -> None:
        limit = self._store.size_max if grant.size is None else grant.size
        _check_announced(request, grant, limit)
        await in_thread(self._store.check_vacant, grant.path)  # before the body: the client may send gigabytes
        draft = await in_thread(self._store.draft)
        try:
            async with _within(GRACE_SECONDS + limit / PACE):
                async for piece in request.body(limit):
                    await in_thread(draft.write, piece)
            if grant.size is not None:
                _compare("size", grant.size, draft.size)
            if grant.sha256 is not None:
                _compare("sha256", grant.sha256, draft.sha256)
            about = await in_thread(draft.commit, grant.path, grant.content_type, replace=False)
        finally:
            await in_thread(draft.close)
        await request.reply(200, headers=[(b"etag", _tag(about))])

    # Out

    async def _give(self, request: FileRequest, grant: Grant) -> None:
        file = await in_thread(self._store.open, grant.path)
        try:
            headers = _describe(file.about, grant)
            if _is_known(request, file.about):
                await request.reply(304, headers=headers)
                return
            part = _part(request, file.about)
            if part is None:
                await self._send(request, file, 200, headers, (0, file.about.size))
                return
            headers.append((b"content-range", b"bytes %d-%d/%d" % (part[0], part[1] - 1, file.about.size)))
            await self._send(request, file, 206, headers, part)
        finally:
            file.close()

    async def _send(
        self, request: FileRequest, file: Opened, status: int, headers: Headers, part: tuple[int, int]
    ) -> None:
        start, end = part
        headers.append((b"content-length", b"%d" % (end - start)))
        await request.begin(status, headers)
        if request.method != "HEAD":
            for place in range(start, end, _PIECE):
                piece = await in_thread(file.read, place, min(_PIECE, end - place))
                await request.more(piece)
        await request.end()


def _check_announced(request: FileRequest, grant: Grant, limit: int) -> None:
    """Reject an upload whose headers do not fit the URL, before its body is read."""
    found = request.header(b"content-type") or ""
    if found.replace(" ", "").lower() != grant.content_type.replace(" ", "").lower():
        raise ArtifactMismatchError(
            f"The URL is signed for a file of type {grant.content_type}, not {found[:100] or 'none'}.",
            field="Content-Type",
            expected=grant.content_type,
            found=found[:100],
        )
    if request.header(b"content-encoding") not in (None, "identity"):
        raise ArtifactMismatchError("The file must be sent without content encoding.", field="Content-Encoding")
    length = request.header(b"content-length")
    if length is not None and length.isascii() and length.isdigit():
        if int(length) > limit:
            raise _too_large(limit)
        if grant.size is not None:
            _compare("size", grant.size, int(length))


def _compare(what: str, expected: Any, found: Any) -> None:
    if expected != found:
        raise ArtifactMismatchError(
            f"The {what} of the file is {found}, but the URL is signed for {expected}.",
            field=what,
            expected=expected,
            found=found,
        )


def _describe(about: Object, grant: Grant) -> Headers:
    """The headers of every response with a file."""
    kind = about.content_type or "application/octet-stream"
    headers: Headers = [
        (b"content-type", kind.encode("latin-1")),
        (b"etag", _tag(about)),
        (b"last-modified", f"{about.changed_at:%a, %d %b %Y %H:%M:%S GMT}".encode()),
        (b"accept-ranges", b"bytes"),
        (b"cache-control", b"private, no-cache"),
    ]
    name = grant.filename or about.path.rpartition("/")[2]
    headers.append((b"content-disposition", disposition(name, kind).encode("latin-1")))
    return headers


def _tag(about: Object) -> bytes:
    return f'"{about.sha256}"'.encode()


def _is_known(request: FileRequest, about: Object) -> bool:
    known = request.header(b"if-none-match")
    tags = [] if known is None else [tag.strip().removeprefix("W/") for tag in known.split(",")]
    return "*" in tags or _tag(about).decode() in tags


def _part(request: FileRequest, about: Object) -> tuple[int, int] | None:
    """The start and end of the requested range; None for the whole file.

    The whole file is also sent if several ranges are requested, and if the range is of an earlier file at this path.
    """
    found = _RANGE.fullmatch((request.header(b"range") or "").strip())
    condition = request.header(b"if-range")
    if found is None or (condition is not None and condition.strip() != _tag(about).decode()):
        return None
    if found["suffix"]:
        start, end = max(about.size - int(found["suffix"]), 0), about.size
    else:
        start = int(found["first"])
        end = min(int(found["last"]) + 1, about.size) if found["last"] else about.size
    if start >= end:
        raise RangeError(f"The file has {about.size:,} bytes.", field="Range", size=about.size)
    return start, end


class FileRequest:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self._scope = scope
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._send = send
        self._has_begun = False
        self._is_read = self.method != "PUT"

    @property
    def path(self) -> str:
        raw: bytes = self._scope.get("raw_path") or self._scope["path"].encode()
        try:
            return unquote(raw.decode("ascii"), errors="strict").removeprefix("/")
        except UnicodeError:
            raise MalformedError("The path cannot be decoded.", hint="Percent-encode the path as UTF-8.") from None

    def query(self) -> dict[str, str]:
        try:
            text = self._scope["query_string"].decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=20)
        except ValueError:
            raise BadSignatureError("The URL has no valid signature.") from None
        found = dict(pairs)
        if len(found) < len(pairs):
            raise BadSignatureError("A parameter occurs more than once in the URL.")
        return found

    def header(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, limit: int) -> AsyncGenerator[bytes]:
        """The body, in pieces large enough for a write to the disk; raises an error if it is larger than the limit."""
        kept = bytearray()
        size = 0
        while not self._is_read:
            piece = await self._next()
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            kept += piece
            if len(kept) >= CHUNK:
                yield bytes(kept)
                kept.clear()
        if kept:
            yield bytes(kept)

    async def _next(self) -> bytes:
        async with _within(IDLE_SECONDS):
            message = await self._receive()
        if message["type"] != "http.request":
            raise PeerDisconnectedError
        self._is_read = not message.get("more_body")
        return message.get("body", b"")

    async def reply(self, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
        length: Headers = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
        await self.begin(status, [*(headers or []), *length])
        if body:
            await self.more(body)
        await self.end()

    async def begin(self, status: int, headers: Headers) -> None:
        self._has_begun = True
        await self._put({"type": "http.response.start", "status": status, "headers": headers + _ANYWHERE + _HARMLESS})

    async def more(self, piece: bytes) -> None:
        await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self._put({"type": "http.response.body", "body": b""})

    async def _put(self, message: MutableMapping[str, Any]) -> None:
        """Send a message; disconnects a client that does not read."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._send(message)
        except (TimeoutError, OSError) as error:
            raise PeerDisconnectedError from error

    async def refuse(self, error: MillpondError) -> None:
        """Send the error, then discard a part of the remaining body, and close the connection."""
        if self._has_begun:
            return
        body = _problem(error)
        headers: Headers = [
            (b"content-type", b"application/problem+json"),
            (b"cache-control", b"no-store"),
            (b"content-length", b"%d" % len(body)),
        ]
        if isinstance(error, MethodNotAllowedError):
            headers.append((b"allow", _METHODS.encode()))
        if isinstance(error, RangeError):
            headers.append((b"content-range", b"bytes */%d" % error.details["size"]))
        if not self._is_read:
            headers.append((b"connection", b"close"))
        await self.begin(error.status, headers)
        await self.more(body)
        await self._discard()
        await self.end()

    async def _discard(self) -> None:
        left = DISCARD_MAX
        with contextlib.suppress(TimeoutError, PeerDisconnectedError, TooSlowError):
            async with asyncio.timeout(DISCARD_SECONDS):
                # A client that sent Expect is waiting, and sends no body.
                while not self._is_read and left > 0 and not self.header(b"expect"):
                    left -= len(await self._next())


def _problem(error: MillpondError) -> bytes:
    """The problem details of RFC 9457, as in the API."""
    title = (type(error).__doc__ or "").splitlines()[0].rstrip(".")
    problem = wire.Problem(
        type=f"{_DOCS}{error.code}",
        title=title,
        status=error.status,
        code=error.code,
        detail=error.message,
        field=error.field,
        hint=error.hint,
        retryable=error.retryable,
    )
    return msgspec.json.encode({**error.details, **msgspec.to_builtins(problem)})


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TooSlowError("The file was not received in time.", hint="Send the file without long pauses.") from None


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The file is larger than the {limit:,} bytes that the URL is signed for.", limit=limit)
