"""Servers for tests: the application on a socket of its own, and ways to talk to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.server import listen, serve
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from tests.factories import ACCOUNT, TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from millpond.api.product import Product
    from millpond.api.webhooks.inbox import Inbox
    from millpond.engine.engine import Engine


@dataclass(slots=True)
class Site:
    """A server that runs, with keys for it."""

    engine: Engine
    hub: Hub
    app: Any
    port: int
    admin_key: str
    client_key: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def send(self, method: str, path: str, *, key: str | None = "", **options: Any) -> httpx2.Response:
        """One request, by the client unless another key is given; with none at all if that is None."""
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers.setdefault("Authorization", f"Bearer {key or self.client_key}")
        async with httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE) as http:
            return await http.request(method, path, headers=headers, **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.send("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        return await self.send("POST", path, json=json, **options)

    async def order(self, method: str, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        """One request by an operator of every tenant."""
        return await self.send(method, path, key=self.admin_key, json=json, **options)

    async def submitted(self, kind: str = "free", **body: Any) -> str:
        """The id of a job that was submitted."""
        answer = await self.post("/v1/jobs", {"kind": kind, **body})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def key(self, **options: Any) -> str:
        options = {"scope": "client", "tenant": TENANT, "account": ACCOUNT, "actor": "test"} | options
        return (await self.engine.access.make_key(**options))[1]

    async def raw(self, data: bytes, *, until_closed: bool = True) -> bytes:
        """Bytes as they are, and what comes back until the server hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(PATIENCE):
                return await reader.read() if until_closed else await reader.read(65_536)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def running_site(
    engine: Engine,
    *,
    settings: Settings | None = None,
    authenticate: Any = None,
    inbox: Inbox | None = None,
    ui: Any = None,
    products: Iterable[Product] = (),
) -> AsyncIterator[Site]:
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    settings = settings or Settings(failure_limit=1_000_000)
    app = create_app(
        engine, settings=settings, hub=hub, authenticate=authenticate, inbox=inbox, ui=ui, products=products
    )
    sock = listen("127.0.0.1", 0)
    site = Site(engine, hub, app, sock.getsockname()[1], "", "")
    site.admin_key = await site.key(scope="admin", tenant=None, account=None)
    site.client_key = await site.key()
    ready = asyncio.Event()
    serving = asyncio.gather(
        hub.run(site.stop),
        notifier.run(site.stop),
        serve(app, host="", port=0, sock=sock, stop=site.stop, on_ready=ready.set, drain=2),
    )
    try:
        await ready.wait()
        yield site
    finally:
        site.stop.set()
        await serving
        await app.aclose()
        await engine.access.close()
