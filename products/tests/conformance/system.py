"""What the checks run against: ``millpond up`` as a process, another that dies, and who they speak to."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import httpx2
import pytest
from products.tests.doubles.forge import API, Forge
from products.tests.doubles.github import TOKEN as GITHUB_TOKEN
from products.tests.doubles.github import GitHub
from products.tests.doubles.itunes import ITunes
from products.tests.effects import deployments as effects
from products.tests.guard import deployments as guard
from products.tests.guard.receivers import Receiver, receiving
from products.tests.studio import deployments as studio
from products.tests.studio.shop import Shop

from millpond.store.db import connect
from millpond.store.embedded import open_embedded
from millpond.testing import DatabaseServer as Postgres
from tests.acceptance.processes import Shell, free_port, shell
from tests.aws.amazon import ENVIRONMENT as AMAZON
from tests.aws.amazon import Amazon, running_moto
from tests.cli.ups import Up, serving, up
from tests.doubles.comfyui import Served, served
from tests.doubles.replicate import TOKEN, Refusal, Replicate, Script
from tests.storage.seaweedfs import KEYS as BUCKET
from tests.storage.seaweedfs import running_seaweedfs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

TENANT: Final = "acme"
FAR: Final = "far"
"""The tenant that lives in another database, on the mortal server."""
SECONDS: Final = 60.0

STEADY: Final = {
    "MILLPOND_LEASE": "30s",
    "MILLPOND_HEARTBEAT": "5s",
    "MILLPOND_SLOTS": "30",
    "MILLPOND_RATE_LIMIT": "100000",
    "MILLPOND_FLEET_MAX": "200",
}
MORTAL: Final = {
    "MILLPOND_LEASE": "4s",
    "MILLPOND_HEARTBEAT": "1s",
    "MILLPOND_GRACE": "2s",
    "MILLPOND_SLOTS": "30",
    "MILLPOND_RATE_LIMIT": "100000",
    "MILLPOND_FLEET_MAX": "12",
    "MILLPOND_FLEET_LEASE": "6s",
    "MILLPOND_FLEET_HEARTBEAT": "1s",
    "MILLPOND_WORKER_SILENCE": "2s",
    "MILLPOND_FLEET_APPROVAL": "manual",
    "MILLPOND_FLEET_CHECK_ASG": "true",
    "MILLPOND_REPLICATE_API_TOKEN": TOKEN,
    "AWS_ACCESS_KEY_ID": BUCKET.access_key,
    "AWS_SECRET_ACCESS_KEY": BUCKET.secret_key,
}

TALK: Final = """
import sys, time
from pathlib import Path

lines, gate, status = sys.argv[1:]
for n in range(int(lines)):
    print(f"line {n}", flush=True)
print("to stderr", file=sys.stderr, flush=True)
left = time.monotonic() + 100  # whoever started it may be killed, and it is not to stay for ever
while gate and not Path(gate).exists() and time.monotonic() < left:
    time.sleep(0.05)
print("the end", flush=True)
sys.exit(int(status))
"""
"""A command that an operator allows."""
APP: Final = """
from millpond import Millpond
from millpond_products.actions.kinds import ACTIONS
from millpond.kinds import Kind

app = Millpond()
app.add(Kind(name="actions.by-hand", lifecycle=ACTIONS, runs="fleet", attempts_max=1))
"""
"""An action of one's own, which a worker of the fleet does."""

HELLO: Final = """
from millpond import Millpond

app = Millpond()


@app.kind("hello")
async def hello(job): ...
"""
"""A kind of no product beside them."""

LIAR: Final = """
import asyncio, contextlib, json
from dataclasses import replace
from pathlib import Path

from millpond import Millpond
from millpond_products.partner.kinds import KINDS
from millpond.errors import InputError, TransientError

app = Millpond()


async def run(job, given):
    stages = kinds[job.kind].stages
    if "lies" in json.dumps(given):
        await lie(job, stages)
    for stage in stages:
        await job.stage(stage)
        while "waits" in json.dumps(given) and not Path(f"{job.id.lower()}-{stage}").exists():
            await job.checkpoint()
            await asyncio.sleep(0.05)
    return {"assets": [], "projectId": given["project_id"]}


async def lie(job, stages):
    for value in (0.5, 0.2, float("nan"), 7.0, -1.0, 0.3):
        with contextlib.suppress(InputError):
            await job.progress(value)
        with contextlib.suppress(Exception):  # and by going around what checks it
            await job._write("progress", json.dumps({"progress": 0.1}), value, None)
        await asyncio.sleep(0.15)
    for stage in (stages[1], stages[0], "nonsense", stages[1], stages[0]):
        with contextlib.suppress(InputError):
            await job.stage(stage)
        await asyncio.sleep(0.15)
    if job.attempt == 1:
        raise TransientError("Once more, from the beginning.")


kinds = {kind.name: replace(kind, handlers={None: run}) for kind in KINDS.values()}
for kind in kinds.values():
    app.add(kind)
"""
"""Partners' jobs as no worker of ours does them: one goes back, repeats, jumps and begins again; another waits in each
stage for a file of that name."""

