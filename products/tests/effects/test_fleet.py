"""What workers do, and what operators do with them. EFX-1, 8, 9, 11 to 17, 24, 26 and 27, over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from products.tests.effects.deployments import Deployment, Worker, lease, picture

from millpond.engine.fleet.workers import FleetSettings
from tests.waiting import PATIENCE


async def started(deployment: Deployment, **about: Any) -> tuple[Any, Worker, dict[str, Any]]:
    """A user with a job, and the worker that has it."""
    slug, user = await deployment.workflow(**about), await deployment.user()
    worker = await deployment.worker(slug)
    await user.order(slug)
    return user, worker, await worker.take()


async def dispatch_of(deployment: Deployment, job: dict[str, Any]) -> dict[str, Any]:
    page = await deployment.admin.get("/api/admin/dispatches?limit=200")
    return next(each for each in page["data"] if each["id"] == job["dispatch_id"])


# Joining


async def test_efx_01_workers_pull_and_are_never_called(deployment: Deployment) -> None:
    """A worker has no address to be called at, and none can be given."""
    slug = await deployment.workflow()
    body = {"worker_id": "w-pull", "workflow_slugs": [slug]}
    secret = {"X-Fleet-Secret": deployment.fleet_secret}
    wrong = await deployment.http.post("/api/worker/register", json=body | {"url": "http://10.0.0.1"}, headers=secret)
    assert (wrong.status_code, wrong.json()["field"]) == (422, "url")
    worker = await deployment.worker(slug)
    assert await worker.poll() is None
    waiting = asyncio.create_task(worker.post("/api/worker/poll", {"wait": 20}))
    user = await deployment.user()
    job = await user.order(slug)
    assert (await asyncio.wait_for(waiting, PATIENCE))["job"]["job_id"] == job["id"]


async def test_efx_11_a_worker_registers_with_the_fleets_secret(deployment: Deployment) -> None:
    slug = await deployment.workflow()
    body = {
        "worker_id": "i-0abc123",
        "workflow_slugs": [slug],
        "max_concurrency": 1,
        "capabilities": {"gpu": "L4", "vram_gb": 24},
    }
    answer = await deployment.http.post(
        "/api/worker/register", json=body, headers={"X-Fleet-Secret": deployment.fleet_secret}
    )
    response = answer.json()
    assert (answer.status_code, response["worker_id"], response["workflows_assigned"]) == (201, "i-0abc123", [slug])
    assert re.fullmatch(r"\S{64}", response["token"])
    assert (response["lease_seconds"], response["heartbeat_seconds"]) == (900, 30)
    async with deployment.engine.db.transaction() as tx:
        kept = await tx.fetchval("select digest from millpond.workers where worker = 'i-0abc123'")
    assert kept == hashlib.sha256(response["token"].encode()).digest()
    listed = await deployment.admin.get("/api/admin/workers/i-0abc123")
    assert "token" not in listed
    assert (listed["workflows"], listed["registration_source"], listed["capabilities"]) == (
        [slug],
        "fleet",
        {"gpu": "L4", "vram_gb": 24},
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workflow_slugs": []}, "workflow_slugs"),
        ({"workflow_slugs": ["no-such-workflow"]}, "workflow_slugs[0]"),
        ({"workflow_slugs": None}, "workflow_slugs"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "has space"}, "worker_id"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"providers": ["gpu"]}, "providers[0]"),
    ],
    ids=["none", "unknown", "null", "no-name", "space", "no-slots", "provider"],
)
async def test_efx_11_what_a_worker_says_is_checked(deployment: Deployment, change: dict[str, Any], field: str) -> None:
    body = {"worker_id": "w-checked", "workflow_slugs": ["invert"]} | change
    answer = await deployment.http.post(
        "/api/worker/register", json=body, headers={"X-Fleet-Secret": deployment.fleet_secret}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_efx_11_only_the_fleets_secret_lets_a_worker_in(deployment: Deployment) -> None:
    user = await deployment.user()
    body = {"worker_id": "w-stranger", "workflow_slugs": ["invert"]}
    for secret, status in (("mp_worker_wrong", 401), (user.key, 403), (None, 401)):
        headers = {} if secret is None else {"X-Fleet-Secret": secret}
        answer = await deployment.http.post("/api/worker/register", json=body, headers=headers)
        assert answer.status_code == status
        assert answer.json()["status"] == status


async def test_efx_11_a_name_is_one_workers_while_that_one_lives(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    first = await deployment.worker(slug, name="w-twin")
    await user.order(slug)
    held = await first.take()
    body = {"worker_id": "w-twin", "workflow_slugs": [slug]}
    secret = {"X-Fleet-Secret": deployment.fleet_secret}
    answer = await deployment.http.post("/api/worker/register", json=body, headers=secret)
    assert (answer.status_code, answer.json()["code"]) == (409, "worker_alive")
    silence = "update millpond.workers set heard_at = heard_at - interval '61 s' where worker = 'w-twin'"
    # What the first one has asked may yet be written down, as the last time that it was heard.
    async with asyncio.timeout(PATIENCE):
        while answer.status_code == 409:
            async with deployment.engine.db.transaction() as tx:
                await tx.execute(silence)
            answer = await deployment.http.post("/api/worker/register", json=body, headers=secret)
    second = Worker(deployment.http, {"Authorization": f"Bearer {answer.json()['token']}"}, "w-twin")
    assert (await first.send("POST", "/api/worker/poll", {})).status_code == 401
    assert (await second.take())["job_id"] == held["job_id"]
    dispatch = await dispatch_of(deployment, held)
    assert (dispatch["attempts"], dispatch["worker_id"]) == (1, "w-twin")


async def test_efx_11_the_fleet_has_an_end(deployment: Deployment) -> None:
    slug = await deployment.workflow()
    present = len(await deployment.engine.workers.list())
    before = deployment.engine.workers.settings
    deployment.engine.workers.settings = FleetSettings(workers_max=present)
    try:
        body = {"worker_id": "w-one-too-many", "workflow_slugs": [slug]}
        secret = {"X-Fleet-Secret": deployment.fleet_secret}
        answer = await deployment.http.post("/api/worker/register", json=body, headers=secret)
        assert (answer.status_code, answer.json()["code"]) == (429, "fleet_full")
    finally:
        deployment.engine.workers.settings = before


# Leases


async def test_efx_08_a_dispatch_shows_the_contracts_columns(deployment: Deployment) -> None:
    _, worker, job = await started(deployment, priority=7)
    dispatch = await dispatch_of(deployment, job)
    expected = {
        "tenant_id": "acme",
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
    assert dispatch.items() >= expected.items()
    workflow = await deployment.admin.get(f"/api/admin/workflows/{dispatch['workflow_id']}")
    assert workflow["slug"] == job["workflow"] == dispatch["workflow"]
    await worker.complete(job)
    done = await dispatch_of(deployment, job)
    assert (done["status"], done["worker_id"], done["lease_token"]) == ("completed", None, None)
    assert done["duration_seconds"] >= 0
    listed = await deployment.admin.get("/api/admin/dispatches?status=completed&limit=200")
    assert {each["status"] for each in listed["data"]} == {"completed"}
    assert (await deployment.admin.refused("GET", "/api/admin/dispatches?status=nonsense", status=422))[
        "field"
    ] == "status"


async def test_efx_09_a_lease_goes_by_workflow_provider_priority_and_age(deployment: Deployment) -> None:
    slug, other = await deployment.workflow(), await deployment.workflow()
    user = await deployment.user()
    urgent = {"slug": f"{slug}-urgent", "name": "Urgent", "workflow_id": slug, "credits_cost": 1, "priority": 50}
    await deployment.admin.post("/api/admin/effects", urgent)
    cloud = {"slug": f"{slug}-cloud", "name": "Cloud", "workflow_id": slug, "credits_cost": 1, "provider": "cloud"}
    await deployment.admin.post("/api/admin/effects", cloud)
    first, second = await user.order(slug), await user.order(slug)
    high, above = await user.order(f"{slug}-urgent"), await user.order(f"{slug}-cloud")
    assert await (await deployment.worker(other)).poll() is None
    worker = await deployment.worker(slug, max_concurrency=9)
    taken = [await worker.take() for _ in range(3)]
    assert [job["job_id"] for job in taken] == [high["id"], first["id"], second["id"]]
    assert await worker.poll() is None
    cloudy = await deployment.worker(slug, providers=["cloud"])
    job = await cloudy.take()
    assert (job["job_id"], job["provider"]) == (above["id"], "cloud")
    for job in taken:
        assert UUID(job["lease_token"]).version == 4
        assert (job["attempts"], job["dispatch_id"][-26:]) == (1, job["job_id"][-26:])


async def test_efx_09_no_job_is_leased_twice_at_once(deployment: Deployment) -> None:
    """The crowd is the engine's business, and proven there with a hundred workers; this is the way through here."""
    slug = await deployment.workflow(price=0)
    users = [await deployment.user(tokens=0) for _ in range(8)]
    workers = [await deployment.worker(slug, max_concurrency=10) for _ in range(8)]
    made = [await user.order(slug) for user in users for _ in range(5)]

    async def drain(worker: Worker) -> list[str]:
        taken: list[str] = []
        while (job := await worker.poll()) is not None:
            taken.append(job["job_id"])
        return taken

    taken = [job for jobs in await asyncio.gather(*map(drain, workers)) for job in jobs]
    assert sorted(taken) == sorted(job["id"] for job in made)


