"""Webhooks: requests to customers' URLs, with the format and signatures of Standard Webhooks 1.0."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets as random
import time
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids
from millpond.errors import InvalidError, WebhookInvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

LIFECYCLE_EVENTS: Final = (
    "submitted",
    "queued",
    "started",
    "requeued",
    "parked",
    "answered",
    "resumed",
    "delivering",
    "succeeded",
    "failed",
    "canceled",
    "expired",
    "blocked",
    "retried",
)
"""The lifecycle events that webhooks can deliver; the others are for streams."""
ENDS: Final = ("succeeded", "failed", "canceled", "expired", "blocked")
"""The events that are delivered by default."""
SCHEDULE: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""The delays after the first, second, … failed attempt; after the last one, the delivery has failed."""


def shown_url(url: str) -> str:
    """A URL as it may be logged and audited: without user, password and query, which may contain secrets."""
    bare = url.partition("#")[0].partition("?")[0]
    scheme, slashes, rest = bare.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook URL of one job."""

    url: str
    secret: str
    """``whsec_…``: the secret that signs the requests."""
    events: tuple[str, ...] | None = None
    """None: the events of the kind."""
    is_secret_chosen: bool = False
    """Whether the client chose the secret. Such a secret is part of the request: with the same idempotency key,
    another secret makes another request. A generated secret is not, and a replay returns the first one.
    """

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Without the secret, because it may appear in logs and tracebacks."""
        return [("url", shown_url(self.url)), ("events", self.events)]

    def __repr__(self) -> str:
        return f"Hook({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


@dataclass(frozen=True, slots=True)
class WebhookData:
    """A lifecycle event with the job at that time: the data of a webhook body."""

    job_id: UUID
    event: str
    at: datetime
    job: Mapping[str, Any]
    """tenant, account, kind, state, outcome, created_at, expires_at, input, memo, answer, output, error and so on."""
    name: str = ""
    """The name of the event for its receiver."""


_NATIVE_FIELDS: Final = (
    "kind",
    "account",
    "state",
    "phase",
    "outcome",
    "progress",
    "stage",
    "attempts",
    "price",
    "captured",
    "created_at",
    "started_at",
    "finished_at",
    "expires_at",
    "input",
    "output",
    "error",
)


_LATER_FIELDS: Final = ("tags",)
"""The fields that deliveries written by older versions lack; the bodies of these must stay the same bytes."""


def _native_body(event: WebhookData) -> dict[str, Any]:
    data = {"id": ids.text("job", event.job_id)} | {name: event.job.get(name) for name in _NATIVE_FIELDS}
    data |= {name: event.job[name] for name in _LATER_FIELDS if name in event.job}
    return {"type": event.name or f"job.{event.event}", "timestamp": event.at, "data": data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The format of the events for the webhook URL of a job."""

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({end: f"job.{end}" for end in ENDS}))
    """The public names of the delivered events."""
    body: Callable[[WebhookData], dict[str, Any]] = _native_body
    """The body; identical bytes for the same event, whenever it is sent."""
    schedule: tuple[timedelta, ...] = SCHEDULE


NATIVE: Final = Webhook()


# Signatures


SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix, not a secret
SECRET_BYTES: Final = (24, 64)
SIGNATURES_MAX: Final = 32
"""The maximum number of signatures of a webhook: each is compared with each secret."""
TOLERANCE: Final = timedelta(minutes=5)
"""The tolerated difference between the clocks of sender and receiver."""


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def check_secret(text: str, field: str = "secret") -> str:
    """Reject invalid secrets, and secrets that could be guessed."""
    try:
        size = len(_key(text))
    except InvalidError:
        size = 0
    minimum, maximum = SECRET_BYTES
    if not text.startswith(SECRET_PREFIX) or not minimum <= size <= maximum:
        raise InvalidError(
            f"A secret consists of {SECRET_PREFIX} and {minimum} to {maximum} bytes in base64.",
            field=field,
            hint="Omit the secret to have one generated.",
        )
    return text


def secret_digest(secret: str) -> str:
    """A digest that identifies a secret without storing it."""
    return hashlib.sha256(b"webhook secret:" + _bytes(secret)).hexdigest()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a webhook: ``v1,`` and the HMAC of its id, timestamp and body."""
    signed = _bytes(f"{message_id}.{timestamp}.") + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def signatures(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """A signature per secret: during a rotation there are two, and receivers need either."""
    return " ".join(sign(secret, message_id, timestamp, body) for secret in secrets)


def headers(message_id: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signatures(secrets, message_id, timestamp, body),
    }


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str | Iterable[str],
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Any:
    """Verify a webhook and return its content; raise if the signature is invalid or the timestamp too old.

    The body must be the unmodified bytes. With several secrets, one matching secret is enough. ``now`` is the time of
    receipt, if it differs from the current time.
    """
    raw = _bytes(body) if isinstance(body, str) else body
    by_name = {name.lower(): value for name, value in headers.items()}
    message_id, sent, given = (by_name.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (message_id and sent and given):
        raise WebhookInvalidError("The headers webhook-id, webhook-timestamp and webhook-signature are required.")
    if not (sent.isascii() and sent.isdecimal() and len(sent) < _DIGITS_MAX):
        raise WebhookInvalidError("The header webhook-timestamp must be a time in whole seconds.")
    signed = _bytes(given).split(maxsplit=SIGNATURES_MAX)
    if len(signed) > SIGNATURES_MAX:
        raise WebhookInvalidError(f"The header webhook-signature has more than {SIGNATURES_MAX} signatures.")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    expected = [sign(each, message_id, int(sent), raw).encode() for each in secrets]
    # Every pair is compared, so that the duration does not reveal which one matches.
    matches = [hmac.compare_digest(each, own) for each in signed for own in expected]
    if not any(matches):
        raise WebhookInvalidError("No signature matches the body and the secret.")
    age = (time.time() if now is None else now.timestamp()) - int(sent)
    if abs(age) > tolerance.total_seconds():
        raise WebhookInvalidError(
            "The timestamp is outside the allowed window.", hint="Check the clocks of sender and receiver."
        )
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebhookInvalidError("The signature is valid, but the body is not JSON.") from error


_DIGITS_MAX: Final = 16


def _key(secret: str) -> bytes:
    """The bytes of a secret. Empty and short secrets could be guessed and are rejected by sender and receiver."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError as error:
        raise InvalidError("A secret consists of whsec_ and base64.", field="secret") from error
    if len(key) < SECRET_BYTES[0]:
        raise InvalidError(
            f"The secret has {len(key)} bytes; at least {SECRET_BYTES[0]} are required.",
            field="secret",
            hint="Check that the secret is set. It consists of whsec_ and base64.",
        )
    return key


def _bytes(text: str) -> bytes:
    """Encode a header value. One that is not valid text then matches no signature, instead of raising an error."""
    return text.encode("utf-8", "surrogatepass")
