"""The door: who comes in by a cookie, and finds the native API behind it, on connections of the dashboard's own.

The API never looks at cookies, and what is behind this door never at keys: neither can be made to act for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from millpond import logs, wire
from millpond.api import principals
from millpond.api.app import UI, Door
from millpond.api.calls import Reply, reply
from millpond.api.limits import Limiter
from millpond.api.principals import READERS
from millpond.api.routes import ANYBODY, CLIENTS, Route, tree
from millpond.engine import credentials, sessions
from millpond.errors import ForbiddenError, NotFoundError, RateLimitedError, UnauthorizedError
from millpond.ui import browsers
from millpond.ui.pages import is_nowhere, lost, pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.blueprint import Blueprint
    from millpond.api.calls import Call, Desk
    from millpond.api.routes import Node
    from millpond.engine.access import Principal
    from millpond.engine.engine import Engine
    from millpond.engine.sessions import Session

API: Final = "api"
SIGN_IN_MAX: Final = 4 * 1024
"""Bytes of a sign-in."""
SIGN_IN_RATE: Final = 1
"""Refused sign-ins a second from one address, after the first ten; and as many cookies that are nobody's."""
PROXY_RATE: Final = 10
"""The same of a proxy, which many may be behind."""
KNOWN_MAX: Final = 1_000
"""How many cookies are known again that were somebody's."""
LOOK_AGAIN: Final = 15.0
"""After how many seconds who watches is looked at again."""
HEADERS: Final = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_SIGN_INS: Final = "sign-ins"
_COOKIES: Final = "cookies"
_TURNED_AWAY: Final = (UnauthorizedError, RateLimitedError)
_PROBLEM: Final = "/docs/problems/{code}"
_ELSEWHERE: Final = ("/metrics", "/inbox")


def dashboard(desk: Desk, blueprints: Mapping[str, Blueprint]) -> Door:
    """The dashboard over what an application serves, for ``create_app(…, ui=dashboard)``; blueprints by their paths."""
    return Dashboard(desk, blueprints)


