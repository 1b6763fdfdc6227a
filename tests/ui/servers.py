"""A server with the dashboard, and visitors: each with a browser's jar of cookies of their own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.engine.engine import Engine
from millpond.settings import Settings
from millpond.storage.local import Local
from millpond.store.db import Database
from millpond.ui import dashboard
from tests.api.sites import Site, running_site
from tests.factories import TENANT
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

STORAGE = "http://files.test:9000"


@dataclass(slots=True)
class Visitor:
    """A browser, as far as HTTP goes."""

    http: httpx2.AsyncClient
    csrf: str = ""
    root: str = "/ui"

    async def sign_in(self, key: str, **headers: str) -> httpx2.Response:
        answer = await self.http.post(f"{self.root}/session", json={"key": key}, headers=headers)
        self.csrf = answer.json().get("csrf", "")
        return answer

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(f"{self.root}{path}", headers=headers)

    async def act(self, method: str, path: str, json: Any = None, **headers: str) -> httpx2.Response:
        """As our own page does it: with the token of the session."""
        given = {"Millpond-Csrf": self.csrf, "Sec-Fetch-Site": "same-origin"} | headers
        return await self.http.request(method, f"{self.root}{path}", json=json, headers=given)

    @property
    def cookie(self) -> str:
        """What the browser holds for us."""
        (held,) = [each for each in self.http.cookies.jar if each.name.startswith("millpond_session")]
        return f"{held.name}={held.value}"


@dataclass(slots=True)
class DashboardServer:
    """The server, and a key of every scope."""

    site: Site
    keys: dict[str, str]

    @asynccontextmanager
    async def visitor(self, scope: str | None = None, *, key: str | None = None) -> AsyncIterator[Visitor]:
        """Somebody, signed in with a key of this scope if one is named, or with this very key."""
        async with httpx2.AsyncClient(base_url=self.site.url, timeout=PATIENCE) as http:
            made = Visitor(http)
            if scope is not None or key is not None:
                answer = await made.sign_in(key or self.keys[scope or ""])
                assert answer.status_code == 201, answer.text
            yield made


@asynccontextmanager
async def dashboard_server(dsn: str, folder: Path, **said: Any) -> AsyncIterator[DashboardServer]:
    """``said`` are settings."""
    db = await Database.open(dsn, size=4)
    try:
        engine = Engine(db, app, storage=Local(folder, STORAGE))
        async with running_site(engine, settings=Settings(**said), ui=dashboard) as site:
            keys = {"client": site.client_key, "admin": site.admin_key}
            for scope in ("viewer", "operator", "worker"):
                keys[scope] = await site.key(scope=scope, tenant=None, account=None)
            keys["tenant"] = await site.key(scope="admin", tenant=TENANT, account=None)
            yield DashboardServer(site, keys)
    finally:
        await db.close()
