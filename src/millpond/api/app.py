"""The application: finds the route of a request, authenticates the caller, checks the request, and responds."""

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
from millpond.api import principals, problems
from millpond.api.attempts import Attempts
from millpond.api.calls import WHOLE_ANSWER, AppState, Call, DisconnectedError, Reply
from millpond.api.limits import Limiter
from millpond.api.metrics import Metrics
from millpond.api.native import ROUTES
from millpond.api.open_streams import OpenStreams
from millpond.api.routes import parts_of, tree
from millpond.api.scopes import WORKERS
from millpond.api.webhooks.inbox import ROUTES as INBOX_ROUTES
from millpond.engine.fleet.workers import FleetSettings
from millpond.errors import NotFoundError, RateLimitedError, StoreError, UnauthorizedError
from millpond.store.db import PATIENCE, patience

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from millpond.api.calls import Headers
    from millpond.api.jobs.streams import Hub
    from millpond.api.product import Product
    from millpond.api.routes import Node, Route
    from millpond.api.webhooks.inbox import Inbox
    from millpond.engine.access.access import Principal
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

    Authenticate = Callable[[Request], Awaitable[Principal]]
    _End = Callable[[], Coroutine[Any, Any, object]]
    Annex = Callable[[AppState, Mapping[str, Product]], "RouteGroup"]

UI: Final = "ui"
"""The path of the dashboard, if it is served."""
NATIVE: Final = "native"
"""The path of the whole native API, if a single product is served at the root."""
WRITE_SECONDS: Final = 20.0
"""How long a reader of a stream may leave a frame unread."""
_INVALID: Final = "invalid keys and tokens"
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
    products: Iterable[Product] = (),
    alone: Product | None = None,
    inbox: Inbox | None = None,
    ui: Annex | None = None,
) -> Api:
    """The native API of an engine; ``authenticate`` replaces Millpond's keys with the host's own authentication.

    Products are served under their names. The product ``alone`` is served at the root; the native API is then served at
    the paths that this product does not have, and as a whole under ``/native``. An ``inbox`` is for development only.
    ``ui`` creates the dashboard, :func:`millpond.ui.dashboard`; the application must then be closed.
    """
    engine.workers.settings = FleetSettings.of(settings)
    routes = ROUTES if inbox is None else (*ROUTES, *INBOX_ROUTES)
    state = AppState(engine, hub, settings, routes, Metrics(), inbox=inbox)
    return Api(state, authenticate, products=products, alone=alone, ui=ui)


@dataclasses.dataclass
class RouteGroup:
    """Some routes, and the state that they share."""

    state: AppState
    tree: Node

    def enter(self, call: Call, parts: list[str]) -> Node:
        call.state = self.state
        call.root += self.state.mount
        return self.tree.find(call, parts)

    async def close(self) -> None:
        """Release its own resources."""


def _product_routes(state: AppState, product: Product, mount: str) -> RouteGroup:
    own = dataclasses.replace(state, routes=product.routes, product=product, mount=mount, pages={})
    return RouteGroup(own, tree(product.routes))


