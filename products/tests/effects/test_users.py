"""What users do: upload, choose, pay, look. EFX-3 to 6, 18, 24 and 25, over HTTP."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from products.tests.effects.deployments import Deployment, User, lease, picture

from millpond.engine.jobs import idempotency
from tests.waiting import PATIENCE

PROMPTED = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {
        "class_type": "Paint",
        "inputs": {
            "text": "a {{style}} picture of {{prompt}}",
            "steps": "{{steps}}",
            "mask": "{{mask}}",
            "on": ["1", 0],
        },
    },
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "{{stamp}}"}},
}
PROPERTIES: list[dict[str, Any]] = [
    {"name": "prompt", "type": "text", "required": True, "max_length": 200},
    {"name": "style", "type": "choice", "choices": ["calm", "wild"], "default": "calm"},
    {"name": "steps", "type": "number", "integer": True, "min": 1, "max": 50, "default": 20},
    {"name": "mask", "type": "image", "default": "soft"},
    {"name": "stamp", "type": "text", "default": "made", "user_configurable": False},
]


# Files and videos


async def test_efx_03_bytes_go_straight_to_storage_and_a_video_is_made_of_them(deployment: Deployment) -> None:
    user, data = await deployment.user(), picture("red")
    about = {"filename": "in.png", "mime_type": "image/png", "size": len(data)}
    made = await user.post("/api/videos/uploads", about)
    assert not made["upload_url"].startswith(deployment.url)
    assert (made["file"]["is_stored"], made["file"]["url"]) == (False, None)
    body = {"original_file_id": made["file"]["id"]}
    assert (await user.refused("POST", "/api/videos", body, status=422))["code"] == "artifact_missing"
    assert (
        await deployment.http.put(made["upload_url"], content=data, headers=made["upload_headers"])
    ).status_code == 200
    video = await user.post("/api/videos", body)
    assert (video["status"], video["original_file_id"], video["error"]) == ("pending", made["file"]["id"], None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", video["created_at"])
    file = await user.get(f"/api/files/{made['file']['id']}")
    assert (file["size"], file["mime_type"], file["is_stored"]) == (len(data), "image/png", True)
    assert (await deployment.http.get(file["url"])).content == data


async def test_efx_03_a_job_names_effect_video_and_key(deployment: Deployment) -> None:
    user = await deployment.user()
    slug = await deployment.workflow()
    job = await user.order(slug)
    assert job["id"].startswith("job_")
    expected = {"status": "queued", "effect": slug, "provider": "self_hosted", "reserved_tokens": 5, "attempts": 0}
    assert job.items() >= expected.items()
    assert job["consumed_tokens"] is job["output_url"] is job["error_message"] is job["started_at"] is None
    assert (await user.get(f"/api/videos/{job['video_id']}"))["status"] == "queued"
    assert [each["id"] for each in (await user.get("/api/ai-jobs?status=queued"))["data"]] == [job["id"]]
    for missing in ("effect_id", "video_id", "idempotency_key"):
        body = {"effect_id": slug, "video_id": job["video_id"], "idempotency_key": "k"}
        del body[missing]
        assert (await user.refused("POST", "/api/ai-jobs", body, status=422))["field"] == missing


async def test_pages_of_lists_meet_without_a_gap(deployment: Deployment) -> None:
    user = await deployment.user()
    made = [(await user.video())["id"] for _ in range(5)]
    first = await user.get("/api/videos?limit=3")
    second = await user.get(f"/api/videos?limit=3&cursor={first['next_cursor']}")
    assert [video["id"] for video in (*first["data"], *second["data"])] == made[::-1]
    assert second["next_cursor"] is None
    assert (await user.refused("GET", "/api/videos?cursor=nonsense", status=422))["field"] == "cursor"


async def test_what_is_anothers_is_not_there(deployment: Deployment) -> None:
    owner, other, stranger = await deployment.user(), await deployment.user(), await deployment.user(tenant="other")
    job = await owner.order()
    for user in (other, stranger):
        for path in (f"videos/{job['video_id']}", f"files/{job['input_file_id']}", f"ai-jobs/{job['id']}"):
            assert (await user.refused("GET", f"/api/{path}", status=404))["code"] == "not_found"
        await user.refused("POST", f"/api/ai-jobs/{job['id']}/cancel", status=404)
        body = {"original_file_id": job["input_file_id"]}
        assert (await user.refused("POST", "/api/videos", body, status=404))["field"] == "original_file_id"
        assert (await user.ask(video={"id": job["video_id"]})).json()["field"] == "video_id"
        assert (await user.get("/api/videos"))["data"] == (await user.get("/api/ai-jobs"))["data"] == []


async def test_the_second_wall_stands_around_videos(deployment: Deployment) -> None:
    """The role that reads for clients sees no row of a tenant whom its transaction does not name."""
    user = await deployment.user()
    await user.video()
    async with deployment.engine.db.transaction() as tx:
        await tx.execute("set local role millpond_client")
        assert await tx.fetchval("select count(*) from millpond.effects_videos") == 0
        await tx.execute("select set_config('millpond.callers', 'acme', true)")
        assert await tx.fetchval("select count(*) from millpond.effects_videos") > 0


# The order of the checks


async def test_efx_04_the_checks_come_in_order(deployment: Deployment) -> None:
    """Each request is wrong in all that comes after, too: the first thing that is wrong is told."""
    slug = await deployment.workflow(PROMPTED, properties=PROPERTIES, assets=[("soft", picture())], price=500)
    user = await deployment.user(tokens=10)
    video = await user.video()
    unowned = {"id": (await (await deployment.user()).video())["id"]}
    await user.order("invert", video, idempotency_key="used")
    answers = [
        await user.ask("no-such-effect", unowned, idempotency_key="used"),
        await user.ask(slug, unowned, idempotency_key="used"),
    ]
    await deployment.engine.set_cap("acme", user.name, 0)
    answers.append(await user.ask(slug, video, idempotency_key="used"))
    await deployment.engine.set_cap("acme", user.name, 0)
    answers.append(await user.ask(slug, video))
    await deployment.engine.set_cap("acme", user.name, 5)
    answers += [await user.ask(slug, video), await user.ask(slug, video, input={"prompt": "a cat"})]
    response = [(answer.status_code, answer.json()["code"], answer.json().get("field")) for answer in answers]
    assert response == [
        (404, "not_found", "effect_id"),
        (404, "not_found", "video_id"),
        (409, "idempotency_conflict", "idempotency_key"),
        (429, "too_many_active_jobs", None),
        (422, "invalid_input", "input.prompt"),
        (422, "insufficient_credits", None),
    ]


async def test_efx_04_an_effect_needs_a_workflow_that_is_active(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    await deployment.admin.post(f"/api/admin/workflows/{slug}/deactivate")
    problem = (await user.ask(slug)).json()
    assert (problem["status"], problem["field"]) == (422, "effect_id")
    await user.refused("GET", f"/api/effects/{slug}", status=404)
    await deployment.admin.post(f"/api/admin/workflows/{slug}/activate")
    await deployment.admin.post(f"/api/admin/effects/{slug}/deactivate")
    assert (await user.ask(slug)).status_code == 404


async def test_efx_04_the_same_key_returns_the_same_job(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    video = await user.video()
    first = await user.ask(slug, video, idempotency_key="once")
    assert first.status_code == 202
    await deployment.admin.patch(f"/api/admin/effects/{slug}", {"credits_cost": 50})
    again = await user.ask(slug, video, idempotency_key="once")
    assert (again.status_code, again.json()) == (200, first.json())
    assert await user.balance() == 95
    other = await user.ask(slug, await user.video(), idempotency_key="once")
    assert (other.status_code, other.json()["code"], other.json()["job_id"]) == (
        409,
        "idempotency_conflict",
        first.json()["id"],
    )
    worker = await deployment.worker(slug)
    await worker.complete(await worker.take())
    done = await user.ask(slug, video, idempotency_key="once")
    assert (done.status_code, done.json()["status"]) == (200, "completed")


async def test_efx_04_a_key_that_comes_many_times_at_once_makes_one_job(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    video = await user.video()
    answers = await asyncio.gather(*(user.ask(slug, video, idempotency_key="crowd") for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await user.balance() == 95


async def test_efx_04_at_most_five_jobs_are_active_under_concurrency(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    video = await user.video()
    answers = await asyncio.gather(*(user.ask(slug, video) for _ in range(40)))
    accepted = [answer.json() for answer in answers if answer.status_code == 202]
    refused = [answer.json()["code"] for answer in answers if answer.status_code == 429]
    assert (len(accepted), refused) == (5, ["too_many_active_jobs"] * 35)
    assert await user.balance() == 75
    await user.post(f"/api/ai-jobs/{accepted[0]['id']}/cancel")
    assert (await user.ask(slug, video)).status_code == 202


@pytest.mark.parametrize(("own", "expected"), [(7, 7), (2, 2)], ids=["higher", "lower"])
async def test_efx_04_an_operators_own_cap_is_left_alone(deployment: Deployment, own: int, expected: int) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    await deployment.engine.set_cap("acme", user.name, own)
    video = await user.video()
    answers = [(await user.ask(slug, video)).status_code for _ in range(9)]
    assert answers.count(202) == expected


async def test_efx_04_a_cap_that_is_taken_away_stays_away(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    await user.order(slug)
    assert (await user.get("/api/wallet"))["active_jobs_max"] == 5
    await deployment.engine.set_cap("acme", user.name, None)
    await user.order(slug)
    assert (await user.get("/api/wallet"))["active_jobs_max"] is None


# The payload


async def payload_of(deployment: Deployment, user: User, slug: str, **wishes: Any) -> dict[str, Any]:
    worker = await deployment.worker(slug)
    await user.order(slug, input=wishes)
    return (await worker.take())["input_payload"]


async def test_efx_05_defaults_then_the_effects_settings_then_the_users(deployment: Deployment) -> None:
    slug = await deployment.workflow(
        PROMPTED, properties=PROPERTIES, assets=[("soft", picture())], overrides={"style": "wild", "steps": 30}
    )
    user = await deployment.user()
    given = (await payload_of(deployment, user, slug, prompt="a cat", steps=7))["workflow"]["2"]["inputs"]
    assert (given["text"], given["steps"], given["on"]) == ("a wild picture of a cat", 7, ["1", 0])
    shown = (await user.get(f"/api/effects/{slug}"))["properties"]
    assert {each["name"]: each["default"] for each in shown} == {
        "prompt": None,
        "style": "wild",
        "steps": 30,
        "mask": "soft",
    }


@pytest.mark.parametrize(
    "prompt",
    ['" , "injected": "', "back\\slash", "new\nline\ttab", "{{input}} {{mask}} {{style}}", "ünïcode 😀 \u2028"],
    ids=["quote", "backslash", "newline", "placeholders", "unicode"],
)
async def test_efx_05_a_text_stays_a_text_in_the_graph(deployment: Deployment, prompt: str) -> None:
    slug = await deployment.workflow(PROMPTED, properties=PROPERTIES, assets=[("soft", picture())])
    given = await payload_of(deployment, await deployment.user(), slug, prompt=prompt)
    node = given["workflow"]["2"]
    assert node["inputs"]["text"] == f"a calm picture of {prompt}"
    assert node.keys() == {"class_type", "inputs"}
    assert node["inputs"].keys() == {"text", "steps", "mask", "on"}
    assert all(asset["placeholder"] not in prompt for asset in given["assets"])


async def test_efx_05_assets_are_listed_with_their_hashes(deployment: Deployment) -> None:
    soft = picture("gray")
    slug = await deployment.workflow(PROMPTED, properties=PROPERTIES, assets=[("soft", soft)])
    user = await deployment.user()
    given = await payload_of(deployment, user, slug, prompt="x")
    primary, mask = given["assets"]
    assert (primary["is_primary_input"], mask["is_primary_input"]) == (True, False)
    assert given["workflow"]["1"]["inputs"]["image"] == primary["placeholder"] == "{{input}}"
    assert given["workflow"]["2"]["inputs"]["mask"] == mask["placeholder"]
    assert (await deployment.http.get(primary["url"])).content == picture()
    assert (await deployment.http.get(mask["url"])).content == soft
    stored = (await deployment.admin.get(f"/api/admin/workflows/{slug}"))["assets"][0]
    assert mask["content_hash"] == stored["content_hash"]
    own = await user.upload(picture("pink"))
    mask = (await payload_of(deployment, user, slug, prompt="x", mask=own["id"]))["assets"][1]
    assert (mask["name"], (await deployment.http.get(mask["url"])).content) == (own["id"], picture("pink"))


async def test_efx_05_a_job_is_what_a_worker_of_the_native_api_runs(deployment: Deployment) -> None:
    """The input of the engine's job has the members that `millpond worker comfyui` reads."""
    slug = await deployment.workflow(PROMPTED, properties=PROPERTIES, assets=[("soft", picture())])
    user = await deployment.user()
    job = await user.order(slug, input={"prompt": "x"})
    kept = await deployment.engine.read("acme", job["id"])
    assert (kept.kind, kept.queue, kept.price) == ("effects", f"effects:{slug}", 5)
    assert kept.input.keys() >= {"workflow", "output_node_id", "assets", "extension"}
    assert (kept.input["output_node_id"], kept.input["extension"]) == ("3", "png")
    for asset in kept.input["assets"]:
        assert asset.keys() >= {"placeholder", "name", "filename", "content_hash", "is_primary_input"}
    graph = (await deployment.admin.get(f"/api/admin/workflows/{slug}"))["content_hash"]
    assert kept.input["effect"]["content_hash"] == graph


