"""One request, retried until it is answered, rejected permanently, or out of time."""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote

import httpx2
import msgspec

from millpond import values
from millpond.client.errors import UnreadableError, from_reply, retry_after
from millpond.client.ports import ClientResponse
from millpond.errors import InputError, InvalidError, MillpondError, SettingsError, UnavailableError
from millpond.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.client.ports import Port

T = TypeVar("T")

TIMEOUT: Final = 60.0
ANYTHING: Any = Any
IN_PROCESS: Final = "http://millpond.internal"

_BACKOFF: Final = Backoff(first=timedelta(seconds=0.25), longest=timedelta(seconds=8), jitter=0.5)
_CONNECT_MAX: Final = 10.0
# Idempotent methods; a POST needs a key to be idempotent.
_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_TOO_MANY: Final = 429
# The connection failed before the request was sent.
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_NEVER: Final = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)
_KEY: Final = re.compile(r"[!-~]+")


class ServerAddress(NamedTuple):
    """The server's URL and the key of a client."""

    url: str
    key: str | None

    @classmethod
    def find(cls, url: str | None, key: str | None, *, is_in_process: bool) -> ServerAddress:
        """The given values, or those of the environment."""
        url = url or os.environ.get("MILLPOND_URL") or (IN_PROCESS if is_in_process else None)
        key = key or os.environ.get("MILLPOND_API_KEY") or None
        if url is None:
            raise SettingsError(
                "The URL of the server is missing.", field="url", hint="Pass url=, or set MILLPOND_URL."
            )
        if key is None and not is_in_process:
            raise SettingsError("The key is missing.", field="key", hint="Pass key=, or set MILLPOND_API_KEY.")
        if key is not None and not _KEY.fullmatch(key):
            raise SettingsError(
                "The key contains invalid characters.", field="key", hint="Check the key for line breaks."
            )
        return cls(_checked(url), key)

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})


def _checked(url: str) -> str:
    try:
        read = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise SettingsError(f"The URL is invalid: {error}.", field="url") from None
    if read.userinfo:
        raise SettingsError(
            "The URL must not contain a user name, password or key.",
            field="url",
            hint="Pass key=, or set MILLPOND_API_KEY.",
        )
    if read.scheme not in {"http", "https"} or not read.host:
        raise SettingsError(
            f"{url[:200]!r} is not a URL.", field="url", hint="Use a URL such as http://127.0.0.1:8686."
        )
    return url.rstrip("/").removesuffix("/v1")


class FailedRequest(NamedTuple):
    """An attempt without a usable response."""

    error: MillpondError
    is_passing: bool
    """Whether another attempt may succeed."""
    is_harmless: bool
    """Whether the request surely had no effect."""
    retry_after: float | None = None