_numbers = itertools.count(1)
_Found = TypeVar("_Found")


def fresh(word: str) -> str:
    """A name that nobody else has."""
    return f"{word}-{next(_numbers)}"


def body_of(answer: httpx2.Response, status: int | None = None) -> Any:
    """The body of an answer that is as it should be."""
    is_good = answer.status_code < 300 if status is None else answer.status_code == status
    assert is_good, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


async def until(look: Callable[[], Awaitable[_Found | None]], patience: float = SECONDS) -> _Found:
    """What a look finds, sooner or later."""
    async with asyncio.timeout(patience):
        while not (found := await look()):
            await asyncio.sleep(0.05)
    return found


class Provider(Replicate):
    """Replicate, which does with each prediction what was arranged for its text or its product."""

    def __init__(self) -> None:
        super().__init__()
        self.arranged: dict[str, Script] = {}
        self.refused: dict[str, deque[Refusal]] = {}
        self.plan = lambda given: self.arranged.get(_subject(given), Script())

    async def _create(self, request: Request) -> Response:
        waiting = self.refused.get(_subject((await request.json()).get("input") or {}))
        if waiting:
            self.refusals.append(waiting.popleft())
        return await super()._create(request)

    def made_of(self, subject: str) -> list[dict[str, Any]]:
        return [made for made in list(self.predictions.values()) if _subject(made["input"]) == subject]


class GitHubServer:
    """A GitHub of one's own: its API, workflows included, and the repositories that git clones from there."""

    def __init__(self, folder: Path) -> None:
        self.github = GitHub()
        self.forge = Forge(folder)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path: str = scope.get("path", "")
        if path.startswith(API) and ("/actions/" in path or path.count("/") == API.count("/") + 3):
            short = path.removeprefix(API)
            await self.github({**scope, "path": short, "raw_path": short.encode()}, receive, send)
        else:
            await self.forge(scope, receive, send)


def _subject(given: dict[str, Any]) -> str:
    return given.get("text") or given.get("product") or ""


@dataclass(slots=True)
class Server:
    """A process of ``millpond up``: its keys, its database, what it says."""

    up: Up
    dsn: str
    http: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return self.up.url

    @property
    def output(self) -> str:
        return self.up.command.stderr

    def lines(self, job_id: str, event: str) -> list[dict[str, Any]]:
        """Of its log, what it says of a job."""
        every = [json.loads(line) for line in self.output.splitlines() if line.startswith("{") and job_id in line]
        return [line for line in every if line["event"] == event and line.get("job_id") == job_id]

    async def order(self, method: str, path: str, body: Any = None) -> Any:
        """As the operator, in the native API."""
        return body_of(await self.send(method, path, body))

    async def send(self, method: str, path: str, body: Any = None, *, key: str = "") -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key or self.up.ready['admin_key']}"}
        return await self.http.request(method, f"{self.url}{path}", json=body, headers=headers)

    async def key(self, scope: str = "client", tenant: str | None = TENANT, account: str | None = None) -> str:
        return (await self.order("POST", "/v1/keys", {"scope": scope, "tenant": tenant, "account": account}))["key"]

    async def grant(self, tenant: str, account: str, amount: int) -> None:
        body = {"tenant": tenant, "account": account, "amount": amount, "reference": fresh("grant")}
        await self.order("POST", "/v1/grants", body)

    async def events(self, job_id: str, tenant: str = TENANT) -> list[dict[str, Any]]:
        return (await self.order("GET", f"/v1/jobs/{job_id}/events?tenant={tenant}&limit=200"))["data"]

    async def states(self, job_id: str, tenant: str = TENANT) -> list[str]:
        """The states that a job has been in."""
        seen = [event["state"] for event in await self.events(job_id, tenant)]
        return [state for state, _ in itertools.groupby(seen)]

    async def sql(self, statement: str, *arguments: Any) -> list[Any]:
        """By hand, as nobody should."""
        connection = await connect(self.dsn)
        try:
            return [tuple(row) for row in await connection.fetch(statement, *arguments)]
        finally:
            await connection.close()

    # Who comes to it

    async def user(self, amount: int = 100, tenant: str = TENANT) -> studio.User:
        """Of the studio."""
        name = fresh("user")
        key = await self.key("client", tenant, name)
        if amount:
            await self.grant(tenant, name, amount)
        return studio.User(_at(self.http, f"{self.url}/studio"), key, name)

    def effects(self) -> Effects:
        http = _at(self.http, f"{self.url}/effects")
        admin = effects.Caller(http, {"Authorization": f"Bearer {self.up.ready['admin_key']}"})
        return Effects(cast("Any", self), self.url, http, admin, self.up.ready["fleet_secret"])

    async def customer(self, receiver: Receiver) -> Customer:
        name = fresh("tenant")
        deployment: Any = _Guard(_at(self.http, f"{self.url}/guard"), receiver)
        return Customer(deployment, name, await self.key("client", name, "app"), await self.key("admin", name))


