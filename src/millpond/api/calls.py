"""Calls: one request as its handler sees it, and the reply it gives."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

import msgspec

from millpond import ids, values
from millpond.errors import (
    InputError,
    InvalidError,
    MalformedError,
    MediaTypeError,
    NotAcceptableError,
    NotFoundError,
    TooLargeError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
    from uuid import UUID

    from starlette.types import Receive, Scope

    from millpond.api.blueprint import Blueprint
    from millpond.api.board import Watched
    from millpond.api.inbox import Inbox
    from millpond.api.metrics import Metrics
    from millpond.api.routes import Route
    from millpond.api.streams import Hub
    from millpond.engine.access import Principal
    from millpond.engine.engine import Engine
    from millpond.engine.workers import WorkerRecord
    from millpond.settings import Settings

    Admit = Callable[["Call", Route], Awaitable[Principal]]

Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream"
WHOLE_ANSWER: Final = "millpond.whole_answer"
"""The extension of the server by which an answer is written at once; another server does without."""
BODY_MAX: Final = 1024 * 1024
_QUERY_MAX: Final = 100
_FREE: Final = ("input", "answer")  # members whose shape is not ours
_EXACT: Final = 2**53
REPLAYED: Final = (b"idempotency-replayed", b"true")
"""Says that an answer was given before, to the same key."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$?(?P<path>.*?)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Sight:
    """What was last seen of the database, and until when that is good enough."""

    told: str = "not reachable"
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What all calls share."""

    engine: Engine
    hub: Hub
    settings: Settings
    routes: Sequence[Route]
    metrics: Metrics
    pages: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    """Pages that have been made, by the path we are mounted under and their name."""
    sight: Sight = field(default_factory=Sight)
    blueprint: Blueprint | None = None
    """Whose routes these are; none: the native API's."""
    mount: str = ""
    """The path under which they are served, below that of the application."""
    inbox: Inbox | None = None
    """Where a developer looks at webhooks; production has none."""
    admit: Admit | None = None
    """How it is learned who calls, where that is not by a key."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What stands on every answer."""
    watched: dict[tuple[Engine, str | None], Watched] = field(
        default_factory=dict["tuple[Engine, str | None]", "Watched"]
    )
    """The boards that somebody watches, by whose they are."""
    readers: Counter[Hashable] = field(default_factory=Counter["Hashable"])
    """How many of them each key watches."""
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while somebody has the database verified: it takes long, and as much as the database can give."""


class DisconnectedError(Exception):
    """The caller has gone; nobody waits for a reply."""


class Reply:
    """What goes back: a status, headers, and bytes at once or as they come."""

    __slots__ = ("body", "frames", "headers", "status")

    def __init__(
        self, status: int, body: bytes = b"", headers: Headers | None = None, frames: AsyncIterator[bytes] | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers: Headers = [] if headers is None else headers
        self.frames = frames


def reply(answer: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    """An answer as JSON, not to be kept by anybody unless a header says otherwise."""
    return Reply(status, encode(answer), [(b"content-type", JSON), _NO_STORE, *headers])


def copied(shape: Any, record: Any, **more: Any) -> Any:
    """A record as the shape that has its fields."""
    names = (name for name in shape.__struct_fields__ if name not in more)
    return shape(**{name: getattr(record, name) for name in names}, **more)


class Call:
    """One request: who sends it, where to, and what stands in it."""

    __slots__ = (
        "_given",
        "again",
        "body",
        "desk",
        "form",
        "headers",
        "limits",
        "method",
        "params",
        "principal",
        "query",
        "receive",
        "request_id",
        "root",
        "route",
        "scope",
        "token",
        "worker",
    )

    principal: Principal
    again: Callable[[], Awaitable[Principal]]
    """Learns once more who calls, or refuses: what is answered for hours is not answered to who has lost his key."""
    worker: WorkerRecord
    """Which worker of the fleet calls; only on the fleet's own routes."""
    query: Any
    body: Any
    form: bytes
    """The form in which the answer is told."""

    def __init__(self, desk: Desk, scope: Scope, receive: Receive, request_id: str) -> None:
        self.desk = desk
        self.request_id = request_id
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.root: str = scope.get("root_path", "")
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.params: dict[str, str] = {}
        self.token: str | None = None
        self.route: Route | None = None
        self.limits: Headers = []
        self._given: dict[str, str] = {}

    @property
    def engine(self) -> Engine:
        return self.desk.engine

    def header(self, name: bytes) -> str | None:
        given = self.headers.get(name)
        return None if given is None else given.decode("latin-1")

    def split_query(self) -> None:
        """Take the query apart, and a browser's token out of it."""
        text: bytes = self.scope["query_string"]
        if text:
            self._given = _pairs(text)
            self.token = self._given.pop("token", None)

    def read_query(self, shape: type[msgspec.Struct]) -> None:
        """The query parameters, checked; one that is unknown or stands twice is an error."""
        try:
            self.query = msgspec.convert(self._given, shape, strict=False)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), shape) from None

    async def read_body(self, route: Route) -> None:
        """The body as its type; nothing at all is an empty object."""
        self._check_form()
        text = await self.read_bytes(route.body_max)
        try:
            self.body = _decoded(text or b"{}", route)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), route.body) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreadable(text, error) from None
        except RecursionError:
            raise InputError("The body is nested too deep.") from None

    def check_length(self, most: int) -> None:
        """Refuse a body that says itself that it is too long, before any of it is read."""
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > most:
            raise _too_large(most)

    def _check_form(self) -> None:
        form = self.headers.get(b"content-type", JSON)
        media, _, parameters = form.lower().partition(b";")
        charset = parameters.strip().removeprefix(b"charset=").strip(b'"')
        if media.strip() != JSON or charset not in (b"", b"utf-8", b"utf8"):
            told = form[:100].decode("latin-1")
            raise MediaTypeError(
                f"The body must be JSON, not {told!r}.",
                hint="Set Content-Type: application/json.",
                field="Content-Type",
            )
        if self.headers.get(b"content-encoding", b"identity") != b"identity":
            raise MediaTypeError("The body must not be compressed.", field="Content-Encoding")

    async def read_bytes(self, most: int) -> bytes:
        """The body as it came, up to so many bytes; for a route that takes more than JSON."""
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body"):  # it usually comes in one piece
            body: bytes = message.get("body", b"")
            if len(body) > most:
                raise _too_large(most)
            return body
        found = bytearray()
        while True:
            if message["type"] != "http.request":
                raise DisconnectedError
            found += message.get("body", b"")
            if len(found) > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return bytes(found)
            message = await self.receive()

    def check_acceptable(self, *offered: bytes) -> bytes:
        """The first of these forms that the caller takes."""
        wanted = self.headers.get(b"accept")
        if wanted is None or wanted == b"*/*":
            return offered[0]
        taken = _ranges(wanted)
        for form in sorted(offered, key=lambda form: -_quality(form, taken)):
            if _quality(form, taken) > 0:
                return form
        names = ", ".join(form.decode() for form in offered)
        raise NotAcceptableError(f"It can be told as {names}.", field="Accept", hint=f"Accept one of: {names}.")


