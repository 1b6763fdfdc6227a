"""The application: finds the route of a request, checks who sends it and what is in it, and answers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request

from millpond import logs
from millpond.api import metrics, principals, problems
from millpond.api.calls import WHOLE_ANSWER, Call, Desk, DisconnectedError, Reply
from millpond.api.inbox import ROUTES as INBOX_ROUTES
from millpond.api.limits import Limiter
from millpond.api.metrics import Metrics
from millpond.api.native import ROUTES
from millpond.api.routes import WORKERS, parts_of, tree
from millpond.engine.workers import Rules
from millpond.errors import NotFoundError, RateLimitedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from millpond.api.blueprint import Blueprint
    from millpond.api.calls import Headers
    from millpond.api.inbox import Inbox
    from millpond.api.routes import Node, Route
    from millpond.api.streams import Hub
    from millpond.engine.access import Principal
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

    Authenticate = Callable[[Request], Awaitable[Principal]]
    Annex = Callable[[Desk, Mapping[str, Blueprint]], "Door"]

UI: Final = "ui"
"""The path under which the dashboard is, where there is one."""
NATIVE: Final = "native"
"""The path under which the whole native API is, where a blueprint that is served alone stands in front of it."""
WRITE_SECONDS: Final = 20.0
"""How long a reader of a stream may leave its frames unread."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TOKEN: Final = re.compile(r"(/callbacks/+[^/]+/).+", re.DOTALL)
_BROWSER: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"ETag, Preference-Applied, RateLimit, RateLimit-Policy, Request-Id, Retry-After",
    ),
]
_PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-headers", b"Accept, Authorization, Content-Type, If-None-Match, Last-Event-ID, Prefer"),
    (b"access-control-max-age", b"86400"),
]


def create_app(
    engine: Engine,
    *,
    settings: Settings,
    hub: Hub,
    authenticate: Authenticate | None = None,
    blueprints: Iterable[Blueprint] = (),
    alone: Blueprint | None = None,
    inbox: Inbox | None = None,
    ui: Annex | None = None,
) -> Api:
    """The native API over an engine; ``authenticate`` puts the host's own users in the place of our keys.

    Blueprints are served under their names; one that stands ``alone`` is served at the root, and the native API where
    it has no path, and whole under ``/native``. An ``inbox`` is for development alone. ``ui`` is what opens the door to
    the dashboard, :func:`millpond.ui.dashboard`; then the application must be closed.
    """
    engine.workers.rules = Rules.of(settings)
    routes = ROUTES if inbox is None else (*ROUTES, *INBOX_ROUTES)
    desk = Desk(engine, hub, settings, routes, Metrics(), inbox=inbox)
    return Api(desk, authenticate, blueprints=blueprints, alone=alone, ui=ui)


@dataclasses.dataclass
class Door:
    """A way in: some routes, and the desk that they share."""

    desk: Desk
    tree: Node

    def enter(self, call: Call, parts: list[str]) -> Node:
        call.desk = self.desk
        call.root += self.desk.mount
        return self.tree.find(call, parts)

    async def close(self) -> None:
        """Let go of what is its own."""


def _door(desk: Desk, blueprint: Blueprint, mount: str) -> Door:
    own = dataclasses.replace(desk, routes=blueprint.routes, blueprint=blueprint, mount=mount, pages={})
    return Door(own, tree(blueprint.routes))


