"""The client of Replicate's API for predictions.

Its words for where a prediction stands have grown before and may again: one that is not known is taken for under way
until the prediction says when it was completed. Nothing that is raised here has the token in it.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from millpond import values, webhooks
from millpond.client.trust import trusted
from millpond.errors import (
    BadSignatureError,
    InputError,
    NotFoundError,
    PermanentError,
    SettingsError,
    TransientError,
    WebhookInvalidError,
)
from millpond.providers import Callback, Prediction, Status
from millpond.retry import read_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.providers import Ask

TOLERANCE: Final = timedelta(minutes=5)
"""How old, or how far ahead, a callback may be."""
SECONDS: Final = 30.0
"""How long a call may take."""
SECRET_KEPT: Final = 60.0
"""For how many seconds the secret of callbacks is surely the one that was asked for."""
_ANY_AGE: Final = timedelta(days=36_500)
_PORTS: Final = {"http": 80, "https": 443}
_VERSION: Final = re.compile(r"(?:[\w.-]+/[\w.-]+:)?(?P<version>[0-9a-f]{40,64}|[\w.-]{1,64})", re.ASCII)
_NAMED: Final = re.compile(r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)", re.ASCII)
_DEPLOYED: Final = re.compile(r"deployments/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)", re.ASCII)
_RESETS: Final = re.compile(r"resets in ~?(?P<seconds>\d{1,4})\s*s")
_STATUSES: Final[dict[str, Status]] = {
    "starting": "starting",
    "processing": "processing",
    "succeeded": "succeeded",
    "failed": "failed",
    "canceled": "canceled",
    "aborted": "canceled",  # its deadline came before it began
}
_REST: Final = timedelta(seconds=5)
_REST_MIN: Final = timedelta(seconds=1)
_REST_MAX: Final = timedelta(hours=1)
_REST_DENIED: Final = timedelta(seconds=30)
"""For how long it is left alone when it does not want us at all."""
_CANCEL_AFTER_MIN: Final = 5
_PASSING: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""With these, the same may be taken later."""
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)
_ENDED_ALREADY: Final = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_REQUEST)
_DETAIL_MAX: Final = 500


class _Told(msgspec.Struct):
    """A prediction as it comes, as far as it matters."""

    id: str
    status: str
    output: Any = None
    error: Any = None
    completed_at: str | None = None
    data_removed: bool = False


class _Refusal(msgspec.Struct):
    title: Any = None
    detail: Any = None


class _Secret(msgspec.Struct):
    key: str


