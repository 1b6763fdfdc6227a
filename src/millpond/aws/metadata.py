"""What an EC2 instance can learn about itself: version 2 of its metadata service, over plain HTTP on a local address.

A token is fetched first and shown with every question. From inside a container the answer must take one hop more: set
the instance's hop limit to 2, or the service looks absent.
"""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Self, cast

import httpx2
import msgspec

from millpond.errors import UnavailableError

if TYPE_CHECKING:
    from types import TracebackType

URL: Final = "http://169.254.169.254"
URL_VARIABLE: Final = "MILLPOND_EC2_METADATA"
TOKEN_SECONDS: Final = 21_600  # the longest that the service gives
_TOKEN_MARGIN: Final = 60.0
_TIMEOUT: Final = 1.0
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service said, and when by its own clock."""

    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Interruption:
    """The machine is taken back: ``terminate``, ``stop`` or ``hibernate``, in so many seconds."""

    action: str
    at: str
    seconds_left: float | None
    """None where the service gives no time that can be read."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A document that names this instance, and Amazon's signature of it."""

    document: str
    signature: str


class Metadata:
    """The metadata service; raises :class:`UnavailableError` where there is none."""

    def __init__(self, url: str | None = None, *, timeout: float = _TIMEOUT) -> None:
        self.url = (url or os.environ.get(URL_VARIABLE) or URL).rstrip("/")
        # A proxy or a redirection would hand the token, and with it the machine's credentials, to somebody else.
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # it is plain HTTP: no certificates need be read
        )
        self._token: str | None = None
        self._token_until = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def is_there(self) -> bool:
        """Whether this is an EC2 instance, as far as can be seen from here."""
        try:
            await self._renew()
        except UnavailableError:
            return False
        return True

    async def instance_id(self) -> str:
        return await self._need("meta-data/instance-id")

    async def life_cycle(self) -> str:
        """Either ``spot`` or ``on-demand``."""
        return await self._need("meta-data/instance-life-cycle")

    async def region(self) -> str:
        return await self._need("meta-data/placement/region")

    async def interruption(self) -> Interruption | None:
        """The Spot notice, if there is one: two minutes' warning at best, and none before a hibernation."""
        answer = await self.read("meta-data/spot/instance-action")
        if answer is None:
            return None
        told = _members(answer, "spot/instance-action")
        at = str(told.get("time", ""))
        return Interruption(str(told.get("action", "terminate")), at, _seconds_between(answer.at, at))

    async def rebalance_at(self) -> str | None:
        """Since when the machine is at a greater risk of being taken back, if it is."""
        answer = await self.read("meta-data/events/recommendations/rebalance")
        return None if answer is None else str(_members(answer, "rebalance").get("noticeTime", ""))

    async def target_state(self) -> str | None:
        """Where the Auto Scaling Group wants this instance: ``InService``, ``Terminated``, …; None outside a group."""
        answer = await self.read("meta-data/autoscaling/target-lifecycle-state")
        return None if answer is None else answer.text.strip()

    async def identity(self) -> Identity:
        """The proof of who this instance is; it stays the same until the instance is stopped."""
        document = await self._need("dynamic/instance-identity/document", strip=False)
        return Identity(document, "".join((await self._need("dynamic/instance-identity/signature")).split()))

    async def _need(self, path: str, *, strip: bool = True) -> str:
        answer = await self.read(path)
        if answer is None:
            raise UnavailableError(f"The metadata of this machine has no {path}.")
        return answer.text.strip() if strip else answer.text

    async def read(self, path: str) -> Answer | None:
        """What is under a path of ``/latest/``; None where nothing is."""
        response = await self._ask(path)
        if response.status_code == _UNAUTHORIZED:  # the token is too old, or of another life of the service
            self._token = None
            response = await self._ask(path)
        if response.status_code == _NOT_FOUND:
            return None
        if response.status_code != _OK:
            raise UnavailableError(f"The metadata service answered {path} with HTTP {response.status_code}.")
        return Answer(response.text, _clock(response))

    async def _ask(self, path: str) -> httpx2.Response:
        if self._token is None or time.monotonic() > self._token_until:
            await self._renew()
        return await self._send("GET", f"/latest/{path}", {"X-aws-ec2-metadata-token": self._token or ""})

    async def _renew(self) -> None:
        asked_at = time.monotonic()
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        response = await self._send("PUT", "/latest/api/token", headers)
        token = response.text.strip()
        if response.status_code != _OK or not token.isascii() or not token.isprintable():
            raise UnavailableError(f"The metadata service gave no token: HTTP {response.status_code}.")
        self._token, self._token_until = token, asked_at + TOKEN_SECONDS - _TOKEN_MARGIN

    async def _send(self, method: str, path: str, headers: dict[str, str]) -> httpx2.Response:
        try:
            return await self._http.request(method, path, headers=headers)
        except httpx2.HTTPError as error:
            told = str(error) or type(error).__name__
            raise UnavailableError(
                f"The metadata service of EC2 at {self.url} could not be reached: {told}.",
                hint="Is this an EC2 instance? Inside a container, its hop limit must be 2.",
            ) from error


def _members(answer: Answer, what: str) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(answer.text)
    except msgspec.DecodeError:
        told = None
    if not isinstance(told, dict):
        raise UnavailableError(f"The metadata service's {what} cannot be read: {answer.text[:100]!r}.")
    return cast("dict[str, Any]", told)


def _clock(response: httpx2.Response) -> datetime:
    """The service's time, for that of the machine may be wrong."""
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        return datetime.now(UTC)


def _seconds_between(now: datetime, at: str) -> float | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