def job_text(job_id: UUID | None) -> str | None:
    return None if job_id is None else ids.text("job", job_id)


def _decoded(text: bytes, route: Route) -> Any:
    """The body as its type. In JSON 5.0 is a whole number too: where one is wanted, it is taken for what it is."""
    try:
        return route.decoder.decode(text)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        return msgspec.convert(_whole(msgspec.json.decode(text)), route.body)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: part if name in _FREE else _whole(part) for name, part in members.items()}
    if isinstance(value, list):
        return [_whole(part) for part in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value


def cursor(prefix: str, given: str | None) -> UUID | None:
    """The place where a page begins, as the page before has told it."""
    if given is None:
        return None
    try:
        return ids.parse(prefix, given)
    except NotFoundError:
        raise InvalidError("It is not a cursor of this list.", field="cursor") from None


def _ranges(wanted: bytes) -> dict[bytes, float]:
    """The media ranges of an Accept header with their weights."""
    taken: dict[bytes, float] = {}
    for part in wanted.lower().split(b",")[:_QUERY_MAX]:
        media, *parameters = (piece.strip() for piece in part.split(b";"))
        weights = [piece[2:] for piece in parameters if piece.startswith(b"q=")]
        try:
            taken[media] = float(weights[0]) if weights else 1.0
        except ValueError:
            taken[media] = 1.0
    return taken


def _quality(form: bytes, taken: dict[bytes, float]) -> float:
    whole = form.partition(b"/")[0] + b"/*"
    for name in (form, whole, b"*/*"):
        if name in taken:
            return taken[name]
    return 0.0


def _pairs(text: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_MAX)
    except ValueError:
        raise MalformedError("The query cannot be read.", hint="Percent-encode it as UTF-8.") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = [name for name, _ in pairs]
        twice = next(name for name in seen if seen.count(name) > 1)
        raise InvalidError("The query parameter stands there twice.", field=twice[:100])
    return found


def _invalid(told: str, shape: Any) -> InvalidError:
    """The decoder's complaint with the place where it applies."""
    place = _PLACE.fullmatch(told)
    what, path = (place["what"], (place["path"] or "").lstrip(".")) if place else (told, "")
    named = _NAMED.fullmatch(what)
    if named is None:
        return InvalidError(f"{what}.", field=path[:200] or None)
    field = f"{path}.{named['name']}" if path else named["name"]
    if what.startswith("Object missing"):
        return InvalidError("It is required.", field=field[:200])
    known = None if path else f"Known are: {', '.join(shape.__struct_encode_fields__)}."
    return InvalidError("There is no such field.", field=_LONE_SURROGATE.sub("\ufffd", field[:200]), hint=known)


def _unreadable(text: bytes, error: Exception) -> MalformedError:
    """Why a body is not JSON; where only its characters are wrong, with the place where they stand."""
    hint = "Send one JSON object as UTF-8."
    try:
        loosely: Any = json.loads(text.decode("utf-8", "surrogateescape"), strict=False)
        for name, part in loosely.items():
            values.check(part, field=_LONE_SURROGATE.sub("\ufffd", name[:100]))
    except InputError as found:
        what = "It is not UTF-8." if isinstance(error, UnicodeDecodeError) else found.message
        return MalformedError(what, field=_LONE_SURROGATE.sub("\ufffd", found.field or ""), hint=hint)
    except (ValueError, AttributeError, RecursionError):
        pass
    return MalformedError(f"The body is not JSON: {error}.", hint=hint)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"The body is larger than {most:,} bytes.", limit=most)