class Api(Starlette):
    """All requests go through one table: to find a route here costs a walk of a few steps, and no middleware."""

    def __init__(
        self,
        desk: Desk,
        authenticate: Authenticate | None = None,
        *,
        blueprints: Iterable[Blueprint] = (),
        alone: Blueprint | None = None,
        ui: Annex | None = None,
    ) -> None:
        super().__init__()
        self.desk = desk
        self._authenticate = authenticate
        self._limiter = Limiter(desk.settings.rate_limit)
        blueprints = tuple(blueprints)
        served = (desk, *blueprints, *(() if alone is None else (alone,)))
        limits = {route.limit for each in served for route in each.routes if route.limit is not None}
        self._own_limiters = {name: Limiter(getattr(desk.settings, name)) for name in limits}
        self._native = Door(desk, tree(desk.routes))
        self._mounted = {blueprint.name: _door(desk, blueprint, f"/{blueprint.name}") for blueprint in blueprints}
        self._alone = None if alone is None else _door(desk, alone, "")
        shown = {f"/{each.name}": each for each in blueprints} | ({} if alone is None else {"": alone})
        self._ui = None if ui is None else ui(desk, shown)
        self._beside = Door(dataclasses.replace(desk, mount=f"/{NATIVE}", pages={}), self._native.tree)
        self._numbers = count(1)
        self._prefix = os.urandom(6).hex()

    async def aclose(self) -> None:
        """Let go of what it has of its own; the engine is somebody else's."""
        if self._ui is not None:
            await self._ui.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began = time.perf_counter()
        call = Call(self.desk, scope, receive, self._request_id(scope))
        try:
            reply = await self._reply(call)
        except DisconnectedError:
            return
        except Exception as error:  # noqa: BLE001 - every error is answered
            reply = _refusal(call, error)
        reply.headers += self._common(call)
        self._note(call, reply.status, time.perf_counter() - began)
        await self._send(call, reply, send)

    async def _reply(self, call: Call) -> Reply:
        node = self._find(call)
        if call.method == "OPTIONS" and b"access-control-request-method" in call.headers:
            return _preflight(node)
        route = call.route = node.route(call.method)
        call.check_length(route.body_max)
        if route.query is not None:
            call.split_query()
        if route.who and not (route.is_local and metrics.is_local(call)):
            await self._admit(call, route)
        if route.query is not None:
            call.read_query(route.query)
        call.form = call.check_acceptable(*route.offers)
        if route.body is not None:
            await call.read_body(route)
        return await route.handle(call)

    def _find(self, call: Call) -> Node:
        """The place that the path leads to, by the door that it names."""
        parts = parts_of(call.scope)
        if self._ui is not None and parts and parts[0] == UI:
            return self._ui.enter(call, parts[1:])
        if self._alone is not None:
            return self._find_alone(call, parts)
        mounted = self._mounted.get(parts[0]) if parts else None
        return self._native.enter(call, parts) if mounted is None else mounted.enter(call, parts[1:])

    def _find_alone(self, call: Call, parts: list[str]) -> Node:
        alone = cast("Door", self._alone)
        if parts and parts[0] == NATIVE:
            return self._beside.enter(call, parts[1:])
        try:
            return alone.enter(call, parts)
        except NotFoundError:
            call.params.clear()
            try:
                return self._native.enter(call, parts)
            except NotFoundError:
                call.desk = alone.desk  # which says in its own words that there is nothing
                raise

    async def _admit(self, call: Call, route: Route) -> None:
        """Learn who calls, count the request, and refuse what is out of reach."""
        call.again = partial(self._principal, call, route)
        principal = call.principal = await call.again()
        self._count(call, self._limiter)
        if route.limit is not None:
            self._count(call, self._own_limiters[route.limit])
        principals.check(principal, route, call)

    async def _principal(self, call: Call, route: Route) -> Principal:
        if call.desk.admit is not None:
            return await call.desk.admit(call, route)
        if "fleet" in route.who:
            return await principals.worker(call, route)
        if self._authenticate is None or route.who == WORKERS:  # the fleet's secret is ours, whoever the users are
            return await self.desk.engine.access.authenticate(principals.secret(call, route))
        return await self._authenticate(Request(call.scope, call.receive))

    def _count(self, call: Call, limiter: Limiter) -> None:
        """One request more of this key. Its own limit may be smaller than that of a route, and never raises it."""
        principal = call.principal
        key = (principal.actor, principal.tenant, principal.account, principal.job_id)
        own = principal.rate_limit
        rate = own if limiter is self._limiter or own is None else min(own, limiter.rate)
        try:
            call.limits = limiter.take(key, rate)
        except RateLimitedError:
            call.limits = limiter.refused(rate)
            raise

    def _request_id(self, scope: Scope) -> str:
        """The caller's own id if it is a sane one, otherwise a new one."""
        for name, value in scope["headers"]:
            if name in (b"request-id", b"x-request-id") and _REQUEST_ID.fullmatch(value):
                return value.decode()
        return f"req_{self._prefix}{next(self._numbers):08x}"

    def _common(self, call: Call) -> Headers:
        """The headers of every answer."""
        made: Headers = [(b"request-id", call.request_id.encode()), *call.limits, *call.desk.headers]
        trace = call.headers.get(b"traceparent")
        if trace is not None and _TRACE.fullmatch(trace):
            made.append((b"traceparent", trace))
        if call.route is not None and call.route.token is not None and b"origin" in call.headers:
            made += _BROWSER
        return made

    def _note(self, call: Call, status: int, seconds: float) -> None:
        path = "" if call.route is None else f"{call.desk.mount}{call.route.path}"
        self.desk.metrics.answered(call.method if path else "", path, status, seconds)
        if logs.is_on("request.answered"):
            principal = getattr(call, "principal", None)
            logs.emit(
                "request.answered",
                method=call.method,
                path=_logged_path(call),
                status=status,
                ms=round(seconds * 1000, 2),
                request_id=call.request_id,
                actor=None if principal is None else principal.actor,
            )

    async def _send(self, call: Call, reply: Reply, send: Send) -> None:
        if reply.frames is not None:
            await self._send_frames(call, reply, send)
            return
        headers = reply.headers
        if reply.status != 304:  # noqa: PLR2004 - a 304 has the headers of the answer it stands for, and no body
            headers.append((b"content-length", b"%d" % len(reply.body)))
        write = call.scope.get("extensions", {}).get(WHOLE_ANSWER)
        if write is not None and write(reply.status, headers, reply.body):
            return
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _send_frames(self, call: Call, reply: Reply, send: Send) -> None:
        """Send a stream until it ends, or its reader goes or stops reading."""
        frames: Any = reply.frames
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            async with _until_gone(call.receive):
                async for frame in frames:
                    async with asyncio.timeout(WRITE_SECONDS):
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            logs.emit("stream.dropped", request_id=call.request_id)
        finally:
            await frames.aclose()