async def test_efx_05_the_graph_is_read_from_storage_and_held_to_its_hash(deployment: Deployment) -> None:
    from millpond_products.effects import workflows  # noqa: PLC0415 - its cache is forgotten here

    slug, user = await deployment.workflow(), await deployment.user()
    path = (await deployment.admin.get(f"/api/admin/workflows/{slug}"))["comfyui_workflow_path"]
    kept = dict(workflows._graphs)
    workflows._graphs.clear()
    for damaged in (b"{}", b"not JSON"):
        await deployment.engine.artifacts.store.write(path, damaged)
        problem = (await user.ask(slug)).json()
        assert (problem["status"], problem["field"]) == (422, "effect_id")
    await deployment.engine.artifacts.store.delete(path)
    assert (await user.ask(slug)).status_code == 422
    assert await user.balance() == 100
    workflows._graphs.update(kept)


# Tokens


async def test_efx_06_too_few_tokens_are_reported_with_what_is_needed(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(price=8), await deployment.user(tokens=7)
    answer = await user.ask(slug)
    problem = answer.json()
    assert (answer.status_code, problem["message"]) == (422, "Insufficient token balance.")
    assert (problem["required_tokens"], problem["available"]) == (8, 7)
    assert await user.types() == [("PAYMENT_CREDIT", 7)]
    video = (await user.get("/api/videos"))["data"][0]
    assert (video["status"], video["ai_job_id"]) == ("pending", None)


async def test_efx_06_a_job_and_its_reservation_are_one(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    job = await user.order(slug)
    entry = (await user.get("/api/wallet/transactions"))["data"][0]
    assert (entry["type"], entry["amount"], entry["job_id"], entry["balance_after"]) == (
        "JOB_RESERVE",
        -5,
        job["id"],
        95,
    )


async def test_efx_18_each_phase_happens_once_and_adds_up(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user(tokens=20)
    worker = await deployment.worker(slug)
    await user.order(slug)
    await worker.complete(taken := await worker.take())
    await user.order(slug)
    failed = lease(await worker.take()) | {"error": "no"}
    answers = await asyncio.gather(*(worker.send("POST", "/api/worker/fail", failed) for _ in range(5)))
    assert 200 in {answer.status_code for answer in answers}
    await worker.send("POST", "/api/worker/complete", lease(taken) | {"output": {"size": 1}})
    assert await user.types() == [
        ("PAYMENT_CREDIT", 20),
        ("JOB_RESERVE", -5),
        ("JOB_CONSUME", 0),
        ("JOB_RESERVE", -5),
        ("JOB_REFUND", 5),
    ]
    assert await user.balance() == 15
    video = await user.video()
    spent = await asyncio.gather(*(user.ask(slug, video) for _ in range(8)))
    assert [answer.status_code for answer in spent].count(202) == 3
    assert await user.balance() == 0


async def test_efx_18_a_grant_with_the_same_transaction_counts_once(deployment: Deployment) -> None:
    user = await deployment.user(tokens=0)
    body = {"tenant_id": "acme", "user_id": user.name, "amount": 30, "provider_transaction_id": "pi_1"}
    for _ in range(2):
        assert (await deployment.admin.post("/api/admin/tokens", body))["balance"] == 30
    assert await user.types() == [("PAYMENT_CREDIT", 30)]
    await deployment.admin.refused("POST", "/api/admin/tokens", body | {"amount": 31}, status=409)


# Results


async def test_efx_25_a_video_reports_its_result_and_what_it_usually_takes(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    job = await user.order(slug)
    assert (await user.get(f"/api/videos/{job['video_id']}"))["estimated_seconds"] is None
    taken = await worker.take()
    await worker.post("/api/worker/heartbeat", lease(taken) | {"progress": 0.5})
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert (video["status"], video["progress"], video["processed_file_url"]) == ("processing", 0.5, None)
    await worker.complete(taken, picture("white"))
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert (video["status"], video["processed_mime_type"], video["error"]) == ("completed", "image/png", None)
    assert (await deployment.http.get(video["processed_file_url"])).content == picture("white")
    assert (await user.get(f"/api/files/{video['processed_file_id']}"))["size"] == len(picture("white"))
    assert datetime.fromisoformat(video["completed_at"]) >= datetime.fromisoformat(video["started_at"])

    async with asyncio.timeout(PATIENCE):
        while (estimate := (await user.get(f"/api/effects/{slug}"))["estimated_seconds"]) is None:
            await asyncio.sleep(0.01)
    assert 0 <= estimate < 60
    again = await user.order(slug)
    assert (await user.get(f"/api/videos/{again['video_id']}"))["estimated_seconds"] == round(estimate, 1)


async def test_efx_25_a_video_reports_why_it_failed(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    job = await user.order(slug)
    await worker.post("/api/worker/fail", lease(await worker.take()) | {"error": "It broke.\nTraceback: …"})
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert (video["status"], video["error"], video["processed_file_url"]) == ("failed", "It broke.", None)
    later = await user.order(slug, video)
    assert (await user.get(f"/api/videos/{job['video_id']}"))["ai_job_id"] == later["id"]


async def test_a_key_that_is_forgotten_is_free_again(deployment: Deployment) -> None:
    """Keys are kept for a day after their job has ended, and not for ever."""
    slug, user = await deployment.workflow(), await deployment.user()
    video = await user.video()
    first = (await user.ask(slug, video, idempotency_key="old")).json()
    await user.post(f"/api/ai-jobs/{first['id']}/cancel")
    await idempotency.prune(deployment.engine.tenant_databases.executor_for_all, timedelta(0), 1000)
    assert (await user.ask(slug, video, idempotency_key="old")).status_code == 202