async def test_efx_12_each_endpoint_asks_for_token_dispatch_and_lease(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    stranger = await deployment.worker(job["workflow"])
    size = await worker.put_output(job)
    bodies = {
        "heartbeat": {},
        "complete": {"output": {"size": size}},
        "fail": {"error": "x"},
        "requeue": {"reason": "x"},
    }
    for verb, more in bodies.items():
        path = f"/api/worker/{verb}"
        own = lease(job) | more
        assert (await worker.refused("POST", path, own | {"lease_token": str(uuid4())}, status=409))[
            "code"
        ] == "lease_lost"
        assert (await stranger.refused("POST", path, own, status=409))["code"] == "lease_lost"
        assert (await worker.refused("POST", path, own | {"dispatch_id": "job_1"}, status=404))[
            "field"
        ] == "dispatch_id"
        assert (await worker.refused("POST", path, own | {"lease_token": "1"}, status=422))["field"] == "lease_token"
        await user.refused("POST", path, own, status=401)
        await deployment.admin.refused("POST", path, own, status=401)
        assert (await deployment.http.post(path, json=own)).status_code == 401
    assert (await dispatch_of(deployment, job))["status"] == "leased"
    assert await user.balance() == 95


async def test_efx_12_a_worker_that_lost_its_lease_writes_nothing(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    size = await worker.put_output(job)
    await worker.post("/api/worker/requeue", lease(job) | {"reason": "spot"})
    other = await deployment.worker(job["workflow"])
    again = await other.take()
    assert again["output_url"] != job["output_url"]
    for verb, more in {
        "complete": {"output": {"size": size}},
        "fail": {"error": "x"},
        "requeue": {"reason": "x"},
    }.items():
        await worker.refused("POST", f"/api/worker/{verb}", lease(job) | more, status=409)
    await other.complete(again, picture("green"))
    await worker.refused("POST", "/api/worker/complete", lease(job) | {"output": {"size": size}}, status=409)
    video = (await user.get("/api/videos"))["data"][0]
    assert (await deployment.http.get(video["processed_file_url"])).content == picture("green")


async def test_efx_12_leaving_gives_back_what_is_held(deployment: Deployment) -> None:
    _, worker, job = await started(deployment)
    await worker.post("/api/worker/deregister")
    await worker.refused("POST", "/api/worker/poll", {}, status=401)
    assert (await (await deployment.worker(job["workflow"])).take())["job_id"] == job["job_id"]


async def test_efx_13_operators_manage_workers_and_make_none(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    path = f"/api/admin/workers/{worker.name}"
    assert (await deployment.admin.refused("POST", "/api/admin/workers", {}, status=405))["allow"] == "GET"
    draining = await deployment.admin.post(f"{path}/drain")
    assert (draining["is_draining"], draining["active_dispatches"]) == (True, 1)
    await user.order(job["workflow"])
    assert await worker.post("/api/worker/poll", {}) == {"job": None, "drain": True}
    await worker.complete(job)
    assert not (await deployment.admin.post(f"{path}/resume"))["is_draining"]
    job = await worker.take_soon()  # a poll that the news of a change meets returns nothing
    rotated = await deployment.admin.post(f"{path}/rotate-token")
    await worker.refused("POST", "/api/worker/heartbeat", lease(job), status=401)
    worker.headers["Authorization"] = f"Bearer {rotated['token']}"
    await worker.post("/api/worker/heartbeat", lease(job))
    other = await deployment.workflow()
    assert (await deployment.admin.put(f"{path}/workflows", {"workflow_slugs": [other]}))["workflows"] == [other]
    revoked = await deployment.admin.post(f"{path}/revoke")
    assert revoked["is_revoked"]
    problem = await worker.refused("POST", "/api/worker/complete", lease(job) | {"output": {"size": 1}}, status=403)
    assert problem["code"] == "worker_revoked"
    assert (await dispatch_of(deployment, job))["status"] == "queued"
    await deployment.admin.post(f"{path}/approve")
    await user.refused("GET", "/api/admin/workers", status=403)
    await deployment.admin.refused("POST", "/api/admin/workers/nobody/drain", status=404)


async def test_efx_13_a_worker_that_is_not_approved_waits(deployment: Deployment) -> None:
    slug = await deployment.workflow()
    before = deployment.engine.workers.settings
    deployment.engine.workers.settings = FleetSettings(is_open=False)
    try:
        worker = await deployment.worker(slug)
        assert (await worker.refused("POST", "/api/worker/poll", {}, status=403))["code"] == "worker_unapproved"
    finally:
        deployment.engine.workers.settings = before
    assert (await deployment.admin.post(f"/api/admin/workers/{worker.name}/approve"))["is_approved"]
    assert await worker.poll() is None


async def test_efx_14_a_heartbeat_prolongs_the_lease_and_reports_cancel_and_drain(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    before = (await dispatch_of(deployment, job))["lease_expires_at"]
    response = await worker.post("/api/worker/heartbeat", lease(job))
    assert (response["cancel_requested"], response["drain"], response["input_url"]) == (False, False, None)
    assert (await dispatch_of(deployment, job))["lease_expires_at"] > before
    await deployment.admin.post(f"/api/admin/workers/{worker.name}/drain")
    canceled = await user.post(f"/api/ai-jobs/{job['job_id']}/cancel")
    assert (canceled["status"], canceled["cancel_requested"]) == ("processing", True)
    response = await worker.post("/api/worker/heartbeat", lease(job) | {"renew": True})
    assert (response["cancel_requested"], response["drain"]) == (True, True)
    assert (await deployment.http.get(response["input_url"])).content == picture()
    assert response["asset_urls"].keys() == {asset["name"] for asset in job["input_payload"]["assets"]}
    answer = await deployment.http.put(response["output_url"], content=b"x", headers=response["output_headers"])
    assert answer.status_code == 200
    ended = await worker.post("/api/worker/fail", lease(job) | {"error": "stopped"})
    assert (ended["status"], ended["job_status"]) == ("failed", "canceled")
    assert (await user.get(f"/api/ai-jobs/{job['job_id']}"))["status"] == "canceled"
    assert await user.balance() == 100


# The end of a job


async def test_efx_15_complete_looks_at_the_output_first(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    path, body = "/api/worker/complete", lease(job) | {"output": {"size": 10}}
    problem = await worker.refused("POST", path, body, status=422)
    assert (problem["code"], problem["field"]) == ("artifact_missing", "output")
    size = await worker.put_output(job)
    problem = await worker.refused("POST", path, body, status=422)
    assert (problem["code"], problem["expected"], problem["found"]) == ("artifact_mismatch", 10, size)
    assert (await dispatch_of(deployment, job))["status"] == "leased"
    assert (await user.types())[-1] == ("JOB_RESERVE", -5)
    output = {"size": size, "mime_type": "image/png", "metadata": {"frames": 1}}
    done = await worker.post(path, lease(job) | {"output": output, "provider_job_id": "prompt-1"})
    assert done == {"dispatch_id": job["dispatch_id"], "status": "completed", "job_status": "completed"}
    assert await worker.post(path, lease(job) | {"output": output}) == done
    response = await user.get(f"/api/ai-jobs/{job['job_id']}")
    assert (response["status"], response["provider_job_id"], response["consumed_tokens"]) == (
        "completed",
        "prompt-1",
        5,
    )
    file = await user.get(f"/api/files/{response['output_file_id']}")
    assert (file["size"], file["mime_type"], file["path"]) == (size, "image/png", job["output_path"])
    assert file["metadata"] == output["metadata"]
    assert (await user.get(f"/api/files/{response['input_file_id']}"))["metadata"] is None
    kept = await deployment.engine.read("acme", job["job_id"])
    assert kept.output["metadata"] == {"frames": 1}
    assert (await user.types())[-2:] == [("JOB_RESERVE", -5), ("JOB_CONSUME", 0)]
    await worker.refused("POST", "/api/worker/fail", lease(job) | {"error": "late"}, status=409)


@pytest.mark.parametrize(
    ("output", "field"),
    [
        ({"size": 0}, "output.size"),
        ({}, "output.size"),
        ({"size": 3, "mime_type": "text/html"}, "output.mime_type"),
        ({"size": 3, "metadata": {"x": "\0"}}, "output.metadata.x"),
        ({"size": 3, "more": 1}, "output.more"),
    ],
    ids=["empty", "unsaid", "html", "nul", "unknown"],
)
async def test_efx_15_what_is_reported_of_an_output_is_checked(deployment: Deployment, output: Any, field: str) -> None:
    _, worker, job = await started(deployment)
    problem = await worker.refused("POST", "/api/worker/complete", lease(job) | {"output": output}, status=422)
    assert problem["field"] == field


async def test_efx_15_an_output_that_does_not_decode_is_only_logged(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond import logs  # noqa: PLC0415 - what it is told is what is looked at

    reported: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    monkeypatch.setattr(logs, "emit", lambda event, **fields: reported.put_nowait((event, fields)))
    user, worker, job = await started(deployment)
    await worker.complete(job, b"this is no picture")
    async with asyncio.timeout(PATIENCE):
        while (line := await reported.get())[0] != "output.unreadable":
            pass
    assert "UnidentifiedImageError" in line[1]["reason"]
    assert (await user.get(f"/api/ai-jobs/{job['job_id']}"))["status"] == "completed"


async def test_efx_16_a_failure_is_sanitised_and_refunded(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    error = '{"exception_message": "CUDA out of memory\\nTried to allocate 2 GiB", "traceback": ["/opt/x.py"]}'
    response = await worker.post("/api/worker/fail", lease(job) | {"error": error})
    assert (response["status"], response["job_status"]) == ("failed", "failed")
    assert await worker.post("/api/worker/fail", lease(job) | {"error": error}) == response
    assert (await user.get(f"/api/ai-jobs/{job['job_id']}"))["error_message"] == "CUDA out of memory"
    assert (await user.get("/api/videos"))["data"][0]["error"] == "CUDA out of memory"
    assert (await user.types())[-1] == ("JOB_REFUND", 5)
    assert (await dispatch_of(deployment, job)).items() >= {
        "status": "failed",
        "last_error": "CUDA out of memory",
    }.items()
    await worker.refused("POST", "/api/worker/complete", lease(job) | {"output": {"size": 1}}, status=409)


async def test_efx_16_a_long_error_is_shortened_and_an_endless_one_refused(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    too_much = await worker.send("POST", "/api/worker/fail", lease(job) | {"error": "x" * 17_000_000})
    assert (too_much.status_code, too_much.json()["code"]) == (413, "too_large")
    assert (await dispatch_of(deployment, job))["status"] == "leased"
    await worker.post("/api/worker/fail", lease(job) | {"error": "y" * 8_000_000})
    message = (await user.get(f"/api/ai-jobs/{job['job_id']}"))["error_message"]
    assert (len(message), message[-1]) == (500, "…")


async def test_efx_17_a_requeue_is_no_attempt(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    for round_ in range(5):
        response = await worker.post("/api/worker/requeue", lease(job) | {"reason": f"Spot interruption {round_}"})
        assert (response["status"], response["job_status"]) == ("queued", "queued")
        dispatch = await dispatch_of(deployment, job)
        expected = {"status": "queued", "worker_id": None, "lease_token": None, "lease_expires_at": None, "attempts": 0}
        assert dispatch.items() >= expected.items()
        assert dispatch["last_error"] == f"Requeued: Spot interruption {round_}"
        job = await worker.take()
        assert job["attempts"] == 1
    assert (await user.get("/api/videos"))["data"][0]["error"] is None
    await worker.refused("POST", "/api/worker/requeue", lease(job) | {"reason": ""}, status=422)
    await worker.complete(job)
    assert (await dispatch_of(deployment, job))["last_error"] is None


# Files


async def test_efx_24_an_output_has_a_path_of_its_own_and_urls_live_as_long_as_the_lease(
    deployment: Deployment,
) -> None:
    _, worker, job = await started(deployment)
    pattern = rf"tenants/acme/ai-jobs/{job['job_id']}/output-[0-9a-f-]{{36}}\.png"
    assert re.fullmatch(pattern, job["output_path"])
    assert job["output_path"] in job["output_url"]
    assert job["output_headers"] == {"Content-Type": "image/png"}
    for url in (job["input_url"], job["output_url"]):
        expires = int(re.findall(r"expires=(\d+)", url)[0])
        assert abs(expires - datetime.fromisoformat(job["lease_expires_at"]).timestamp()) < 30
    wrong = await deployment.http.put(job["output_url"], content=b"x", headers={"Content-Type": "text/html"})
    assert wrong.status_code == 422
    assert (await deployment.http.put(job["input_url"], content=b"x")).status_code == 403
    assert (await deployment.http.get(job["output_url"])).status_code == 403
    assert await worker.put_output(job) > 0


# Looking


async def test_efx_26_each_workflow_has_its_own_figures(deployment: Deployment) -> None:
    user, _, job = await started(deployment)
    await user.order(job["workflow"])
    route = f"effects:{job['workflow']}"
    admin = {"Authorization": deployment.admin.headers["Authorization"]}
    scaling = (await deployment.http.get(f"{deployment.url}/v1/scaling/{route}", headers=admin)).json()
    assert (scaling["ready"], scaling["leased"], scaling["workers"]["busy"]) == (1, 1, 1)
    metrics = (await deployment.http.get(f"{deployment.url}/metrics", headers=admin)).text
    assert f'millpond_queue_depth{{phase="ready",queue="{route}"}}' in metrics
    assert 'route="/effects/api/ai-jobs"' in metrics


async def test_efx_27_everything_is_audited(deployment: Deployment) -> None:
    user, worker, job = await started(deployment)
    await worker.post("/api/worker/requeue", lease(job) | {"reason": "spot"})
    await worker.complete(await worker.take())
    await user.order(job["workflow"])
    await worker.post("/api/worker/fail", lease(await worker.take()) | {"error": "x"})
    await deployment.admin.post(f"/api/admin/workers/{worker.name}/drain")
    page = await deployment.admin.get("/api/admin/audit-logs?limit=200")
    own = [entry for entry in page["data"] if entry["worker_id"] == worker.name]
    assert [entry["event"] for entry in reversed(own)] == ["poll", "requeue", "poll", "complete", "poll", "fail"]
    assert {entry["data"]["address"] for entry in own} == {"127.0.0.1"}
    (requeued,) = (entry for entry in own if entry["event"] == "requeue")
    assert requeued["data"]["reason"] == "Requeued: spot"
    assert {entry["tenant_id"] for entry in own} == {"acme"}
    drained, registered = (entry for entry in page["data"] if (entry["data"] or {}).get("worker") == worker.name)
    assert (drained["event"], registered["event"]) == ("worker.drained", "register")
    assert drained["actor"].startswith("key_")
    acts = {entry["event"] for entry in page["data"]}
    assert acts >= {
        "effects.workflow.made",
        "effects.workflow.uploaded",
        "effects.workflow.activated",
        "effects.effect.made",
    }
    await worker.post("/api/worker/deregister")
    newest = (await deployment.admin.get("/api/admin/audit-logs?limit=1"))["data"][0]
    assert newest["event"] == "deregister"
    await user.refused("GET", "/api/admin/audit-logs", status=403)
