"""The client of Replicate's API for predictions.

Replicate has added statuses of predictions before and may do so again: an unknown status counts as running until the
prediction has a completion time. No error that is raised here contains the token.
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
"""How far the timestamp of a callback may be in the past or in the future."""
SECONDS: Final = 30.0
"""How long a call may take."""
SECRET_KEPT: Final = 60.0
"""For how many seconds a fetched secret of callbacks is considered current."""
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
    "aborted": "canceled",  # its deadline passed before it began
}
_REST: Final = timedelta(seconds=5)
_REST_MIN: Final = timedelta(seconds=1)
_REST_MAX: Final = timedelta(hours=1)
_REST_DENIED: Final = timedelta(seconds=30)
"""How long Replicate is not called after it rejected the token or the account."""
_CANCEL_AFTER_MIN: Final = 5
_PASSING: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""With these statuses, the same request may be accepted later."""
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)
_ENDED_ALREADY: Final = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_REQUEST)
_DETAIL_MAX: Final = 500


class _PredictionBody(msgspec.Struct):
    """The fields of a prediction that are used."""

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
    """Replicate at ``url``, or a server with the same API.

    A model is named as ``owner/name``, ``owner/name:version``, by a version alone, or as ``deployments/owner/name``.
    Without ``webhook_secret``, it is fetched from the API.
    """

    name = "replicate"

    def __init__(self, url: str, token: str, *, webhook_secret: str | None = None, seconds: float = SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise SettingsError(f"{url[:100]!r} is not a valid API URL.", field="replicate_url")
        if not token.strip() or not token.isascii() or not token.isprintable():
            raise SettingsError("Replicate requires a token.", field="replicate_api_token")
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

    async def status(self, external_id: str) -> Prediction:
        prediction = self._prediction(await self._read(f"/predictions/{quote(external_id, safe='')}"))
        if prediction.id != external_id:
            raise TransientError("Replicate returned another prediction than requested.")
        return prediction

    async def cancel(self, external_id: str) -> Prediction | None:
        """Cancel a prediction; returns its state after that, or None if Replicate does not know it."""
        path = f"/predictions/{quote(external_id, safe='')}"
        answer = await self._call("POST", f"{path}/cancel")
        if answer.status_code in _ENDED_ALREADY:
            answer = await self._call("GET", path)
        return None if answer.status_code == HTTPStatus.NOT_FOUND else self._prediction(self._answered(answer))

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Callback:
        given = {name.lower(): value for name, value in headers.items()}
        try:
            called = msgspec.convert(await self._verified(given, body), _PredictionBody)
        except WebhookInvalidError as error:
            raise BadSignatureError("The callback is not signed by Replicate.", reason="forged") from error
        except msgspec.ValidationError:
            raise BadSignatureError("The callback does not contain a prediction.", reason="forged") from None
        sent = datetime.fromtimestamp(int(given["webhook-timestamp"]), UTC)
        if abs(datetime.now(UTC) - sent) > TOLERANCE:
            raise BadSignatureError("The timestamp of the callback is outside the allowed window.", reason="stale")
        return Callback(given["webhook-id"], called.id, called.status)

    async def _verified(self, headers: Mapping[str, str], body: bytes) -> Any:
        """The signed content, whatever its age. A cached secret may have been replaced, so it is fetched again once."""
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
        """The secret of callbacks, and whether it is certainly current."""
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
            raise PermanentError("The model name is not valid in a URL.") from None
        except httpx2.HTTPError as error:  # not with its text, which may contain the URL
            raise TransientError(f"Replicate did not respond ({type(error).__name__}).") from None

    def _taken(self, answer: httpx2.Response) -> httpx2.Response:
        """The response to a submit. A rejection is permanent, unless its status may pass, as for an invalid token."""
        status = answer.status_code
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING:
            raise PermanentError(self._describe(answer), provider_status=status)
        return self._answered(answer)

    def _answered(self, answer: httpx2.Response) -> httpx2.Response:
        """The response about a prediction. A rejection says nothing about the prediction, so it is retried later."""
        status = answer.status_code
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        message, after = self._describe(answer), _retry_after(answer)
        if status == HTTPStatus.NOT_FOUND:
            raise NotFoundError(message, provider_status=status)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            after = after or _resets(message) or _REST
        elif status in _DENIED:
            after = after or _REST_DENIED
        raise TransientError(message, retry_after=after, provider_status=status)

    def _describe(self, answer: httpx2.Response) -> str:
        try:
            refusal = msgspec.json.decode(answer.content, type=_Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError):
            refusal = _Refusal()
        parts = [str(part) for part in (refusal.title, refusal.detail) if part]
        reason = values.printable(": ".join(parts), _DETAIL_MAX).replace(self._token, "…")
        message = f"Replicate responded with HTTP {answer.status_code}"
        return f"{message}: {reason}" if reason else f"{message}."

    def _prediction(self, answer: httpx2.Response) -> Prediction:
        body = _decoded(answer, _PredictionBody)
        status = _STATUSES.get(body.status)
        if status is None:
            status = "processing" if body.completed_at is None else "failed"
        if status == "succeeded" and body.data_removed and body.output is None:
            return Prediction(body.id, "failed", error="Replicate deleted the output before it was downloaded.")
        error = None if body.error is None else values.printable(str(body.error), 2_000)
        if status == "failed" and error is None:
            error = f"The prediction ended as {values.printable(body.status, 40)!r}."
        return Prediction(body.id, status, body.output, error)


def _place(model: str) -> tuple[str, dict[str, Any]]:
    """The path of a model, and the members of the body that name it."""
    if deployed := _DEPLOYED.fullmatch(model):
        return f"/deployments/{deployed['owner']}/{deployed['name']}/predictions", {}
    if named := _NAMED.fullmatch(model):
        return f"/models/{named['owner']}/{named['name']}/predictions", {}
    if versioned := _VERSION.fullmatch(model):
        return "/predictions", {"version": versioned["version"]}
    raise InputError(
        f"{model[:100]!r} is not a valid model name.",
        field="model",
        hint="Use owner/name, owner/name:version, a version, or deployments/owner/name.",
    )


def _decoded(answer: httpx2.Response, shape: Any) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TransientError(f"The HTTP {answer.status_code} response of Replicate is not JSON.") from None


def _retry_after(answer: httpx2.Response) -> timedelta | None:
    """The Retry-After header: in seconds, or as a date."""
    after = read_retry_after(answer.headers.get("retry-after", ""))
    return None if after is None else min(max(after, _REST_MIN), _REST_MAX)


def _resets(message: str) -> timedelta | None:
    found = _RESETS.search(message)
    return None if found is None else timedelta(seconds=int(found["seconds"]))
