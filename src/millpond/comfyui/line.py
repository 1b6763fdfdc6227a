"""The way to a ComfyUI: requests that wait a while for one that is away."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import httpx2
import msgspec

from millpond.client.trust import trusted
from millpond.errors import PermanentError, SettingsError, TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from pathlib import Path

PATIENCE: Final = 120.0
_PAUSE: Final = 0.25
_PAUSE_MAX: Final = 2.0
_TIMEOUT: Final = httpx2.Timeout(60.0, connect=5.0)
_TRIES: Final = 4
_PIECE: Final = 1024 * 1024
# It broke before the request had left.
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_ERRORS: Final = 500


class Job(Protocol):
    """What is needed of a job here; :class:`millpond.Job` has it."""

    @property
    def id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    def checkpoint(self) -> Awaitable[None]: ...
    def progress(self, value: float) -> Awaitable[None]: ...
    def log(self, text: str, *, level: str = ...) -> Awaitable[None]: ...
    def download(self, name: str, path: Path) -> Awaitable[Any]: ...
    def upload(self, path: Path, name: str | None = None) -> Awaitable[Any]: ...


class UnsureError(Exception):
    """The request may have arrived, or not."""


class Line:
    """Sends requests to one address."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, patience: float = PATIENCE) -> None:
        self.url = checked(url)
        self.patience = patience
        # Redirects are not followed: a header with a key in it would follow them too.
        self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, follow_redirects=False, verify=trusted())

    async def close(self) -> None:
        await self._http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        job: Job | None = None,
        is_repeatable: bool = True,
        patience: float | None = None,
        **options: Any,
    ) -> httpx2.Response:
        """An answer that is not a server's error; while none comes, the job may be told to stop.

        What must not be done twice is not sent twice: where that is unsure, the caller is told.
        """
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        pause = _PAUSE
        while True:
            try:
                answer = await self._http.request(method, f"{self.url}{path}", **options)
                if answer.status_code < _ERRORS:
                    return answer
                trouble = f"it answers {answer.status_code}"
                is_unsure = True
            except httpx2.HTTPError as error:
                trouble = str(error) or type(error).__name__
                is_unsure = not isinstance(error, _UNSENT)
            if is_unsure and not is_repeatable:
                raise UnsureError(trouble)
            if time.monotonic() + pause > deadline:
                raise unreachable(self.url, trouble)
            await asyncio.sleep(pause)
            if job is not None:
                await job.checkpoint()
            pause = min(pause * 2, _PAUSE_MAX)

    async def read(self, path: str, *, job: Job | None = None, patience: float | None = None) -> Any:
        """A JSON answer; nothing where there is no such thing."""
        answer = await self.send("GET", path, job=job, patience=patience)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it answers {answer.status_code}")
        return decoded(answer)

    async def fetch(
        self, url: str, path: Path, job: Job, *, params: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Write an answer's body to a file, piece by piece; an answer other than 200 is not written.

        What breaks off is begun again: the result has cost more than another transfer.
        """
        trouble = ""
        for tried in range(1, _TRIES + 1):
            await job.checkpoint()
            try:
                async with self._http.stream("GET", url, params=params) as answer:
                    if answer.status_code < _ERRORS:
                        await _write(answer, path, job)
                        return answer
                trouble = f"it answers {answer.status_code}"
            except httpx2.HTTPError as error:
                trouble = str(error) or type(error).__name__
            await asyncio.sleep(_PAUSE * tried)
        raise unreachable(self.url, trouble)


async def _write(answer: httpx2.Response, path: Path, job: Job) -> None:
    if answer.status_code == HTTPStatus.OK:
        with path.open("wb") as file:
            async for piece in answer.aiter_bytes(_PIECE):
                await asyncio.to_thread(file.write, piece)
                await job.checkpoint()


def decoded(answer: httpx2.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TransientError(
            f"What {answer.url.copy_with(userinfo=b'', query=None)} answers is not JSON.",
            hint="Is ComfyUI at this address?",
            reason="unreachable",
        ) from error


def unreachable(url: str, trouble: str) -> TransientError:
    return TransientError(f"ComfyUI at {shown(url)} cannot be reached: {trouble}.", reason="unreachable")


def shown(url: str) -> str:
    """A URL without the password that may be in it."""
    return str(httpx2.URL(url).copy_with(userinfo=b""))


def checked(url: str) -> str:
    try:
        read = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise SettingsError(f"It is not a URL: {error}.", field="comfyui") from None
    if read.scheme not in {"http", "https"} or not read.host:
        raise SettingsError(f"{url[:200]!r} is not a URL.", field="comfyui", hint="Write http://127.0.0.1:8188.")
    return url.rstrip("/")


def open_file(path: Path) -> BinaryIO:
    """A file to be sent, piece by piece."""
    return path.open("rb")


def too_large(name: str, size: int, most: int) -> PermanentError:
    return PermanentError(
        f"The file {name!r} has {size:,} bytes; the limit is {most:,}.", field="assets", reason="asset"
    )
