"""A real server of the effects product with a real file server beside it; users, workers and operators for it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from PIL import Image

from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.product import prepare
from millpond.api.server import listen, serve
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.services.notifier import Notifier
from millpond.storage.files import FileServer
from millpond.storage.local import Local
from millpond_products.effects.routes import PRODUCT
from millpond_products.effects.seed import GRAPH, OUTPUT
from millpond_products.settings import ProductSettings
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_numbers = itertools.count(1)


def picture(colour: str = "navy", size: tuple[int, int] = (24, 16)) -> bytes:
    with io.BytesIO() as file:
        Image.new("RGB", size, colour).save(file, "PNG")
        return file.getvalue()


@dataclass(slots=True)
class Caller:
    """Somebody with a key or a token."""

    http: httpx2.AsyncClient
    headers: dict[str, str]
    name: str = ""

    @property
    def key(self) -> str:
        return self.headers["Authorization"].removeprefix("Bearer ")

    async def send(self, method: str, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        headers = self.headers | options.pop("headers", {})
        body = {} if json is None else {"json": json}
        return await self.http.request(method, path, headers=headers, **body, **options)

    async def get(self, path: str, **options: Any) -> Any:
        return _good(await self.send("GET", path, **options))

    async def post(self, path: str, json: Any = None, **options: Any) -> Any:
        return _good(await self.send("POST", path, json, **options))

    async def put(self, path: str, json: Any = None) -> Any:
        return _good(await self.send("PUT", path, json))

    async def patch(self, path: str, json: Any = None) -> Any:
        return _good(await self.send("PATCH", path, json))

    async def refused(self, method: str, path: str, json: Any = None, *, status: int, **options: Any) -> Any:
        answer = await self.send(method, path, json, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status
        assert problem["message"] == problem["detail"]
        return problem


class User(Caller):
    """Somebody with an account."""

    async def upload(self, data: bytes | None = None, **about: Any) -> dict[str, Any]:
        """A file that is in storage."""
        data = picture() if data is None else data
        about = {"filename": "in.png", "mime_type": "image/png", "size": len(data)} | about
        made = await self.post("/api/videos/uploads", about)
        answer = await self.http.put(made["upload_url"], content=data, headers=made["upload_headers"])
        assert answer.status_code == 200, answer.text
        return made["file"]

    async def video(self, data: bytes | None = None, **about: Any) -> dict[str, Any]:
        file = await self.upload(data, **about)
        return await self.post("/api/videos", {"original_file_id": file["id"]})

    async def order(self, effect: str = "invert", video: Any = None, **more: Any) -> dict[str, Any]:
        """A job that was accepted."""
        return _good(await self.ask(effect, video, **more))

    async def ask(self, effect: str = "invert", video: Any = None, **more: Any) -> httpx2.Response:
        video = await self.video() if video is None else video
        body = {"effect_id": effect, "video_id": video["id"], "idempotency_key": f"key-{next(_numbers)}"} | more
        return await self.send("POST", "/api/ai-jobs", body)

    async def balance(self) -> int:
        """What the wallet has, which is always what the transactions add up to."""
        wallet = await self.get("/api/wallet")
        amounts = [entry["amount"] for entry in (await self.get("/api/wallet/transactions?limit=200"))["data"]]
        assert sum(amounts) == wallet["balance"]
        return wallet["balance"]

    async def types(self) -> list[tuple[str, int]]:
        """The transactions, the oldest first."""
        page = await self.get("/api/wallet/transactions?limit=200")
        return [(entry["type"], entry["amount"]) for entry in reversed(page["data"])]


class Worker(Caller):
    """Somebody who has registered."""

    async def poll(self) -> dict[str, Any] | None:
        return (await self.post("/api/worker/poll", {}))["job"]

    async def take_soon(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while (job := await self.poll()) is None:
                await asyncio.sleep(0.01)
        return job

    async def take(self) -> dict[str, Any]:
        job = await self.poll()
        assert job is not None
        return job

    async def put_output(self, job: dict[str, Any], data: bytes | None = None) -> int:
        data = picture("white") if data is None else data
        answer = await self.http.put(job["output_url"], content=data, headers=job["output_headers"])
        assert answer.status_code == 200, answer.text
        return len(data)

    async def complete(self, job: dict[str, Any], data: bytes | None = None, **more: Any) -> dict[str, Any]:
        size = await self.put_output(job, data)
        return await self.post("/api/worker/complete", lease(job) | {"output": {"size": size}} | more)


def lease(job: dict[str, Any]) -> dict[str, Any]:
    return {"dispatch_id": job["dispatch_id"], "lease_token": job["lease_token"]}


def _good(answer: httpx2.Response) -> Any:
    assert answer.status_code < 300, f"{answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


@dataclass(slots=True)
class Deployment:
    """A server that runs, and ways to come to it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    admin: Caller
    fleet_secret: str
    root: str = "/effects"
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]

    async def user(self, tokens: int = 100, tenant: str = "acme", name: str = "") -> User:
        name = name or f"user-{next(_numbers)}"
        key = await self.key(scope="client", tenant=tenant, account=name)
        if tokens:
            await self.engine.grant(tenant, name, tokens)
        return User(self.http, {"Authorization": f"Bearer {key}"}, name)

    async def workflow(self, graph: Any = None, *, assets: Any = (), **about: Any) -> str:
        """The slug of a workflow that is active, with an effect of the same slug."""
        slug = f"flow-{next(_numbers)}"
        effect = {"slug": slug, "name": slug, "workflow_id": slug, "credits_cost": about.pop("price", 5)}
        effect["property_overrides"] = about.pop("overrides", {})
        effect |= {name: about.pop(name) for name in ("provider", "priority") if name in about}
        properties = about.pop("properties", [])
        made = {"slug": slug, "name": slug, "input_type": "image", "output_extension": "png"} | about
        await self.admin.post("/api/admin/workflows", made)
        for name, data in assets:
            await self.asset(slug, name, data)
        await self.admin.patch(f"/api/admin/workflows/{slug}", {"properties": properties})
        body = {"workflow": graph or GRAPH, "output_node_id": OUTPUT}
        await self.admin.put(f"/api/admin/workflows/{slug}/workflow", body)
        await self.admin.post(f"/api/admin/workflows/{slug}/activate")
        await self.admin.post("/api/admin/effects", effect)
        return slug

    async def asset(self, slug: str, name: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        about = {"name": name, "filename": f"{name}.png", "mime_type": "image/png", "size": len(data)}
        made = await self.admin.post(f"/api/admin/workflows/{slug}/assets", about | {"content_hash": digest})
        answer = await self.http.put(made["upload_url"], content=data, headers=made["upload_headers"])
        assert answer.status_code == 200, answer.text
        return made["asset"]

    async def worker(self, *slugs: str, name: str = "", **about: Any) -> Worker:
        body = {"worker_id": name or f"w-{next(_numbers)}", "workflow_slugs": list(slugs)} | about
        answer = _good(
            await self.http.post("/api/worker/register", json=body, headers={"X-Fleet-Secret": self.fleet_secret})
        )
        return Worker(self.http, {"Authorization": f"Bearer {answer['token']}"}, answer["worker_id"])


@asynccontextmanager
async def running_deployment(
    dsn: str,
    folder: Path,
    *,
    alone: bool = False,
    settings: ProductSettings | None = None,
    tenant_databases: dict[str, str] | None = None,
) -> AsyncIterator[Deployment]:
    """The product under /effects, or alone at the root."""
    settings = settings or ProductSettings(
        rate_limit=100_000, failure_limit=1_000_000, streams_per_key=100_000, streams_per_account=100_000
    )
    files = listen("127.0.0.1", 0)
    store = Local(folder, f"http://127.0.0.1:{files.getsockname()[1]}")
    app = Millpond()
    app.add(PRODUCT.kinds[0])
    engine = await Engine.open(dsn, app, storage=store, tenant_databases=tenant_databases)
    await prepare(engine, [PRODUCT])
    assert PRODUCT.seed is not None
    await PRODUCT.seed(engine)
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    api = create_app(
        engine,
        settings=settings,
        hub=hub,
        products=[] if alone else [PRODUCT],
        alone=PRODUCT if alone else None,
    )
    sock = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    root = "" if alone else "/effects"
    ready = asyncio.Event()
    async with httpx2.AsyncClient(base_url=url + root, timeout=PATIENCE) as http:
        deployment = Deployment(engine, url, http, Caller(http, {}), "", root)
        serving = asyncio.gather(
            hub.run(deployment.stop),
            notifier.run(deployment.stop),
            serve(FileServer(store), host="", port=0, sock=files, stop=deployment.stop, drain=1),
            serve(api, host="", port=0, sock=sock, stop=deployment.stop, on_ready=ready.set, drain=1),
        )
        try:
            await ready.wait()
            deployment.admin.headers["Authorization"] = f"Bearer {await deployment.key(scope='admin')}"
            deployment.fleet_secret = await deployment.key(scope="worker")
            yield deployment
        finally:
            deployment.stop.set()
            await serving
            await engine.close()
