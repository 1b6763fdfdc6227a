"""Routes: the whole API as one table, which determines the dispatch, the checks and the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import msgspec

from millpond.api import parameters
from millpond.api.calls import BODY_MAX, JSON
from millpond.api.scopes import CLIENTS
from millpond.errors import MethodNotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from starlette.types import Scope

    from millpond import wire
    from millpond.api.calls import Call, Reply
    from millpond.errors import MillpondError

    Handler = Callable[[Call], Awaitable[Reply]]

BULK_BODY_MAX: Final = 16 * 1024 * 1024
TEXT: Final = b"text/plain"
HTML: Final = b"text/html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path: who may call it, its request and its responses."""

    method: str
    path: str
    handle: Handler
    summary: str
    answers: Mapping[int, Any]
    """The type of the JSON body of each successful status; None if there is no JSON body."""
    who: frozenset[str] = CLIENTS
    """The scopes that may call it; empty if no key is needed."""
    needs_database: bool = True
    """If not, a key that this process has accepted before is accepted while the database cannot be reached."""
    token: Literal["read", "cancel"] | None = None
    """The permission that a browser token needs; None if browser tokens are refused."""
    limit: str | None = None
    """The setting with its own limit of requests per second for each key; None if only the general limit applies."""
    request_headers: tuple[str, ...] = ()
    """The request headers that are specific to it."""
    gives: tuple[str, ...] = ()
    """The headers of its successful responses, besides those of every response."""
    query: type[parameters.Query] | None = parameters.Query
    """None if the query string is ignored."""
    body: type[wire.Request] | None = None
    body_max: int = BODY_MAX
    offers: tuple[bytes, ...] = (JSON,)
    errors: tuple[type[MillpondError], ...] = ()
    """Its own errors; those of the common checks are derived from the other fields."""
    description: str = ""
    """Details that follow the summary."""
    group: str = ""
    """Its group in the document, if not the one of its path."""

    @property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        return _decoder(self.body or Any)

    @property
    def tag(self) -> str:
        """Its group in the document: ``group``, or else the first word of its path."""
        if self.group:
            return self.group
        parts = self.path.split("/")
        return parts[2] if parts[1] == "v1" else "server"


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """Created when the first body of this type is received: a process uses few of its routes."""
    return msgspec.json.Decoder(type)


class Node:
    """A node in the tree of paths, with its child nodes and its methods."""

    __slots__ = ("below", "methods", "parameter", "variable")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.variable: Node | None = None
        self.parameter = ""
        self.methods: dict[str, Route] = {}

    def add(self, route: Route) -> None:
        node = self
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                node.variable = node.variable or Node()
                node.parameter = part[1:-1]
                node = node.variable
            else:
                node = node.below.setdefault(part, Node())
        node.methods[route.method] = route

    def find(self, call: Call, parts: Sequence[str]) -> Node:
        """The node of a path; its variable parts become the call's parameters."""
        node = self
        for part in parts:
            below = node.below.get(part)
            if below is None:
                below = node.variable
                if below is None or not part:
                    raise NotFoundError("No resource exists at this path.")
                call.params[node.parameter] = part
            node = below
        if not node.methods:
            raise NotFoundError("No resource exists at this path.")
        return node

    def route(self, method: str) -> Route:
        found = self.methods.get(method)
        if found is None:
            allowed = ", ".join(sorted(self.methods))
            raise MethodNotAllowedError(f"The method {method[:20]} is not allowed; use {allowed}.", allow=allowed)
        return found


def tree(routes: Iterable[Route]) -> Node:
    root = Node()
    for route in routes:
        root.add(route)
    return root


def parts_of(scope: Scope) -> list[str]:
    """The parts of the path below the mount point; an escaped slash stays inside its part."""
    above = scope.get("root_path", "").count("/")
    raw: bytes = scope.get("raw_path") or b""
    if b"%" in raw:
        return [unquote(part) for part in raw.decode("ascii", "replace").partition("?")[0].split("/")[1 + above :]]
    return scope["path"].split("/")[1 + above :]
