"""Any S3-compatible bucket as a store: obstore reads, writes and lists; URLs are signed by :mod:`~.sigv4`."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from millpond.errors import NotFoundError, SettingsError, StorageUnavailableError
from millpond.storage.credentials import RoleKeys
from millpond.storage.sigv4 import SigningKeys, encode, presign
from millpond.storage.storage import (
    SCHEME,
    SIZE_MAX,
    Object,
    check_lifetime,
    check_path,
    check_sha256,
    check_size,
    check_type,
    disposition,
)
from millpond.wire import Signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_OPTIONS: Final = {"endpoint", "region", "style"}
_STYLES: Final = ("path", "host")
_REGION: Final = "us-east-1"
_RETRY: Final = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_TIMEOUTS: Final = {"timeout": "60s", "connect_timeout": "5s"}
_PIECE: Final = 1024 * 1024
_ONCE: Final = {"If-None-Match": "*"}
"""Refuse the upload if the object exists. The header is signed, so that a client cannot leave it out."""
_PROBE: Final = "conditional-write"
"""An empty file, which stays in the bucket: to find it there is the proof."""


class S3:
    """A store in a bucket, below a prefix."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str = _REGION,
        style: str | None = None,
        keys: SigningKeys | RoleKeys | None = None,
        size_max: int = SIZE_MAX,
    ) -> None:
        """Without ``keys``, those of the role that this process has are used."""
        self.size_max = size_max
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._region = region
        self._keys = keys or RoleKeys(os.environ)
        is_host = (style or ("path" if endpoint else "host")) == "host"
        self._base = _base(bucket, endpoint or f"https://s3.{region}.amazonaws.com", is_host=is_host)
        self._store = _store(bucket, endpoint, region, self._keys, self._base, is_host=is_host)

    @classmethod
    def from_url(cls, url: str, environ: Mapping[str, str] | None = None, *, size_max: int = SIZE_MAX) -> S3:
        """From ``s3://bucket/prefix?endpoint=…&region=…&style=path|host``, with the environment's keys or role."""
        environ = os.environ if environ is None else environ
        place = urlsplit(url)
        options = dict(parse_qsl(place.query))
        if not place.netloc or options.keys() - _OPTIONS or options.get("style", "path") not in _STYLES:
            raise SettingsError(
                f"{url[:120]!r} does not contain a bucket.",
                field="storage",
                hint=f"Use {SCHEME}bucket/prefix?endpoint=URL&region=NAME&style=path; all options may be omitted.",
            )
        given = [environ.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")]
        region = options.pop("region", None) or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        keys = SigningKeys(given[0], given[1], given[2] or None) if given[0] and given[1] else RoleKeys(environ)
        endpoint = options.pop("endpoint", None) or environ.get("AWS_ENDPOINT_URL") or None
        return cls(
            place.netloc,
            place.path,
            endpoint=endpoint,
            region=region or _REGION,
            style=options.get("style"),
            keys=keys,
            size_max=size_max,
        )

    # Signing

    def sign_get(
        self, path: str, *, lifetime: timedelta, filename: str | None = None, content_type: str | None = None
    ) -> Signed:
        query = {} if filename is None else {"response-content-disposition": disposition(filename, content_type)}
        return self._sign("GET", path, lifetime, query=query)

    def sign_put(
        self, path: str, *, lifetime: timedelta, content_type: str, size: int | None, sha256: str | None = None
    ) -> Signed:
        headers = {"Content-Type": check_type(content_type), **_ONCE}
        if check_sha256(sha256) is not None:
            headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(sha256 or "")).decode()
        implied = {} if size is None else {"Content-Length": str(check_size(size, self.size_max))}
        return self._sign("PUT", path, lifetime, headers=headers, implied=implied)

    def _sign(
        self,
        method: Literal["GET", "PUT"],
        path: str,
        lifetime: timedelta,
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        implied: dict[str, str] | None = None,
    ) -> Signed:
        """``implied`` headers are signed too, but not returned: the client's HTTP library sets them itself."""
        seconds, at = check_lifetime(lifetime), datetime.now(UTC).replace(microsecond=0)
        key = self._prefix + check_path(path)
        keys = self._keys if isinstance(self._keys, SigningKeys) else self._keys()
        if keys.expires_at is not None:  # the URL expires with its keys
            seconds = max(1, min(seconds, int((keys.expires_at - at).total_seconds())))
        url = presign(
            keys,
            method,
            f"{self._base}/{encode(key, safe='/')}",
            region=self._region,
            at=at,
            seconds=seconds,
            headers={**(headers or {}), **(implied or {})},
            query=query,
        )
        return Signed(method=method, url=url, headers=headers or {}, expires_at=at + timedelta(seconds=seconds))

    # Files

    async def head(self, path: str) -> Object | None:
        # obstore's head does not return the content type; a get without a body does.
        try:
            with _translated():
                found = await obstore.get_async(self._store, self._prefix + check_path(path), options={"head": True})
        except NotFoundError:
            return None
        return Object(path, found.meta["size"], found.meta["last_modified"], found.attributes.get("Content-Type"))

    async def read(self, path: str) -> bytes:
        return b"".join([piece async for piece in self.stream(path)])

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        with _translated():
            found = await obstore.get_async(self._store, self._prefix + check_path(path))
            async for piece in found.stream(min_chunk_size=_PIECE):
                yield bytes(piece)

    async def write(
        self, path: str, data: bytes | AsyncIterator[bytes], *, content_type: str = "application/octet-stream"
    ) -> Object:
        key = self._prefix + check_path(path)
        attributes = {"Content-Type": check_type(content_type)}
        meter = _Meter()
        with _translated():
            if isinstance(data, bytes):
                meter.add(data)
                await obstore.put_async(self._store, key, data, attributes=attributes, use_multipart=False)
            else:
                await obstore.put_async(self._store, key, meter.through(data), attributes=attributes)
        return Object(path, meter.size, datetime.now(UTC), content_type, meter.sha256)

    async def delete(self, path: str) -> None:
        with _translated(), contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, self._prefix + check_path(path))

    async def list(self, prefix: str = "", *, after: str = "", limit: int = 1_000) -> list[Object]:
        if prefix:
            check_path(prefix.removesuffix("/"))
        found: list[Object] = []
        begin = self._prefix + after if after else None
        with _translated():
            pages: Any = obstore.list(  # pyright: ignore[reportUnknownMemberType] - it can give Arrow's tables too
                self._store, (self._prefix + prefix) or None, offset=begin, chunk_size=limit
            )
            async for page in pages:
                found += [_listed(each, self._prefix) for each in page]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def refuses_replacement(self) -> bool:
        for _ in range(2):
            with _translated():
                try:
                    await obstore.put_async(self._store, self._prefix + _PROBE, b"", mode="create", use_multipart=False)
                except AlreadyExistsError:
                    return True
        return False

    async def tidy(self) -> int:
        """Do nothing: an incomplete upload is no object, and a lifecycle rule of the bucket should remove its parts."""
        return 0

    async def close(self) -> None: ...


