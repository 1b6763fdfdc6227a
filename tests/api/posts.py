"""A server whose tenants can be told of their jobs: with a vault, and this machine open to webhooks."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2

from millpond.api.webhooks.inbox import Inbox
from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.engine.webhooks.vault import Vault
from millpond.outbound import Outbound
from millpond.settings import Settings
from tests.api.sites import Site, running_site
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

URL = "http://127.0.0.1:9/hooks"
"""Where nobody listens, which nobody asks while no courier runs."""


@asynccontextmanager
async def post_site(server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    async with server.database(template) as dsn:
        engine = await Engine.open(dsn, app, pool_size=4, vault=Vault([os.urandom(32)]), outbound=Outbound("loopback"))
        try:
            async with running_site(
                engine, settings=Settings(rate_limit=100_000, failure_limit=1_000_000), inbox=Inbox()
            ) as site:
                yield site
            assert await verify(engine.db) == []
        finally:
            await engine.close()


@asynccontextmanager
async def new_post(site: Site) -> AsyncIterator[Post]:
    """A tenant of a test's own."""
    async with httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http:
        tenant = f"t{uuid4().hex[:12]}"
        yield Post(site, http, tenant, await site.key(tenant=tenant, account="ann"))


@dataclass(slots=True)
class Post:
    """One tenant of such a server, with its operator and its client."""

    site: Site
    http: httpx2.AsyncClient
    tenant: str
    client_key: str

    async def beside(self) -> Post:
        """Another tenant."""
        tenant = f"{self.tenant}x"
        return Post(self.site, self.http, tenant, await self.site.key(tenant=tenant, account="ann"))

    async def send(self, method: str, path: str, json: Any = None, *, key: str | None = None) -> httpx2.Response:
        """By an operator of every tenant, about this one."""
        path = f"{path}{'&' if '?' in path else '?'}tenant={self.tenant}"
        headers = {"Authorization": f"Bearer {key or self.site.admin_key}"}
        return await self.http.request(method, path, json=json, headers=headers)

    async def good(self, method: str, path: str, json: Any = None) -> Any:
        answer = await self.send(method, path, json)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    async def endpoint(self, **body: Any) -> dict[str, Any]:
        return await self.good("POST", "/v1/endpoints", body)

    async def submit(self, **body: Any) -> httpx2.Response:
        more = {"Idempotency-Key": body.pop("key")} if "key" in body else {}
        return await self.ask("POST", "/v1/jobs", {"kind": "free", **body}, **more)

    async def ask(self, method: str, path: str, json: Any = None, **headers: str) -> httpx2.Response:
        """By the client."""
        known = {"Authorization": f"Bearer {self.client_key}"}
        return await self.http.request(method, path, json=json, headers=known | headers)

    async def canceled(self, **body: Any) -> str:
        """The id of a job that has ended: nobody runs it, so it is canceled at once."""
        answer = await self.submit(**body)
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["id"]
        assert (await self.ask("POST", f"/v1/jobs/{job_id}/cancel")).status_code == 200
        return job_id

    async def actions(self) -> list[str]:
        """What operators did, the oldest first."""
        found = (await self.good("GET", "/v1/audit"))["data"]
        return [entry["action"] for entry in reversed(found) if entry["actor"] != "test"]
