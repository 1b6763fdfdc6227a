"""Mounting: a product's jobs inside a FastAPI or Starlette application, behind the host's own authentication.

jobs = Mount(app)
host = FastAPI(lifespan=jobs.lifespan)
host.mount("/jobs", jobs.asgi(authenticate=who))
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from millpond.api.app import create_app
from millpond.api.jobs.callbacks import callbacks_url
from millpond.api.jobs.jobs import export_line
from millpond.api.jobs.streams import Hub
from millpond.api.principals import TOKEN_PREFIX
from millpond.api.product import bound
from millpond.api.startup import check_encryption_key, report_isolation, report_storage
from millpond.engine.access.access import Principal
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import open_vault
from millpond.errors import ForbiddenError, MillpondError, RateLimitedError, UnauthorizedError
from millpond.outbound import Outbound
from millpond.services import all_services
from millpond.services.notifier import Notifier
from millpond.services.service import run_services
from millpond.settings import Settings
from millpond.storage import open_storage
from millpond.store.embedded import Keeper
from millpond.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from millpond.api.app import Annex, Api
    from millpond.app import Millpond
    from millpond.lifecycle import Lifecycle
    from millpond.providers import Provider

    Host = Callable[[Request], Principal | Awaitable[Principal | None] | None]
    Part = Callable[[asyncio.Event], Awaitable[Any]]

_REFUSALS: Final[dict[int, type[MillpondError]]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    429: RateLimitedError,
}


class Mount:
    """A product's jobs inside another application: an ASGI app, and the lifespan it needs.

    >>> jobs = Mount(app)
    >>> host = FastAPI(lifespan=jobs.lifespan)
    >>> host.mount("/jobs", jobs.asgi(authenticate=who))

    ``worker`` and ``services`` state whether this process also runs jobs and the background services. If the host has
    many processes, run both in a few others with ``millpond serve`` and ``millpond worker``. ``providers`` are the
    external services that run jobs; they are closed with the engine.
    """

    def __init__(
        self,
        app: Millpond,
        *,
        settings: Settings | None = None,
        lifecycles: Iterable[Lifecycle] = (),
        worker: bool = True,
        services: bool = True,
        providers: Iterable[Provider] = (),
    ) -> None:
        self.app = app
        self._providers = tuple(providers)
        self._settings = settings
        self._lifecycles = tuple(lifecycles)
        self._has_worker = worker
        self._has_services = services
        self._running: MountedEngine | None = None

    @property
    def engine(self) -> Engine:
        """The engine, while the host is up: for ``engine.submit(…, tx=…)`` and all its other verbs."""
        return self.running_now().engine

    def lifespan(self, _host: object) -> contextlib.AbstractAsyncContextManager[None]:
        """For ``FastAPI(lifespan=…)``. A host with a lifespan of its own enters :meth:`running` in it."""
        return self.running()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open and migrate the database, and run the parts of this process for the duration of the block."""
        settings = self._settings or Settings.from_env()
        with contextlib.ExitStack() as stack:
            keeper = None if settings.database_url else stack.enter_context(Keeper(settings.data_dir))
            engine = await Engine.open(
                settings.database_url or (keeper.dsn if keeper else ""),
                self.app,
                lifecycles=self._lifecycles,
                storage=open_storage(settings),
                tenant_databases=settings.tenant_databases,
                outbound=Outbound(settings.outbound_allow),
                vault=open_vault(settings, is_development=settings.database_url is None),
                providers=self._providers,
            )
            engine.providers.callbacks_url = callbacks_url(settings.public_url)
            engine.gates.report(self.app.kinds.values())
            try:
                if keeper is None:
                    await report_isolation(engine)
                    await check_encryption_key(engine, is_needed=True)
                await report_storage(engine.artifacts.store)
                notifier = Notifier(engine)
                hub = Hub(engine, notifier)
                keeping = [] if keeper is None else [partial(keeper.run, engine.db)]
                async with _working([hub.run, *self._parts(engine, settings), notifier.run, *keeping]):
                    self._running = MountedEngine(engine, hub, settings)
                    yield
            finally:
                if self._running is not None:
                    await self._running.close()
                self._running = None
                await engine.close()

    def asgi(self, *, authenticate: Host | None = None, ui: Annex | None = None) -> ASGIApp:
        """The native API, to be mounted anywhere.

        ``authenticate`` returns the :class:`Principal` of a request, or None if it is not authenticated. Without
        ``authenticate``, requests need a key of Millpond. A browser token for one job is accepted in either case.
        With ``ui``, :func:`millpond.ui.dashboard`, the dashboard is served under ``/ui``; users sign in with a key.
        """
        return MountedApp(self, authenticate, ui)

    def running_now(self) -> MountedEngine:
        if self._running is None:
            raise RuntimeError(
                "Millpond is not running. Pass its lifespan to the host: FastAPI(lifespan=jobs.lifespan)."
            )
        return self._running

    def _parts(self, engine: Engine, settings: Settings) -> Sequence[Part]:
        parts: list[Part] = []
        if self._has_worker:
            source = engine.source(lease=settings.lease, heartbeat=settings.heartbeat)
            app = bound(engine, settings, ())
            parts.append(Worker(source, app, slots=settings.slots, grace=settings.grace).run)
        if self._has_services:
            services = all_services(engine, settings, export_line)
            parts.append(lambda stop: run_services(services, stop))
        return parts


