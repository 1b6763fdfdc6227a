"""How a command reaches the API: over HTTP, or, where there is only a database, in this very process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from millpond.cli.database import opened, settings_with
from millpond.cli.development import Home, kept_keys, running
from millpond.cli.output import UsageError
from millpond.client import AsyncClient
from millpond.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from starlette.requests import Request

    from millpond.cli.development import Keys
    from millpond.engine.access import Principal
    from millpond.settings import Settings

_LOCAL_URL = "http://millpond.internal"
_PATIENCE = 10.0  # seconds; a server that is being started again comes back within them


class Api:
    """The API as a command sees it, with the tenant and account that are meant when none are named."""

    def __init__(self, client: AsyncClient, home: Keys | None = None, *, as_json: bool = False) -> None:
        self.client = client
        self.tenant = home.tenant if home else None
        self.account = home.account if home else None
        self.as_json = as_json

    async def get(self, path: str, type: Any, **params: Any) -> Any:
        """Read; a read that waits may take so much longer."""
        patience = _PATIENCE + float(params.get("wait") or 0)
        return await self.client.request("GET", f"/v1{path}", params=params, type=type, timeout=patience)

    async def send(
        self, method: str, path: str, type: Any, body: Any = None, *, idempotency_key: str | None = None, **params: Any
    ) -> Any:
        return await self.client.request(
            method, f"/v1{path}", body=body, params=params, type=type, idempotency_key=idempotency_key
        )

    def owner(self, tenant: str | None, account: str | None) -> dict[str, str | None]:
        """Whose wallet is meant: the named one, or that of the development keys."""
        if tenant is None and account is None:
            return {"tenant": self.tenant, "account": self.account}
        return {"tenant": tenant or self.tenant, "account": account}


@contextlib.asynccontextmanager
async def reach(
    url: str | None, key: str | None, data_dir: Path | None, database_url: str | None, *, as_json: bool = False
) -> AsyncGenerator[Api]:
    """The API that the options name; else the environment's; else the ``millpond up`` here, or its database."""
    is_told = data_dir is not None or database_url is not None
    if url is not None and is_told:
        raise UsageError("--url names a server; --data-dir and --database-url name a database.", hint="Give one.")
    settings = settings_with(database_url, data_dir)
    url = url if is_told else url or settings.url
    home = Home(settings.data_dir)
    up = None if url or database_url else running(home)
    if url:
        reached = _remote(AsyncClient(url, key or settings.api_key, timeout=_PATIENCE), None, as_json=as_json)
    elif up:
        reached = _remote(AsyncClient(up.url, key or up.admin_key, timeout=_PATIENCE), up, as_json=as_json)
    elif is_told or settings.database_url or settings.data_dir.exists():
        reached = _local(settings, kept_keys(home), as_json=as_json)
    else:
        raise UnavailableError(
            f"No millpond up runs here, and there is no data directory {settings.data_dir}.",
            hint="Start one with `millpond up`, or name a server with --url.",
        )
    async with reached as api:
        yield api


@contextlib.asynccontextmanager
async def _remote(client: AsyncClient, home: Keys | None, *, as_json: bool) -> AsyncGenerator[Api]:
    async with client:
        yield Api(client, home, as_json=as_json)


@contextlib.asynccontextmanager
async def _local(settings: Settings, home: Keys | None, *, as_json: bool) -> AsyncGenerator[Api]:
    """The same API in this process, for the operator of the database."""
    import httpx2

    from millpond.api.app import create_app
    from millpond.api.blueprint import hang
    from millpond.api.streams import Hub
    from millpond.app import Millpond
    from millpond.blueprints.catalog import BLUEPRINTS
    from millpond.cli.apps import load_app
    from millpond.cli.outbound import outbound
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.vault import open_vault
    from millpond.storage import open_storage

    with opened(settings) as dsn:
        app = load_app(settings.app) if settings.app else Millpond()
        storage = open_storage(settings)
        engine = await Engine.open(
            dsn,
            app,
            pool_size=4,
            storage=storage,
            tenant_databases=settings.tenant_databases,
            outbound=outbound(settings, is_development=settings.database_url is None),
            vault=open_vault(settings),
        )
        provide(engine, settings)
        hang(engine, BLUEPRINTS)
        stop = asyncio.Event()
        hub = Hub(engine)
        watching = asyncio.create_task(hub.run(stop))
        served = create_app(engine, settings=settings, hub=hub, authenticate=_operator)
        client = AsyncClient(_LOCAL_URL, transport=httpx2.ASGITransport(app=served))
        try:
            async with client:
                yield Api(client, home, as_json=as_json)
        finally:
            stop.set()
            await watching
            await engine.close()


async def _operator(_: Request) -> Principal:
    """Whoever may open the database may do everything."""
    from millpond.engine.access import Principal

    return Principal(scope="admin", tenant=None, account=None, actor="local")