class Api(Starlette):
    """All requests go through one table: a route is found in a few steps, without middleware."""

    def __init__(
        self,
        state: AppState,
        authenticate: Authenticate | None = None,
        *,
        products: Iterable[Product] = (),
        alone: Product | None = None,
        ui: Annex | None = None,
    ) -> None:
        super().__init__()
        self.state = state
        self._authenticate = authenticate
        self._limiter = Limiter(state.settings.rate_limit)
        self._attempts = Attempts(state.settings.failure_limit)
        self._streams = OpenStreams()
        products = tuple(products)
        served = (state, *products, *(() if alone is None else (alone,)))
        limits = {route.limit for each in served for route in each.routes if route.limit is not None}
        self._own_limiters = {name: Limiter(getattr(state.settings, name)) for name in limits}
        self._native = RouteGroup(state, tree(state.routes))
        self._mounted = {product.name: _product_routes(state, product, f"/{product.name}") for product in products}
        self._alone = None if alone is None else _product_routes(state, alone, "")
        shown = {f"/{each.name}": each for each in products} | ({} if alone is None else {"": alone})
        self._ui = None if ui is None else ui(state, shown)
        self._beside = RouteGroup(dataclasses.replace(state, mount=f"/{NATIVE}", pages={}), self._native.tree)
        self._numbers = count(1)
        self._prefix = os.urandom(6).hex()

    async def aclose(self) -> None:
        """Release its own resources; the engine stays open."""
        if self._ui is not None:
            await self._ui.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began = time.perf_counter()
        call = Call(self.state, scope, receive, self._request_id(scope))
        try:
            with patience(PATIENCE):
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
        call.check_headers()
        if call.method == "OPTIONS" and b"access-control-request-method" in call.headers:
            return _preflight(node)
        route = call.route = node.route(call.method)
        call.check_length(route.body_max)
        if route.query is not None:
            call.split_query(route.query)
        if route.who:
            await self._admit(call, route)
        if route.query is not None:
            call.read_query(route.query)
        call.form = call.check_acceptable(*route.offers)
        if route.body is not None:
            await call.read_body(route)
        answer = await route.handle(call)
        if answer.frames is not None and route.who:
            await self._open(call, answer)
        return answer

    async def _open(self, call: Call, answer: Reply) -> None:
        """Count a stream for its key and account, or refuse it."""
        try:
            answer.holders = self._streams.open(call, answer)
        except RateLimitedError:
            frames: Any = answer.frames
            await frames.aclose()
            raise

    def _find(self, call: Call) -> Node:
        """The node of the path, in the route group that its first part selects."""
        parts = parts_of(call.scope)
        if self._ui is not None and parts and parts[0] == UI:
            return self._ui.enter(call, parts[1:])
        if self._alone is not None:
            return self._find_alone(call, parts)
        mounted = self._mounted.get(parts[0]) if parts else None
        return self._native.enter(call, parts) if mounted is None else mounted.enter(call, parts[1:])

    def _find_alone(self, call: Call, parts: list[str]) -> Node:
        alone = cast("RouteGroup", self._alone)
        if parts and parts[0] == NATIVE:
            return self._beside.enter(call, parts[1:])
        try:
            return alone.enter(call, parts)
        except NotFoundError:
            call.params.clear()
            try:
                return self._native.enter(call, parts)
            except NotFoundError:
                call.state = alone.state  # so that the error has the format of the product
                raise

    async def _admit(self, call: Call, route: Route) -> None:
        """Authenticate the caller, count the request, and check the permission."""
        call.again = partial(self._principal, call, route)
        principal = call.principal = await self._first_principal(call, route)
        self._count(call, self._limiter)
        if route.limit is not None:
            self._count(call, self._own_limiters[route.limit])
        principals.check(principal, route, call)

    async def _first_principal(self, call: Call, route: Route) -> Principal:
        """The principal of a request that has just arrived; the failures of each address are limited.

        The host's own authentication and that of a route group limit their own failures.
        """
        is_ours = self._authenticate is None or route.who == WORKERS or "fleet" in route.who
        if call.state.admit is not None or not is_ours:
            return await call.again()
        given = principals.secret(call, route)
        if given.startswith(principals.TOKEN_PREFIX):  # it is signed: to check it takes no lookup
            return await self._signed_principal(call)
        callers = self.state.engine.workers if "fleet" in route.who else self.state.engine.access
        counted = {} if callers.is_known(given) else self._attempts.take(call, _INVALID)
        try:
            return await call.again()
        except UnauthorizedError:
            counted = {}
            raise
        finally:
            self._attempts.give_back(counted)

    async def _signed_principal(self, call: Call) -> Principal:
        try:
            return await call.again()
        except UnauthorizedError:
            self._attempts.take(call, _INVALID)
            raise

    async def _principal(self, call: Call, route: Route) -> Principal:
        if call.state.admit is not None:
            return await call.state.admit(call, route)
        if "fleet" in route.who:
            return await principals.worker(call, route)
        if self._authenticate is None or route.who == WORKERS:  # the fleet secret is always a key of ours
            given = principals.secret(call, route)
            try:
                return await self.state.engine.access.authenticate(given)
            except StoreError:
                known = None if route.needs_database else self.state.engine.access.recall(given)
                if known is None:
                    raise
                return known
        return await self._authenticate(Request(call.scope, call.receive))

    def _count(self, call: Call, limiter: Limiter) -> None:
        """Count a request of the key. The key's own limit can lower the limit of a route, and never raises it."""
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
        """The caller's own id if it is well-formed, otherwise a new one."""
        for name, value in scope["headers"]:
            if name in (b"request-id", b"x-request-id") and _REQUEST_ID.fullmatch(value):
                return value.decode()
        return f"req_{self._prefix}{next(self._numbers):08x}"

    def _common(self, call: Call) -> Headers:
        """The headers of every response."""
        made: Headers = [(b"request-id", call.request_id.encode()), *call.limits, *call.state.headers]
        trace = call.headers.get(b"traceparent")
        if trace is not None and _TRACE.fullmatch(trace):
            made.append((b"traceparent", trace))
        if call.route is not None and call.route.token is not None and b"origin" in call.headers:
            made += _BROWSER
        return made

    def _note(self, call: Call, status: int, seconds: float) -> None:
        path = "" if call.route is None else f"{call.state.mount}{call.route.path}"
        self.state.metrics.answered(call.method if path else "", path, status, seconds)
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
        """Send a stream until it ends, or its reader disconnects, loses access or stops reading."""
        frames: Any = reply.frames
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            async with _until(*_ends(call)):
                async for frame in frames:
                    async with asyncio.timeout(WRITE_SECONDS):
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            logs.emit("stream.dropped", request_id=call.request_id)
        finally:
            self._streams.close(reply.holders)
            await frames.aclose()