class Deadline:
    """A deadline for all attempts together."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, limit: float = float("inf")) -> float:
        """The remaining seconds, up to a maximum."""
        return limit if self._end is None else min(max(self._end - time.monotonic(), 0.0), limit)

    @property
    def is_over(self) -> bool:
        return self.left() <= 0


class Requests:
    """Sends requests to one server, with its key."""

    def __init__(self, port: Port, server: ServerAddress, timeout: float) -> None:
        self._port = port
        self._server = server
        self._timeout = seconds_of(timeout, field="timeout")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._server.url}>"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._server.url

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        type: type[T] = ANYTHING,
        idempotency_key: str | None = None,
        is_repeatable: bool | None = None,
        timeout: float | None = None,
    ) -> T:
        """Send any request of the API, such as ``request("GET", "/v1/jobs", params={"limit": 5}, type=wire.Jobs)``.

        Temporary failures are retried with exponential back-off, or after the delay requested by the server, until
        ``timeout`` seconds have passed for all attempts together. A POST without an idempotency key is retried only
        if the first attempt surely had no effect, or if ``is_repeatable`` is true.
        """
        deadline = Deadline(self._timeout if timeout is None else timeout)
        content = None if body is None else encode(body)
        sent = dict(headers or {})
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        if idempotency_key is not None:
            sent["Idempotency-Key"] = values.check_key(idempotency_key)
        if is_repeatable is None:
            is_repeatable = method.upper() in _REPEATABLE or idempotency_key is not None
        for failures in count(1):
            options = {"content": content, "params": given(params or {}), "headers": sent}
            outcome = await self._try(method, path, options, deadline)
            if isinstance(outcome, ClientResponse):
                return decode(outcome, type, f"{method} {path}")
            pause = self._pause(outcome, failures)
            can_repeat = outcome.is_passing and (is_repeatable or outcome.is_harmless)
            if not can_repeat or pause >= deadline.left():
                raise outcome.error
            await self._port.sleep(pause)
        raise AssertionError  # the count has no end

    async def _try(
        self, method: str, path: str, options: dict[str, Any], deadline: Deadline
    ) -> ClientResponse | FailedRequest:
        seconds = max(deadline.left(), 0.001)
        limits = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_MAX))
        request = self._port.build(method, path, timeout=limits, **options)
        try:
            reply = await self._port.send(request, seconds)
        except httpx2.HTTPError as error:
            return self._broken(error, seconds)
        except RuntimeError as error:
            raise _closed(error) from None
        return self._judge(reply)

    def _judge(self, reply: ClientResponse) -> ClientResponse | FailedRequest:
        if reply.status < 300 or reply.status == 304:  # noqa: PLR2004 - the successes of HTTP, and "not modified"
            return reply
        error = from_reply(*reply)
        return FailedRequest(error, error.retryable, reply.status == _TOO_MANY, retry_after(error, reply.headers))

    def _broken(self, error: httpx2.HTTPError, seconds: float) -> FailedRequest:
        """The connection failed, or the response is not valid HTTP."""
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, _UNSENT):
            failure = UnavailableError(f"{self.url} did not respond within {seconds:.3g} s.")
        else:
            reason = str(error) or type(error).__name__
            failure = UnavailableError(
                f"{self.url} could not be reached: {reason}.", hint="Check the address, and that the server is running."
            )
        failure.__cause__ = error
        return FailedRequest(failure, not isinstance(error, _NEVER), isinstance(error, _UNSENT))

    @staticmethod
    def _pause(setback: FailedRequest, failures: int) -> float:
        pause = _BACKOFF.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter
        return pause if setback.retry_after is None else max(setback.retry_after, min(pause, 1.0))


def _closed(error: RuntimeError) -> Exception:
    return InvalidError("The client is closed.") if "closed" in str(error) else error


# Encoding and decoding


def decode(reply: ClientResponse, type: Any, what: str) -> Any:
    """The body of a response, decoded as the requested type."""
    if type is bytes:
        return reply.body
    if type is str:
        return reply.body.decode("utf-8", "replace")
    if not reply.body:
        return None
    try:
        return msgspec.json.decode(reply.body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"The response to {what} does not match the API: {error}.",
            hint="Check that the URL is that of a Millpond server.",
        ) from error


def encode(body: Any) -> bytes:
    """A body as JSON; bytes are sent unchanged."""
    if isinstance(body, bytes):
        return body
    written = _written(body, field="body")
    members = cast("dict[str, Any]", written) if isinstance(written, dict) else {"body": written}
    for name, member in members.items():
        values.check(member, field=name)
    return msgspec.json.encode(written)


def plain(value: Any, *, field: str) -> Any:
    """A value that can be encoded as JSON; structs, dataclasses and pydantic models are converted."""
    written = _written(value, field=field)
    values.check(written, field=field)
    return written


def _written(value: Any, *, field: str) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=_model)
    except RecursionError:
        raise InputError("The value is nested too deeply.", field=field) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"The value is not a JSON value: {error}.", field=field) from error


def _model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return dump(mode="json")


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in params.items() if value is not None}


def segment(name: str) -> str:
    """A name as one segment of a path, with any characters."""
    if not name or set(name) == {"."}:
        raise InvalidError(f"{name!r} is not a valid name.", field="id")
    return quote(name, safe="")


def new_key() -> str:
    """An idempotency key for one call, so that its request can be sent again."""
    return f"auto-{uuid.uuid4()}"


def seconds_of(length: Any, *, field: str) -> float:
    return values.duration(length, field=field).total_seconds()


def length(given: timedelta | str | float, *, field: str) -> str | float:
    """A duration in the format of the server."""
    return given if isinstance(given, str) else seconds_of(given, field=field)