class Dashboard(Door):
    """Pages, sessions, and the native API for who has one. Until somebody comes it has no connections."""

    def __init__(self, desk: Desk, blueprints: Mapping[str, Blueprint]) -> None:
        problem = [route for route in desk.routes if route.path == _PROBLEM]
        routes = (*pages(), *self._session_routes(), *problem)
        super().__init__(
            dataclasses.replace(desk, routes=routes, mount=f"/{UI}", pages={}, headers=HEADERS), tree(routes)
        )
        behind = tuple(map(self._behind, filter(_is_behind, desk.routes)))
        inside = dataclasses.replace(
            desk, routes=behind, mount=f"/{UI}/{API}", pages={}, headers=HEADERS, admit=self.admit
        )
        self._api = Door(inside, tree(behind))
        self._lost = tree([lost()]).below["nowhere"]
        self._blueprints = {mount: each for mount, each in blueprints.items() if _has_page(each)}
        self._limiter = Limiter(SIGN_IN_RATE)
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
        """The dashboard's own, opened when it is first needed."""
        async with self._opening:
            if self._engine is None:
                settings = self.desk.settings
                self._engine = await self.desk.engine.beside(pool_size=settings.ui_pool, cut=settings.ui_timeout)
                self._api.desk = dataclasses.replace(self._api.desk, engine=self._engine)
        return self._engine

    async def admit(self, call: Call, _route: Route) -> Principal:
        """Whose session it is; who acts must also show that a page of ours does."""
        session = await self._session(call)
        call.desk = self._api.desk
        if call.method not in browsers.SAFE:
            browsers.check_page(call)
            browsers.check_token(call, session)
        return session.principal

    def _behind(self, route: Route) -> Route:
        """The route for who has signed in: a browser's token is no session, nor is to be on this machine."""

        async def handle(call: Call) -> Reply:
            answer = await route.handle(call)
            if answer.frames is not None:
                answer.frames = principals.while_known(call, answer.frames, LOOK_AGAIN)
            return answer

        return dataclasses.replace(route, handle=handle, token=None, is_local=False)

    # Sessions

    async def sign_in(self, call: Call) -> Reply:
        """Trade a key for a cookie."""
        browsers.check_page(call)
        browsers.check_form(call)
        counted = self._count(call, _SIGN_INS)
        engine, settings = await self.engine(), self.desk.settings
        principal = await self._owner(call, engine)
        self._uncount(counted)
        await self._leave(call)
        secret = await sessions.open_session(
            engine.db, principal, address=principals.address(call), lifetime=settings.session_lifetime
        )
        session = await sessions.find_session(engine.db, secret, idle=settings.session_idle)
        self._know(credentials.digest(secret))  # for a page that opens asks for many things at once
        cookie = browsers.kept(call, secret, settings.session_lifetime.total_seconds())
        return reply(self._told(call, session), 201, cookie)

    async def read(self, call: Call) -> Reply:
        return reply(self._told(call, await self._session(call)))

    async def sign_out(self, call: Call) -> Reply:
        """End the session, if there is one; the browser forgets its cookie in any case."""
        browsers.check_page(call)
        with contextlib.suppress(*_TURNED_AWAY):
            browsers.check_token(call, await self._session(call))
            await self._leave(call)
        return Reply(204, headers=[browsers.kept(call, "", 0), (b"cache-control", b"no-store")])

    async def _session(self, call: Call) -> Session:
        """Whose cookie came with it. One that was nobody's yet is counted, so that none is guessed, nor asked for long.

        Those that were are not: whoever has signed in is not kept out by what others at the address send.
        """
        engine, secret = await self.engine(), browsers.cookie(call)
        known = None if secret is None else credentials.digest(secret)
        is_new = known is not None and known not in self._known
        counted = self._count(call, _COOKIES) if is_new else {}
        try:
            session = await sessions.find_session(engine.db, secret, idle=self.desk.settings.session_idle)
        except UnauthorizedError:
            self._known.pop(known or b"", None)
            raise
        self._uncount(counted)
        if known is not None:
            self._know(known)
        return session

    def _know(self, digest: bytes) -> None:
        self._known[digest] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    async def _owner(self, call: Call, engine: Engine) -> Principal:
        """Whose key it is, if it is one that signs in; a refusal is logged."""
        try:
            principal = await engine.access.authenticate(call.body.key.strip())
            if principal.scope not in READERS:
                raise _not_for(principal)
        except (UnauthorizedError, ForbiddenError) as error:
            logs.emit("session.refused", address=principals.address(call), error=error.message)
            raise
        return principal

    async def _leave(self, call: Call) -> None:
        """End the session that the browser has, if it has one."""
        secret = browsers.cookie(call)
        with contextlib.suppress(*_TURNED_AWAY):
            who = (await self._session(call)).principal
            engine = await self.engine()
            await sessions.close_session(engine.db, secret or "", actor=who.actor, tenant=who.tenant)

    def _count(self, call: Call, what: str) -> dict[tuple[str, str], int]:
        """One try more from where this one comes; those that succeed are given back. Whoever guesses is slow at it.

        Those behind a proxy have their turns apart, as far as it tells them apart, and the proxy has more.
        """
        client = call.scope.get("client")
        peer = client[0] if client else ""
        is_proxy = b"x-forwarded-for" in call.headers
        places = {peer: PROXY_RATE, principals.address(call): SIGN_IN_RATE} if is_proxy else {peer: SIGN_IN_RATE}
        counted = {(what, place): rate for place, rate in places.items()}
        try:
            for place, rate in counted.items():
                self._limiter.take(place, rate)
        except RateLimitedError as error:
            logs.emit("session.refused", address=principals.address(call), error=f"Too many {what}.")
            raise RateLimitedError(
                f"Too many {what} from this address were refused.", hint="Wait a moment.", **error.details
            ) from None
        return counted

    def _uncount(self, counted: Mapping[tuple[str, str], int]) -> None:
        for place, rate in counted.items():
            self._limiter.give_back(place, rate)

    def _told(self, call: Call, session: Session) -> wire.Session:
        who = session.principal
        return wire.Session(
            scope=who.scope,  # pyright: ignore[reportArgumentType] - a key's
            tenant=who.tenant,
            actor=who.actor,
            name=session.name,
            expires_at=session.expires_at,
            csrf=session.csrf,
            is_development=self.desk.inbox is not None,
            version=version("millpond"),
            refresh=self.desk.settings.refresh.total_seconds(),
            blueprints=self._pages(call),
        )

    def _pages(self, call: Call) -> list[wire.BlueprintPage]:
        root = call.root.removesuffix(self.desk.mount)
        return [
            wire.BlueprintPage(name=each.name, title=each.title, path=f"{root}{mount}/")
            for mount, each in self._blueprints.items()
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
                summary="Who has signed in.",
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
    """Whether the dashboard has a use for a route of the native API: what people do with keys."""
    return route.path == _PROBLEM or (bool(route.who & (READERS | CLIENTS)) and route.path not in _ELSEWHERE)


def _has_page(blueprint: Blueprint) -> bool:
    return any((route.method, route.path) == ("GET", "/") for route in blueprint.routes)


def _not_for(principal: Principal) -> ForbiddenError:
    needed = " or ".join(sorted(READERS))
    return ForbiddenError(
        f"A key of scope {principal.scope} does not open the dashboard.",
        field="key",
        hint=f"Sign in with one of scope {needed}; `millpond keys create --scope viewer` makes one that only looks.",
        scope=principal.scope,
        needed=needed,
    )
