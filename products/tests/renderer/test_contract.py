"""The HTTP contract of Replicate, with plain HTTP and with the real client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from products.tests.renderer.renderers import LONG, TOKEN, Receiver, Renderer, renderer
from replicate.client import Client
from replicate.exceptions import ReplicateError
from replicate.webhook import Webhooks, WebhookSigningSecret

from millpond import webhooks
from tests.acceptance.processes import until
from tests.waiting import PATIENCE

HELLO = {"text": "Hello there.", "format": "wav", "seed": 1}
FIELDS = {
    "id", "model", "version", "input", "logs", "output", "error", "status", "data_removed", "created_at", "started_at",
    "completed_at", "deadline", "metrics", "urls", "source",
}  # fmt: skip


@pytest.fixture
async def client(running: Renderer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setenv("REPLICATE_POLL_INTERVAL", "0.05")
    one = Client(api_token=TOKEN, base_url=running.url)
    yield one
    one._client.close()
    await one._async_client.aclose()


# With the real client


async def test_the_real_client_runs_a_model(client: Client) -> None:
    output: Any = await asyncio.to_thread(client.run, "millpond/tts", input=HELLO)
    async with httpx2.AsyncClient(timeout=PATIENCE) as anybody:
        sound = await anybody.get(output)
    assert sound.headers["content-type"] == "audio/wav"
    assert sound.content.startswith(b"RIFF")


async def test_the_real_client_runs_a_version(client: Client) -> None:
    model = await client.models.async_get("millpond/tts")
    assert model.latest_version is not None
    version = model.latest_version.id
    assert len(version) == 64
    output = await client.async_run(f"millpond/tts:{version}", input=HELLO)
    assert str(output).startswith("http://127.0.0.1:")


async def test_the_real_client_makes_waits_for_and_lists_a_prediction(client: Client) -> None:
    model = await client.models.async_get("millpond/tts")
    assert model.latest_version is not None
    prediction = await client.predictions.async_create(version=model.latest_version.id, input=HELLO)
    assert prediction.status in {"starting", "processing", "succeeded"}
    await prediction.async_wait()
    assert prediction.status == "succeeded"
    assert prediction.input == {**HELLO, "voice": "en-us-woman", "speed": 1.0, "pitch": 50}
    assert prediction.logs is not None
    assert "Using seed: 1" in prediction.logs
    assert prediction.metrics is not None
    assert prediction.metrics["predict_time"] > 0
    found = await client.predictions.async_list()
    assert found.results[0].id == prediction.id


async def test_the_real_client_cancels(client: Client) -> None:
    prediction = await client.models.predictions.async_create("millpond/ugc-video", input=LONG)
    await prediction.async_cancel()
    assert prediction.status == "canceled"
    again = await client.predictions.async_get(prediction.id)
    assert (again.status, again.output) == ("canceled", None)


async def test_the_real_client_is_shown_what_is_wrong(client: Client) -> None:
    with pytest.raises(ReplicateError) as refused:
        await client.async_run("millpond/tts", input={"text": "Hello", "voice": "en-us-robot"})
    assert refused.value.status == 422
    assert "input.voice" in str(refused.value.detail)
    assert "en-us-woman" in str(refused.value.detail)


async def test_the_real_client_uploads_a_file_among_the_inputs(client: Client, tmp_path: Any) -> None:
    from PIL import Image  # noqa: PLC0415 - only here

    path = tmp_path / "product.png"
    Image.effect_mandelbrot((64, 64), (-2, -1, 1, 1), 20).convert("RGB").save(path)
    with path.open("rb") as file:
        output = await client.async_run("millpond/static-ad", input={"product": "Lamp", "image": file, "seed": 1})
    assert str(output).endswith(".png")


# Webhooks


async def test_the_end_is_reported_by_a_signed_webhook(running: Renderer, client: Client, hooks: Receiver) -> None:
    prediction = await running.made("tts", HELLO, webhook=f"{hooks.url}/done", webhook_events_filter=["completed"])
    await until(lambda: _is(len(hooks.calls) == 1))
    headers, body = hooks.calls[0]
    secret = await client.webhooks.default.async_secret()
    Webhooks.validate(headers=headers, body=body.decode(), secret=WebhookSigningSecret(key=secret.key))
    received = webhooks.verify(body, headers, secret.key)
    assert received == prediction
    assert set(received) == FIELDS


async def test_events_come_in_order_and_the_usual_ones_are_output_and_completed(
    running: Renderer, hooks: Receiver
) -> None:
    await running.made("tts", HELLO, webhook=f"{hooks.url}/a", webhook_events_filter=["start", "output", "completed"])
    await until(lambda: _is(len(hooks.calls) == 3))
    assert [body["status"] for body in hooks.bodies()] == ["processing", "processing", "succeeded"]
    hooks.calls.clear()
    await running.made("tts", HELLO, webhook=f"{hooks.url}/b")
    await until(lambda: _is(len(hooks.calls) == 2))
    assert [(body["status"], body["output"] is not None) for body in hooks.bodies()] == [
        ("processing", True),
        ("succeeded", True),
    ]


async def test_only_the_end_is_reported_again_and_under_the_same_id(running: Renderer, hooks: Receiver) -> None:
    hooks.answers = [500, 503, 404]
    await running.made("tts", HELLO, webhook=hooks.url, webhook_events_filter=["start", "completed"])
    await until(lambda: _is(len(hooks.calls) == 4))
    start, *ends = [headers["webhook-id"] for headers, _ in hooks.calls]
    assert len(set(ends)) == 1
    assert start not in ends
    assert len({body for _, body in hooks.calls[1:]}) == 1
    secret = (await running.http.get("/v1/webhooks/default/secret")).json()["key"]
    for headers, body in hooks.calls:
        webhooks.verify(body, headers, secret)


async def test_a_canceled_prediction_is_reported_too(running: Renderer, hooks: Receiver) -> None:
    answer = await running.create("ugc-video", LONG, webhook=hooks.url, webhook_events_filter=["completed"])
    await running.http.post(f"/v1/predictions/{answer.json()['id']}/cancel")
    await until(lambda: _is(len(hooks.calls) == 1))
    assert hooks.bodies()[0]["status"] == "canceled"


@pytest.mark.parametrize("url", ["ftp://x/", "http://10.0.0.1/", "http://169.254.169.254/latest", "nonsense"])
async def test_a_webhook_that_leads_inside_is_refused(running: Renderer, url: str) -> None:
    answer = await running.create("tts", HELLO, webhook=url)
    assert answer.status_code == 422
    assert "webhook" in answer.json()["detail"]


# What is asked


async def test_without_the_token_nothing_but_outputs_is_given(running: Renderer) -> None:
    async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE) as stranger:
        for method, path in (
            ("POST", "/v1/predictions"),
            ("GET", "/v1/predictions"),
            ("GET", "/v1/models/millpond/tts"),
            ("GET", "/v1/webhooks/default/secret"),
            ("POST", "/v1/files"),
        ):
            answer = await stranger.request(method, path, headers={"Authorization": "Bearer r8_wrong"})
            assert answer.status_code == 401, path
            assert answer.json()["title"] == "Unauthenticated"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "input.text"),
        ({"text": ""}, "input.text"),
        ({"text": "…"}, "input.text"),
        ({"text": 7}, "input.text"),
        ({"text": "a" * 5_001}, "input.text"),
        ({"text": "a", "speed": 9}, "input.speed"),
        ({"text": "a", "speed": "fast"}, "input.speed"),
        ({"text": "a", "seed": -1}, "input.seed"),
        ({"text": "a", "format": "ogg"}, "input.format"),
        ({"text": "a", "wrong": 1}, "input.wrong"),
    ],
)
async def test_a_wrong_input_is_refused_with_its_field(running: Renderer, given: dict[str, Any], field: str) -> None:
    answer = await running.create("tts", given)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["title"] == "Input validation failed"
    assert problem["status"] == 422
    assert problem["invalid_fields"][0]["field"] == field
    assert field in problem["detail"]


async def test_bodies_that_cannot_be_read_are_refused(running: Renderer) -> None:
    path = "/v1/predictions"
    assert (await running.http.post(path, content=b"{")).status_code == 400
    assert (await running.http.post(path, content=b"[]")).status_code == 422
    assert (await running.http.post(path, json={"input": {}})).status_code == 422
    assert (await running.http.post(path, json={"input": {}, "version": "nobody/nothing"})).status_code == 422
    assert (await running.http.post(path, json={"input": 7, "version": "millpond/tts"})).status_code == 422
    wrong = {"input": HELLO, "version": "millpond/tts", "webhook_events_filter": ["sometimes"]}
    assert "webhook_events_filter" in (await running.http.post(path, json=wrong)).json()["detail"]
    assert (await running.http.post("/v1/files", content=b"no form")).status_code == 422
    assert (await running.http.post(path, content=b"x" * (12 * 1024**2 + 1))).status_code == 413


async def test_what_is_not_there_is_not_found(running: Renderer) -> None:
    for path in (
        "/v1/predictions/unknown",
        "/v1/models/millpond/nothing",
        "/v1/models/millpond/tts/versions/0",
        "/v1/files/guess/output.png",
        "/v1/predictions?cursor=unknown",
        "/nowhere",
    ):
        answer = await running.http.get(path)
        assert answer.status_code == 404, path
        assert set(answer.json()) == {"title", "detail", "status"}
    assert (await running.http.delete("/v1/predictions")).status_code == 405


async def test_all_models_report_their_inputs(running: Renderer) -> None:
    models = (await running.http.get("/v1/models")).json()["results"]
    assert [model["name"] for model in models] == ["static-ad", "ugc-video", "persona", "tts"]
    for model in models:
        about = (await running.http.get(model["url"])).json()
        schemas = about["latest_version"]["openapi_schema"]["components"]["schemas"]
        assert schemas["Output"] == {"title": "Output", "type": "string", "format": "uri"}
        assert "seed" in schemas["Input"]["properties"]
        versions = (await running.http.get(f"{model['url']}/versions")).json()["results"]
        assert versions[0]["id"] == about["latest_version"]["id"]


async def test_who_would_rather_wait_gets_the_end_and_else_a_beginning(running: Renderer) -> None:
    at_once = await running.create("tts", HELLO)
    assert (at_once.status_code, at_once.json()["completed_at"]) == (201, None)
    in_time = await running.create("tts", HELLO, headers={"Prefer": "wait=60"})
    assert (in_time.status_code, in_time.json()["status"]) == (201, "succeeded")
    too_soon = await running.create("ugc-video", LONG, headers={"Prefer": "wait=1"})
    assert (too_soon.status_code, too_soon.json()["output"]) == (202, None)
    await running.http.post(too_soon.json()["urls"]["cancel"])
    assert (await running.create("tts", HELLO, headers={"Prefer": "wait=61"})).status_code == 422


@pytest.mark.parametrize("text", ["", "4s", "25h", "soon", "-5", "5.5s"])
async def test_a_deadline_that_cannot_be_read_is_refused(running: Renderer, text: str) -> None:
    answer = await running.create("tts", HELLO, headers={"Cancel-After": text})
    assert answer.status_code == 422
    assert "Cancel-After" in answer.json()["detail"]


async def test_an_output_is_given_whole_or_in_part_to_who_knows_its_name(running: Renderer) -> None:
    prediction = await running.made("tts", HELLO)
    async with httpx2.AsyncClient(timeout=PATIENCE) as anybody:
        whole = await anybody.get(prediction["output"])
        part = await anybody.get(prediction["output"], headers={"Range": "bytes=4-7"})
        other = await anybody.get(prediction["output"].replace("output.wav", "else.wav"))
    assert int(whole.headers["content-length"]) == len(whole.content)
    assert (part.status_code, part.content) == (206, whole.content[4:8])
    assert part.headers["content-range"] == f"bytes 4-7/{len(whole.content)}"
    assert other.status_code == 404


async def test_predictions_are_listed_a_page_at_a_time() -> None:
    with renderer("--waiting-max", "300", "--presses", "1") as one:
        made = [(await one.create("ugc-video", LONG)).json()["id"] for _ in range(101)]  # all but one of them wait
        first = (await one.http.get("/v1/predictions")).json()
        second = (await one.http.get(first["next"])).json()
    assert [each["id"] for each in first["results"] + second["results"]] == made[::-1]
    assert second["next"] is None


def test_a_picture_in_the_input_is_not_reported_back_in_full() -> None:
    from millpond_products.renderer.models import StaticAd  # noqa: PLC0415 - only here
    from millpond_products.renderer.predictions import _shown  # noqa: PLC0415 - only here

    image = f"data:image/png;base64,{base64.b64encode(bytes(1_000)).decode()}"
    assert len(_shown(StaticAd(product="Lamp", image=image))["image"]) < 50


async def _is(given: bool) -> bool:  # noqa: FBT001 - a question as until() asks it
    return given
