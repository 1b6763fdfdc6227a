"""What operators do with workflows and effects, and what comes in that is wrong."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from products.tests.effects.deployments import Deployment, lease, picture

from millpond_products.effects.routes import PRODUCT
from millpond_products.effects.seed import GRAPH

NOT_JSON = ["not JSON", b"\xff\xfe", b'{"workflow": {"1"', b""]


# Workflows


async def test_a_workflow_is_made_step_by_step(deployment: Deployment) -> None:
    admin = deployment.admin
    made = await admin.post("/api/admin/workflows", {"slug": "step-by-step", "name": "Steps"})
    assert (made["is_active"], made["content_hash"], made["input_type"]) == (False, None, "any")
    assert made["routes"] == ["effects:step-by-step", "effects:step-by-step.cloud"]
    path = "/api/admin/workflows/step-by-step"
    assert "no graph" in (await admin.refused("POST", f"{path}/activate", status=409))["message"]
    await admin.refused("GET", f"{path}/workflow", status=404)
    uploaded = await admin.put(f"{path}/workflow", {"workflow": GRAPH, "output_node_id": "3"})
    assert uploaded["comfyui_workflow_path"].endswith(f"{uploaded['content_hash']}.json")
    assert await admin.get(f"{path}/workflow") == GRAPH
    assert (await admin.post(f"{path}/activate"))["is_active"]
    changed = await admin.patch(f"/api/admin/workflows/{made['id']}", {"name": "Renamed", "description": None})
    assert (changed["name"], changed["is_active"], changed["slug"]) == ("Renamed", True, "step-by-step")
    assert changed["updated_at"] > made["updated_at"]
    assert not (await admin.post(f"{path}/deactivate"))["is_active"]
    slugs = [each["slug"] for each in (await admin.get("/api/admin/workflows"))["data"]]
    assert "step-by-step" in slugs
    taken = await admin.refused("POST", "/api/admin/workflows", {"slug": "step-by-step", "name": "x"}, status=409)
    assert taken["field"] == "slug"


@pytest.mark.parametrize("text", NOT_JSON, ids=["text", "bytes", "cut", "empty"])
async def test_a_workflow_file_that_is_not_json_is_refused(deployment: Deployment, text: Any) -> None:
    slug = await deployment.workflow()
    before = await deployment.admin.get(f"/api/admin/workflows/{slug}")
    headers = {**deployment.admin.headers, "Content-Type": "application/json"}
    answer = await deployment.http.put(f"/api/admin/workflows/{slug}/workflow", content=text, headers=headers)
    assert answer.status_code == (422 if text == b"" else 400)
    assert answer.json()["code"] in {"malformed", "invalid"}
    assert await deployment.admin.get(f"/api/admin/workflows/{slug}") == before


@pytest.mark.parametrize(
    ("graph", "output", "field"),
    [
        ({"nodes": [{"id": 1}], "links": [], "version": 0.4}, "1", "workflow"),
        ({"1": {"class_type": "X", "inputs": {"a": "{{input}}", "b": "{{unknown}}"}}}, "1", "workflow.1.inputs.b"),
        ({"1": {"class_type": "X", "inputs": {"a": "no placeholder"}}}, "1", "workflow"),
        (GRAPH, "9", "output_node_id"),
        ([], "1", "workflow"),
    ],
    ids=["editor-format", "unknown-placeholder", "unused", "no-output", "list"],
)
async def test_a_graph_that_cannot_work_is_refused(deployment: Deployment, graph: Any, output: str, field: str) -> None:
    slug = await deployment.workflow()
    body = {"workflow": graph, "output_node_id": output}
    problem = await deployment.admin.refused("PUT", f"/api/admin/workflows/{slug}/workflow", body, status=422)
    assert problem["field"] == field


async def test_a_property_that_the_graph_or_an_effect_needs_stays(deployment: Deployment) -> None:
    graph = {**GRAPH, "4": {"class_type": "X", "inputs": {"text": "{{prompt}}"}}}
    slug = await deployment.workflow(graph, properties=[{"name": "prompt", "type": "text"}], overrides={"prompt": "x"})
    path = f"/api/admin/workflows/{slug}"
    gone = await deployment.admin.refused("PATCH", path, {"properties": []}, status=422)
    assert gone["field"] == "workflow.4.inputs.text"
    other = [{"name": "prompt", "type": "number", "default": 1}]
    conflict = await deployment.admin.refused("PATCH", path, {"properties": other}, status=409)
    assert slug in conflict["message"]


async def test_assets_are_seen_before_a_workflow_is_active(deployment: Deployment) -> None:
    graph = {**GRAPH, "4": {"class_type": "X", "inputs": {"mask": "{{mask}}"}}}
    admin, data = deployment.admin, picture("gray")
    await admin.post("/api/admin/workflows", {"slug": "with-asset", "name": "x", "output_extension": "png"})
    path = "/api/admin/workflows/with-asset"
    about = {"name": "mask", "filename": "../mask.png", "mime_type": "image/png", "size": len(data)}
    about["content_hash"] = hashlib.sha256(data).hexdigest()
    made = await admin.post(f"{path}/assets", about)
    assert made["asset"]["filename"] == "mask.png"
    await admin.put(f"{path}/workflow", {"workflow": graph, "output_node_id": "3"})
    missing = await admin.refused("POST", f"{path}/activate", status=409)
    assert "not in storage" in missing["message"]
    wrong = await deployment.http.put(made["upload_url"], content=b"x" * len(data), headers=made["upload_headers"])
    assert wrong.status_code == 422
    right = await deployment.http.put(made["upload_url"], content=data, headers=made["upload_headers"])
    assert right.status_code == 200
    await admin.post(f"{path}/activate")
    assert (await admin.refused("POST", f"{path}/assets", about, status=409))["field"] == "name"
    used = await admin.refused("DELETE", f"{path}/assets/mask", status=422)
    assert used["field"] == "workflow.4.inputs.mask"
    await admin.refused("DELETE", f"{path}/assets/nothing", status=404)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slug": "Has Space"}, "slug"),
        ({"slug": ""}, "slug"),
        ({"name": ""}, "name"),
        ({"input_type": "sound"}, "input_type"),
        ({"output_extension": "../x"}, "output_extension"),
        ({"properties": [{"name": "p", "type": "colour"}]}, "properties[0].type"),
        ({"properties": [{"name": "p", "type": "text", "more": 1}]}, "properties[0].more"),
        ({"properties": [{"name": "p", "type": "text"}] * 2}, "properties[1].name"),
        ({"more": 1}, "more"),
    ],
    ids=["slug", "no-slug", "no-name", "input", "extension", "type", "member", "twice", "unknown"],
)
async def test_what_is_wrong_with_a_workflow_is_named(
    deployment: Deployment, change: dict[str, Any], field: str
) -> None:
    body = {"slug": "never-made", "name": "x"} | change
    assert (await deployment.admin.refused("POST", "/api/admin/workflows", body, status=422))["field"] == field


# Effects


async def test_an_effect_is_made_changed_and_hidden(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    body = {"slug": f"{slug}-x", "name": "X", "workflow_id": slug, "credits_cost": 9, "provider": "cloud"}
    made = await deployment.admin.post("/api/admin/effects", body)
    assert (made["workflow"], made["provider"], made["credits_cost"]) == (slug, "cloud", 9)
    shown = await user.get(f"/api/effects/{made['id']}")
    assert shown == await user.get(f"/api/effects/{slug}-x")
    assert not {"provider", "workflow_id", "property_overrides"} & shown.keys()
    path = f"/api/admin/effects/{slug}-x"
    assert (await deployment.admin.patch(path, {"credits_cost": 0}))["credits_cost"] == 0
    assert not (await deployment.admin.post(f"{path}/deactivate"))["is_active"]
    assert f"{slug}-x" not in [each["slug"] for each in (await user.get("/api/effects"))["data"]]
    assert f"{slug}-x" in [each["slug"] for each in (await deployment.admin.get("/api/admin/effects"))["data"]]
    await deployment.admin.refused("POST", "/api/admin/effects", body, status=409)
    missing = await deployment.admin.refused("POST", "/api/admin/effects", body | {"workflow_id": "gone"}, status=404)
    assert missing["field"] == "workflow_id"
    wrong = await deployment.admin.refused("PATCH", path, {"property_overrides": {"no": 1}}, status=422)
    assert wrong["field"] == "property_overrides.no"


async def test_only_operators_of_all_tenants_change_what_all_share(deployment: Deployment) -> None:
    user = await deployment.user()
    key = await deployment.key(scope="admin", tenant="acme")
    body = {"slug": "not-allowed", "name": "x"}
    await user.refused("POST", "/api/admin/workflows", body, status=403)
    own = {"Authorization": f"Bearer {key}"}
    answer = await deployment.http.post("/api/admin/workflows", json=body, headers=own)
    assert answer.status_code == 403
    other = await deployment.user(tenant="other")
    await other.order()
    seen = (await deployment.http.get("/api/admin/ai-jobs?limit=200", headers=own)).json()["data"]
    assert {job["tenant_id"] for job in seen} <= {"acme"}
    assert (await deployment.http.get("/api/admin/ai-jobs?tenant_id=other", headers=own)).status_code == 403


async def test_operators_see_and_cancel_the_jobs_of_all(deployment: Deployment) -> None:
    user = await deployment.user()
    job = await user.order()
    listed = await deployment.admin.get(f"/api/admin/ai-jobs?tenant_id=acme&user_id={user.name}")
    assert [(each["id"], each["user_id"]) for each in listed["data"]] == [(job["id"], user.name)]
    assert (await deployment.admin.post(f"/api/admin/ai-jobs/{job['id']}/cancel"))["status"] == "canceled"
    assert await user.balance() == 100


async def test_an_admins_key_is_no_users(deployment: Deployment) -> None:
    for path in ("effects", "wallet", "videos", "ai-jobs"):
        await deployment.admin.refused("GET", f"/api/{path}", status=403)


async def test_the_seed_is_harmless_to_repeat(deployment: Deployment) -> None:
    before = (
        await deployment.admin.get("/api/admin/workflows/invert"),
        await deployment.admin.get("/api/admin/effects/invert"),
    )
    assert PRODUCT.seed is not None
    await PRODUCT.seed(deployment.engine)
    after = (
        await deployment.admin.get("/api/admin/workflows/invert"),
        await deployment.admin.get("/api/admin/effects/invert"),
    )
    assert after == before
    await deployment.engine.artifacts.store.delete(before[0]["comfyui_workflow_path"])
    await PRODUCT.seed(deployment.engine)
    assert await deployment.engine.artifacts.store.head(before[0]["comfyui_workflow_path"]) is not None


# Users who send what is wrong


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"filename": ""}, "filename"),
        ({"filename": "a\nb"}, "filename"),
        ({"mime_type": "text/html"}, "mime_type"),
        ({"mime_type": "image"}, "mime_type"),
        ({"mime_type": "image/png\r\nX: 1"}, "mime_type"),
        ({"size": 0}, "size"),
        ({"size": -1}, "size"),
        ({"size": 10**15}, "size"),
        ({"sha256": "abc"}, "sha256"),
        ({"more": 1}, "more"),
    ],
    ids=["no-name", "newline", "html", "half", "header", "empty", "negative", "huge", "hash", "unknown"],
)
async def test_what_is_wrong_with_an_upload_is_named(
    deployment: Deployment, change: dict[str, Any], field: str
) -> None:
    user = await deployment.user()
    body = {"filename": "a.png", "mime_type": "image/png", "size": 10} | change
    assert (await user.refused("POST", "/api/videos/uploads", body, status=422))["field"] == field


@pytest.mark.parametrize(
    "given",
    ["nonsense", "", "art_00000000000000000000000000", "video_00000000000000000000000000", "../../etc", "a%00b", "😀"],
    ids=["word", "empty", "file", "video", "path", "nul", "emoji"],
)
async def test_a_wrong_id_is_not_found(deployment: Deployment, given: str) -> None:
    user = await deployment.user()
    for path in ("videos", "files", "ai-jobs", "effects"):
        answer = await user.send("GET", f"/api/{path}/{given}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    ordered = {"effect_id": given, "video_id": given, "idempotency_key": "k"}
    assert (await user.send("POST", "/api/ai-jobs", ordered)).status_code == 404
    assert (await user.send("POST", "/api/videos", {"original_file_id": given})).status_code == 404


async def test_a_file_must_be_of_the_type_that_the_effect_takes(deployment: Deployment) -> None:
    graph = {**GRAPH, "4": {"class_type": "X", "inputs": {"mask": "{{mask}}"}}}
    properties = [{"name": "mask", "type": "image", "required": True}]
    slug, user = await deployment.workflow(graph, properties=properties), await deployment.user()
    film = await user.upload(b"film", filename="x.mp4", mime_type="video/mp4")
    video = await user.post("/api/videos", {"original_file_id": film["id"]})
    problem = (await user.ask(slug, video, input={"mask": film["id"]})).json()
    assert (problem["status"], problem["field"]) == (422, "video_id")
    still = await user.video()
    other = await (await deployment.user()).upload()
    announced = await user.post("/api/videos/uploads", {"filename": "late.png", "mime_type": "image/png", "size": 5})
    for mask, status, field in (
        (film["id"], 422, "input.mask"),
        (other["id"], 404, "input.mask"),
        ("nonsense", 404, "input.mask"),
        (7, 422, "input.mask"),
        (announced["file"]["id"], 422, "artifacts"),
    ):
        problem = (await user.ask(slug, still, input={"mask": mask})).json()
        assert (problem["status"], problem["field"]) == (status, field), mask
    assert (await user.ask(slug, still, input={"nothing": 1})).json()["field"] == "input.nothing"
    assert await user.balance() == 100


async def test_a_prompt_that_does_not_fit_into_a_job_is_refused(deployment: Deployment) -> None:
    graph = {**GRAPH, "4": {"class_type": "X", "inputs": {str(n): "{{prompt}}" for n in range(40)}}}
    properties = [{"name": "prompt", "type": "text", "max_length": 20_000}]
    slug, user = await deployment.workflow(graph, properties=properties), await deployment.user()
    problem = (await user.ask(slug, input={"prompt": "x" * 20_000})).json()
    assert (problem["status"], problem["code"], problem["field"]) == (422, "invalid_input", "input")
    assert (await user.get("/api/wallet"))["balance"] == 100


async def test_a_video_whose_file_is_lost_is_reported_to_the_worker(deployment: Deployment) -> None:
    """Nobody looks into storage when a job is made: a URL that leads nowhere is the worker's to tell."""
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    job = await user.order(slug)
    file = await user.get(f"/api/files/{job['input_file_id']}")
    await deployment.engine.artifacts.store.delete(file["path"])
    taken = await worker.take()
    assert (await deployment.http.get(taken["input_url"])).status_code == 404
    await worker.post("/api/worker/fail", lease(taken) | {"error": "The input cannot be read."})
    assert await user.balance() == 100
