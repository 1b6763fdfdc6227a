"""The dashboard's server: users have a session cookie, and use the native API through a connection pool of its own.

The API never reads cookies, and the routes here never read keys (except to sign in), so neither accepts the credentials
of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from millpond import logs, wire
from millpond.api import principals
from millpond.api.app import UI, RouteGroup
from millpond.api.attempts import Attempts
from millpond.api.calls import Reply, reply
from millpond.api.routes import Route, tree
from millpond.api.scopes import ANYBODY, CLIENTS, READERS
from millpond.engine.access import credentials, sessions
from millpond.errors import ForbiddenError, NotFoundError, RateLimitedError, UnauthorizedError
from millpond.ui import browsers
from millpond.ui.pages import is_nowhere, lost, pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.attempts import Counted
    from millpond.api.calls import AppState, Call
    from millpond.api.product import Product
    from millpond.api.routes import Node
    from millpond.engine.access.access import Principal
    from millpond.engine.access.sessions import Session
    from millpond.engine.engine import Engine

API: Final = "api"
SIGN_IN_MAX: Final = 4 * 1024
"""The maximum size of a sign-in in bytes."""
SIGN_IN_RATE: Final = 1
"""Rejected sign-ins per second from one address, after the first ten; the same for invalid cookies."""
KNOWN_MAX: Final = 1_000
"""How many valid cookies are remembered, by their digests."""
HEADERS: Final = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_SIGN_INS: Final = "sign-ins"
_COOKIES: Final = "cookies"
_NO_SESSION: Final = (UnauthorizedError, RateLimitedError)
_PROBLEM: Final = "/docs/problems/{code}"
_ELSEWHERE: Final = ("/metrics",)


def dashboard(state: AppState, products: Mapping[str, Product]) -> RouteGroup:
    """The dashboard of an application, for ``create_app(…, ui=dashboard)``; products by their paths."""
    return Dashboard(state, products)


class Dashboard(RouteGroup):
    """Pages, sessions, and the native API for signed-in users. It opens no connections before the first request."""

    def __init__(self, state: AppState, products: Mapping[str, Product]) -> None:
        problem = [route for route in state.routes if route.path == _PROBLEM]
        routes = (*pages(), *self._session_routes(), *problem)
        super().__init__(
            dataclasses.replace(state, routes=routes, mount=f"/{UI}", pages={}, headers=HEADERS), tree(routes)
        )
        behind = tuple(map(self._behind, filter(_is_behind, state.routes)))
        inside = dataclasses.replace(
            state, routes=behind, mount=f"/{UI}/{API}", pages={}, headers=HEADERS, admit=self.admit
        )
        self._api = RouteGroup(inside, tree(behind))
        self._lost = tree([lost()]).below["nowhere"]
        self._products = {mount: each for mount, each in products.items() if _has_page(each)}
        self._attempts = Attempts(SIGN_IN_RATE)
        self._known: dict[bytes, None] = {}
        self._opening = asyncio.Lock()
        self._engine: Engine | None = None

    def enter(self, call: Call, parts: list[str]) -> Node:
        if parts and parts[0] == API:
            return self._api.enter(call, parts[1:])
        try:
            return super().enter(call, parts)
        except NotFoundError:
            if not is_nowhere(call, parts):
                raise
            call.params.clear()
            return self._lost

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    async def engine(self) -> Engine:
        """The dashboard's own engine, opened when it is first needed."""
        async with self._opening:
            if self._engine is None:
                settings = self.state.settings
                self._engine = await self.state.engine.beside(pool_size=settings.ui_pool, cut=settings.ui_timeout)
                self._api.state = dataclasses.replace(self._api.state, engine=self._engine)
        return self._engine

    async def admit(self, call: Call, _route: Route) -> Principal:
        """The principal of the session. A request that changes something must come from a page of the dashboard."""
        session = await self._session(call)
        call.state = self._api.state
        if call.method not in browsers.SAFE:
            browsers.check_page(call)
            browsers.check_token(call, session)
        return session.principal

    def _behind(self, route: Route) -> Route:
        """The route for signed-in users, which accepts no job tokens instead of a session."""
        return dataclasses.replace(route, token=None)

    # Sessions

    async def sign_in(self, call: Call) -> Reply:
        """Sign in with a key: open a session and set its cookie."""
        browsers.check_page(call)
        browsers.check_form(call)
        counted = self._count(call, _SIGN_INS)
        engine, settings = await self.engine(), self.state.settings
        principal = await self._owner(call, engine)
        self._attempts.give_back(counted)
        await self._leave(call)
        secret = await sessions.open_session(
            engine.db, principal, address=principals.address(call), lifetime=settings.session_lifetime
        )
        session = await sessions.find_session(engine.db, secret, idle=settings.session_idle)
        self._know(credentials.digest(secret))  # a page sends many requests when it opens
        cookie = browsers.kept(call, secret, settings.session_lifetime.total_seconds())
        return reply(self._to_wire(call, session), 201, cookie)

    async def read(self, call: Call) -> Reply:
        return reply(self._to_wire(call, await self._session(call)))

    async def sign_out(self, call: Call) -> Reply:
        """End the session, if there is one; the cookie is deleted in any case."""
        browsers.check_page(call)
        with contextlib.suppress(*_NO_SESSION):
            browsers.check_token(call, await self._session(call))
            await self._leave(call)
        return Reply(204, headers=[browsers.kept(call, "", 0), (b"cache-control", b"no-store")])

    async def _session(self, call: Call) -> Session:
        """The session of the cookie. Cookies that are not known as valid are rate-limited, so that none can be guessed.

        Known ones are not limited, so that requests of others at the same address do not lock out signed-in users.
        """
        engine, secret = await self.engine(), browsers.cookie(call)
        known = None if secret is None else credentials.digest(secret)
        is_new = known is not None and known not in self._known
        counted = self._count(call, _COOKIES) if is_new else {}
        try:
            session = await sessions.find_session(engine.db, secret, idle=self.state.settings.session_idle)
        except UnauthorizedError:
            self._known.pop(known or b"", None)
            raise
        self._attempts.give_back(counted)
        if known is not None:
            self._know(known)
        return session

    def _know(self, digest: bytes) -> None:
        self._known[digest] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    async def _owner(self, call: Call, engine: Engine) -> Principal:
        """The principal of the key, if its scope may sign in; a rejection is logged."""
        try:
            principal = await engine.access.authenticate(call.body.key.strip())
            if principal.scope not in READERS:
                raise _not_for(principal)
        except (UnauthorizedError, ForbiddenError) as error:
            logs.emit("session.refused", address=principals.address(call), error=error.message)
            raise
        return principal

    async def _leave(self, call: Call) -> None:
        """End the session of the browser, if there is one."""
        secret = browsers.cookie(call)
        with contextlib.suppress(*_NO_SESSION):
            principal = (await self._session(call)).principal
            engine = await self.engine()
            await sessions.close_session(engine.db, secret or "", actor=principal.actor, tenant=principal.tenant)

    def _count(self, call: Call, what: str) -> Counted:
        """Count a try of this address, to slow down guessing; a rejection is logged."""
        try:
            return self._attempts.take(call, what)
        except RateLimitedError:
            logs.emit("session.refused", address=principals.address(call), error=f"Too many {what}.")
            raise

    def _to_wire(self, call: Call, session: Session) -> wire.Session:
        principal = session.principal
        return wire.Session(
            scope=principal.scope,  # pyright: ignore[reportArgumentType] - the scope of a key
            tenant=principal.tenant,
            actor=principal.actor,
            name=session.name,
            expires_at=session.expires_at,
            csrf=session.csrf,
            is_development=self.state.inbox is not None,
            version=version("millpond"),
            refresh=self.state.settings.refresh.total_seconds(),
            products=self._pages(call),
        )

    def _pages(self, call: Call) -> list[wire.ProductPage]:
        root = call.root.removesuffix(self.state.mount)
        return [
            wire.ProductPage(name=each.name, title=each.title, path=f"{root}{mount}/", scope=each.page_scope)
            for mount, each in self._products.items()
        ]

    def _session_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/session",
                handle=self.sign_in,
                summary="Sign in.",
                who=ANYBODY,
                body=wire.SignIn,
                body_max=SIGN_IN_MAX,
                answers={201: wire.Session},
                errors=(UnauthorizedError, ForbiddenError, RateLimitedError),
            ),
            Route(
                method="GET",
                path="/session",
                handle=self.read,
                summary="Get the signed-in user.",
                who=ANYBODY,
                answers={200: wire.Session},
                errors=(UnauthorizedError, RateLimitedError),
            ),
            Route(
                method="DELETE",
                path="/session",
                handle=self.sign_out,
                summary="Sign out.",
                who=ANYBODY,
                answers={204: None},
                errors=(ForbiddenError,),
            ),
        )


def _is_behind(route: Route) -> bool:
    """Whether the dashboard serves a route of the native API: those that keys other than worker keys may use."""
    return route.path == _PROBLEM or (bool(route.who & (READERS | CLIENTS)) and route.path not in _ELSEWHERE)


def _has_page(product: Product) -> bool:
    return any((route.method, route.path) == ("GET", "/") for route in product.routes)


def _not_for(principal: Principal) -> ForbiddenError:
    needed = " or ".join(sorted(READERS))
    return ForbiddenError(
        f"A key of scope {principal.scope} cannot sign in to the dashboard.",
        field="key",
        hint=f"Sign in with a key of scope {needed}. Create a read-only key with `millpond keys create "
        "--scope viewer`.",
        scope=principal.scope,
        needed=needed,
    )
