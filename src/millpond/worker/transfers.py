"""Transfers files by signed requests: streamed, checked, and resumed after a disconnect or when the URL expired."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import httpx2

from millpond.client.trust import trusted
from millpond.errors import NotFoundError, TransientError
from millpond.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from millpond.wire import Signed

    Renew = Callable[[], Awaitable[Signed]]

CHUNK: Final = 1024 * 1024
TRIES: Final = 6
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.2), longest=timedelta(seconds=10), jitter=0.5)
# For each read and write: a transfer may take any time as long as data moves.
_STEP: Final = httpx2.Timeout(60, connect=10)
_WHOLE, _PART, _NONE, _STORED, _BEYOND = 200, 206, 404, 412, 416


@dataclass(slots=True)
class Transfers:
    """Sends requests to storage only, without any key of Millpond."""

    http: httpx2.AsyncClient

    @classmethod
    def open(cls) -> Transfers:
        return cls(httpx2.AsyncClient(timeout=_STEP, limits=httpx2.Limits(max_connections=None), verify=trusted()))

    async def close(self) -> None:
        await self.http.aclose()

    async def put(self, signed: Signed, data: bytes | Path, size: int, renew: Renew) -> None:
        """Upload. After a failure, a new signed request is used, because the URL may have expired.

        Storage responds with 412 if an earlier try stored the file and its response was lost. ``complete`` compares the
        stored file with the announced size and checksum.
        """
        headers = signed.headers | {"Content-Length": str(size)}
        trouble = ""
        for tried in range(1, TRIES + 1):
            try:
                body = data if isinstance(data, bytes) else _chunks(data, size)
                answer = await self.http.request(signed.method, signed.url, headers=headers, content=body)
                if answer.is_success or answer.status_code == _STORED:
                    return
                trouble = _refusal(answer.status_code, answer.content)
            except httpx2.HTTPError as error:
                trouble = _broken(error)
            if tried < TRIES:
                await _pause(tried)
                signed = await renew()
                headers = signed.headers | {"Content-Length": str(size)}
        raise TransientError(f"The upload failed: {trouble}.")

    async def get(self, signed: Signed, renew: Renew) -> AsyncGenerator[bytes]:
        """Download. After a disconnect it resumes at the same offset; the final size must be the announced one."""
        at, size, trouble, tried = 0, None, "", 0
        while tried < TRIES:
            if tried:
                await _pause(tried)
                signed = await renew()
            tried += 1
            try:
                async with aclosing(self._get(signed, at)) as parts:
                    async for whole_size, chunk in parts:
                        size = whole_size
                        if chunk:
                            at += len(chunk)
                            tried = 1  # data arrived: count the tries anew
                            yield chunk
                if size is None or at == size:
                    return
                trouble = f"the response ended after {at:,} of {size:,} bytes"
            except _RefusedError as refused:
                trouble = str(refused)
                if refused.status == _NONE:
                    raise NotFoundError("The file is not in storage.") from None
            except httpx2.HTTPError as error:
                trouble = _broken(error)
        raise TransientError(f"The download failed: {trouble}.")

    async def _get(self, signed: Signed, at: int) -> AsyncGenerator[tuple[int | None, bytes]]:
        """The chunks from this offset on, each with the size of the whole file if the response states it."""
        headers = signed.headers | {"Accept-Encoding": "identity"} | ({"Range": f"bytes={at}-"} if at else {})
        async with self.http.stream(signed.method, signed.url, headers=headers) as answer:
            if answer.status_code == _BEYOND and at:  # the offset is the end of the file
                return
            if answer.status_code not in {_WHOLE, _PART}:
                raise _RefusedError(answer.status_code, await answer.aread())
            rest = answer.headers.get("content-length")
            skip = at if answer.status_code == _WHOLE else 0
            size = None if rest is None else int(rest) + at - skip
            yield size, b""
            async for chunk in answer.aiter_bytes(CHUNK):
                new = chunk[skip:]
                skip -= len(chunk) - len(new)
                yield size, new


def measure(data: bytes | Path) -> tuple[int, str]:
    """The size of a file and its SHA-256, read in chunks."""
    if isinstance(data, bytes):
        return len(data), hashlib.sha256(data).hexdigest()
    size, digest = 0, hashlib.sha256()
    with data.open("rb") as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            digest.update(chunk)
    return size, digest.hexdigest()


async def _chunks(path: Path, size: int) -> AsyncIterator[bytes]:
    """The measured bytes of a file. If it has grown since, the rest is left out; its checksum shows other changes."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while size > 0 and (chunk := await asyncio.to_thread(file.read, min(CHUNK, size))):
            size -= len(chunk)
            yield chunk


class _RefusedError(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(_refusal(status, body))
        self.status = status


def _refusal(status: int, body: bytes) -> str:
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    return f"storage responded with HTTP {status}{f': {text}' if text else ''}"


def _broken(error: httpx2.HTTPError) -> str:
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}"


async def _pause(tried: int) -> None:
    await asyncio.sleep(_BACKOFF.delay(tried, random.random()).total_seconds())  # noqa: S311 - jitter