@contextlib.asynccontextmanager
async def _until_gone(receive: Receive) -> AsyncGenerator[None]:
    """Leave the block when the caller has gone."""
    inside = cast("asyncio.Task[None]", asyncio.current_task())
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        inside.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not is_gone:
            raise
        inside.uncancel()
    finally:
        watching.cancel()


def _logged_path(call: Call) -> str:
    """The path, but for what is a secret in it: whoever knows the token of a callback may send one."""
    return _TOKEN.sub(r"\1{token}", call.scope["path"])


def _refusal(call: Call, error: Exception) -> Reply:
    told = problems.told(error, request_id=call.request_id, root=call.root)
    if problems.is_ours(error):
        logs.emit("request.failed", request_id=call.request_id, path=_logged_path(call), error=repr(error))
    headers = problems.headers(error, told)
    blueprint = call.desk.blueprint
    if blueprint is None:
        return Reply(told["status"], msgspec.json.encode(told), headers)
    status, body = blueprint.refuse(error, told)
    form = (b"content-type", blueprint.refusal_form)
    kept = (header for header in headers if header[0] != b"content-type")
    return Reply(status, msgspec.json.encode(body), [form, *kept])


def _preflight(node: Node) -> Reply:
    """What a browser may send from any page: the routes that a token reaches, without credentials of its own."""
    methods = [method for method, route in node.methods.items() if route.token is not None]
    if not methods:
        node.route("OPTIONS")  # which is not possible here
    allowed = (b"access-control-allow-methods", ", ".join(methods).encode())
    return Reply(204, headers=[*_BROWSER, *_PREFLIGHT, allowed])
