"""The client of GitHub's REST API. Nothing that is raised here has the token in it.

The API is the operator's to name, so its origin is open to these calls; they go through the outbound guard all the
same, for its limits of time, size and connections.
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
from millpond.outbound import targets
from millpond.retry import read_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.outbound import Outbound
    from millpond.outbound.outbound import Answer

SECONDS: Final = 30.0
"""How long a call may take."""
SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of an answer; a page of runs has some hundred thousand."""
REDIRECTS_MAX: Final = 3
PLATFORM: Final = "github"
_VERSION: Final = "2022-11-28"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OK: Final = range(200, 300)
_MOVED: Final = frozenset({301, 302, 307, 308})
_LIMITED: Final = frozenset({403, 429})
_LATER: Final = frozenset({408, 425, 429})
_THEIRS: Final = 500
_REST: Final = timedelta(minutes=1)
"""How long it is left alone where it says that it was asked too much, and not for how long: its own advice."""
_REST_MIN: Final = timedelta(seconds=1)
_REST_MAX: Final = timedelta(hours=1)
_MESSAGE_MAX: Final = 500


class _Refusal(msgspec.Struct):
    message: Any = None


class GitHub:
    """GitHub at ``url``: the public one (``https://api.github.com``) or a server of one's own (``…/api/v3``)."""

    def __init__(self, outbound: Outbound, url: str, token: str | None) -> None:
        try:
            self.origin = targets.read(url).origin
        except OutboundRefusedError as error:
            raise SettingsError(f"It is not the address of an API: {error.message}", field="github_url") from None
        if token is not None and (not token.strip() or not token.isascii() or not token.isprintable()):
            raise SettingsError("It has characters that no token has, or none.", field="github_token")
        self._url = url.partition("?")[0].partition("#")[0].rstrip("/")
        self._token = None if token is None else token.strip()
        self._outbound = outbound

    def __repr__(self) -> str:
        return f"<GitHub at {self.origin}>"

    @property
    def has_token(self) -> bool:
        """Without one it can be asked for what all may see."""
        return self._token is not None

    async def call(self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] = _NOTHING) -> Any:
        """One call; what was answered, read from JSON, or None where that is empty.

        The variable parts of ``path`` are percent-encoded by the caller. A call that may or may not have been taken
        is not repeated here: that is for whoever knows whether it may be.
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

    async def _send(self, method: str, url: str, body: bytes) -> Answer:
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
            raise _failed(PermanentError, f"GitHub cannot be asked for that: {error.message}", "url") from None
        except OutboundFailedError as error:
            raise _failed(TransientError, f"GitHub did not answer: {error.message}", error.reason) from None

    def _next(self, url: str, place: str, answer: Answer) -> str:
        """A repository that was renamed is found under its number. The token goes nowhere else."""
        try:
            found = urljoin(url, place)
            is_ours = targets.read(found).origin == self.origin
        except (OutboundRefusedError, ValueError):
            is_ours = False
        if not is_ours:
            raise _failed(PermanentError, "GitHub redirected to another server.", str(answer.status))
        return urljoin(url, place)

    def _read(self, answer: Answer) -> Any:
        if answer.status not in _OK:
            raise self._refused(answer)
        if answer.is_cut:
            raise _failed(TransientError, "GitHub's answer broke off, or is too large.", str(answer.status))
        if not answer.body.strip():
            return None
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = f"GitHub answered {answer.status} with something else than JSON."
            raise _failed(TransientError, told, str(answer.status)) from None

    def _refused(self, answer: Answer) -> PermanentError | TransientError:
        said = self._said(answer)
        told = f"GitHub answered {answer.status}" + (f": {said}" if said else ".")
        after = _rest(answer, said)
        if after is not None or answer.status in _LATER or answer.status >= _THEIRS:
            return _failed(TransientError, told, str(answer.status), said, retry_after=after)
        return _failed(PermanentError, told, str(answer.status), said)

    def _said(self, answer: Answer) -> str:
        try:
            message = msgspec.json.decode(answer.body, type=_Refusal).message
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = None
        said = values.printable(str(message or ""), _MESSAGE_MAX)
        return said.replace(self._token, "…") if self._token else said


def _rest(answer: Answer, said: str) -> timedelta | None:
    """For how long it wants to be left alone; none where it does not say so."""
    asked = read_retry_after(answer.headers.get("retry-after", ""))
    if asked is None and answer.status in _LIMITED:
        if answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
            until = answer.headers.get("x-ratelimit-reset", "").strip()
            is_told = until.isascii() and until.isdecimal() and len(until) <= len("9999999999")
            asked = timedelta(seconds=int(until) - time.time()) if is_told else _REST
        elif "rate limit" in said.lower():
            asked = _REST
    return None if asked is None else min(max(asked, _REST_MIN), _REST_MAX)


def _failed(error: Any, told: str, code: str, said: str | None = None, **more: Any) -> Any:
    return error(told, platform=PLATFORM, platformCode=code, platformMessage=told if said is None else said, **more)
