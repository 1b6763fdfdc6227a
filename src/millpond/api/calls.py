"""Calls: a request as its handler sees it, and the handler's reply."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

import msgspec

from millpond import ids, values
from millpond.api.members import check_unique
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

    from millpond.api.jobs.streams import Hub
    from millpond.api.metrics import Metrics
    from millpond.api.open_streams import StreamHolder
    from millpond.api.operators.board import Watched
    from millpond.api.product import Product
    from millpond.api.routes import Route
    from millpond.api.webhooks.inbox import Inbox
    from millpond.engine.access.access import Principal
    from millpond.engine.engine import Engine
    from millpond.engine.fleet.workers import WorkerRecord
    from millpond.settings import Settings

    Admit = Callable[["Call", Route], Awaitable[Principal]]

Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream"
WHOLE_ANSWER: Final = "millpond.whole_answer"
"""The ASGI extension of our server that writes a whole response at once; other servers do not have it."""
BODY_MAX: Final = 1024 * 1024
_QUERY_MAX: Final = 100
_FREE: Final = ("input", "answer")  # members with any content
_INTEGER: Final = re.compile(r"-?[0-9]+")
_WRITTEN_WHOLE: Final = re.compile(r"-?[0-9]+(?:\.0+)?")
_SINGLE: Final = frozenset(
    {
        *(b"authorization", b"content-encoding", b"content-length", b"content-type", b"cookie", b"host"),
        *(b"idempotency-key", b"last-event-id", b"millpond-csrf", b"origin", b"sec-fetch-site", b"x-fleet-secret"),
    }
)
"""The headers that have one value. The values of any other header form a list, wherever it is repeated."""
_EXACT: Final = 2**53
REPLAYED: Final = (b"idempotency-replayed", b"true")
"""Marks a response as the replay of the first one for an idempotency key."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$?(?P<path>.*?)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class DatabaseCheck:
    """The last result of the database check, and until when it is cached."""

    status: str = "not reachable"
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class AppState:
    """The state that all calls share."""

    engine: Engine
    hub: Hub
    settings: Settings
    routes: Sequence[Route]
    metrics: Metrics
    pages: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    """Rendered pages, by mount path and name."""
    database_check: DatabaseCheck = field(default_factory=DatabaseCheck)
    product: Product | None = None
    """The product of the routes; None for the native API."""
    mount: str = ""
    """The path under which the routes are served, relative to the application."""
    inbox: Inbox | None = None
    """The development inbox for webhooks; None in production."""
    admit: Admit | None = None
    """Authenticates callers, if not by a key."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The headers of every response."""
    watched: dict[tuple[Engine, str | None], Watched] = field(
        default_factory=dict["tuple[Engine, str | None]", "Watched"]
    )
    """The boards with open streams, by engine and tenant."""
    readers: Counter[Hashable] = field(default_factory=Counter["Hashable"])
    """The number of open streams of boards, by key."""
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a verification: it takes long and loads the database, so only one may run."""


class DisconnectedError(Exception):
    """The caller disconnected; no reply is sent."""


class Reply:
    """A response: a status, headers, and a body as bytes or as a stream of frames."""

    __slots__ = ("body", "frames", "headers", "holders", "owner", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: Headers | None = None,
        frames: AsyncIterator[bytes] | None = None,
        *,
        owner: tuple[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers: Headers = [] if headers is None else headers
        self.frames = frames
        self.owner = owner
        """The tenant and account of the job that is streamed."""
        self.holders: tuple[StreamHolder, ...] = ()
        """The key and the account that the stream is counted for."""


def reply(answer: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    """A JSON response that must not be cached."""
    return Reply(status, encode(answer), [(b"content-type", JSON), _NO_STORE, *headers])


def copied(shape: Any, record: Any, **more: Any) -> Any:
    """A record as a struct with the same fields; ``more`` are the values of other fields."""
    names = (name for name in shape.__struct_fields__ if name not in more)
    return shape(**{name: getattr(record, name) for name in names}, **more)


class Call:
    """One request: its caller, route, parameters and body."""

    __slots__ = (
        "_given",
        "again",
        "body",
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
        "state",
        "token",
        "worker",
    )

    principal: Principal
    again: Callable[[], Awaitable[Principal]]
    """Authenticates the caller again, or raises: a stream or long poll may outlive the key that opened it."""
    worker: WorkerRecord
    """The fleet worker that calls; set only on the fleet's own routes."""
    query: Any
    body: Any
    form: bytes
    """The media type of the response."""

    def __init__(self, state: AppState, scope: Scope, receive: Receive, request_id: str) -> None:
        self.state = state
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
        self._given: dict[str, Any] = {}

    @property
    def engine(self) -> Engine:
        return self.state.engine

    def header(self, name: bytes) -> str | None:
        given = self.headers.get(name)
        return None if given is None else given.decode("latin-1")

    def check_headers(self) -> None:
        """Refuse a repeated header that has one value, because a proxy may have read the other; join all others."""
        given: list[tuple[bytes, bytes]] = self.scope["headers"]
        if len(self.headers) == len(given):
            return
        self.headers = {}
        for name, value in given:
            before = self.headers.get(name)
            if before is not None and name in _SINGLE:
                field = name.decode("latin-1").title()
                raise MalformedError("The header was given more than once.", field=field, hint="Send it once.")
            self.headers[name] = value if before is None else before + b", " + value

    def split_query(self, shape: type[msgspec.Struct]) -> None:
        """Parse the query, and remove a browser token from it."""
        text: bytes = self.scope["query_string"]
        if text:
            self._given = _pairs(text, _of_type(shape, msgspec.inspect.ListType))
            self.token = self._given.pop("token", None)

    def read_query(self, shape: type[msgspec.Struct]) -> None:
        """Check the query parameters; an unknown or repeated one is an error."""
        try:
            for name in self._given.keys() & _of_type(shape, msgspec.inspect.IntType):
                _check_integer(self._given[name], name)
            self.query = msgspec.convert(self._given, shape, strict=False)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), shape) from None

    async def read_body(self, route: Route) -> None:
        """Decode the body as its type; no body at all is an empty object."""
        self._check_form()
        text = await self.read_bytes(route.body_max)
        try:
            self.body = _decoded(text or b"{}", route)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), route.body) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreadable(text, error) from None
        except RecursionError:
            raise InputError("The body is nested too deeply.") from None

    def check_length(self, limit: int) -> None:
        """Refuse a body whose Content-Length is too large, before it is read."""
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise _too_large(limit)

    def _check_form(self) -> None:
        form = self.headers.get(b"content-type", JSON)
        media, _, parameters = form.lower().partition(b";")
        charset = parameters.strip().removeprefix(b"charset=").strip(b'"')
        if media.strip() != JSON or charset not in (b"", b"utf-8", b"utf8"):
            given = form[:100].decode("latin-1")
            raise MediaTypeError(
                f"The content type must be application/json, not {given!r}.",
                hint="Set Content-Type: application/json.",
                field="Content-Type",
            )
        if self.headers.get(b"content-encoding", b"identity") != b"identity":
            raise MediaTypeError("The body must not be compressed.", field="Content-Encoding")

    async def read_bytes(self, limit: int) -> bytes:
        """The raw body, of at most ``limit`` bytes; called directly by routes that accept more than JSON."""
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body"):  # it usually comes in one piece
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            return body
        found = bytearray()
        while True:
            if message["type"] != "http.request":
                raise DisconnectedError
            found += message.get("body", b"")
            if len(found) > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                return bytes(found)
            message = await self.receive()

    def check_acceptable(self, *offered: bytes) -> bytes:
        """The offered media type that the caller prefers; of several, the first."""
        wanted = self.headers.get(b"accept")
        if wanted is None or wanted == b"*/*":
            return offered[0]
        taken = _ranges(wanted)
        for form in sorted(offered, key=lambda form: -_quality(form, taken)):
            if _quality(form, taken) > 0:
                return form
        names = ", ".join(form.decode() for form in offered)
        raise NotAcceptableError(
            f"The resource is available only as {names}.", field="Accept", hint=f"Accept one of: {names}."
        )