class Effects(effects.Deployment):
    """The effects of a server, to which one comes by HTTP alone."""

    async def key(self, **options: Any) -> str:
        return await cast("Server", self.engine).key(**options)

    async def user(self, tokens: int = 100, tenant: str = TENANT, name: str = "") -> effects.User:
        name = name or fresh("user")
        key = await self.key(scope="client", tenant=tenant, account=name)
        if tokens:
            await cast("Server", self.engine).grant(tenant, name, tokens)
        return effects.User(self.http, {"Authorization": f"Bearer {key}"}, name)

    async def approved(self, *slugs: str) -> effects.Worker:
        """A worker that an operator let in, once there is room for it."""
        body = {"worker_id": fresh("let-in"), "workflow_slugs": list(slugs)}
        secret = {"X-Fleet-Secret": self.fleet_secret}

        async def register() -> str | None:
            answer = await self.http.post("/api/worker/register", json=body, headers=secret)
            return None if answer.status_code == 429 else body_of(answer, 201)["token"]

        token = await until(register)
        worker = effects.Worker(self.http, {"Authorization": f"Bearer {token}"}, body["worker_id"])
        await self.admin.post(f"/api/admin/workers/{worker.name}/approve")
        return worker

    async def dispatch(self, job: dict[str, Any]) -> dict[str, Any]:
        page = await self.admin.get("/api/admin/dispatches?limit=200")
        return next(each for each in page["data"] if each["id"] == job["dispatch_id"])


