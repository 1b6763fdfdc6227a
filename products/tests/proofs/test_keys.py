"""A key makes one job, on every route that starts one: a hundred requests at once, to two processes of one database."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest
from products.tests.effects.deployments import User as Uploader
from products.tests.partner.deployments import STARTS as PARTNER_STARTS
from products.tests.partner.deployments import scripted
from products.tests.proofs.deployments import ENVIRONMENT, NOWHERE, TENANT, User, new_key, open_engine, selection
from products.tests.studio.deployments import BODIES as STUDIO
from products.tests.studio.deployments import COSTS

from millpond.cli.worker import make_worker
from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.storage.local import Local
from millpond_products.effects.routes import PRODUCT as EFFECTS
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.routes import PRODUCT as PARTNER
from millpond_products.settings import ProductSettings
from tests.acceptance.processes import shell
from tests.checks import submitted_jobs
from tests.cli.ups import up
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.databases import DatabaseServer

    Prepare = Callable[["Pair", User], Awaitable[tuple[str, dict[str, Any]]]]

CROWD = 100
OTHERS = 3
"""Keys of others, or other keys of ours: each is sent so often beside the crowd."""
AMOUNT = 1_000
APP = """
from millpond import Millpond
app = Millpond()

@app.kind("plain", price=3)
def plain(job, n: int = 0) -> None: ...
"""


@dataclass(slots=True)
class Pair:
    """Two servers on one database, and nobody who does a job; an engine beside them to look at the rows."""

    engine: Engine
    files: Local
    https: tuple[httpx2.AsyncClient, httpx2.AsyncClient]

    async def user(self) -> User:
        account = f"user-{uuid4().hex[:12]}"
        return User(self.https[0], await new_key(self.engine, account, AMOUNT), account)

    async def send(self, n: int, user: User, path: str, body: dict[str, Any], key: Sent) -> httpx2.Response:
        """The n-th request: every second one goes to the other process."""
        where = replace(user, http=self.https[n % 2])
        return await where.send("POST", path, body | key.body, headers=key.headers)


@dataclass(frozen=True, slots=True)
class Sent:
    """A key, as it is sent."""

    headers: dict[str, str]
    body: dict[str, Any]


def in_header() -> Sent:
    return Sent({"Idempotency-Key": str(uuid4())}, {})


def in_body() -> Sent:
    return Sent({}, {"idempotency_key": str(uuid4())})


@dataclass(frozen=True, slots=True)
class Start:
    """A route that starts jobs: what it is asked, how a key is sent with that, how it answers who sends it again."""

    name: str
    prepare: Prepare
    price: int
    key: Callable[[], Sent] = in_header
    id: str = "id"
    """Where the answer has the job's."""
    repeated: int = 202
    is_same: bool = True
    """Whether the first answer is replayed byte for byte; else the job is told as it stands."""


def fixed(path: str, body: dict[str, Any]) -> Prepare:
    async def prepare(pair: Pair, user: User) -> tuple[str, dict[str, Any]]:
        return path, body

    return prepare


def of_project(path: str, body: dict[str, Any]) -> Prepare:
    async def prepare(pair: Pair, user: User) -> tuple[str, dict[str, Any]]:
        return f"/partner/v1/projects/{await user.new_project()}/{path}", body

    return prepare


async def a_clone(pair: Pair, user: User) -> tuple[str, dict[str, Any]]:
    """Of content that was made: by hand, for nobody works here."""
    path, body = await of_project("content", PARTNER_STARTS["content_generate"][1])(pair, user)
    source = await user.request("POST", path, body)
    by_hand = replace(
        PARTNER,
        kinds=(KINDS["content_generate"],),
        handlers=scripted(lambda: SimpleNamespace(scripts={})),  # pyright: ignore[reportArgumentType]
    )
    engine = await open_engine(pair.engine.db.dsn, selection([by_hand]).app, pair.files)
    await make_worker(engine, ProductSettings(), products=(by_hand,)).drain()
    await engine.close()
    return f"{path}/clone", {"sourceContainerId": source["containerId"]}


