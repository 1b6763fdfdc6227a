"""The inbox of development: a receiver of webhooks in ``millpond up``, and a page that shows what came.

It lives in the memory of one process, and production has none: what comes here may be secret, and anybody may send it.
Only callers on the same machine see it, under a name that no other site can take.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from millpond import errors, webhooks, wire
from millpond.api import parameters
from millpond.api.calls import Reply, reply
from millpond.api.operators import check_all_tenants
from millpond.api.routes import ANYBODY, HTML, JSON, OPERATORS, READERS, TEXT, Route
from millpond.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Headers

KEPT_MAX: Final = 200
SIZE_MAX: Final = 64 * 1024
_SECRETS_MAX: Final = 1_000
_SIGNATURES_MAX: Final = 10
_NAME_MAX: Final = 100
_BARE: Final = (204, 205, 304)  # which have no body
_SIGNATURE: Final = "webhook-signature"
_PAGE: Final = "inbox.html"
_PARTS: Final = {
    "inbox.css": b"text/css; charset=utf-8",
    "inbox.js": b"text/javascript; charset=utf-8",
    "inbox.svg": b"image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
)
_CAREFUL: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Receive(parameters.Query, forbid_unknown_fields=False):
    """How the inbox is to answer, so that one can see what a failure leads to."""

    status: Annotated[int, Meta(ge=200, le=599)] = 200
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] | None = None


class Look(parameters.Query):
    """What has been seen already."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Only what came after this number.")] = 0


class Taken(wire.Answer):
    """The number under which a request was kept."""

    number: int


class Received(wire.Answer):
    """A request that came."""

    number: int
    name: str
    at: wire.Time
    answered: Annotated[int, Meta(description="The status that it was answered with.")]
    headers: list[tuple[str, str]]
    body: Annotated[str, Meta(description="As text; bytes that are none are replaced.")]
    size: int
    event: str | None
    signature: Annotated[
        Literal["good", "bad", "unsigned"], Meta(description="good: made with a secret that is known here.")
    ]
    reason: Annotated[str | None, Meta(description="What is wrong with the signature.")]


class Contents(wire.Answer):
    """What came, the newest first, and the number of the newest."""

    data: list[Received]
    last: int


class TellSecret(wire.Request):
    """A secret with which signatures are to be checked."""

    secret: wire.WebhookSecret


class _Kept(msgspec.Struct):
    """A request as it came, and what was found of its signature then."""

    number: int
    name: str
    at: datetime
    answered: int
    headers: list[tuple[str, str]]
    body: bytes
    signature: Literal["good", "bad", "unsigned"] = "unsigned"
    reason: str | None = None


