"""The native API beside the contract: it opens no way around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from products.tests.effects.deployments import Deployment, Worker, picture

from millpond.errors import InputError
from millpond_products.effects import payload

if TYPE_CHECKING:
    import httpx2

SOURCES = {"input": payload.SourceFile("art_1", "in.png", None)}


async def native(deployment: Deployment, caller: Any, method: str, path: str, body: Any = None) -> httpx2.Response:
    return await caller.send(method, f"{deployment.url}/v1/{path}", body)


async def taken(deployment: Deployment, worker: Worker) -> dict[str, Any]:
    (job,) = (await native(deployment, worker, "POST", "worker/poll", {})).json()["jobs"]
    return job


async def test_a_client_neither_repeats_nor_reads_what_the_product_made(deployment: Deployment) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    order = await user.order(slug)
    response = (await native(deployment, user, "GET", f"jobs/{order['id']}")).json()
    assert (response["id"], response["input"]) == (order["id"], {})
    listed = (await native(deployment, user, "GET", "jobs")).json()["data"]
    assert [job["input"] for job in listed] == [{}]
    whole = await native(deployment, deployment.admin, "GET", f"jobs/{order['id']}?tenant=acme")
    assert "workflow" in whole.json()["input"]
    job = await taken(deployment, worker)
    body = {"job_id": job["job_id"], "lease_token": job["lease_token"], "error": {"message": "x"}}
    assert (await native(deployment, worker, "POST", "worker/fail", body)).status_code == 200
    again = await native(deployment, user, "POST", f"jobs/{order['id']}/retry")
    assert (again.status_code, again.json()["code"]) == (403, "forbidden")
    assert await user.balance() == 100


async def test_efx_15_24_a_native_worker_stores_its_output_where_it_belongs_or_completes_nothing(
    deployment: Deployment,
) -> None:
    slug, user, other = await deployment.workflow(), await deployment.user(), await deployment.user()
    worker = await deployment.worker(slug)
    secret = await other.upload(picture("red"))
    order = await user.order(slug)
    job = await taken(deployment, worker)
    lease = {"job_id": job["job_id"], "lease_token": job["lease_token"]}
    for output in ({"file": {"id": secret["id"]}}, {}, None, {"file": "x"}):
        refused = await native(
            deployment, worker, "POST", "worker/complete", lease | {"output": output, "artifacts": []}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "artifact_missing"), output
    data = picture("white")
    about = {"name": "../Out.PNG", "content_type": "image/png", "size": len(data)}
    made = (await native(deployment, worker, "POST", "worker/upload", lease | about)).json()
    assert f"/tenants/acme/ai-jobs/{order['id']}/output-" in made["upload"]["url"]
    sent = await deployment.http.put(made["upload"]["url"], content=data, headers=made["upload"]["headers"])
    assert sent.status_code == 200
    saved = {"id": made["artifact_id"], "size": len(data)}
    body = lease | {"output": {"file": {"id": saved["id"]}}, "artifacts": [saved]}
    done = await native(deployment, worker, "POST", "worker/complete", body)
    assert done.status_code == 200, done.text
    response = await user.get(f"/api/ai-jobs/{order['id']}")
    assert (await deployment.http.get(response["output_url"])).content == data
    assert await user.balance() == 95


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999", "-1e999"], ids=["endless", "infinite", "less"])
async def test_a_number_without_end_is_refused(deployment: Deployment, number: str) -> None:
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}", "x": "{{n}}"}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}},
    }
    slug = await deployment.workflow(graph, properties=[{"name": "n", "type": "number", "default": 1}])
    user = await deployment.user()
    video = await user.video()
    body = f'{{"effect_id": "{slug}", "video_id": "{video["id"]}", "idempotency_key": "k", "input": {{"n": {number}}}}}'
    answer = await deployment.http.post(
        "/api/ai-jobs", content=body, headers=user.headers | {"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422), answer.text


def test_efx_05_texts_put_together_make_no_placeholder_of_a_file() -> None:
    graph = {"1": {"class_type": "X", "inputs": {"image": "{{input}}", "text": "{{a}}{{b}}"}}}
    made = payload.build(graph, output_node_id="1", extension=None, made={"a": "{{inp", "b": "ut}}"}, sources=SOURCES)
    (asset,) = made["assets"]
    inputs = made["workflow"]["1"]["inputs"]
    assert inputs["text"] == "{{input}}"
    assert inputs["image"] == asset["placeholder"] != "{{input}}"


def test_efx_05_what_is_filled_in_makes_no_link() -> None:
    graph = {"1": {"class_type": "X", "inputs": {"image": "{{input}}", "pair": ["{{a}}", "{{n}}"]}}}
    with pytest.raises(InputError):
        payload.build(graph, output_node_id="1", extension=None, made={"a": "2", "n": 0}, sources=SOURCES)