async def an_effect(pair: Pair, user: User) -> tuple[str, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {user.key}"}
    async with httpx2.AsyncClient(base_url=f"{user.http.base_url}/effects", timeout=PATIENCE) as http:
        video = await Uploader(http, headers, user.account).video()
    return "/effects/api/ai-jobs", {"effect_id": "invert", "video_id": video["id"]}


def a_retry(root: str, body: dict[str, Any]) -> Prepare:
    """Of something that has ended: it was canceled before anybody began it."""

    async def prepare(pair: Pair, user: User) -> tuple[str, dict[str, Any]]:
        job = await user.request("POST", f"{root}/jobs", body)
        await user.request("POST", f"{root}/jobs/{job['id']}/cancel")
        return f"{root}/jobs/{job['id']}/retry", {}

    return prepare


def _of_studio(path: str) -> Start:
    """The job is told as it stands, and what is left in the wallet with it."""
    prepare = fixed(f"/studio/api/generate/{path}", STUDIO[path])
    return Start(f"studio {path}", prepare, COSTS[path], in_body, "job_id", 200, is_same=False)


JOB = {"kind": "plain", "input": {"n": 1}}
COMMAND = {"action": "run-command", "input": {"command": "echo", "arguments": ["hello"]}}
MESSAGE = {"message_input": "Hello!", "webhook_url": f"{NOWHERE}/taken"}
ROUTES = [
    Start("native submit", fixed("/v1/jobs", JOB), 3),
    Start("native retry", a_retry("/v1", JOB), 3),
    Start("actions submit", fixed("/actions/api/jobs", COMMAND), 0),
    Start("actions retry", a_retry("/actions/api", COMMAND), 0),
    Start("guard message", fixed("/guard/v1/jobs", MESSAGE), 0, id="job_id"),
    Start("effects submit", an_effect, 5, in_body, repeated=200, is_same=False),
    *map(_of_studio, STUDIO),
    *(
        Start(f"partner {path}", of_project(path, body), {"content": 10, "influencers": 5}.get(path, 1), id="jobId")
        for path, body in PARTNER_STARTS.values()
    ),
    Start("partner content/clone", a_clone, 10, id="jobId"),
]


@pytest.fixture(scope="module")
async def pair(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "app.py").write_text(APP, "utf-8")
    environment = ENVIRONMENT | {"MILLPOND_STORAGE": str(folder / "files")}
    async with server.database(template) as dsn, contextlib.AsyncExitStack() as stack:
        files = Local(folder / "files", NOWHERE)
        engine = await open_engine(dsn, selection().app, files)
        stack.push_async_callback(engine.close)
        assert EFFECTS.seed is not None
        await EFFECTS.seed(engine)
        sh = stack.enter_context(shell(folder, dsn))
        serving = [up(sh, "app.py", "--role", roles, verb="serve", **environment) for roles in ("api,files", "api")]
        https = [
            await stack.enter_async_context(httpx2.AsyncClient(base_url=running.url, timeout=60))
            for running in await asyncio.gather(*serving)
        ]
        yield Pair(engine, files, (https[0], https[1]))
        assert await verify(engine.db) == []


@pytest.mark.parametrize("start", ROUTES, ids=lambda start: start.name)
async def test_a_hundred_requests_with_one_key_make_one_job(pair: Pair, start: Start) -> None:
    user = await pair.user()
    path, body = await start.prepare(pair, user)
    before = await _seen(pair, user)
    keys = [start.key() for _ in range(1 + OTHERS)]
    turns = keys[:1] * CROWD + keys[1:] * OTHERS
    random.shuffle(turns)
    answers = await asyncio.gather(*(pair.send(n, user, path, body, key) for n, key in enumerate(turns)))
    crowds = [[answer for key, answer in zip(turns, answers, strict=True) if key is each] for each in keys]
    made = {_check(start, crowd) for crowd in crowds}

    after = await _seen(pair, user)
    assert after.jobs - before.jobs == made
    assert len(made) == 1 + OTHERS
    charged = sorted(job_id for job_id in after.holds if job_id in made)
    assert charged == (sorted(made) if start.price else [])
    assert before.available - after.available == start.price * len(made)
    assert after.counted - before.counted == len(made)

    late = await pair.send(0, user, path, body, keys[0])  # and afterwards
    _check_replay(start, late, crowds[0][0])
    assert (await _seen(pair, user)) == after


def _check(start: Start, answers: list[httpx2.Response]) -> str:
    """The job that all of these answers are about, of which one alone is new."""
    refused = [answer.text for answer in answers if answer.status_code not in {202, start.repeated}]
    assert not refused, refused[:3]
    response = {answer.json()[start.id] for answer in answers}
    assert len(response) == 1, response
    first = [answer for answer in answers if "idempotency-replayed" not in answer.headers]
    assert [answer.status_code for answer in first] == [202]
    for answer in answers:
        if answer is not first[0]:
            _check_replay(start, answer, first[0])
    return response.pop().lower()


def _check_replay(start: Start, answer: httpx2.Response, first: httpx2.Response) -> None:
    assert answer.status_code == start.repeated
    assert answer.headers["idempotency-replayed"] == "true"
    for name, value in (("location", first.headers["location"]), ("retry-after", "1"), ("cache-control", "no-store")):
        assert (answer.headers[name], first.headers[name]) == (value, value)
    if start.is_same:
        assert answer.content == first.content
    else:
        assert answer.json()[start.id] == first.json()[start.id]


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is of an account."""

    jobs: frozenset[str]
    holds: tuple[str, ...]
    available: int
    counted: int
    """New jobs, as the metrics of both servers tell."""


async def _seen(pair: Pair, user: User) -> Seen:
    jobs = await pair.engine.list_jobs(TENANT, user.account, limit=200)
    entries = await pair.engine.entries(TENANT, user.account, limit=500)
    names = {job.job_id: job.id for job in jobs}
    holds = sorted(names[entry.job_id] for entry in entries if entry.type == "hold" and entry.job_id)
    wallet = await pair.engine.balance(TENANT, user.account)
    counted = 0
    _, viewer = await pair.engine.access.make_key(actor="test", scope="viewer")
    for http in pair.https:
        metrics = await http.get("/metrics", headers={"Authorization": f"Bearer {viewer}"})
        counted += sum(submitted_jobs(metrics.text).values())
    return Seen(frozenset(names.values()), tuple(holds), wallet.available, counted)
