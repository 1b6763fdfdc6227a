"""A real server of the actions product with its worker and services, and users for it; it can be started again."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx2
from products.tests.doubles.github import TOKEN, served_github

from millpond.api.server import listen
from millpond.app import Millpond
from millpond.cli.apps import Selection
from millpond.cli.deployment import parts, url_of
from millpond.cli.processes import run_in_order
from millpond.cli.worker import make_worker
from millpond.engine.engine import Engine
from millpond.engine.queue.dispatches import Lanes
from millpond.errors import PermanentError
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.work import Return
from millpond_products.actions import action, trigger_github_workflow
from millpond_products.actions.kinds import TRIGGER_GITHUB_WORKFLOW
from millpond_products.actions.routes import PRODUCT, handlers
from millpond_products.settings import ProductSettings
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from products.tests.doubles.github import GitHub

    from millpond.api.product import Code, Product
    from millpond.work import Lease

ENDED = ("success", "failed", "cancelled")
FIELDS = ["id", "action", "state", "input", "output", "error", "createdAt", "startedAt", "completedAt"]
GRACE = timedelta(seconds=0.6)
PAUSE = 0.005
STEPS = [f"step-{n}" for n in range(300)]
MINUTE = timedelta(minutes=1)
COMMANDS = {
    "python": [sys.executable, "-c"],
    "echo": ["echo"],
    "sh": ["sh", "-c"],
    "absent": ["/nowhere/at/all"],
}
_numbers = itertools.count(1)
gates: dict[str, asyncio.Event] = {}
"""What the code of a job waits for, by a name in its input."""
ran: list[str] = []


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


@dataclass(frozen=True, slots=True)
class Message:
    """A server-sent event."""

    id: str | None
    event: str
    data: Any


@dataclass(slots=True)
class User:
    """Somebody with an account and a key."""

    http: httpx2.AsyncClient
    key: str
    name: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **options: Any
    ) -> httpx2.Response:
        more = {} if body is None else {"json": body}
        return await self.http.request(method, path, headers=self.headers | (headers or {}), **more, **options)

    async def get(self, path: str) -> Any:
        answer = await self.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, name: str, /, **given: Any) -> str:
        """A job that was taken in."""
        answer = await self.send("POST", "/api/jobs", {"action": name, "input": given})
        assert answer.status_code == 202, answer.text
        response = answer.json()
        assert list(response) == ["id", "state", "createdAt"]
        assert response["state"] == "pending"
        return response["id"]

    async def refused(
        self, method: str, path: str, body: Any = None, *, status: int, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        answer = await self.send(method, path, body, headers)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()

    async def job(self, job_id: str) -> dict[str, Any]:
        job = await self.get(f"/api/jobs/{job_id}")
        assert list(job)[: len(FIELDS)] == FIELDS
        assert set(job) <= {*FIELDS, "retryOf"}
        check_times(job)
        return job

    async def until(self, job_id: str, *states: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while (job := await self.job(job_id))["state"] not in states:
                await asyncio.sleep(0.02)
        return job

    async def done(self, name: str, /, **given: Any) -> dict[str, Any]:
        """A job at its end, whichever that is."""
        return await self.until(await self.submit(name, **given), *ENDED)

    async def lines(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            page = await self.get(f"/api/jobs/{job_id}/logs?after={after}&limit=1000")
            found += page["data"]
            if page["next"] is None:
                return found
            after = page["next"]

    async def texts(self, job_id: str) -> list[str]:
        return [line["text"] for line in await self.lines(job_id)]

    @asynccontextmanager
    async def watching(self, job_id: str, last: str | None = None) -> AsyncIterator[AsyncIterator[Message]]:
        headers = self.headers | ({} if last is None else {"Last-Event-ID": last})
        async with self.http.stream("GET", f"/api/jobs/{job_id}/stream", headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"] == "text/event-stream"
            yield messages(answer)

    async def watched(self, job_id: str, last: str | None = None) -> list[Message]:
        """All of a stream."""
        async with asyncio.timeout(PATIENCE), self.watching(job_id, last) as found:
            return [message async for message in found]


async def messages(answer: httpx2.Response) -> AsyncGenerator[Message]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield Message(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}


def check_times(job: dict[str, Any]) -> None:
    """What holds of the times of every job, whenever it is looked at."""
    described = [job["createdAt"], job["startedAt"], job["completedAt"]]
    assert all(text is None or text.endswith("Z") for text in described)
    assert (job["completedAt"] is not None) == (job["state"] in ENDED)
    assert job["startedAt"] is None if job["state"] == "pending" else True
    assert job["startedAt"] is not None if job["state"] in ("running", "success", "failed") else True
    times = [datetime.fromisoformat(text) for text in described if text is not None]
    assert times == sorted(times)


@dataclass(slots=True)
class Deployment:
    """A server that runs, and ways to come to it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    github: GitHub
    settings: ProductSettings
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def user(self, tenant: str = "acme") -> User:
        name = f"user-{next(_numbers)}"
        made = await self.engine.access.make_key(actor="test", scope="client", tenant=tenant, account=name)
        return User(self.http, made[1], name)

    # Where no worker runs

    async def claimed(self, name: str) -> Lease:
        """A job in the hands of a worker that will die."""
        (lease,) = await self.engine.claim(Lanes((f"actions.{name}",)), 1, worker="mortal", duration=MINUTE)
        return lease

    async def died(self, lease: Lease) -> None:
        await self.engine.give_back(Return(lease, "interruption", {"code": "interrupted", "message": "gone"}))

    async def work(self, stop: asyncio.Event | None = None) -> None:
        """Run what is ready."""
        await make_worker(self.engine, self.settings, products=(quick(PRODUCT),)).drain(stop)

    @contextlib.asynccontextmanager
    async def paused(self, name: str) -> AsyncIterator[None]:
        """Nobody takes jobs of an action."""
        await self.engine.pause(f"actions.{name}")
        try:
            yield
        finally:
            await self.engine.resume(f"actions.{name}")


