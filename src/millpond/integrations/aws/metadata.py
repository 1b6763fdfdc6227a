"""The client of the EC2 instance metadata service, version 2 (IMDSv2), over plain HTTP on a link-local address.

A token is fetched first and sent with every request. From inside a container the response needs one more hop: set the
instance's hop limit to 2, or the service appears to be absent.
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
TOKEN_SECONDS: Final = 21_600  # the maximum that the service allows
_TOKEN_MARGIN: Final = 60.0
_TIMEOUT: Final = 1.0
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """A response of the service, and its time by the clock of the service."""

    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Interruption:
    """A Spot interruption: its action (``terminate``, ``stop`` or ``hibernate``), and the seconds until then."""

    action: str
    at: str
    seconds_left: float | None
    """None if the service states no readable time."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A document that names this instance, and Amazon's signature of it."""

    document: str
    signature: str


class Metadata:
    """The metadata service; raises :class:`UnavailableError` if it cannot be reached."""

    def __init__(self, url: str | None = None, *, timeout: float = _TIMEOUT) -> None:
        self.url = (url or os.environ.get(URL_VARIABLE) or URL).rstrip("/")
        # A proxy or a redirect would send the token, and with it the credentials of the instance, to another server.
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # plain HTTP needs no certificates, so none are loaded
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
        """Whether the metadata service responds, so this is an EC2 instance."""
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
        """The Spot interruption notice, if there is one: at most two minutes ahead, and not before a hibernation."""
        answer = await self.read("meta-data/spot/instance-action")
        if answer is None:
            return None
        members = _members(answer, "spot/instance-action")
        at = str(members.get("time", ""))
        return Interruption(str(members.get("action", "terminate")), at, _seconds_between(answer.at, at))

    async def rebalance_at(self) -> str | None:
        """The time since which the instance has an elevated risk of interruption, if it has."""
        answer = await self.read("meta-data/events/recommendations/rebalance")
        return None if answer is None else str(_members(answer, "rebalance").get("noticeTime", ""))

    async def target_state(self) -> str | None:
        """The target lifecycle state in its Auto Scaling Group: ``InService``, …; None outside a group."""
        answer = await self.read("meta-data/autoscaling/target-lifecycle-state")
        return None if answer is None else answer.text.strip()

    async def identity(self) -> Identity:
        """The proof of identity of this instance; it stays the same until the instance is stopped."""
        document = await self._need("dynamic/instance-identity/document", strip=False)
        return Identity(document, "".join((await self._need("dynamic/instance-identity/signature")).split()))

    async def _need(self, path: str, *, strip: bool = True) -> str:
        answer = await self.read(path)
        if answer is None:
            raise UnavailableError(f"The instance metadata does not contain {path}.")
        return answer.text.strip() if strip else answer.text

    async def read(self, path: str) -> MetadataResponse | None:
        """The value of a path below ``/latest/``; None if there is none."""
        response = await self._ask(path)
        if response.status_code == _UNAUTHORIZED:  # the token has expired, or the service was restarted
            self._token = None
            response = await self._ask(path)
        if response.status_code == _NOT_FOUND:
            return None
        if response.status_code != _OK:
            raise UnavailableError(f"The metadata service responded to {path} with HTTP {response.status_code}.")
        return MetadataResponse(response.text, _clock(response))

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
            raise UnavailableError(f"The metadata service did not return a token: HTTP {response.status_code}.")
        self._token, self._token_until = token, asked_at + TOKEN_SECONDS - _TOKEN_MARGIN

    async def _send(self, method: str, path: str, headers: dict[str, str]) -> httpx2.Response:
        try:
            return await self._http.request(method, path, headers=headers)
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(
                f"The EC2 metadata service at {self.url} could not be reached: {reason}.",
                hint="Check that this is an EC2 instance. For containers, set the hop limit to 2.",
            ) from error


def _members(answer: MetadataResponse, what: str) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(answer.text)
    except msgspec.DecodeError:
        decoded = None
    if not isinstance(decoded, dict):
        raise UnavailableError(f"The {what} returned by the metadata service is invalid: {answer.text[:100]!r}.")
    return cast("dict[str, Any]", decoded)


def _clock(response: httpx2.Response) -> datetime:
    """The time of the service, because the clock of the instance may be wrong."""
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        return datetime.now(UTC)


def _seconds_between(now: datetime, at: str) -> float | None:
    try:
        instant = datetime.fromisoformat(at)
    except ValueError:
        return None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return max((instant - now).total_seconds(), 0.0)