class MountedEngine:
    """The engine and the applications between the start and the end of the host."""

    def __init__(self, engine: Engine, hub: Hub, settings: Settings) -> None:
        self.engine = engine
        self._hub = hub
        self._settings = settings
        self._apps: dict[MountedApp, Api] = {}

    def app(self, mounted: MountedApp) -> ASGIApp:
        if mounted not in self._apps:
            self._apps[mounted] = create_app(
                self.engine,
                settings=self._settings,
                hub=self._hub,
                authenticate=mounted.authenticate(self.engine),
                ui=mounted.ui,
            )
        return self._apps[mounted]

    async def close(self) -> None:
        for app in self._apps.values():
            await app.aclose()


class MountedApp:
    """The ASGI app that the host mounts; it works once the host has started."""

    def __init__(self, mount: Mount, host: Host | None, ui: Annex | None) -> None:
        self._mount = mount
        self._host = host
        self.ui = ui

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._mount.running_now().app(self)(scope, receive, send)

    def authenticate(self, engine: Engine) -> Callable[[Request], Awaitable[Principal]] | None:
        host = self._host
        if host is None:
            return None

        async def ask(request: Request) -> Principal:
            token = _browser_token(request)
            return await (_ask(host, request) if token is None else engine.access.authenticate(token))

        return ask


async def _ask(host: Host, request: Request) -> Principal:
    """The principal that the host returns; its HTTP errors become errors of Millpond."""
    try:
        found = host(request)
        principal = await found if inspect.isawaitable(found) else found
    except HTTPException as error:
        refusal = _REFUSALS.get(error.status_code)
        if refusal is None:
            raise
        raise refusal(str(error.detail)) from error
    if principal is None:
        raise UnauthorizedError("Sign in first.")
    if not isinstance(principal, Principal):  # pyright: ignore[reportUnnecessaryIsInstance] - the host may be untyped
        raise TypeError(f"authenticate must return a Principal or None, not {type(principal).__name__}.")
    return principal


def _browser_token(request: Request) -> str | None:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    for given in (bearer, request.query_params.get("token", "")):
        if given.startswith(TOKEN_PREFIX):
            return given
    return None


@contextlib.asynccontextmanager
async def _working(parts: Sequence[Part]) -> AsyncGenerator[None]:
    """Run the parts during the block, then stop them one after another, in order.

    A server waits for its open streams before it ends the lifespan, and without this the streams would only end with
    the lifespan. So the signal itself stops the first part, which serves the streams.
    """
    stops = [asyncio.Event() for _ in parts]
    tasks = [asyncio.ensure_future(part(stop)) for part, stop in zip(parts, stops, strict=True)]
    try:
        with _on_signals(stops[0].set):
            yield
    finally:
        for stop, task in zip(stops, tasks, strict=True):
            stop.set()
            await asyncio.wait([task])
    for task in tasks:
        task.result()


@contextlib.contextmanager
def _on_signals(act: Callable[[], None]) -> Generator[None]:
    """Also call ``act`` on SIGTERM and SIGINT: the existing handlers are still called, and are restored at the end."""
    loop = asyncio.get_running_loop()
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number, handler in before.items():
        signal.signal(number, _both(handler, loop, act))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _both(handler: Any, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> Any:
    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(act)
        handler(number, frame)

    return handle
