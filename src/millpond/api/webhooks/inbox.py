"""The development inbox: a webhook receiver in ``millpond up``. The dashboard shows the received requests.

The inbox is kept in the memory of one process and does not exist in production: received requests may contain
secrets, and anybody can send them. Reading it needs a key of all tenants.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from millpond import errors, webhooks, wire
from millpond.api import parameters
from millpond.api.calls import Reply, reply
from millpond.api.principals import check_all_tenants
from millpond.api.routes import HTML, JSON, TEXT, Route
from millpond.api.scopes import ANYBODY, OPERATORS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call

KEPT_MAX: Final = 200
SIZE_MAX: Final = 64 * 1024
BYTES_MAX: Final = 4 * 1024 * 1024
"""How many bytes of JSON the kept requests have together: they are read in one response."""
_SECRETS_MAX: Final = 1_000
_SIGNATURES_MAX: Final = 10
_NAME_MAX: Final = 100
_BARE: Final = (204, 205, 304)  # responses without a body
_SIGNATURE: Final = "webhook-signature"


class Receive(parameters.Query, forbid_unknown_fields=False):
    """The response status of the inbox, to test failures."""

    status: Annotated[int, Meta(ge=200, le=599)] = 200
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] | None = None


class ReadInbox(parameters.Query):
    """Which requests to return."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Return only requests after this number.")] = 0


class StoredRequest(wire.Answer):
    """The number of a stored request."""

    number: int


class Received(wire.Answer):
    """A received request."""

    number: int
    name: str
    at: wire.Time
    answered: Annotated[int, Meta(description="The status of the response.")]
    headers: list[tuple[str, str]]
    body: Annotated[str, Meta(description="As text; invalid bytes are replaced.")]
    size: int
    event: str | None
    signature: Annotated[
        Literal["good", "bad", "unsigned"], Meta(description="good: signed with a secret known to the inbox.")
    ]
    reason: Annotated[str | None, Meta(description="The reason why the signature is invalid.")]


class Contents(wire.Answer):
    """The received requests, newest first, and the number of the newest."""

    data: list[Received]
    last: int


class AddSecret(wire.Request):
    """A secret for verifying signatures."""

    secret: wire.WebhookSecret


class _Kept(msgspec.Struct):
    """A request as received, with the result of its signature check."""

    number: int
    name: str
    at: datetime
    answered: int
    headers: list[tuple[str, str]]
    body: bytes
    size: int
    """The bytes of its headers and body as JSON."""
    signature: Literal["good", "bad", "unsigned"] = "unsigned"
    reason: str | None = None


class Inbox:
    """The last received requests, and the known secrets."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=KEPT_MAX)
        self._secrets: dict[str, None] = {}
        self._last = 0

    def learn(self, secret: str) -> None:
        """Verify signatures with this secret too, also those of earlier requests; the oldest secret is dropped."""
        if secret not in self._secrets:
            for kept in self._kept:
                if kept.signature == "bad":
                    _judge(kept, [secret])
        self._secrets[secret] = None
        while len(self._secrets) > _SECRETS_MAX:
            del self._secrets[next(iter(self._secrets))]

    def keep(self, name: str, headers: list[tuple[str, str]], body: bytes, answered: int) -> int:
        self._last += 1
        size = len(msgspec.json.encode((headers, body.decode("utf-8", "replace"))))
        kept = _Kept(self._last, name, datetime.now(UTC), answered, headers, body, size)
        _judge(kept, list(self._secrets))
        self._kept.append(kept)
        while sum(kept.size for kept in self._kept) > BYTES_MAX:
            self._kept.popleft()
        return self._last

    def clear(self) -> None:
        self._kept.clear()

    def after(self, number: int) -> Contents:
        """The requests received after this number, newest first."""
        return Contents(
            data=[self._to_wire(kept) for kept in reversed(self._kept) if kept.number > number], last=self._last
        )

    def _to_wire(self, kept: _Kept) -> Received:
        return Received(
            number=kept.number,
            name=kept.name,
            at=kept.at,
            answered=kept.answered,
            headers=kept.headers,
            body=kept.body.decode("utf-8", "replace"),
            size=len(kept.body),
            event=_event(kept.body),
            signature=kept.signature,
            reason=kept.reason,
        )


def _judge(kept: _Kept, secrets: list[str]) -> None:
    """Check whether one of the secrets has signed the request, as of the time when it was received.

    This is done once and not on each read, because anybody can send requests that are slow to check.
    """
    headers = dict(kept.headers)
    if _SIGNATURE not in headers:
        return
    if len(headers[_SIGNATURE].split(maxsplit=_SIGNATURES_MAX)) > _SIGNATURES_MAX:
        kept.signature, kept.reason = "bad", f"It has more than {_SIGNATURES_MAX} signatures."
        return
    try:
        webhooks.verify(kept.body, headers, secrets, now=kept.at)
        kept.signature, kept.reason = "good", None
    except errors.MillpondError as error:
        kept.signature, kept.reason = "bad", error.message


def _event(body: bytes) -> str | None:
    """The event that the body names, if it does."""
    try:
        content = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name = content.get("type") or content.get("event")  # the native API has `type`, some products have `event`
    return name[:_NAME_MAX] if isinstance(name, str) else None


# Over HTTP


async def receive(call: Call) -> Reply:
    """Accept any request, and respond with the status in the query."""
    query: Receive = call.query
    body = await call.read_bytes(SIZE_MAX)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in call.scope["headers"]]
    number = _inbox(call).keep(call.params["name"][:_NAME_MAX], headers, body, query.status)
    answer = Reply(query.status) if query.status in _BARE else reply(StoredRequest(number=number), query.status)
    if query.retry_after is not None:
        answer.headers.append((b"retry-after", b"%d" % query.retry_after))
    return answer


async def look(call: Call) -> Reply:
    check_all_tenants(call)  # it receives the webhooks of all tenants
    return reply(_inbox(call).after(call.query.after))


async def add_secret(call: Call) -> Reply:
    check_all_tenants(call)
    webhooks.check_secret(call.body.secret, field="secret")
    _inbox(call).learn(call.body.secret)
    return Reply(204)


async def clear(call: Call) -> Reply:
    check_all_tenants(call)
    _inbox(call).clear()
    return Reply(204)


def _inbox(call: Call) -> Inbox:
    return cast("Inbox", call.state.inbox)


ROUTES: Final = (
    Route(
        method="POST",
        path="/inbox/{name}",
        handle=receive,
        summary="Receive a webhook or any other request, and keep it in memory for inspection.",
        description=f"At most {SIZE_MAX:,} bytes; the last {KEPT_MAX} requests are kept, fewer if they are more than "
        "4 MiB. `?status=` sets the status.",
        who=ANYBODY,
        query=Receive,
        body_max=SIZE_MAX,
        offers=(JSON, TEXT, HTML),
        answers={200: StoredRequest},
    ),
    Route(
        method="GET",
        path="/inbox.json",
        handle=look,
        summary="List the received requests, newest first.",
        who=READERS,
        query=ReadInbox,
        answers={200: Contents},
    ),
    Route(
        method="POST",
        path="/inbox.json",
        handle=add_secret,
        summary="Add a secret for verifying signatures in the inbox.",
        description="Secrets of webhooks and endpoints created since the start are already known.",
        who=OPERATORS,
        body=AddSecret,
        answers={204: None},
    ),
    Route(
        method="DELETE",
        path="/inbox.json",
        handle=clear,
        summary="Clear the inbox.",
        who=OPERATORS,
        answers={204: None},
    ),
)
"""Served beside the routes of the native API if there is an inbox."""
