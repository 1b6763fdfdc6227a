"""A real server of the partner product with its worker, services and files; receivers, and partners for it.

What the kinds do for real is tried elsewhere: here tests write the code of jobs, to steer them.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import httpx2
from products.tests.guard.receivers import Receiver, receiving

from millpond.api.server import listen, serve
from millpond.app import Millpond
from millpond.cli.apps import Selection
from millpond.cli.deployment import parts, url_of
from millpond.cli.processes import run_in_order
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.integrations.replicate import Replicate
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.storage.files import FileServer
from millpond.storage.local import Local
from millpond.testing import Clock
from millpond_products.partner import identifiers, routes
from millpond_products.partner.kinds import KINDS
from millpond_products.settings import ProductSettings
from tests.doubles.replicate import TOKEN
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from millpond.api.product import Code, Product
    from millpond_products.partner.orders import Name

    Script = Callable[[Any, dict[str, Any]], Awaitable[dict[str, Any]]]

TENANT = "acme"
ENDED = ("completed", "failed", "canceled")
RUNNING_FIELDS = {"jobId", "kind", "status", "progress", "stage", "startedAt", "projectId"}
STARTS: dict[Name, tuple[str, dict[str, Any]]] = {
    "project_ingest_github": ("ingest/github", {"repoUrl": "http://127.0.0.1:9/shop.git"}),
    "project_ingest_website": ("ingest/website", {"url": "http://127.0.0.1:9/"}),
    "appstore_ingest": ("ingest/appstore", {"appId": "310633997"}),
    "content_generate": ("content", {"brief": "Summer", "images": 1}),
    "influencer_create": ("influencers", {"brief": "A cook"}),
}
"""Where each kind is started, and with what."""
_numbers = itertools.count(1)


@dataclass(slots=True)
class Partner:
    """Somebody with an account and a key."""

    http: httpx2.AsyncClient
    key: str
    account: str

    async def send(
        self, method: str, path: str, json: Any = None, headers: dict[str, str] | None = None, **options: Any
    ) -> httpx2.Response:
        body = {} if json is None else {"json": json}
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        return await self.http.request(method, path, headers=sent, **body, **options)

    async def get(self, path: str) -> Any:
        answer = await self.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, json: Any = None, status: int = 200, **options: Any) -> Any:
        answer = await self.send("POST", path, {} if json is None else json, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def refused(
        self, method: str, path: str, json: Any = None, *, status: int, code: str, **options: Any
    ) -> dict[str, Any]:
        """The error of an answer that is the contract's envelope, and nothing else."""
        answer = await self.send(method, path, json, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        response = answer.json()
        assert set(response) == {"error"}
        assert set(response["error"]) == {"code", "message", "details", "requestId"}
        assert response["error"]["code"] == code, response
        assert response["error"]["requestId"] == answer.headers["request-id"]
        return response["error"]

    async def project(self, **body: Any) -> str:
        return (await self.post("/v1/projects", {"name": "Lumen", **body}, 201))["projectId"]

    async def start(self, name: Name, project_id: str | None = None, key: str | None = None, **body: Any) -> Any:
        """A job that was taken in."""
        path, usual = STARTS[name]
        project_id = project_id or await self.project()
        headers = {"Idempotency-Key": key} if key else {}
        return await self.post(f"/v1/projects/{project_id}/{path}", {**usual, **body}, 202, headers=headers)

    async def job(self, job_id: str) -> dict[str, Any]:
        return await self.get(f"/v1/jobs/{job_id}")

    async def ended(self, job_id: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while (job := await self.get(f"/v1/jobs/{job_id}?wait=10"))["status"] not in ENDED:
                pass
        return job

    async def until(self, job_id: str, stage: str) -> dict[str, Any]:
        """The job, once it has come to a stage."""
        async with asyncio.timeout(PATIENCE):
            while (job := await self.job(job_id)).get("stage") != stage:
                assert job["status"] == "running", job
                await asyncio.sleep(0.01)
        return job


@dataclass(slots=True)
class Deployment:
    """A server that runs, and ways to come to it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    receiver: Receiver
    clock: Clock
    admin: Partner
    scripts: dict[Name, Script] = field(default_factory=dict["Name", "Script"])
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]

    async def partner(self, amount: int = 1_000, tenant: str = TENANT, account: str = "", **options: Any) -> Partner:
        account = account or f"partner-{next(_numbers)}"
        key = await self.key(scope="client", tenant=tenant, account=account, **options)
        if amount:
            await self.engine.grant(tenant, account, amount)
        return Partner(self.http, key, account)

    async def balance(self, partner: Partner) -> tuple[int, int]:
        """What the account has, and what is held."""
        wallet = await self.engine.balance(TENANT, partner.account)
        return wallet.available, wallet.held

    @asynccontextmanager
    async def paused(self, *names: Name) -> AsyncIterator[None]:
        """Nobody takes jobs of these kinds."""
        for name in names:
            await self.engine.pause(KINDS[name].name)
        try:
            yield
        finally:
            for name in names:
                await self.engine.resume(KINDS[name].name)


def made(given: dict[str, Any]) -> dict[str, Any]:
    """A result as handlers give it."""
    result: dict[str, Any] = {"projectId": f"prj_{given['project_id']}"}
    if "container_id" in given:
        result |= {"containerId": f"cnt_{given['container_id']}", "plan": {"scenes": 1}, "assets": []}
    elif "influencer_id" in given:
        result |= {"influencerId": f"inf_{given['influencer_id']}", "assets": []}
    return result


def scripted(deployment: Callable[[], Deployment]) -> Callable[[Engine, ProductSettings], Code]:
    """Handlers that do what the test of the moment has written; without that they walk through their stages."""

    def handler(name: Name) -> Any:
        async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
            script = deployment().scripts.get(name)
            if script is not None:
                return await script(job, given)
            stages = KINDS[name].stages
            for number, stage in enumerate(stages):
                await job.stage(stage)
                await job.progress((number + 1) / len(stages))
            return made(given)

        return run

    def handlers(engine: Engine, settings: ProductSettings) -> Code:
        del settings
        return routes.bound(engine, {name: handler(name) for name in KINDS})

    return handlers


def new_key() -> str:
    return str(uuid4())


def number(job_id: str) -> Any:
    return identifiers.parse_job(job_id)


@asynccontextmanager
async def running_deployment(
    dsn: str,
    folder: Path,
    *,
    alone: bool = False,
    worker: bool = True,
    far: str | None = None,
    **said: Any,
) -> AsyncIterator[Deployment]:
    """The product under /partner, or ``alone`` at the root. ``said`` are settings.

    The tenant ``far`` lives in a database of its own, if there is one.
    """
    files, sock = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    url = url_of(sock)
    store = Local(folder, url_of(files))
    product: Product = replace(routes.PRODUCT, handlers=scripted(lambda: deployment))
    app = Millpond()
    for kind in (*product.kinds, Kind(name="elsewhere")):
        app.add(kind)
    settings = replace(
        ProductSettings(
            rate_limit=100_000,
            failure_limit=1_000_000,
            streams_per_key=100_000,
            streams_per_account=100_000,
            poll_limit=100_000,
            slots=20,
        ),
        **said,
    )
    engine = await Engine.open(
        dsn,
        app,
        tenant_databases={} if far is None else {"far": far},
        storage=store,
        outbound=Outbound("loopback"),
        vault=Vault([b"0123456789abcdef0123456789abcdef"]),
        providers=[Replicate("http://127.0.0.1:9", TOKEN)],
    )
    ready = asyncio.Event()
    selection = Selection(app, alone=product) if alone else Selection(app, mounted=(product,))
    roles = ("api", "services", "worker") if worker else ("api",)
    running = parts(engine, settings, roles, sock, ready.set, selection)
    base = url if alone else f"{url}/partner"
    async with receiving() as receiver, httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
        deployment = Deployment(engine, url, http, receiver, Clock(engine.db), Partner(http, "", "admin"))
        serving = asyncio.gather(
            serve(FileServer(store), host="", port=0, sock=files, stop=deployment.stop, drain=1),
            run_in_order(running, deployment.stop),
        )
        try:
            await ready.wait()
            deployment.admin.key = await deployment.key(scope="admin")
            yield deployment
        finally:
            deployment.stop.set()
            await serving
            await engine.close()


def kind_names() -> list[Name]:
    return cast("list[Name]", list(STARTS))
