"""The connection to a ComfyUI: requests are retried for a while if it is unavailable."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeVar

import httpx2
import msgspec

from millpond.client.trust import trusted
from millpond.errors import PermanentError, SettingsError, TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping
    from pathlib import Path

Answer = TypeVar("Answer")

PATIENCE: Final = 120.0
_PAUSE: Final = 0.25
_PAUSE_MAX: Final = 2.0
_TIMEOUT: Final = 60.0
_CONNECT_TIMEOUT: Final = 5.0
_TIMEOUT_MIN: Final = 0.5
_CHECK_EVERY: Final = 0.5
"""How often a job is checked for a cancel while ComfyUI does not respond."""
_TRIES: Final = 4
_PIECE: Final = 1024 * 1024
# The connection failed before the request was sent.
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_ERRORS: Final = 500


class ComfyJob(Protocol):
    """The methods of :class:`millpond.Job` that are used here."""

    @property
    def id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    def checkpoint(self) -> Awaitable[None]: ...
    def check_cancel(self) -> Awaitable[None]: ...
    def progress(self, value: float) -> Awaitable[None]: ...
    def log(self, text: str, *, level: str = ...) -> Awaitable[None]: ...
    def download(self, name: str, path: Path) -> Awaitable[Any]: ...
    def upload(self, path: Path, name: str | None = None) -> Awaitable[Any]: ...


class UnsureError(Exception):
    """It is not known whether the request arrived."""


@dataclass(slots=True)
class _Patience:
    """How long ComfyUI may still be silent."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.heard_at + self.seconds - time.monotonic()

    def hear(self) -> None:
        self.heard_at = time.monotonic()

    def timeout(self, limit: float = _TIMEOUT) -> httpx2.Timeout:
        """The timeout of each step of a request that begins now. Without patience, there is one request."""
        seconds = max(min(limit, self.left), _TIMEOUT_MIN) if self.seconds else limit
        return httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT))


async def _attended(call: Coroutine[Any, Any, Answer], job: ComfyJob | None) -> Answer:
    """Await a call, and abort it when the job must stop: the call may last as long as ComfyUI hangs."""
    if job is None:
        return await call
    task = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait([task], timeout=_CHECK_EVERY))[0]:
            await job.check_cancel()
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class ComfyConnection:
    """Sends requests to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, patience: float = PATIENCE) -> None:
        self.url = checked(url)
        self.patience = patience
        # Redirects are not followed, because the header with the key would be sent along.
        self._http = httpx2.AsyncClient(headers=headers, follow_redirects=False, verify=trusted())

    async def close(self) -> None:
        await self._http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        job: ComfyJob | None = None,
        is_repeatable: bool = True,
        patience: float | None = None,
        timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of each step of the request
        **options: Any,
    ) -> httpx2.Response:
        """Send a request until the response is not a 5xx. It is aborted when the job must stop.

        If ``is_repeatable`` is false and the request may have arrived, :class:`UnsureError` is raised instead.
        """
        limit = _Patience(self.patience if patience is None else patience)
        pause = _PAUSE
        while True:
            try:
                request = self._http.request(method, f"{self.url}{path}", timeout=limit.timeout(timeout), **options)
                answer = await _attended(request, job)
                if answer.status_code < _ERRORS:
                    return answer
                trouble = f"it responded with HTTP {answer.status_code}"
                is_unsure = True
            except httpx2.HTTPError as error:
                trouble = _trouble(error)
                is_unsure = not isinstance(error, _UNSENT)
            if is_unsure and not is_repeatable:
                raise UnsureError(trouble)
            if limit.left < pause:
                raise unreachable(self.url, trouble)
            await asyncio.sleep(pause)
            if job is not None:
                await job.check_cancel()
            pause = min(pause * 2, _PAUSE_MAX)

    async def read(
        self,
        path: str,
        *,
        job: ComfyJob | None = None,
        patience: float | None = None,
        timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of each step of the request
    ) -> Any:
        """The JSON of a response; None for 404."""
        answer = await self.send("GET", path, job=job, patience=patience, timeout=timeout)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it responded with HTTP {answer.status_code}")
        return decoded(answer)

    async def fetch(
        self, url: str, path: Path, job: ComfyJob, *, params: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Stream the body of a response to a file, if the status is 200.

        A broken transfer is repeated, because it costs less than the result.
        """
        limit = _Patience(self.patience)
        tried, trouble = 0, ""
        while tried < _TRIES and limit.left >= _PAUSE * tried:
            if tried:
                await asyncio.sleep(_PAUSE * tried)
                await job.check_cancel()
            tried += 1
            try:
                answer = await _attended(self._stream(url, path, params, limit), job)
                if answer.status_code < _ERRORS:
                    return answer
                trouble = f"it responded with HTTP {answer.status_code}"
            except httpx2.HTTPError as error:
                trouble = _trouble(error)
        raise unreachable(self.url, trouble)

    async def _stream(
        self, url: str, path: Path, params: Mapping[str, str] | None, limit: _Patience
    ) -> httpx2.Response:
        async with self._http.stream("GET", url, params=params, timeout=limit.timeout()) as answer:
            if answer.status_code == HTTPStatus.OK:
                with path.open("wb") as file:
                    async for piece in answer.aiter_bytes(_PIECE):
                        limit.hear()
                        await asyncio.to_thread(file.write, piece)
            return answer


def _trouble(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "it did not respond in time"
    return str(error) or type(error).__name__


def decoded(answer: httpx2.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        wrong = TransientError("The response of ComfyUI is not JSON.", reason="unreachable")
        wrong.add_note(f"Check that ComfyUI runs at {answer.url.copy_with(userinfo=b'', query=None)}.")
        raise wrong from error


def unreachable(url: str, trouble: str) -> TransientError:
    error = TransientError(f"ComfyUI cannot be reached: {trouble}.", reason="unreachable")
    error.add_note(f"The address of ComfyUI is {shown(url)}.")
    return error


def shown(url: str) -> str:
    """A URL without its user name and password."""
    return str(httpx2.URL(url).copy_with(userinfo=b""))


def checked(url: str) -> str:
    try:
        read = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise SettingsError(f"The URL is invalid: {error}.", field="comfyui") from None
    if read.scheme not in {"http", "https"} or not read.host:
        raise SettingsError(
            f"{url[:200]!r} is not a URL.", field="comfyui", hint="Use a URL such as http://127.0.0.1:8188."
        )
    return url.rstrip("/")


def open_file(path: Path) -> BinaryIO:
    """Open a file to upload it in chunks."""
    return path.open("rb")


def too_large(name: str, size: int, limit: int) -> PermanentError:
    return PermanentError(
        f"The file {name!r} has {size:,} bytes; the limit is {limit:,}.", field="assets", reason="asset"
    )
