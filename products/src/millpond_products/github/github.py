"""The client of GitHub's REST API. Its errors never contain the token.

The operator configures the URL of the API, so these calls may reach its origin even inside the network. They still go
through the outbound guard, for its limits of time, size and connections.
"""

from __future__ import annotations

import time
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urljoin

import msgspec

from millpond import values
from millpond.errors import OutboundFailedError, OutboundRefusedError, PermanentError, SettingsError, TransientError
from millpond.product import targets
from millpond.retry import read_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.product import Outbound, OutboundResponse

SECONDS: Final = 30.0
"""The time limit of a call."""
SIZE_MAX: Final = 16 * 1024 * 1024
"""The maximum size of a response in bytes; a page of workflow runs has a few hundred thousand."""
REDIRECTS_MAX: Final = 3
PLATFORM: Final = "github"
_VERSION: Final = "2022-11-28"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OK: Final = range(200, 300)
_MOVED: Final = frozenset({301, 302, 307, 308})
_LIMITED: Final = frozenset({403, 429})
_RETRYABLE: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_PAUSE: Final = timedelta(minutes=1)
"""The pause after a rate limit that does not state how long it lasts, as GitHub recommends."""
_PAUSE_MIN: Final = timedelta(seconds=1)
_PAUSE_MAX: Final = timedelta(hours=1)
_MESSAGE_MAX: Final = 500


class _Refusal(msgspec.Struct):
    message: Any = None


class GitHub:
    """GitHub at ``url``: the public one (``https://api.github.com``) or an enterprise server (``…/api/v3``)."""

    def __init__(self, outbound: Outbound, url: str, token: str | None) -> None:
        try:
            self.origin = targets.read(url).origin
        except OutboundRefusedError as error:
            raise SettingsError(f"The URL is not a valid API URL: {error.message}", field="github_url") from None
        if token is not None and (not token.strip() or not token.isascii() or not token.isprintable()):
            raise SettingsError("The token is empty or contains invalid characters.", field="github_token")
        self._url = url.partition("?")[0].partition("#")[0].rstrip("/")
        self._token = None if token is None else token.strip()
        self._outbound = outbound

    def __repr__(self) -> str:
        return f"<GitHub at {self.origin}>"

    @property
    def has_token(self) -> bool:
        """Whether there is a token. Without one, only public data can be read."""
        return self._token is not None

    async def call(self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] = _NOTHING) -> Any:
        """Send one request; returns the decoded JSON of the response, or None if it is empty.

        The variable parts of ``path`` are percent-encoded by the caller. A request that may or may not have taken
        effect is not repeated here, because only the caller knows whether that is safe.
        """
        url = f"{self._url}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = b"" if body is None else msgspec.json.encode(body)
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._send(method, url, sent)
            place = answer.headers.get("location", "")
            if answer.status not in _MOVED or not place:
                return self._read(answer)
            url = self._next(url, place, answer)
        raise _failed(PermanentError, f"GitHub redirected more than {REDIRECTS_MAX} times.", "redirect")

    async def _send(self, method: str, url: str, body: bytes) -> OutboundResponse:
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": _VERSION}
        if body:
            headers["content-type"] = "application/json"
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        may = (self.origin,)
        try:
            return await self._outbound.send(
                method, url, headers=headers, body=body, seconds=SECONDS, size_max=SIZE_MAX, may=may
            )
        except OutboundRefusedError as error:
            raise _failed(PermanentError, f"The request to GitHub is not allowed: {error.message}", "url") from None
        except OutboundFailedError as error:
            raise _failed(TransientError, f"GitHub did not respond: {error.message}", error.reason) from None

    def _next(self, url: str, place: str, answer: OutboundResponse) -> str:
        """Where a redirect leads. A renamed repository redirects to its id; the token is sent to no other server."""
        try:
            found = urljoin(url, place)
            is_ours = targets.read(found).origin == self.origin
        except (OutboundRefusedError, ValueError):
            is_ours = False
        if not is_ours:
            raise _failed(PermanentError, "GitHub redirected to another server.", str(answer.status))
        return urljoin(url, place)

    def _read(self, answer: OutboundResponse) -> Any:
        if answer.status not in _OK:
            raise self._refused(answer)
        if answer.is_cut:
            raise _failed(TransientError, "The response of GitHub was incomplete or too large.", str(answer.status))
        if not answer.body.strip():
            return None
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = f"GitHub answered {answer.status}, but the response is not JSON."
            raise _failed(TransientError, message, str(answer.status)) from None

    def _refused(self, answer: OutboundResponse) -> PermanentError | TransientError:
        detail = self._detail(answer)
        message = f"GitHub answered {answer.status}" + (f": {detail}" if detail else ".")
        pause = _pause(answer, detail)
        if pause is not None or answer.status in _RETRYABLE or answer.status >= _SERVER_ERROR:
            return _failed(TransientError, message, str(answer.status), detail, retry_after=pause)
        return _failed(PermanentError, message, str(answer.status), detail)

    def _detail(self, answer: OutboundResponse) -> str:
        """The message in the response, without the token."""
        try:
            message = msgspec.json.decode(answer.body, type=_Refusal).message
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = None
        detail = values.printable(str(message or ""), _MESSAGE_MAX)
        return detail.replace(self._token, "…") if self._token else detail


def _pause(answer: OutboundResponse, detail: str) -> timedelta | None:
    """How long to wait before the next request; None if the response does not ask for a pause."""
    pause = read_retry_after(answer.headers.get("retry-after", ""))
    if pause is None and answer.status in _LIMITED:
        if answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
            until = answer.headers.get("x-ratelimit-reset", "").strip()
            is_valid = until.isascii() and until.isdecimal() and len(until) <= len("9999999999")
            pause = timedelta(seconds=int(until) - time.time()) if is_valid else _PAUSE
        elif "rate limit" in detail.lower():
            pause = _PAUSE
    return None if pause is None else min(max(pause, _PAUSE_MIN), _PAUSE_MAX)


def _failed(error: Any, message: str, code: str, detail: str | None = None, **more: Any) -> Any:
    platform_message = message if detail is None else detail
    return error(message, platform=PLATFORM, platformCode=code, platformMessage=platform_message, **more)
