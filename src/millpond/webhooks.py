"""Webhooks: what is sent to a customer's URL, in the shape and with the signatures of Standard Webhooks 1.0."""

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

MOMENTS: Final = (
    "submitted",
    "queued",
    "started",
    "requeued",
    "parked",
    "answered",
    "delivering",
    "succeeded",
    "failed",
    "canceled",
    "expired",
    "blocked",
    "retried",
)
"""The moments of a job that a webhook can tell of; what it says on its way is for streams."""
ENDS: Final = ("succeeded", "failed", "canceled", "expired", "blocked")
"""Those that are told unless others are asked for."""
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
"""How long to wait after the first, second, … try that failed; after the last of them it is given up."""


def shown_url(url: str) -> str:
    """A URL as it may be logged and audited: who gave it may have put a password before the host or into the query."""
    bare = url.partition("#")[0].partition("?")[0]
    scheme, slashes, rest = bare.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The URL that one job was submitted with."""

    url: str
    secret: str
    """``whsec_…``: what is sent is signed with it."""
    moments: tuple[str, ...] | None = None
    """None: those that the kind tells of."""
    is_secret_chosen: bool = False
    """The secret is a part of what is asked for: with the same key, another one is another request. Otherwise it was
    made for this call, and a replay is told the first one.
    """

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Without the secret: this is what ends in logs and tracebacks."""
        return [("url", shown_url(self.url)), ("moments", self.moments)]

    def __repr__(self) -> str:
        return f"Hook({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


@dataclass(frozen=True, slots=True)
class Told:
    """A moment of a job, as it was then: what the body of a webhook is made from."""

    job_id: UUID
    moment: str
    at: datetime
    job: Mapping[str, Any]
    """tenant, account, kind, state, outcome, created_at, expires_at, input, memo, answer, output, error and so on."""
    name: str = ""
    """What its receiver calls the moment."""


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


def _native_body(told: Told) -> dict[str, Any]:
    data = {"id": ids.text("job", told.job_id)} | {name: told.job.get(name) for name in _NATIVE_FIELDS}
    return {"type": told.name or f"job.{told.moment}", "timestamp": told.at, "data": data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """In which words the URL of a job is told of it."""

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({end: f"job.{end}" for end in ENDS}))
    """What each moment is called that is told."""
    body: Callable[[Told], dict[str, Any]] = _native_body
    """The body; the same bytes for the same moment, whenever it is sent."""
    schedule: tuple[timedelta, ...] = SCHEDULE


NATIVE: Final = Webhook()


# Signatures


SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - it says that a secret follows
SECRET_BYTES: Final = (24, 64)
SIGNATURES_MAX: Final = 32
"""How many signatures a webhook may come with: each is compared with each secret."""
TOLERANCE: Final = timedelta(minutes=5)
"""How far the clock of the sender and that of the receiver may be apart."""


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def check_secret(text: str, field: str = "secret") -> str:
    """Refuse what is no secret, or one that could be guessed."""
    try:
        size = len(_key(text))
    except InvalidError:
        size = 0
    least, most = SECRET_BYTES
    if not text.startswith(SECRET_PREFIX) or not least <= size <= most:
        raise InvalidError(
            f"A secret is {SECRET_PREFIX} and then {least} to {most} bytes in base64.",
            field=field,
            hint="Leave it out, and one is made.",
        )
    return text


def secret_digest(secret: str) -> str:
    """What a secret is recognised by, where it must not be kept itself."""
    return hashlib.sha256(b"webhook secret:" + _bytes(secret)).hexdigest()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a webhook: ``v1,`` and the HMAC of its id, its time and its body."""
    signed = _bytes(f"{message_id}.{timestamp}.") + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def signatures(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """One signature for each secret: while secrets are changed there are two, and a receiver needs either."""
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
    """What a webhook says, once it is sure that it comes from who has the secret, and was sent a moment ago.

    The body must be the bytes as they came. With several secrets, one that fits is enough. ``now`` is when it came,
    where that is not now.
    """
    raw = _bytes(body) if isinstance(body, str) else body
    told = {name.lower(): value for name, value in headers.items()}
    message_id, sent, given = (told.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (message_id and sent and given):
        raise WebhookInvalidError("A webhook has the headers webhook-id, webhook-timestamp and webhook-signature.")
    if not (sent.isascii() and sent.isdecimal() and len(sent) < _DIGITS_MAX):
        raise WebhookInvalidError("The header webhook-timestamp must be a time in whole seconds.")
    signed = _bytes(given).split(maxsplit=SIGNATURES_MAX)
    if len(signed) > SIGNATURES_MAX:
        raise WebhookInvalidError(f"The header webhook-signature has more than {SIGNATURES_MAX} signatures.")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    expected = [sign(each, message_id, int(sent), raw).encode() for each in secrets]
    # Every pair is compared: how long it takes says nothing of which fits.
    fits = [hmac.compare_digest(each, own) for each in signed for own in expected]
    if not any(fits):
        raise WebhookInvalidError("No signature fits the body and the secret.")
    age = (time.time() if now is None else now.timestamp()) - int(sent)
    if abs(age) > tolerance.total_seconds():
        raise WebhookInvalidError("It was sent too long ago, or the clocks differ.", hint="Look at the clock.")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebhookInvalidError("The body is signed as it should be, but it is not JSON.") from error


_DIGITS_MAX: Final = 16


def _key(secret: str) -> bytes:
    """The bytes of a secret. One that is empty, or short, would let anybody sign: it is refused on either side."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError as error:
        raise InvalidError("A secret is whsec_ and then base64.", field="secret") from error
    if len(key) < SECRET_BYTES[0]:
        raise InvalidError(
            f"The secret has {len(key)} bytes; it must have {SECRET_BYTES[0]} or more.",
            field="secret",
            hint="Is it set at all? It is whsec_ and then base64.",
        )
    return key


def _bytes(text: str) -> bytes:
    """Whatever came in a header: what is no text fits no signature, and is no failure of ours."""
    return text.encode("utf-8", "surrogatepass")