class Inbox:
    """The last requests that came, and the secrets that may have signed them."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=KEPT_MAX)
        self._secrets: dict[str, None] = {}
        self._last = 0

    def learn(self, secret: str) -> None:
        """Check signatures with this secret too, also of what no other has signed; the oldest gives way."""
        if secret not in self._secrets:
            for kept in self._kept:
                if kept.signature == "bad":
                    _judge(kept, [secret])
        self._secrets[secret] = None
        while len(self._secrets) > _SECRETS_MAX:
            del self._secrets[next(iter(self._secrets))]

    def keep(self, name: str, headers: list[tuple[str, str]], body: bytes, answered: int) -> int:
        self._last += 1
        kept = _Kept(self._last, name, datetime.now(UTC), answered, headers, body)
        _judge(kept, list(self._secrets))
        self._kept.append(kept)
        return self._last

    def clear(self) -> None:
        self._kept.clear()

    def after(self, number: int) -> Contents:
        """What came after this number, the newest first."""
        return Contents(
            data=[self._told(kept) for kept in reversed(self._kept) if kept.number > number], last=self._last
        )

    def _told(self, kept: _Kept) -> Received:
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
    """Whether one of the secrets has signed it, as of when it came.

    Once, and not whenever somebody looks: anybody may send much that takes long to check.
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
    """What it says that it tells of."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name = told.get("type") or told.get("event")  # as the native API and as some blueprints say it
    return name[:_NAME_MAX] if isinstance(name, str) else None


# Over HTTP


async def receive(call: Call) -> Reply:
    """Take whatever comes, and answer as the query says."""
    query: Receive = call.query
    body = await call.read_bytes(SIZE_MAX)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in call.scope["headers"]]
    number = _inbox(call).keep(call.params["name"][:_NAME_MAX], headers, body, query.status)
    answer = Reply(query.status) if query.status in _BARE else reply(Taken(number=number), query.status)
    if query.retry_after is not None:
        answer.headers.append((b"retry-after", b"%d" % query.retry_after))
    return answer


async def show(call: Call) -> Reply:
    _check_host(call)
    policy = (b"content-security-policy", _POLICY.encode())
    return Reply(200, _read(_PAGE), [(b"content-type", b"text/html; charset=utf-8"), policy, *_CAREFUL])


async def part(call: Call) -> Reply:
    name = call.params["part"]
    if name not in _PARTS:
        raise NotFoundError("There is nothing at this path.")
    return Reply(200, _read(name), [(b"content-type", _PARTS[name]), *_CAREFUL])


async def look(call: Call) -> Reply:
    _check(call)
    return reply(_inbox(call).after(call.query.after), 200, *_CAREFUL[:-1])


async def tell_secret(call: Call) -> Reply:
    _check(call)
    webhooks.check_secret(call.body.secret, field="secret")
    _inbox(call).learn(call.body.secret)
    return Reply(204)


async def clear(call: Call) -> Reply:
    _check(call)
    _inbox(call).clear()
    return Reply(204)


def _inbox(call: Call) -> Inbox:
    return cast("Inbox", call.desk.inbox)


def _check(call: Call) -> None:
    """Refuse what is not for everything in it: whoever's webhooks come, they come to the one inbox."""
    _check_host(call)
    if hasattr(call, "principal"):  # who comes from this machine has shown no key
        check_all_tenants(call)


def _check_host(call: Call) -> None:
    """Refuse a name that is not this machine's own: some site may have made it lead here."""
    host = (call.header(b"host") or "").rpartition("@")[2]
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise ForbiddenError(
            "The inbox is only shown under an address of this machine.", field="Host", hint="Use http://127.0.0.1."
        ) from None


@cache
def _read(name: str) -> bytes:
    return files("millpond.api").joinpath("static", name).read_bytes()


ROUTES: Final = (
    Route(
        method="POST",
        path="/inbox/{name}",
        handle=receive,
        summary="Take a webhook, or anything else, and keep it in memory for a developer to look at.",
        told=f"At most {SIZE_MAX:,} bytes; the last {KEPT_MAX} are kept. With ?status= it answers so.",
        who=ANYBODY,
        query=Receive,
        body_max=SIZE_MAX,
        offers=(JSON, TEXT, HTML),
        answers={200: Taken},
    ),
    Route(
        method="GET",
        path="/inbox",
        handle=show,
        summary="The inbox as a page.",
        who=READERS,
        is_local=True,
        offers=(HTML,),
        answers={200: None},
    ),
    Route(
        method="GET",
        path="/inbox/static/{part}",
        handle=part,
        summary="A part of the page.",
        who=ANYBODY,
        offers=(b"text/css", b"text/javascript", b"image/svg+xml"),
        answers={200: None},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/inbox.json",
        handle=look,
        summary="What came to the inbox, the newest first.",
        who=READERS,
        is_local=True,
        query=Look,
        answers={200: Contents},
    ),
    Route(
        method="POST",
        path="/inbox.json",
        handle=tell_secret,
        summary="Check signatures in the inbox with this secret too.",
        told="The secrets of endpoints and webhooks that were made since the start are known.",
        who=OPERATORS,
        is_local=True,
        body=TellSecret,
        answers={204: None},
    ),
    Route(
        method="DELETE",
        path="/inbox.json",
        handle=clear,
        summary="Empty the inbox.",
        who=OPERATORS,
        is_local=True,
        answers={204: None},
    ),
)
"""Beside the routes of the native API, where there is an inbox."""
