"""The effects contract. Workers of the fleet are played by hand, but for those that drive ComfyUI."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
from playwright.async_api import expect
from products.tests.conformance.system import FAR, TENANT, body_of, fresh, until
from products.tests.conformance.table import checks
from products.tests.effects.deployments import User, Worker, lease, picture

from tests.aws.amazon import ENVIRONMENT as AMAZON
from tests.browsers import running_browser
from tests.doubles.comfy_cloud import KEY as CLOUD_KEY
from tests.doubles.comfy_cloud import served_cloud
from tests.doubles.comfyui import ComfyUI, served
from tests.doubles.ec2_metadata import Machine
from tests.doubles.ec2_metadata import served as metadata

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from products.tests.conformance.system import Effects, Server, SystemUnderTest

PROMPTED = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {"class_type": "Paint", "inputs": {"text": "{{style}}, {{prompt}}", "steps": "{{steps}}", "on": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0]}},
}
PROPERTIES: list[dict[str, Any]] = [
    {"name": "prompt", "type": "text", "required": True},
    {"name": "style", "type": "text", "default": "calm"},
    {"name": "steps", "type": "number", "integer": True, "default": 20},
]


async def started(deployment: Effects, **about: Any) -> tuple[User, Worker, dict[str, Any]]:
    """A user with a job, and the worker that has it."""
    slug, user = await deployment.workflow(**about), await deployment.user()
    worker = await deployment.worker(slug)
    await user.order(slug)
    return user, worker, await worker.take()


# The control plane


@checks("EFX-1")
async def workers_pull(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    slug, user = await deployment.workflow(), await deployment.user()
    body = {"worker_id": fresh("comes-back"), "workflow_slugs": [slug], "url": "http://10.0.0.1/"}
    answer = await deployment.http.post(
        "/api/worker/register", json=body, headers={"X-Fleet-Secret": deployment.fleet_secret}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "url"), "a worker has no address to be called at"
    worker = await deployment.worker(slug)
    waiting = asyncio.create_task(worker.post("/api/worker/poll", {"wait": 20}))
    job = await user.order(slug)
    assert (await waiting)["job"]["job_id"] == job["id"]


@checks("EFX-2")
async def two_databases_and_a_kill_between_their_commits(system: SystemUnderTest) -> AsyncGenerator[None]:
    """Users of a tenant that lives elsewhere order and cancel without end, until the process is killed."""
    deployment = system.mortal.effects()
    slug = await deployment.workflow()
    users = [await deployment.user(tenant=FAR) for _ in range(6)]
    videos = [await user.video() for user in users]
    asked = [0] * len(users)

    async def keep_asking(n: int) -> None:
        try:
            while True:
                job = await users[n].order(slug, videos[n])
                asked[n] += 1
                if asked[n] % 3:
                    await users[n].post(f"/api/ai-jobs/{job['id']}/cancel")
                else:
                    await asyncio.sleep(0.01)
        except (httpx2.TransportError, AssertionError):
            return

    burst = asyncio.gather(*(keep_asking(n) for n in range(len(users))))
    await until(lambda: asyncio.sleep(0, min(asked) > 2))
    yield
    await burst
    deployment = system.mortal.effects()
    users = [User(deployment.http, user.headers, user.name) for user in users]
    worker = await deployment.approved(slug)
    left = [(await user.get("/api/ai-jobs?status=queued&limit=200"))["data"] for user in users]
    assert any(left), "it was killed too late to prove anything"
    for _ in range(sum(map(len, left))):
        taken = (await worker.post("/api/worker/poll", {"wait": 20}))["job"]
        assert taken["tenant_id"] == FAR
        await worker.complete(taken)
    for user, jobs in zip(users, left, strict=True):
        assert await user.balance() == 100 - 5 * len(jobs)
        assert {job["status"] for job in (await user.get("/api/ai-jobs?limit=200"))["data"]} <= {
            "completed",
            "canceled",
        }
    assert (await system.mortal.sql("select count(*) from millpond.effects_videos where tenant = $1", FAR)) == [(0,)]
    assert (await system.mortal.order("GET", "/v1/verify"))["ok"]


@checks("EFX-3")
async def from_an_upload_to_a_job(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    user, slug, data = await deployment.user(), await deployment.workflow(), picture("red")
    made = await user.post("/api/videos/uploads", {"filename": "a.png", "mime_type": "image/png", "size": len(data)})
    assert not made["upload_url"].startswith(system.steady.url), "bytes go straight to storage"
    body_of(await system.http.put(made["upload_url"], content=data, headers=made["upload_headers"]), 200)
    video = await user.post("/api/videos", {"original_file_id": made["file"]["id"]})
    job = await user.post("/api/ai-jobs", {"effect_id": slug, "video_id": video["id"], "idempotency_key": "k"})
    assert (job["status"], job["video_id"], job["input_file_id"]) == ("queued", video["id"], made["file"]["id"])


@checks("EFX-4")
async def checks_in_order(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    slug, dear = await deployment.workflow(), await deployment.workflow(price=500)
    user, other = await deployment.user(), await deployment.user()
    video, foreign = await user.video(), await other.video()
    first = await user.order(slug, video, idempotency_key="used")
    again = await user.ask(slug, video, idempotency_key="used")
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    answers = await asyncio.gather(*(user.ask(slug, video) for _ in range(30)))
    assert [answer.status_code for answer in answers].count(202) == 4, "five at once, under concurrency"
    refused = [
        await user.ask("nothing", foreign),
        await user.ask(dear, foreign),
        await user.ask(dear, video, idempotency_key="used"),
        await user.ask(dear, video),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [
        (404, "not_found"),
        (404, "not_found"),
        (409, "idempotency_conflict"),
        (429, "too_many_active_jobs"),
    ]
    assert [answer.json().get("field") for answer in refused[:2]] == ["effect_id", "video_id"]


@checks("EFX-5")
async def the_payload(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    slug = await deployment.workflow(PROMPTED, properties=PROPERTIES, overrides={"style": "wild", "steps": 30})
    user, worker = await deployment.user(), await deployment.worker(slug)
    prompt = '", "injected": "\\ {{input}} {{style}}\n'
    await user.order(slug, input={"prompt": prompt, "steps": 7})
    given = (await worker.take())["input_payload"]
    assert given["workflow"]["2"]["inputs"] == {"text": f"wild, {prompt}", "steps": 7, "on": ["1", 0]}
    (asset,) = given["assets"]
    assert (asset["is_primary_input"], "content_hash" in asset) == (True, True)
    assert given["workflow"]["1"]["inputs"]["image"] == asset["placeholder"]


@checks("EFX-6")
async def a_job_reserves_its_tokens(system: SystemUnderTest) -> AsyncGenerator[None]:
    """Where no dispatch can be made, in one database nothing is written; in two the tokens come back."""
    yield
    deployment = system.steady.effects()
    slug, user, poor = await deployment.workflow(), await deployment.user(), await deployment.user(tokens=4)
    job = await user.order(slug)
    assert job["status"] == "queued"
    assert await user.types() == [("PAYMENT_CREDIT", 100), ("JOB_RESERVE", -5)]
    answer = (await poor.ask(slug)).json()
    assert (answer["status"], answer["required_tokens"], answer["message"]) == (422, 5, "Insufficient token balance.")
    unlucky = await deployment.user()
    video = await unlucky.video()
    async with _no_dispatch(system.steady, unlucky.name):
        assert (await unlucky.ask(slug, video)).status_code >= 500
    assert await unlucky.balance() == 100
    assert (await unlucky.ask(slug, video)).status_code == 202
    deployment = system.mortal.effects()
    slug, far = await deployment.workflow(), await deployment.user(tenant=FAR)
    video = await far.video()
    async with _no_dispatch(system.mortal, far.name):
        assert (await far.ask(slug, video)).status_code >= 500
    assert await far.types() == [("PAYMENT_CREDIT", 100), ("JOB_RESERVE", -5), ("JOB_REFUND", 5)]


@asynccontextmanager
async def _no_dispatch(server: Server, account: str) -> AsyncIterator[None]:
    """The database refuses to put jobs of this account into a line."""
    name = f"millpond.refuse_{account.replace('-', '_')}"
    await server.sql(
        f"create function {name}() returns trigger language plpgsql as $$ begin raise exception 'no dispatch'; end $$"
    )
    await server.sql(
        f"create trigger refuses before insert on millpond.dispatches for each row when (new.account = '{account}')"
        f" execute function {name}()"
    )
    try:
        yield
    finally:
        await server.sql(f"drop function {name} cascade")


@checks("EFX-7")
async def missing_dispatches_are_made_again(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    deployment = system.mortal.effects()
    slug, user = await deployment.workflow(), await deployment.user(tenant=FAR)
    worker = await deployment.approved(slug)
    job = await user.order(slug)
    lost = UUID(bytes=number_of(job["id"]))
    await system.mortal.sql("delete from millpond.ready where job_id = $1", lost)
    await system.mortal.sql("delete from millpond.dispatches where job_id = $1", lost)
    taken = await until(worker.poll)
    assert taken["job_id"] == job["id"]
    await worker.complete(taken)
    assert (await worker.poll(), await user.balance()) == (None, 95)


def number_of(job_id: str) -> bytes:
    """The 128 bits of an id in Crockford's base 32."""
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    value = 0
    for letter in job_id.rpartition("_")[2].lower():
        value = value * 32 + letters.index(letter)
    return value.to_bytes(16)


