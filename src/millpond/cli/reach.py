"""How a command reaches the API: over HTTP, or in its own process if there is only a database."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from millpond.cli.database import opened, settings_with
from millpond.cli.development import DevelopmentFolder, kept_keys, running
from millpond.cli.output import UsageError
from millpond.client import AsyncClient
from millpond.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from starlette.requests import Request

    from millpond.cli.development import DevelopmentKeys
    from millpond.engine.access.access import Principal
    from millpond.settings import Settings

_LOCAL_URL = "http://millpond.internal"
_PATIENCE = 10.0  # seconds, enough for a server to restart


class ApiConnection:
    """The API for commands, with the default tenant and account."""

    def __init__(self, client: AsyncClient, keys: DevelopmentKeys | None = None, *, as_json: bool = False) -> None:
        self.client = client
        self.tenant = keys.tenant if keys else None
        self.account = keys.account if keys else None
        self.as_json = as_json

    async def get(self, path: str, type: Any, **params: Any) -> Any:
        """Send a GET request; ``wait`` extends its timeout."""
        patience = _PATIENCE + float(params.get("wait") or 0)
        return await self.client.request("GET", f"/v1{path}", params=params, type=type, timeout=patience)

    async def send(
        self, method: str, path: str, type: Any, body: Any = None, *, idempotency_key: str | None = None, **params: Any
    ) -> Any:
        return await self.client.request(
            method, f"/v1{path}", body=body, params=params, type=type, idempotency_key=idempotency_key
        )

    def owner(self, tenant: str | None, account: str | None) -> dict[str, str | None]:
        """The given tenant and account, or those of the development keys."""
        if tenant is None and account is None:
            return {"tenant": self.tenant, "account": self.account}
        return {"tenant": tenant or self.tenant, "account": account}


@contextlib.asynccontextmanager
async def reach(
    url: str | None, key: str | None, data_dir: Path | None, database_url: str | None, *, as_json: bool = False
) -> AsyncGenerator[ApiConnection]:
    """The API of the options, else of the environment, else of the ``millpond up`` here, or of its database."""
    has_database = data_dir is not None or database_url is not None
    if url is not None and has_database:
        raise UsageError(
            "--url names a server, but --data-dir and --database-url name a database.", hint="Use one of them."
        )
    settings = settings_with(database_url, data_dir)
    url = url if has_database else url or settings.url
    folder = DevelopmentFolder(settings.data_dir)
    up = None if url or database_url else running(folder)
    if url:
        reached = _remote(AsyncClient(url, key or settings.api_key, timeout=_PATIENCE), None, as_json=as_json)
    elif up:
        reached = _remote(AsyncClient(up.url, key or up.admin_key, timeout=_PATIENCE), up, as_json=as_json)
    elif has_database or settings.database_url or settings.data_dir.exists():
        reached = _local(settings, kept_keys(folder), as_json=as_json)
    else:
        raise UnavailableError(
            f"No `millpond up` runs here, and the data directory {settings.data_dir} does not exist.",
            hint="Start a server with `millpond up`, or name one with --url.",
        )
    async with reached as api:
        yield api


@contextlib.asynccontextmanager
async def _remote(client: AsyncClient, keys: DevelopmentKeys | None, *, as_json: bool) -> AsyncGenerator[ApiConnection]:
    async with client:
        yield ApiConnection(client, keys, as_json=as_json)


@contextlib.asynccontextmanager
async def _local(settings: Settings, keys: DevelopmentKeys | None, *, as_json: bool) -> AsyncGenerator[ApiConnection]:
    """The same API in this process, with direct access to the database."""
    import httpx2

    from millpond.api.app import create_app
    from millpond.api.jobs.streams import Hub
    from millpond.api.product import register_gates
    from millpond.cli.apps import chosen
    from millpond.cli.outbound import outbound
    from millpond.cli.providers import provide
    from millpond.engine.engine import Engine
    from millpond.engine.webhooks.vault import open_vault
    from millpond.storage import open_storage

    with opened(settings) as dsn:
        selection = chosen(settings.app, settings.product_names)
        storage = open_storage(settings)
        engine = await Engine.open(
            dsn,
            selection.app,
            pool_size=4,
            storage=storage,
            tenant_databases=settings.tenant_databases,
            outbound=outbound(settings, is_development=settings.database_url is None),
            vault=open_vault(settings, is_development=settings.database_url is None),
        )
        provide(engine, settings)
        register_gates(engine, selection.products)
        stop = asyncio.Event()
        hub = Hub(engine)
        watching = asyncio.create_task(hub.run(stop))
        served = create_app(engine, settings=settings, hub=hub, authenticate=_operator)
        client = AsyncClient(_LOCAL_URL, transport=httpx2.ASGITransport(app=served))
        try:
            async with client:
                yield ApiConnection(client, keys, as_json=as_json)
        finally:
            stop.set()
            await watching
            await engine.close()


async def _operator(_: Request) -> Principal:
    """Access to the database implies all permissions."""
    from millpond.engine.access.access import Principal

    return Principal(scope="admin", tenant=None, account=None, actor="local")
