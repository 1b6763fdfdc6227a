"""A real server of the studio product with its worker, services and files; a shop and a provider; users for it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
from products.tests.studio.shop import Shop

from millpond import logs
from millpond.api.jobs.callbacks import callbacks_url
from millpond.api.server import listen, serve
from millpond.app import Millpond
from millpond.cli.apps import Selection
from millpond.cli.deployment import parts, url_of
from millpond.cli.processes import run_in_order
from millpond.engine.engine import Engine
from millpond.integrations.replicate import Replicate
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.storage.files import FileServer
from millpond.storage.local import Local
from millpond.testing import Clock
from millpond_products.settings import ProductSettings
from millpond_products.studio.routes import PRODUCT
from tests.doubles.comfyui import served
from tests.doubles.replicate import TOKEN, served_replicate
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from millpond.providers import Provider
    from tests.doubles import replicate

ENDED = ("completed", "failed", "canceled", "expired")
LAMP = {"name": "Lumen Desk Lamp", "price": "89", "currency": "EUR", "features": ["Dims by itself"]}
BODIES: dict[str, dict[str, Any]] = {
    "copy": {"product": LAMP},
    "static-ad": {"product": LAMP},
    "video": {"product": LAMP},
    "tts": {"text": "Let there be light."},
    "scrape": {"url": "http://127.0.0.1:9/nobody"},
}
COSTS = {"copy": 1, "scrape": 1, "tts": 2, "static-ad": 5, "video": 20}
FIELDS = {"id", "type", "status", "credits_cost", "input", "output", "error", "attempts"} | {
    f"{word}_at" for word in ("created", "updated", "started", "completed")
}
_numbers = itertools.count(1)


@dataclass(slots=True)
class User:
    """Somebody with an account and a key."""

    http: httpx2.AsyncClient
    key: str
    name: str

    async def send(self, method: str, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        body = {} if json is None else {"json": json}
        return await self.http.request(method, path, headers={"Authorization": f"Bearer {self.key}"}, **body, **options)

    async def get(self, path: str) -> Any:
        answer = await self.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def generate(self, path: str, **body: Any) -> dict[str, Any]:
        """A job that was taken in."""
        answer = await self.send("POST", f"/api/generate/{path}", body or BODIES[path])
        assert answer.status_code == 202, answer.text
        response = answer.json()
        assert set(response) == {"job_id", "status", "credits_cost", "credits_remaining"}
        return response

    async def refused(self, method: str, path: str, json: Any = None, *, status: int) -> dict[str, Any]:
        answer = await self.send(method, path, json)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()

    async def job(self, job_id: str) -> dict[str, Any]:
        job = await self.get(f"/api/jobs/{job_id}")
        assert set(job) == FIELDS
        return job

    async def until(self, job_id: str, *states: str, patience: float = PATIENCE) -> dict[str, Any]:
        async with asyncio.timeout(patience):
            while (job := await self.job(job_id))["status"] not in states:
                await asyncio.sleep(0.03)
        return job

    async def ended(self, job_id: str, patience: float = PATIENCE) -> dict[str, Any]:
        return await self.until(job_id, *ENDED, patience=patience)

    async def made(self, path: str, **body: Any) -> dict[str, Any]:
        """A job that went well."""
        job = await self.ended((await self.generate(path, **body))["job_id"])
        assert job["status"] == "completed", job
        return job

    async def balance(self) -> int:
        """What the wallet has, which is always what its entries add up to."""
        response = await self.get("/api/credits?limit=200")
        assert sum(entry["amount"] for entry in response["entries"]) == response["balance"]
        return response["balance"]

    async def entries(self, job_id: str | None = None) -> list[tuple[str, int]]:
        """The entries, the oldest first."""
        found = (await self.get("/api/credits?limit=200"))["entries"]
        return [(each["type"], each["amount"]) for each in reversed(found) if job_id in (None, each["job_id"])]


@dataclass(slots=True)
class Deployment:
    """A server that runs, and ways to come to it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    shop: Shop
    shop_url: str
    provider: replicate.Replicate
    clock: Clock
    admin: User
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]

    async def user(self, amount: int = 100, tenant: str = "acme", name: str = "") -> User:
        name = name or f"user-{next(_numbers)}"
        key = await self.key(scope="client", tenant=tenant, account=name)
        if amount:
            await self.engine.grant(tenant, name, amount)
        return User(self.http, key, name)

    async def native(self, method: str, path: str, json: Any = None) -> httpx2.Response:
        """The native API, as an operator."""
        headers = {"Authorization": f"Bearer {self.admin.key}"}
        return await self.http.request(method, f"{self.url}{path}", json=json, headers=headers)

    async def ended_soon(self, user: User, job_id: str) -> dict[str, Any]:
        """The end of a job that is tried again after pauses: the clock runs faster meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while (job := await user.job(job_id))["status"] not in ENDED:
                if (await self.engine.read("acme", job_id)).phase == "waiting":
                    await self.clock.advance(timedelta(seconds=3))
                await asyncio.sleep(0.05)
        return job

    async def parked(self, job_id: str, tenant: str = "acme") -> None:
        """Wait until a job waits for its provider."""
        async with asyncio.timeout(PATIENCE):
            while (await self.engine.read(tenant, job_id)).phase != "parked":
                await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def paused(self, kind: str) -> AsyncIterator[None]:
        """Nobody takes jobs of a kind."""
        await self.engine.pause(f"studio.{kind}")
        try:
            yield
        finally:
            await self.engine.resume(f"studio.{kind}")


class Lines:
    """What is logged meanwhile."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def of(self, job_id: str, event: str | None = None) -> list[dict[str, Any]]:
        all_lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in all_lines if line.get("job_id") == job_id and event in (None, line["event"])]