class _Meter:
    """Counts and hashes the bytes of an upload."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._hash.update(piece)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def through(self, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in data:
            self.add(piece)
            yield piece


def _base(bucket: str, endpoint: str, *, is_host: bool) -> str:
    """The base URL of the bucket. It omits the default port of its scheme, which is not part of the signed host."""
    place = urlsplit(endpoint)
    try:
        port = place.port
    except ValueError:
        port = -1
    if place.scheme not in ("http", "https") or not place.hostname or port == -1:
        raise SettingsError(
            f"{endpoint[:120]!r} is not a valid endpoint URL.",
            field="storage",
            hint="Use a URL such as http://host:port.",
        )
    host = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
    if port is not None and (place.scheme, port) not in (("http", 80), ("https", 443)):
        host = f"{host}:{port}"
    root = place.path.rstrip("/")
    return f"{place.scheme}://{bucket}.{host}{root}" if is_host else f"{place.scheme}://{host}{root}/{bucket}"


def _store(
    bucket: str, endpoint: str | None, region: str, keys: SigningKeys | RoleKeys, base: str, *, is_host: bool
) -> S3Store:
    config: dict[str, Any] = {"region": region, "virtual_hosted_style_request": is_host}
    if endpoint is not None:
        config["endpoint"] = base if is_host else endpoint
    client: dict[str, Any] = {**_TIMEOUTS, "allow_http": base.startswith("http://")}
    options: dict[str, Any] = {"config": config, "client_options": client, "retry_config": _RETRY}
    if isinstance(keys, RoleKeys):
        options["credential_provider"] = lambda: _credential(keys())
    else:
        config |= {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key}
        if keys.session_token is not None:
            config["session_token"] = keys.session_token
    return S3Store(bucket, **options)


def _credential(keys: SigningKeys) -> dict[str, Any]:
    """SigningKeys as the library takes them."""
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.session_token,
        "expires_at": keys.expires_at,
    }


def _listed(each: Any, prefix: str) -> Object:
    return Object(str(each["path"]).removeprefix(prefix), each["size"], each["last_modified"])


@contextlib.contextmanager
def _translated() -> Any:
    """Translate the errors of the library."""
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError("The file does not exist.", field="path") from None
    except (BaseError, OSError) as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise StorageUnavailableError(f"The bucket cannot be used: {reason}") from error