def _ends(call: Call) -> list[_End]:
    """What ends a stream, whatever its handler does."""
    is_anybody = call.route is None or not call.route.who
    return [partial(_disconnected, call.receive), *([] if is_anybody else [partial(principals.access_lost, call)])]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def _until(*ends: _End) -> AsyncGenerator[None]:
    """Leave the block when the first of these has returned. One that has not begun by then is not called."""
    inside = cast("asyncio.Task[None]", asyncio.current_task())
    is_over = False

    async def watch(end: _End) -> None:
        nonlocal is_over
        await end()
        if not is_over:
            is_over = True
            inside.cancel()

    watching = [asyncio.create_task(watch(end)) for end in ends]
    try:
        yield
    except asyncio.CancelledError:
        if not is_over:
            raise
        inside.uncancel()
    finally:
        for task in watching:
            task.cancel()


def _logged_path(call: Call) -> str:
    """The path without the token of a callback, which is a secret: it permits sending a callback."""
    return _TOKEN.sub(r"\1{token}", call.scope["path"])


def _refusal(call: Call, error: Exception) -> Reply:
    problem = problems.describe(error, request_id=call.request_id, root=call.root)
    if problems.is_ours(error):
        logs.emit("request.failed", request_id=call.request_id, path=_logged_path(call), error=repr(error))
    headers = problems.headers(error, problem)
    product = call.state.product
    if product is None:
        return Reply(problem["status"], msgspec.json.encode(problem), headers)
    status, body = product.refuse(error, problem)
    form = (b"content-type", product.refusal_form)
    kept = (header for header in headers if header[0] != b"content-type")
    return Reply(status, msgspec.json.encode(body), [form, *kept])


def _preflight(node: Node) -> Reply:
    """The answer to a CORS preflight: pages of any origin may call the routes that accept a browser token."""
    methods = [method for method, route in node.methods.items() if route.token is not None]
    if not methods:
        node.route("OPTIONS")  # raises: the path does not have this method
    allowed = (b"access-control-allow-methods", ", ".join(methods).encode())
    return Reply(204, headers=[*_BROWSER, *_PREFLIGHT, allowed])