class Customer(guard.Customer):
    """Of the guard: a tenant of its own."""

    async def when(self, job: dict[str, Any], status: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            now = await self.read(job)
            return now if now["status"] == status else None

        return await until(look)


@dataclass(slots=True)
class _Guard:
    http: Any
    receiver: Receiver


def _at(http: httpx2.AsyncClient, base: str) -> httpx2.AsyncClient:
    return cast("httpx2.AsyncClient", _At(http, base))


class _At:
    """One client for all, with a path before each of its own."""

    def __init__(self, http: httpx2.AsyncClient, base: str) -> None:
        self._http = http
        self._base = base

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        url = path if "://" in path else f"{self._base}{path}"
        return await self._http.request(method, url, **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> httpx2.Response:
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Any) -> httpx2.Response:
        return await self.request("PUT", path, **options)


@dataclass(slots=True)
class SystemUnderTest:
    """All that runs."""

    folder: Path
    sh: Shell
    http: httpx2.AsyncClient
    steady: Server
    postgres: Postgres
    receiver: Receiver
    shop: Served
    provider: Served
    github_server: Served
    stack: AsyncExitStack
    environment: dict[str, str]
    closed_later: Receiver
    """Its port is open to the mortal server until that is killed, and never again."""
    mortal: Server = field(init=False)
    far: str = ""
    """Where the tenant lives that lives elsewhere."""
    _opened: dict[str, asyncio.Task[Any]] = field(default_factory=dict[str, "asyncio.Task[Any]"])
    _port: int = field(default_factory=free_port)
    """The mortal server's: it comes back where it was."""
    _mortal_environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def github(self) -> GitHub:
        return self.github_server.double.github

    @property
    def forge(self) -> Forge:
        return self.github_server.double.forge

    async def once(self, name: str, make: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """Something that takes a while, once for all who ask."""
        if name not in self._opened:
            self._opened[name] = asyncio.create_task(make())
        return await asyncio.shield(self._opened[name])

    async def open(self, name: str, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        return await self.once(name, lambda: self._enter(make))

    async def _enter(self, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        manager = make()
        made = await asyncio.to_thread(manager.__enter__)
        self.stack.push_async_callback(asyncio.to_thread, manager.__exit__, None, None, None)
        return made

    async def amazon(self) -> Amazon:
        """AWS, as moto plays it."""
        moto = await self.open("moto", lambda: running_moto(self.folder))
        return await self.once("amazon", lambda: asyncio.to_thread(self._amazon, moto))

    def _amazon(self, moto: str) -> Amazon:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in AMAZON.items():
                patch.setenv(name, value)
            made = Amazon(moto)
        self.stack.callback(made.close)
        return made

    async def idle(self) -> Server:
        """A server without a worker. One that is started beside it does jobs of partners as :data:`LIAR` says."""
        return await self.once("idle", self._begin_idle)

    async def _begin_idle(self) -> Server:
        dsn = self.postgres.named(await self.postgres.create())
        (self.folder / "liar.py").write_text(LIAR, "utf-8")
        given = (
            STEADY | self.environment | {"MILLPOND_DATA_DIR": "idle", "DATABASE_URL": dsn, "MILLPOND_POLL_LIMIT": "10"}
        )
        given |= {"MILLPOND_REPLICATE_API_TOKEN": TOKEN, "MILLPOND_REPLICATE_URL": self.provider.url}
        given |= {"MILLPOND_OUTBOUND_ALLOW": allowed(self.shop.port, self.github_server.port)}
        running = await up(self.sh, "--product", "all", "--no-worker", **given)
        self.sh.start("worker", "liar.py", **given)
        return Server(running, dsn, self.http)

    # The server that dies

    async def begin_mortal(self) -> None:
        seaweedfs, amazon = await asyncio.gather(self.open("weed", running_seaweedfs), self.amazon())
        central, far = await self.postgres.create(), await self.postgres.create()
        self.far = self.postgres.named(far)
        self._mortal_environment = MORTAL | {
            "DATABASE_URL": self.postgres.named(central),
            "MILLPOND_DATA_DIR": "mortal",
            "MILLPOND_PUBLIC_URL": f"http://127.0.0.1:{self._port}",
            "MILLPOND_TENANT_DATABASES": json.dumps({FAR: self.far}),
            "MILLPOND_STORAGE": seaweedfs.url(fresh("mortal")),
            "MILLPOND_REPLICATE_URL": self.provider.url,
            "AWS_ENDPOINT_URL": amazon.url,
            "AWS_REGION": "eu-central-1",
        }
        await self._start_mortal(self.closed_later.port)

    async def kill_mortal(self) -> None:
        self.mortal.up.command.kill()
        self.mortal.up.command.wait()
        await self._start_mortal()

    async def _start_mortal(self, *ports: int) -> None:
        allow = allowed(self.receiver.port, self.shop.port, self.provider.port, self.github_server.port, *ports)
        given = self.environment | self._mortal_environment | {"MILLPOND_OUTBOUND_ALLOW": allow}
        file = self.folder / fresh("ready")
        command = self.sh.start(
            "up", "app.py", "--product", "all", "--port", str(self._port), "--ready-file", file, **given
        )
        await serving(command, file)
        running = Up(command, file, json.loads(file.read_text("utf-8")))
        self.mortal = Server(running, given["DATABASE_URL"], self.http)


def allowed(*ports: int) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


@asynccontextmanager
async def running_system(folder: Path) -> AsyncIterator[SystemUnderTest]:
    async with AsyncExitStack() as stack:
        sh = stack.enter_context(shell(folder, None))
        receiver = await stack.enter_async_context(receiving())
        closed_later = await stack.enter_async_context(receiving())
        shop = stack.enter_context(served(Shop()))
        double = Provider()
        provider = stack.enter_context(served(double))
        double.url = provider.url
        github_server = stack.enter_context(served(GitHubServer(folder / "repositories")))
        github_server.double.github.url = github_server.double.forge.url = github_server.url
        itunes = stack.enter_context(served(ITunes()))
        (folder / "talk.py").write_text(TALK, "utf-8")
        (folder / "app.py").write_text(APP, "utf-8")
        (folder / "hello.py").write_text(HELLO, "utf-8")
        commands = {"talk": [sys.executable, str(folder / "talk.py")]}
        environment = {
            "MILLPOND_COMMANDS": json.dumps(commands),
            "MILLPOND_GITHUB_URL": f"{github_server.url}{API}",
            "MILLPOND_ITUNES_URL": itunes.url,
            "MILLPOND_REPOSITORIES": "octo/*, ada/*",
        }
        allow = allowed(receiver.port, shop.port, github_server.port)
        given = STEADY | environment | {"MILLPOND_GITHUB_TOKEN": GITHUB_TOKEN, "MILLPOND_OUTBOUND_ALLOW": allow}
        running = await up(sh, "hello.py", "--product", "all", **given)
        postgres = stack.enter_context(open_embedded(folder / ".millpond"))
        limits = httpx2.Limits(max_connections=300)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=SECONDS, limits=limits))
        steady = Server(running, postgres.dsn, http)
        yield SystemUnderTest(
            folder,
            sh,
            http,
            steady,
            Postgres(postgres.dsn),
            receiver,
            shop,
            provider,
            github_server,
            await stack.enter_async_context(AsyncExitStack()),
            environment,
            closed_later,
        )