@contextlib.contextmanager
def listening() -> Iterator[Lines]:
    lines = Lines()
    logs.configure("debug", as_json=True, stream=lines.stream)
    try:
        yield lines
    finally:
        logs.silence()


@asynccontextmanager
async def running_deployment(
    dsn: str, folder: Path, *, provider: Provider | None = None, **said: Any
) -> AsyncIterator[Deployment]:
    """The product under /studio. ``said`` are settings; {shop} in them is where the shop is."""
    files = listen("127.0.0.1", 0)
    sock = listen("127.0.0.1", 0)
    url = url_of(sock)
    store = Local(folder, url_of(files))
    app = Millpond()
    for kind in (*PRODUCT.kinds, Kind(name="elsewhere")):
        app.add(kind)
    with served(Shop()) as shop, served_replicate() as double:
        said = {name: text.format(shop=shop.url) if isinstance(text, str) else text for name, text in said.items()}
        settings = dataclasses.replace(
            ProductSettings(
                rate_limit=100_000,
                failure_limit=1_000_000,
                streams_per_key=100_000,
                streams_per_account=100_000,
                slots=20,
            ),
            **said,
        )
        provider = provider or Replicate(double.url, TOKEN)
        engine = await Engine.open(dsn, app, storage=store, outbound=Outbound("loopback"), providers=[provider])
        engine.providers.callbacks_url = callbacks_url(url)
        ready = asyncio.Event()
        selection = Selection(app, mounted=(PRODUCT,))
        made = parts(engine, settings, ("api", "services", "worker"), sock, ready.set, selection)
        async with httpx2.AsyncClient(base_url=f"{url}/studio", timeout=PATIENCE) as http:
            deployment = Deployment(
                engine, url, http, shop.double, shop.url, double.double, Clock(engine.db), User(http, "", "admin")
            )
            serving = asyncio.gather(
                serve(FileServer(store), host="", port=0, sock=files, stop=deployment.stop, drain=1),
                run_in_order(made, deployment.stop),
            )
            try:
                await ready.wait()
                deployment.admin.key = await deployment.key(scope="admin")
                yield deployment
            finally:
                deployment.stop.set()
                await serving
                await engine.close()
