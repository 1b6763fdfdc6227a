"""A real server of the guard product with its worker, courier and services; and customers for it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
from products.tests.guard.receivers import Receiver, receiving

from millpond.api.app import create_app
from millpond.api.jobs.jobs import export_line
from millpond.api.jobs.streams import Hub
from millpond.api.product import bound, prepare
from millpond.api.server import listen, serve
from millpond.api.webhooks.inbox import Inbox
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.services import all_services
from millpond.services.notifier import Notifier
from millpond.services.service import run_services
from millpond.worker.worker import Worker
from millpond_products.guard.kinds import KIND
from millpond_products.guard.routes import PRODUCT
from millpond_products.settings import ProductSettings
from tests.checks import until
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_numbers = itertools.count(1)

IMPATIENT = replace(KIND, webhook=replace(KIND.webhook, schedule=tuple(timedelta(seconds=n) for n in (0.2, 0.4, 0.8))))
"""The kind as it is, but that a webhook is given up after a second or two."""


async def echo(_job: Any, *, text: str) -> dict[str, str]:
    return {"text": text}


GATED = Kind(name="gated", gate="guard", handlers={None: echo}, price=5)
"""A kind of somebody else's behind the rules."""


@dataclass(slots=True)
class Customer:
    """A tenant of its own: a key of its product, and one of its operator."""

    deployment: Deployment
    name: str
    key: str
    admin_key: str

    async def send(self, method: str, path: str, json: Any = None, *, key: str = "", **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"} | options.pop("headers", {})
        body = {} if json is None else {"json": json}
        return await self.deployment.http.request(method, path, headers=headers, **body, **options)

    async def get(self, path: str, **options: Any) -> Any:
        return good(await self.send("GET", path, **options))

    async def post(self, path: str, json: Any = None, **options: Any) -> Any:
        return good(await self.send("POST", path, json, **options))

    async def operate(self, method: str, path: str, json: Any = None) -> Any:
        return good(await self.send(method, path, json, key=self.admin_key))

    async def refused(self, method: str, path: str, json: Any = None, *, status: int, **options: Any) -> Any:
        answer = await self.send(method, path, json, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()

    async def rule(self, matcher: dict[str, Any], **more: Any) -> dict[str, Any]:
        rule = {"name": f"rule {next(_numbers)}", "matcher": matcher} | more
        return await self.operate("POST", "/v1/rules", rule)

    def url(self, path: str = "") -> str:
        return self.deployment.receiver.url(path or self.name)

    async def submit(self, text: str = "Hello!", **more: Any) -> dict[str, Any]:
        return await self.post("/v1/jobs", {"message_input": text, "webhook_url": self.url()} | more)

    async def read(self, job: dict[str, Any]) -> dict[str, Any]:
        return await self.get(f"/v1/jobs/{job['job_id']}")

    async def when(self, job: dict[str, Any], status: str) -> dict[str, Any]:
        async def is_there() -> bool:
            return (await self.read(job))["status"] == status

        await until(is_there)
        return await self.read(job)

    async def respond(self, job: dict[str, Any], text: str) -> dict[str, Any]:
        return await self.post(f"/v1/jobs/{job['job_id']}/response", {"message_output": text})

    async def states(self, job: dict[str, Any]) -> list[str]:
        """The states that a job has gone through, by its events."""
        events = await self.deployment.engine.events(self.name, job["job_id"])
        return [state for state, _ in itertools.groupby(event.state for event in events)]


def good(answer: httpx2.Response) -> Any:
    assert answer.status_code < 300, f"{answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


@dataclass(slots=True)
class Deployment:
    """A server that runs, and ways to come to it."""

    engine: Engine
    url: str
    root: str
    http: httpx2.AsyncClient
    receiver: Receiver
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]

    async def customer(self, name: str = "") -> Customer:
        name = name or f"tenant-{next(_numbers)}"
        key = await self.key(scope="client", tenant=name, account="app")
        return Customer(self, name, key, await self.key(scope="admin", tenant=name))


@asynccontextmanager
async def running_deployment(
    dsn: str,
    *,
    alone: bool = False,
    outbound: Outbound | None = None,
    tenant_databases: dict[str, str] | None = None,
    with_inbox: bool = False,
) -> AsyncIterator[Deployment]:
    """The product under /guard, or alone at the root. Of the inside nothing is open but its own receiver."""
    settings = ProductSettings(
        rate_limit=100_000, failure_limit=1_000_000, streams_per_key=100_000, streams_per_account=100_000
    )
    app = Millpond()
    app.add(IMPATIENT)
    app.add(GATED)
    async with receiving() as receiver:
        engine = await Engine.open(
            dsn,
            app,
            tenant_databases=tenant_databases,
            outbound=outbound or Outbound("loopback" if with_inbox else f"127.0.0.1:{receiver.port}"),
            vault=Vault.from_text(base64.b64encode(os.urandom(32)).decode()),
        )
        await prepare(engine, [PRODUCT])
        notifier = Notifier(engine)
        hub = Hub(engine, notifier)
        api = create_app(
            engine,
            settings=settings,
            hub=hub,
            products=[] if alone else [PRODUCT],
            alone=PRODUCT if alone else None,
            inbox=Inbox() if with_inbox else None,
        )
        sock = listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        root = "" if alone else "/guard"
        ready = asyncio.Event()
        worker = Worker(engine.source(), bound(engine, settings, [PRODUCT]), slots=20)
        async with httpx2.AsyncClient(base_url=url + root, timeout=PATIENCE) as http:
            deployment = Deployment(engine, url, root, http, receiver)
            running = asyncio.gather(
                hub.run(deployment.stop),
                notifier.run(deployment.stop),
                worker.run(deployment.stop),
                run_services(all_services(engine, settings, export_line), deployment.stop),
                serve(api, host="", port=0, sock=sock, stop=deployment.stop, on_ready=ready.set, drain=1),
            )
            try:
                await ready.wait()
                yield deployment
            finally:
                deployment.stop.set()
                await running
                await engine.close()