def job_text(job_id: UUID | None) -> str | None:
    return None if job_id is None else ids.text("job", job_id)


def _decoded(text: bytes, route: Route) -> Any:
    """The body as its type. JSON does not distinguish 5.0 from 5, so both are accepted as an integer, but not 5e0."""
    try:
        body = route.decoder.decode(text)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        body = msgspec.convert(_whole(msgspec.json.decode(text), _read_spelling(text.decode())), route.body)
    check_unique(text)
    return body


_read_spelling: Final = json.JSONDecoder(parse_int=str, parse_float=str, strict=False).decode


def _whole(value: Any, spelled: Any) -> Any:
    """The value with integers where whole numbers are written as such; ``spelled`` has its numbers as text."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: part if name in _FREE else _whole(part, spelled[name]) for name, part in members.items()}
    if isinstance(value, list):
        return list(map(_whole, cast("list[Any]", value), spelled))
    is_whole = isinstance(value, float) and abs(value) < _EXACT and _WRITTEN_WHOLE.fullmatch(spelled)
    return int(value) if is_whole else value


def cursor(prefix: str, given: str | None) -> UUID | None:
    """The id after which a page begins, from the ``next_cursor`` of the page before."""
    if given is None:
        return None
    try:
        return ids.parse(prefix, given)
    except NotFoundError:
        raise InvalidError("The value is not a cursor of this list.", field="cursor") from None


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


@cache
def _of_type(shape: type[msgspec.Struct], wanted: type[msgspec.inspect.Type]) -> frozenset[str]:
    """The parameters of one type, which may be optional or constrained."""
    info = cast("msgspec.inspect.StructType", msgspec.inspect.type_info(shape))
    return frozenset(field.encode_name for field in info.fields if _is_of_type(field.type, wanted))


def _is_of_type(kind: msgspec.inspect.Type, wanted: type[msgspec.inspect.Type]) -> bool:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return any(_is_of_type(each, wanted) for each in types)
        case msgspec.inspect.Metadata(type=inner):
            return _is_of_type(inner, wanted)
        case _:
            return isinstance(kind, wanted)


def _check_integer(given: Any, name: str) -> None:
    """The decoder of queries would read 1e2 and 100.0 as 100."""
    if not _INTEGER.fullmatch(given):
        raise InvalidError("Expected a whole number.", field=name)


def _pairs(text: bytes, lists: frozenset[str]) -> dict[str, str | list[str]]:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_MAX)
    except ValueError:
        raise MalformedError("The query string cannot be decoded.", hint="Percent-encode the query as UTF-8.") from None
    found = dict[str, str | list[str]](pairs)
    if len(found) < len(pairs):
        seen = [name for name, _ in pairs if name not in lists]
        twice = next((name for name in seen if seen.count(name) > 1), None)
        if twice is not None:
            raise InvalidError("The query parameter was given more than once.", field=twice[:100])
    given = lists & found.keys()
    return found | {name: [value for own, value in pairs if own == name] for name in given} if given else found


def _invalid(message: str, shape: Any) -> InvalidError:
    """The decoder's message as an error that names the field."""
    place = _PLACE.fullmatch(message)
    what, path = (place["what"], (place["path"] or "").lstrip(".")) if place else (message, "")
    named = _NAMED.fullmatch(what)
    if named is None:
        return InvalidError(f"{what}.", field=path[:200] or None)
    field = f"{path}.{named['name']}" if path else named["name"]
    if what.startswith("Object missing"):
        return InvalidError("The field is required.", field=field[:200])
    known = None if path else f"Known fields: {', '.join(shape.__struct_encode_fields__)}."
    return InvalidError("The field does not exist.", field=_LONE_SURROGATE.sub("\ufffd", field[:200]), hint=known)


def _unreadable(text: bytes, error: Exception) -> MalformedError:
    """The error for a body that is not JSON; if only some characters are invalid, it names their field."""
    hint = "Send one JSON object as UTF-8."
    try:
        loosely: Any = json.loads(text.decode("utf-8", "surrogateescape"), strict=False)
        for name, part in loosely.items():
            values.check(part, field=_LONE_SURROGATE.sub("\ufffd", name[:100]))
    except InputError as found:
        what = "invalid UTF-8" if isinstance(error, UnicodeDecodeError) else found.message
        return MalformedError(what, field=_LONE_SURROGATE.sub("\ufffd", found.field or ""), hint=hint)
    except (ValueError, AttributeError, RecursionError):
        pass
    return MalformedError(f"The body is not valid JSON: {error}.", hint=hint)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The body is larger than {limit:,} bytes.", limit=limit)