# Dispatch and leases


@checks("EFX-8")
async def the_columns_of_a_dispatch(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    _, worker, job = await started(deployment, priority=7)
    dispatch = await deployment.dispatch(job)
    expected = {
        "tenant_id": TENANT,
        "tenant_job_id": job["job_id"],
        "provider": "self_hosted",
        "status": "leased",
        "lease_token": job["lease_token"],
        "worker_id": worker.name,
        "attempts": 1,
        "max_attempts": 3,
        "priority": 7,
        "duration_seconds": None,
        "last_error": None,
    }
    assert expected.items() <= dispatch.items()
    assert dispatch["workflow_id"]
    assert dispatch["lease_expires_at"]
    await worker.complete(job)
    done = await deployment.dispatch(job)
    assert (done["status"], done["lease_token"], done["worker_id"]) == ("completed", None, None)
    assert done["duration_seconds"] >= 0


@checks("EFX-9")
async def who_gets_which_job(system: SystemUnderTest) -> AsyncGenerator[None]:
    """A crowd of a hundred workers and ten thousand jobs is what `make chaos` is for."""
    yield
    deployment = system.steady.effects()
    slug, other = await deployment.workflow(price=0), await deployment.workflow()
    for name, more in (("urgent", {"priority": 50}), ("cloud", {"provider": "cloud"})):
        effect = {"slug": f"{slug}-{name}", "name": name, "workflow_id": slug, "credits_cost": 0}
        await deployment.admin.post("/api/admin/effects", effect | more)
    user = await deployment.user()
    video = await user.video()
    old, new, urgent, cloud = [
        (await user.order(name, video))["id"] for name in (slug, slug, f"{slug}-urgent", f"{slug}-cloud")
    ]
    assert await (await deployment.worker(other)).poll() is None
    worker = await deployment.worker(slug, max_concurrency=9)
    taken = [await worker.take() for _ in range(3)]
    assert [job["job_id"] for job in taken] == [urgent, old, new]
    assert await worker.poll() is None
    assert (await (await deployment.worker(slug, providers=["cloud"])).take())["job_id"] == cloud
    left = datetime.fromisoformat(taken[0]["lease_expires_at"]).timestamp() - datetime.now().astimezone().timestamp()
    assert (UUID(taken[0]["lease_token"]).version, taken[0]["attempts"]) == (4, 1)
    assert 870 < left <= 905
    await _crowd(deployment)
    deployment = system.mortal.effects()
    slug, user = await deployment.workflow(), await deployment.user()
    silent, second = await deployment.approved(slug), await deployment.approved(slug)
    await user.order(slug)
    lost = await silent.take()
    won = (await second.post("/api/worker/poll", {"wait": 20}))["job"]
    assert (won["job_id"], won["attempts"]) == (lost["job_id"], 2)
    assert won["lease_token"] != lost["lease_token"]
    await second.complete(won)


async def _crowd(deployment: Effects) -> None:
    slug = await deployment.workflow(price=0)
    users = [await deployment.user(tokens=0) for _ in range(8)]
    workers = [await deployment.worker(slug, max_concurrency=10) for _ in range(12)]
    videos = [await user.video() for user in users]
    asked = await asyncio.gather(
        *(user.order(slug, video) for user, video in zip(users, videos, strict=True) for _ in "12345")
    )

    async def drain(worker: Worker) -> list[str]:
        taken: list[str] = []
        while (job := await worker.poll()) is not None:
            taken.append(job["job_id"])
        return taken

    taken = [job for jobs in await asyncio.gather(*map(drain, workers)) for job in jobs]
    assert sorted(taken) == sorted(job["id"] for job in asked), "none twice, none lost"


@checks("EFX-10")
async def the_last_lease_that_runs_out(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    deployment = system.mortal.effects()
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.approved(slug)
    job = await user.order(slug)
    for attempt in (1, 2, 3):
        taken = (await worker.post("/api/worker/poll", {"wait": 20}))["job"]
        assert taken["attempts"] == attempt

    async def is_failed() -> bool:
        return (await user.get(f"/api/ai-jobs/{job['id']}"))["status"] == "failed"

    await until(is_failed)
    assert (await user.types())[-2:] == [("JOB_RESERVE", -5), ("JOB_REFUND", 5)]


@checks("EFX-11")
async def workers_register(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    server, deployment, amazon = system.mortal, system.mortal.effects(), await system.amazon()
    slug, user = await deployment.workflow(), await deployment.user()

    async def register(name: str, secret: str = deployment.fleet_secret, **more: Any) -> httpx2.Response:
        body = {"worker_id": name, "workflow_slugs": [slug]} | more
        return await deployment.http.post("/api/worker/register", json=body, headers={"X-Fleet-Secret": secret})

    name = fresh("comes-back")
    assert (await register(name, "mp_worker_wrong")).status_code == 401
    assert (await register(name, workflow_slugs=[])).json()["field"] == "workflow_slugs"
    assert (await register(name, workflow_slugs=["nothing"])).json()["field"] == "workflow_slugs[0]"
    token = body_of(await register(name), 201)["token"]
    assert re.fullmatch(r"\S{64}", token)
    kept = await server.sql(
        "select digest = sha256($2::bytea) from millpond.workers where worker = $1", name, token.encode()
    )
    assert kept == [(True,)]
    first = Worker(deployment.http, {"Authorization": f"Bearer {token}"}, name)
    await deployment.admin.post(f"/api/admin/workers/{name}/approve")
    await user.order(slug)
    held = await first.take()
    assert (await register(name)).status_code == 409, "while it is alive"

    async def comes_back() -> str | None:
        answer = await register(name)
        return answer.json()["token"] if answer.status_code == 201 else None

    second = Worker(deployment.http, {"Authorization": f"Bearer {await until(comes_back)}"}, name)
    await first.refused("POST", "/api/worker/heartbeat", lease(held), status=401)
    await deployment.admin.post(f"/api/admin/workers/{name}/approve")
    again = (await second.post("/api/worker/poll", {"wait": 20}))["job"]
    assert (again["job_id"], again["attempts"]) == (held["job_id"], 1), "what the old one held, without a penalty"

    async def is_refused() -> bool:
        """An instance of no group; where AWS takes too long to say so, it is let in."""
        return (await register(f"i-{uuid4().hex[:17]}")).status_code == 403

    await until(is_refused)
    amazon.is_down = True
    try:
        assert (await register(f"i-{uuid4().hex[:17]}")).status_code == 201, "which lets it in where AWS is away"
    finally:
        amazon.is_down = False

    async def is_full() -> bool:
        many = await asyncio.gather(*(register(fresh("many")) for _ in range(13)))
        return "fleet_full" in {answer.json().get("code") for answer in many if answer.status_code == 429}

    await until(is_full)
    assert (await _audit(deployment, name))[0]["event"] == "register"


@checks("EFX-12")
async def a_stale_lease_changes_nothing(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    user, worker, job = await started(deployment)
    stranger = await deployment.worker(job["workflow"])
    size = await worker.put_output(job)
    verbs = {
        "heartbeat": {},
        "complete": {"output": {"size": size}},
        "fail": {"error": "x"},
        "requeue": {"reason": "x"},
    }
    for verb, more in verbs.items():
        path, own = f"/api/worker/{verb}", lease(job) | more
        await worker.refused("POST", path, own | {"lease_token": str(uuid4())}, status=409)
        await stranger.refused("POST", path, own, status=409)
        await worker.refused("POST", path, own | {"dispatch_id": "job_1"}, status=404)
        await user.refused("POST", path, own, status=401)
    assert (await deployment.dispatch(job))["status"] == "leased"
    await worker.post("/api/worker/requeue", lease(job) | {"reason": "spot"})
    again = await stranger.take()
    for verb, more in verbs.items():
        await worker.refused("POST", f"/api/worker/{verb}", lease(job) | more, status=409)
    await stranger.complete(again, picture("green"))
    video = (await user.get("/api/videos"))["data"][0]
    assert (await system.http.get(video["processed_file_url"])).content == picture("green")
    await stranger.post("/api/worker/deregister")
    await stranger.refused("POST", "/api/worker/poll", {}, status=401)


@checks("EFX-13")
async def operators_manage_workers(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    deployment = system.steady.effects()
    user, worker, job = await started(deployment)
    path = f"/api/admin/workers/{worker.name}"
    await deployment.admin.refused("POST", "/api/admin/workers", {}, status=405)
    assert (await deployment.admin.post(f"{path}/drain"))["is_draining"]
    await user.order(job["workflow"])
    assert await worker.post("/api/worker/poll", {}) == {"job": None, "drain": True}
    await worker.complete(job)
    await deployment.admin.post(f"{path}/resume")
    rotated = await deployment.admin.post(f"{path}/rotate-token")
    await worker.refused("POST", "/api/worker/poll", {}, status=401)
    worker.headers["Authorization"] = f"Bearer {rotated['token']}"
    other = await deployment.workflow()
    assert (await deployment.admin.put(f"{path}/workflows", {"workflow_slugs": [other]}))["workflows"] == [other]
    assert await worker.poll() is None, "a workflow that is not its own any more"
    assert worker.name in {one["worker_id"] for one in (await deployment.admin.get("/api/admin/workers"))["data"]}
    await deployment.admin.post(f"{path}/revoke")
    await worker.refused("POST", "/api/worker/poll", {}, status=403)
    deployment = system.mortal.effects()
    waiting = await deployment.worker(await deployment.workflow())
    await waiting.refused("POST", "/api/worker/poll", {}, status=403)
    assert (await deployment.admin.post(f"/api/admin/workers/{waiting.name}/approve"))["is_approved"]
    assert await waiting.poll() is None


@checks("EFX-14")
async def a_heartbeat(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    user, worker, job = await started(deployment)
    before = (await deployment.dispatch(job))["lease_expires_at"]
    said = await worker.post("/api/worker/heartbeat", lease(job))
    assert (said["cancel_requested"], said["drain"]) == (False, False)
    assert (await deployment.dispatch(job))["lease_expires_at"] > before
    await user.post(f"/api/ai-jobs/{job['job_id']}/cancel")
    await deployment.admin.post(f"/api/admin/workers/{worker.name}/drain")
    said = await worker.post("/api/worker/heartbeat", lease(job))
    assert (said["cancel_requested"], said["drain"]) == (True, True)


@checks("EFX-15")
async def complete(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    user, worker, job = await started(deployment)
    path = "/api/worker/complete"
    missing = await worker.refused("POST", path, lease(job) | {"output": {"size": 10}}, status=422)
    size = await worker.put_output(job, b"this is no picture")
    different = await worker.refused("POST", path, lease(job) | {"output": {"size": 10}}, status=422)
    assert (missing["code"], different["code"]) == ("artifact_missing", "artifact_mismatch")
    assert (await deployment.dispatch(job))["status"] == "leased"
    assert (await user.types())[-1] == ("JOB_RESERVE", -5)
    output = {"size": size, "mime_type": "image/png", "metadata": {"frames": 1}}
    done = await worker.post(path, lease(job) | {"output": output})
    assert await worker.post(path, lease(job) | {"output": output}) == done
    described = await user.get(f"/api/ai-jobs/{job['job_id']}")
    file = await user.get(f"/api/files/{described['output_file_id']}")
    assert (described["status"], file["size"], file["mime_type"]) == ("completed", size, "image/png")
    assert (await user.types())[-2:] == [("JOB_RESERVE", -5), ("JOB_CONSUME", 0)]
    assert (await user.get("/api/videos"))["data"][0]["status"] == "completed"
    assert (await deployment.dispatch(job))["duration_seconds"] >= 0
    await until(lambda: asyncio.sleep(0, system.steady.lines(job["job_id"], "output.unreadable")))


@checks("EFX-16")
async def fail(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    errors = {
        '{"exception_message": "CUDA out of memory\\nmore"}': "CUDA out of memory",
        '{"error_message": "No such node"}': "No such node",
        'prefix {"exception_message": "Torn", "x": ': "Torn",
        "First line.\nSecond line.": "First line.",
        "": "Processing failed.",
    }
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    for error, expected in errors.items():
        await user.order(slug)
        job = await worker.take()
        await worker.post("/api/worker/fail", lease(job) | {"error": error})
        assert (await user.get(f"/api/ai-jobs/{job['job_id']}"))["error_message"] == expected
        assert (await user.get("/api/videos"))["data"][0]["status"] == "failed"
        assert {"status": "failed", "last_error": expected}.items() <= (await deployment.dispatch(job)).items()
    assert (await user.types())[-1] == ("JOB_REFUND", 5)
    assert await user.balance() == 100


@checks("EFX-17")
async def requeue(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    _, worker, job = await started(deployment)
    for _ in range(4):
        await worker.post("/api/worker/requeue", lease(job) | {"reason": "Spot"})
        expected = {"status": "queued", "worker_id": None, "lease_token": None, "attempts": 0}
        expected |= {"last_error": "Requeued: Spot"}
        assert expected.items() <= (await deployment.dispatch(job)).items()
        job = await worker.take()


@checks("EFX-18")
async def a_wallet_adds_up(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    slug, user = await deployment.workflow(), await deployment.user(tokens=12)
    worker, video = await deployment.worker(slug), await user.video()
    answers = await asyncio.gather(*(user.ask(slug, video) for _ in range(10)))
    assert [answer.status_code for answer in answers].count(202) == 2
    assert await user.balance() == 2, "and never below zero"
    first, second = await worker.take(), None
    failed = lease(first) | {"error": "x"}
    await asyncio.gather(*(worker.send("POST", "/api/worker/fail", failed) for _ in range(5)))
    second = await worker.take()
    await worker.complete(second)
    await worker.send("POST", "/api/worker/fail", lease(second) | {"error": "late"})
    kinds = [kind for kind, _ in await user.types()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "PAYMENT_CREDIT": 1,
        "JOB_RESERVE": 2,
        "JOB_REFUND": 1,
        "JOB_CONSUME": 1,
    }
    assert await user.balance() == 7
    statement = "update millpond.accounts set available = -1 where account = $1"
    assert await _is_refused(system, statement, user.name), "the database itself holds it"


async def _is_refused(system: SystemUnderTest, statement: str, *arguments: Any) -> bool:
    try:
        await system.steady.sql(statement, *arguments)
    except Exception as error:  # noqa: BLE001 - whatever the database says
        return "constraint" in str(error) or "denied" in str(error)
    return False


# The worker


class Kitchen:
    """A ComfyUI, a workflow, and `millpond worker comfyui` between them and the server."""

    def __init__(self, system: SystemUnderTest, name: str) -> None:
        self.system = system
        self.deployment = system.steady.effects()
        self.double = ComfyUI(system.folder / name)
        self.slug = ""

    async def begin(self, *words: str, graph: Any = None, **environment: str) -> Any:
        self.slug = await self.deployment.workflow(graph)
        url = (await self.system.open(f"comfyui {id(self)}", lambda: served(self.double))).url
        return self.worker(f"effects:{self.slug}", "--comfyui", url, *words, **environment)

    def worker(self, route: str, *words: str, **environment: str) -> Any:
        given = ("--url", self.system.steady.url, "--route", route, "--grace", "0.5s", *words)
        secret = self.system.steady.up.ready["fleet_secret"]
        return self.system.sh.start("worker", "comfyui", *given, MILLPOND_FLEET_SECRET=secret, **environment)

    async def ended(self, user: User, job: dict[str, Any]) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            now = await user.get(f"/api/ai-jobs/{job['id']}")
            return now if now["status"] in ("completed", "failed", "canceled", "expired") else None

        return await until(look)

    def count(self, method: str, path: str) -> int:
        return len([None for asked in list(self.double.asked) if asked[:2] == (method, path)])


BROKEN = {"2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 1]}}}


@checks("EFX-19")
async def a_worker_runs_jobs_on_comfyui(system: SystemUnderTest) -> None:
    from millpond_products.effects.seed import GRAPH  # noqa: PLC0415 - the graph of the example

    kitchen = Kitchen(system, "comfyui")
    await kitchen.begin()
    user = await kitchen.deployment.user()
    done = await kitchen.ended(user, await user.order(kitchen.slug))
    assert done["status"] == "completed", done
    assert (await system.http.get(done["output_url"])).content[:4] == b"\x89PNG"
    assert kitchen.count("POST", "/prompt") == 1
    wrong = await kitchen.deployment.workflow(GRAPH | BROKEN)
    worker = kitchen.worker(f"effects:{wrong}", "--comfyui", (await system.open(f"comfyui {id(kitchen)}", _never)).url)
    failed = await kitchen.ended(user, await user.order(wrong))
    assert failed["status"] == "failed"
    assert "Return type mismatch" in failed["error_message"]
    assert (await user.types())[-1] == ("JOB_REFUND", 5)
    worker.terminate()


def _never() -> Any:
    raise AssertionError("it has been opened before")


@checks("EFX-20")
async def a_worker_runs_jobs_on_comfy_cloud(system: SystemUnderTest) -> None:
    kitchen = Kitchen(system, "unused")
    cloud, api = await system.open("cloud", lambda: served_cloud(system.folder / "cloud"))
    slug, user = await kitchen.deployment.workflow(provider="cloud"), await kitchen.deployment.user()
    words = ("--provider", "cloud", "--comfyui", api.url)
    kitchen.worker(f"effects:{slug}.cloud", *words, COMFY_API_KEY=CLOUD_KEY)
    done = await kitchen.ended(user, await user.order(slug))
    assert done["status"] == "completed", done
    asked = [f"{method} {re.sub(r'/[0-9a-f-]{36}', '/ID', path)}" for method, path in cloud.asked]
    wanted = ["POST /api/upload/image", "POST /api/prompt", "GET /api/job/ID/status", "GET /api/history_v2/ID"]
    assert [line for line in dict.fromkeys(asked) if line in wanted] == wanted
    assert any(path.startswith("/api/view") for _, path in cloud.asked)


@checks("EFX-21")
async def assets_are_uploaded_once(system: SystemUnderTest) -> None:
    kitchen = Kitchen(system, "cached")
    await kitchen.begin()
    user = await kitchen.deployment.user()
    data = picture("purple", (31, 17))
    for _ in range(2):
        done = await kitchen.ended(user, await user.order(kitchen.slug, await user.video(data)))
        assert done["status"] == "completed", done
    assert kitchen.count("POST", "/upload/image") == 1
    graphs = [asked[2]["prompt"] for asked in kitchen.double.asked if asked[:2] == ("POST", "/prompt")]
    assert len(graphs) == 2
    assert all("{{" not in graph["1"]["inputs"]["image"] for graph in graphs)


@checks("EFX-22")
async def a_spot_instance_is_taken_away(system: SystemUnderTest) -> None:
    amazon, machine, kitchen = await system.amazon(), Machine(), Kitchen(system, "spot")
    group = fresh("spot")
    (instance,) = await asyncio.to_thread(amazon.make_group, group)
    machine.files["meta-data/instance-id"] = machine.instance_id = instance
    kitchen.double.switches.slow = {"ImageInvert": 3600}
    url = await system.open("metadata", lambda: metadata(machine))
    given = AMAZON | {"MILLPOND_EC2_METADATA": url, "AWS_ENDPOINT_URL": amazon.url}
    process = await kitchen.begin("--spot", **given)
    user = await kitchen.deployment.user()
    job = await user.order(kitchen.slug)

    async def is_begun() -> bool:
        assert process.is_running, process.stderr
        return bool(kitchen.double.runs)

    try:
        await until(is_begun)
    except TimeoutError:
        raise AssertionError(f"The worker has not begun: {process.stderr}") from None
    await until(lambda: asyncio.to_thread(amazon.protected, group))
    machine.interrupt(seconds=16)
    assert await asyncio.to_thread(process.wait) == 0, process.stderr
    assert (await user.get(f"/api/ai-jobs/{job['id']}"))["status"] == "queued"
    assert not await asyncio.to_thread(amazon.protected, group)
    workers = await kitchen.deployment.admin.get("/api/admin/workers")
    assert instance not in {worker["worker_id"] for worker in workers["data"]}
    await user.post(f"/api/ai-jobs/{job['id']}/cancel")


@checks("EFX-23")
async def a_cancel_reaches_comfyui(system: SystemUnderTest) -> None:
    kitchen = Kitchen(system, "canceled")
    kitchen.double.switches.slow = {"ImageInvert": 3600}
    await kitchen.begin()
    user = await kitchen.deployment.user()
    job = await user.order(kitchen.slug)
    await until(lambda: asyncio.sleep(0, kitchen.double.runs))
    await user.post(f"/api/ai-jobs/{job['id']}/cancel")
    assert (await kitchen.ended(user, job))["status"] == "canceled"
    assert (await user.types())[-1] == ("JOB_REFUND", 5)
    await until(lambda: asyncio.sleep(0, kitchen.count("POST", "/interrupt")))


# Storage, delivery, scaling


@checks("EFX-24")
async def files_in_a_folder_and_in_a_bucket(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    await _files(system, system.steady.effects(), r"expires=(\d+)")
    await _files(system, system.mortal.effects(), None)


async def _files(system: SystemUnderTest, deployment: Effects, expiry: str | None) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.approved(slug)
    await user.order(slug)
    job = await worker.take()
    assert re.fullmatch(rf"tenants/acme/ai-jobs/{job['job_id']}/output-[0-9a-f-]{{36}}\.png", job["output_path"])
    assert job["output_path"] in job["output_url"]
    for url in (job["input_url"], job["output_url"]):
        if expiry is not None:
            ends = int(re.findall(expiry, url)[0])
            assert abs(ends - datetime.fromisoformat(job["lease_expires_at"]).timestamp()) < 30
        else:
            assert 1 <= int(re.findall(r"X-Amz-Expires=(\d+)", url)[0]) <= 60
    assert (await system.http.get(job["input_url"])).content == picture()
    broken = re.sub(r"(ignature=)(....)", r"\1dead", job["input_url"])
    assert (await system.http.get(broken)).status_code == 403
    assert (await system.http.put(job["input_url"], content=b"x")).status_code == 403
    await worker.complete(job, picture("white"))
    video = (await user.get("/api/videos"))["data"][0]
    assert (await system.http.get(video["processed_file_url"])).content == picture("white")


@checks("EFX-25")
async def a_video_and_its_page(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    job = await user.order(slug)
    await worker.complete(await worker.take(), picture("white"))
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert video["status"] == "completed"
    assert (await system.http.get(video["processed_file_url"])).content == picture("white")
    await user.order(slug, video)
    await worker.post("/api/worker/fail", lease(await worker.take()) | {"error": "It broke."})
    failed = await user.get(f"/api/videos/{job['video_id']}")
    assert (failed["status"], failed["error"]) == ("failed", "It broke.")

    async def has_history() -> bool:
        return (await user.get(f"/api/videos/{job['video_id']}"))["estimated_seconds"] is not None

    await until(has_history)
    await _page(deployment, slug, user, worker)


async def _page(deployment: Effects, slug: str, user: User, worker: Worker) -> None:
    """In a browser, whose clock is written down."""
    async with running_browser() as running:
        page = await running.new_page()
        await page.add_init_script(
            "const later = window.setTimeout; window.pauses = [];"
            "window.setTimeout = (act, pause, ...more) => {"
            " if (pause >= 1000) window.pauses.push(pause); return later(act, Math.min(pause, 200), ...more); };"
        )
        await page.goto(f"{deployment.url}{deployment.root}/#key={user.key}")
        await page.locator(f"input[value='{slug}']").check()
        file: Any = {"name": "a.png", "mimeType": "image/png", "buffer": picture()}
        await page.locator("#file").set_input_files(file)
        await page.get_by_role("button", name="Apply").click()
        job = (await worker.post("/api/worker/poll", {"wait": 20}))["job"]
        await expect(page.locator("#steps li")).to_have_count(4)
        await page.route("**/api/videos/*", lambda route: route.abort())
        await expect(page.locator("#notice")).to_contain_text("Trying again")
        await page.unroute("**/api/videos/*")
        await worker.complete(job)
        await expect(page.locator("#shown img")).to_be_visible()
        assert set(await page.evaluate("window.pauses")) == {2000}


@checks("EFX-26")
async def scaling(system: SystemUnderTest) -> None:
    deployment, amazon = system.steady.effects(), await system.amazon()
    user, _, job = await started(deployment)
    for _ in range(3):
        await user.order(job["workflow"])
    route, group = f"effects:{job['workflow']}", fresh("gpus")

    async def is_seen() -> bool:
        scaling = await system.steady.order("GET", f"/v1/scaling/{route}")
        return (scaling["ready"], scaling["leased"], scaling["workers"]["busy"]) == (3, 1, 1)

    await until(is_seen)
    metrics = (await system.steady.send("GET", "/metrics")).text
    assert f'millpond_queue_depth{{phase="ready",queue="{route}"}} 3.0' in metrics
    await asyncio.to_thread(amazon.make_group, group, max=9)
    words = ("--route", route, "--group", group, "--once", "--target-wait", "0s", "--max", "2")
    keys = {"MILLPOND_URL": system.steady.url, "MILLPOND_API_KEY": system.steady.up.ready["admin_key"]}
    run = system.sh.start("autoscale", *words, **AMAZON | keys | {"AWS_ENDPOINT_URL": amazon.url})
    assert await asyncio.to_thread(run.wait) == 0, run.stderr
    assert await asyncio.to_thread(amazon.capacity, group) == 2


@checks("EFX-27")
async def the_audit_log(system: SystemUnderTest) -> None:
    deployment = system.steady.effects()
    user, worker, job = await started(deployment)
    await worker.post("/api/worker/requeue", lease(job) | {"reason": "spot"})
    await worker.complete(await worker.take())
    await user.order(job["workflow"])
    await worker.post("/api/worker/fail", lease(await worker.take()) | {"error": "x"})
    await deployment.admin.post(f"/api/admin/workers/{worker.name}/drain")
    found = await _audit(deployment, worker.name)
    words = [entry["event"] for entry in found]
    assert words == ["register", "poll", "requeue", "poll", "complete", "poll", "fail", "worker.drained"]
    assert all(entry["at"] and entry["actor"] for entry in found)
    assert {entry["data"]["address"] for entry in found[:-1]} == {"127.0.0.1"}
    await worker.post("/api/worker/deregister")
    assert (await _audit(deployment, worker.name))[-1]["event"] == "deregister"
    await user.refused("GET", "/api/admin/audit-logs", status=403)


async def _audit(deployment: Effects, worker: str) -> list[dict[str, Any]]:
    """What was written down of a worker, the oldest first."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while not found or found[-1]["event"] != "register":
        page = await deployment.admin.get(f"/api/admin/audit-logs?limit=200{cursor}")
        found += [each for each in page["data"] if worker in (each["worker_id"], (each["data"] or {}).get("worker"))]
        cursor = f"&cursor={page['next_cursor']}"
    return found[::-1]