class Replicate:
    """Replicate at ``url``, or whatever speaks like it there.

    A model is asked for as ``owner/name``, ``owner/name:version``, by a version alone, or as
    ``deployments/owner/name``. Without ``webhook_secret`` the API is asked for it.
    """

    name = "replicate"

    def __init__(self, url: str, token: str, *, webhook_secret: str | None = None, seconds: float = SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise SettingsError(f"{url[:100]!r} is not the address of an API.", field="replicate_url")
        if not token.strip() or not token.isascii() or not token.isprintable():
            raise SettingsError("Replicate needs a token.", field="replicate_api_token")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.origin = f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}"
        self._token = token.strip()
        self._url = url.rstrip("/").removesuffix("/v1")
        self._given_secret = webhook_secret
        self._asked_secret: tuple[str, float] | None = None
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._token}", "User-Agent": "millpond"},
            timeout=httpx2.Timeout(seconds, connect=min(seconds, 10.0)),
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20),
            verify=trusted(),
        )

    def __repr__(self) -> str:
        return f"<Replicate at {self.origin}>"

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(self, ask: Ask, *, callback: str | None, deadline: timedelta | None) -> Prediction:
        path, body = _place(ask.model)
        body["input"] = ask.input
        if callback is not None:
            body |= {"webhook": callback, "webhook_events_filter": ["completed"]}
        headers: dict[str, str] = {}
        if deadline is not None:
            headers["Cancel-After"] = f"{max(int(deadline.total_seconds()), _CANCEL_AFTER_MIN)}s"
        return self._prediction(self._taken(await self._call("POST", path, headers=headers, json=body)))

    async def status(self, prediction_id: str) -> Prediction:
        told = self._prediction(await self._read(f"/predictions/{quote(prediction_id, safe='')}"))
        if told.id != prediction_id:
            raise TransientError("Replicate told of another prediction than it was asked for.")
        return told

    async def cancel(self, prediction_id: str) -> Prediction | None:
        """Have it stopped; tells where it stands then. Nothing where Replicate knows nothing of it."""
        path = f"/predictions/{quote(prediction_id, safe='')}"
        answer = await self._call("POST", f"{path}/cancel")
        if answer.status_code in _ENDED_ALREADY:
            answer = await self._call("GET", path)
        return None if answer.status_code == HTTPStatus.NOT_FOUND else self._prediction(self._answered(answer))

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Callback:
        given = {name.lower(): value for name, value in headers.items()}
        try:
            called = msgspec.convert(await self._verified(given, body), _Told)
        except WebhookInvalidError as error:
            raise BadSignatureError("The call is not signed by Replicate.", reason="forged") from error
        except msgspec.ValidationError:
            raise BadSignatureError("The call is not about a prediction.", reason="forged") from None
        sent = datetime.fromtimestamp(int(given["webhook-timestamp"]), UTC)
        if abs(datetime.now(UTC) - sent) > TOLERANCE:
            raise BadSignatureError("The call is too old, or from the future.", reason="stale")
        return Callback(given["webhook-id"], called.id, called.status)

    async def _verified(self, headers: Mapping[str, str], body: bytes) -> Any:
        """What is signed, whatever its age. A secret that was kept for a while may have been replaced."""
        secret, is_fresh = await self._secret()
        try:
            return webhooks.verify(body, headers, secret, tolerance=_ANY_AGE)
        except WebhookInvalidError:
            if is_fresh:
                raise
        self._asked_secret = None
        secret, _ = await self._secret()
        return webhooks.verify(body, headers, secret, tolerance=_ANY_AGE)

    async def _secret(self) -> tuple[str, bool]:
        """What callbacks are signed with, and whether that cannot be another by now."""
        if self._given_secret is not None:
            return self._given_secret, True
        now = time.monotonic()
        if self._asked_secret is None:
            answer = await self._read("/webhooks/default/secret")
            self._asked_secret = _decoded(answer, _Secret).key, now
        key, since = self._asked_secret
        return key, now - since < SECRET_KEPT

    async def _read(self, path: str) -> httpx2.Response:
        return self._answered(await self._call("GET", path))

    async def _call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        try:
            return await self._http.request(method, f"{self._url}/v1{path}", **options)
        except httpx2.InvalidURL:
            raise PermanentError("Replicate cannot be asked for something of that name.") from None
        except httpx2.HTTPError as error:  # its text may have the address in it, and that is no secret
            raise TransientError(f"Replicate did not answer ({type(error).__name__}).") from None

    def _taken(self, answer: httpx2.Response) -> httpx2.Response:
        """The answer to something new. A refusal is its last word about that, unless it does not know who we are."""
        status = answer.status_code
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING:
            raise PermanentError(self._said(answer), provider_status=status)
        return self._answered(answer)

    def _answered(self, answer: httpx2.Response) -> httpx2.Response:
        """The answer about something that it has. A refusal to tell says nothing of that: it is asked again later."""
        status = answer.status_code
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        said, after = self._said(answer), _retry_after(answer)
        if status == HTTPStatus.NOT_FOUND:
            raise NotFoundError(said, provider_status=status)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            after = after or _resets(said) or _REST
        elif status in _DENIED:
            after = after or _REST_DENIED
        raise TransientError(said, retry_after=after, provider_status=status)

    def _said(self, answer: httpx2.Response) -> str:
        try:
            refusal = msgspec.json.decode(answer.content, type=_Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError):
            refusal = _Refusal()
        parts = [str(part) for part in (refusal.title, refusal.detail) if part]
        told = values.printable(": ".join(parts), _DETAIL_MAX).replace(self._token, "…")
        return (
            f"Replicate answered {answer.status_code}: {told}" if told else f"Replicate answered {answer.status_code}."
        )

    def _prediction(self, answer: httpx2.Response) -> Prediction:
        told = _decoded(answer, _Told)
        status = _STATUSES.get(told.status)
        if status is None:
            status = "processing" if told.completed_at is None else "failed"
        if status == "succeeded" and told.data_removed and told.output is None:
            return Prediction(told.id, "failed", error="Replicate has removed the output before it was fetched.")
        error = None if told.error is None else values.printable(str(told.error), 2_000)
        if status == "failed" and error is None:
            error = f"The prediction ended as {values.printable(told.status, 40)!r}."
        return Prediction(told.id, status, told.output, error)


def _place(model: str) -> tuple[str, dict[str, Any]]:
    """Where a model is asked for, and what the body says of it."""
    if deployed := _DEPLOYED.fullmatch(model):
        return f"/deployments/{deployed['owner']}/{deployed['name']}/predictions", {}
    if named := _NAMED.fullmatch(model):
        return f"/models/{named['owner']}/{named['name']}/predictions", {}
    if versioned := _VERSION.fullmatch(model):
        return "/predictions", {"version": versioned["version"]}
    raise InputError(
        f"{model[:100]!r} is not the name of a model.",
        field="model",
        hint="Name it as owner/name, owner/name:version, a version, or deployments/owner/name.",
    )


def _decoded(answer: httpx2.Response, shape: Any) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TransientError(f"Replicate answered {answer.status_code} with something else than JSON.") from None


def _retry_after(answer: httpx2.Response) -> timedelta | None:
    """As it is said: in seconds, or as a date."""
    after = read_retry_after(answer.headers.get("retry-after", ""))
    return None if after is None else min(max(after, _REST_MIN), _REST_MAX)


def _resets(said: str) -> timedelta | None:
    found = _RESETS.search(said)
    return None if found is None else timedelta(seconds=int(found["seconds"]))