async def log_numbers(job: Any, numbers: range) -> None:
    for n in numbers:
        await job.log(f"line {n}")
        await job.progress((n + 1) / 10_000)


async def let_on(job: Any, name: str) -> None:
    while not gate(name).is_set():
        await job.checkpoint()
        await asyncio.sleep(0.01)


def product() -> Millpond:
    """The actions that come with Millpond, and some of a user's own."""
    app = Millpond()
    for kind in (*PRODUCT.kinds, Kind(name="elsewhere")):
        app.add(kind)

    @action(app, "greet")
    async def greet(job: Any, name: str, times: int = 1) -> dict[str, str]:
        """Say hello."""
        for n in range(times):
            await job.log(f"Hello, {name}, for the {n + 1}. time")
        return {"text": f"Hello, {name}!"}

    @action(app, "talk", stages=["first", "second"])
    async def talk(job: Any, name: str, before: int = 3, after: int = 3) -> dict[str, int]:
        """Lines, with much between them that is none; then a pause until it is let on; then the rest."""
        await job.stage("first")
        await log_numbers(job, range(before))
        await job.stage("second")
        await let_on(job, name)
        await log_numbers(job, range(before, before + after))
        return {"lines": before + after}

    @action(app, "mumble", stages=STEPS)
    async def mumble(job: Any, name: str) -> None:
        """Two lines, and between them much that is none."""
        await job.log("before")
        await let_on(job, name)
        await asyncio.gather(*map(job.stage, STEPS))
        await job.log("after")

    @action(app, "chatter")
    async def chatter(job: Any, name: str, times: int) -> None:
        """Much at once, when it is let on."""
        await job.log("begun")
        await let_on(job, name)
        await asyncio.gather(*(job.log(f"line {n}") for n in range(times)))

    @action(app, "ignore")
    async def ignore(job: Any, name: str) -> dict[str, str]:
        """Does not look whether it must stop, and goes on when it is cut."""
        await job.log("begun")
        while not gate(name).is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate(name).wait()
        with contextlib.suppress(Exception):
            await job.log("too late")
        ran.append(name)
        return {"late": name}

    @action(app, "break")
    async def broken(job: Any, how: str) -> None:
        """Fails."""
        await job.log("about to fail")
        raise PermanentError(how, why="because")

    return app


def quick(product: Product) -> Product:
    """GitHub's double goes on with each look: nobody need wait for it."""

    def code(engine: Engine, settings: ProductSettings) -> Code:
        impatient = trigger_github_workflow.handler(engine, settings, pause=PAUSE)
        return {**handlers(engine, settings), TRIGGER_GITHUB_WORKFLOW.name: {None: impatient}}

    return dataclasses.replace(product, handlers=code)


@asynccontextmanager
async def running_deployment(
    dsn: str, *, port: int = 0, roles: tuple[str, ...] = (), **said: Any
) -> AsyncIterator[Deployment]:
    """The product under /actions. ``said`` are settings."""
    sock = listen("127.0.0.1", port)
    url = url_of(sock)
    app = product()
    with served_github() as double:
        usual = ProductSettings(
            rate_limit=100_000,
            failure_limit=1_000_000,
            streams_per_key=100_000,
            streams_per_account=100_000,
            slots=50,
            grace=GRACE,
            lease=timedelta(seconds=30),
            heartbeat=timedelta(seconds=0.2),
            github_url=double.url,
            github_token=TOKEN,
            repositories="octo/*",
            commands=json.dumps(COMMANDS),
        )
        settings = dataclasses.replace(usual, **said)
        engine = await Engine.open(dsn, app, outbound=Outbound("loopback"))
        ready = asyncio.Event()
        mounted = Selection(app, mounted=(quick(PRODUCT),))
        made = parts(engine, settings, roles or ("api", "services", "worker"), sock, ready.set, mounted)
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=f"{url}/actions", timeout=PATIENCE, limits=limits) as http:
            deployment = Deployment(engine, url, http, double.double, settings)
            serving = asyncio.ensure_future(run_in_order(made, deployment.stop))
            try:
                await ready.wait()
                yield deployment
            finally:
                deployment.stop.set()
                await serving
                await engine.close()
