"""What Replicate does for the studio, and what becomes of it when that goes well, badly, twice, late or never."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from products.tests.studio.deployments import BODIES, COSTS, LAMP

from millpond_products.studio.kinds import LIFETIME
from millpond_products.studio.studio_jobs import EXPIRED, LATE
from tests.doubles.replicate import Refusal, Script
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from products.tests.studio.deployments import Deployment, Lines, User

MODELS = {"static-ad": "millpond/static-ad", "video": "millpond/ugc-video", "tts": "millpond/tts"}
ENDLESS = Script(seconds=float("inf"))


async def prediction_of(deployment: Deployment) -> dict[str, Any]:
    """The prediction that was asked for, once the provider has it."""
    async with asyncio.timeout(PATIENCE):
        while not deployment.provider.predictions:
            await asyncio.sleep(0.02)
    (made,) = deployment.provider.predictions.values()
    return made


async def waiting(deployment: Deployment, user: User, path: str = "tts") -> tuple[str, dict[str, Any]]:
    """A job that waits for its provider, and the prediction."""
    deployment.provider.plan = lambda _: ENDLESS
    response = await user.generate(path)
    await deployment.parked(response["job_id"])
    return response["job_id"], await prediction_of(deployment)


async def call_back(deployment: Deployment, made: dict[str, Any], headers: dict[str, str], body: bytes) -> int:
    return (await deployment.http.post(made["webhook"], content=body, headers=headers)).status_code


@pytest.mark.parametrize("path", MODELS)
async def test_stu_06_a_provider_makes_it_and_reports_by_webhook(deployment: Deployment, path: str) -> None:
    user = await deployment.user(50)
    job = await user.made(path)
    (asked,) = deployment.provider.bodies
    made = await prediction_of(deployment)
    assert made["model"] == MODELS[path]
    assert asked["webhook_events_filter"] == ["completed"]
    assert asked["webhook"].startswith(f"{deployment.url}/v1/callbacks/replicate/")
    events = await deployment.engine.events("acme", job["id"])
    states = list(dict.fromkeys(event.state for event in events))
    assert states == ["pending", "queued", "processing", "completed"]
    assert job["attempts"] == 1
    assert await user.entries(job["id"]) == [("hold", -COSTS[path]), ("capture", 0)]


async def test_stu_06_what_a_model_is_asked(deployment: Deployment) -> None:
    user = await deployment.user(50)
    page = await user.made("scrape", url=f"{deployment.shop_url}/good")
    copy = await user.made("copy", product_id=page["id"], seed=3)
    both = {"product_id": page["id"], "copy_id": copy["id"]}
    await user.made("static-ad", **both, style="bold", aspect_ratio="4:5", seed=5)
    await user.made("video", **both, voice="en-gb-man", seed=6)
    await user.made("tts", copy_id=copy["id"], speed=1.2)
    picture, film, speech = (body["input"] for body in deployment.provider.bodies)
    shown = {
        "product": "Lumen Desk Lamp",
        "price": "€89.50",
        "brand": "Ohm",
        "image": f"{deployment.shop_url}/lamp-2.png",
    }
    assert shown.items() <= picture.items()
    assert (picture["headline"], picture["style"], picture["aspect_ratio"], picture["seed"]) == (
        copy["output"]["headlines"][0],
        "bold",
        "4:5",
        5,
    )
    assert shown.items() <= film.items()
    assert (film["script"], film["voice"], film["aspect_ratio"]) == (copy["output"]["script"], "en-gb-man", "9:16")
    assert speech == {"text": copy["output"]["script"], "speed": 1.2}


async def test_stu_07_the_output_is_in_storage_before_it_is_completed(deployment: Deployment) -> None:
    user = await deployment.user(50)
    job = await user.made("static-ad")
    (file,) = job["output"]["files"]
    assert (file["content_type"], file["size"]) == ("image/png", len(deployment.provider.picture))
    with Image.open(io.BytesIO(deployment.provider.picture)) as picture:
        assert (file["width"], file["height"]) == picture.size
    assert file["url"] == job["output"]["url"]
    assert not file["url"].startswith(deployment.provider.url)
    answer = await deployment.http.get(file["url"])
    assert (answer.status_code, answer.content) == (200, deployment.provider.picture)


async def test_stu_07_an_output_that_cannot_be_fetched_fails_the_job(deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.plan = lambda _: Script(is_removed=True)
    job = await user.ended((await user.generate("static-ad"))["job_id"])
    assert (job["status"], await user.balance()) == ("failed", 50)
    assert job["error"]


async def test_stu_07_a_forged_or_stale_callback_changes_nothing_and_is_logged(
    deployment: Deployment, lines: Lines
) -> None:
    user = await deployment.user(50)
    job_id, made = await waiting(deployment, user)
    before = await user.job(job_id)
    body = json.dumps(made | {"status": "succeeded", "output": "http://127.0.0.1:9/evil.png"}).encode()
    now = datetime.now(UTC)
    good = deployment.provider.signed("msg_1", now, body)
    old = deployment.provider.signed("msg_2", now - timedelta(minutes=6), body)
    ahead = deployment.provider.signed("msg_3", now + timedelta(minutes=6), body)
    forged = deployment.provider.signed("msg_4", now, b"{}")
    unsigned = {name: text for name, text in good.items() if name != "webhook-signature"}
    for headers in (old, ahead, forged, unsigned, {}, good | {"webhook-id": "msg_9"}):
        assert await call_back(deployment, made, headers, body) == 401
    elsewhere = made | {"webhook": f"{deployment.url}/v1/callbacks/replicate/made-up"}
    assert await call_back(deployment, elsewhere, good, body) == 404
    assert await user.job(job_id) == before
    refused = [json.loads(line) for line in lines.stream.getvalue().splitlines() if '"callback.refused"' in line]
    assert len(refused) == 7
    await user.send("POST", f"/api/jobs/{job_id}/cancel")


async def test_stu_07_a_callback_that_lies_is_only_a_hint(deployment: Deployment) -> None:
    """Well signed, and says that it is done; the provider, when it is asked, says that it is not."""
    user = await deployment.user(50)
    job_id, made = await waiting(deployment, user)
    body = json.dumps(made | {"status": "succeeded", "output": "http://127.0.0.1:9/evil.png"}).encode()
    assert await call_back(deployment, made, deployment.provider.signed("msg_1", datetime.now(UTC), body), body) == 200
    read = ("GET", f"/v1/predictions/{made['id']}")
    async with asyncio.timeout(PATIENCE):
        while read not in deployment.provider.asked:
            await asyncio.sleep(0.02)
    await deployment.parked(job_id)
    assert (await user.job(job_id))["status"] == "processing"
    deployment.provider.end(made, "succeeded")
    again = json.dumps(made).encode()
    assert (
        await call_back(deployment, made, deployment.provider.signed("msg_2", datetime.now(UTC), again), again) == 200
    )
    assert (await user.ended(job_id))["status"] == "completed"


async def test_stu_07_repeated_out_of_order_and_late_callbacks_change_nothing(
    deployment: Deployment, lines: Lines
) -> None:
    user = await deployment.user(50)
    deployment.provider.plan = lambda _: Script(callbacks=5, stragglers=3)
    job = await user.made("static-ad")
    made = await prediction_of(deployment)
    async with asyncio.timeout(PATIENCE):
        while len(deployment.provider.reported) < 8:
            await asyncio.sleep(0.02)
    failed = json.dumps(made | {"status": "failed", "error": "late"}).encode()
    late = deployment.provider.signed("msg_late", datetime.now(UTC), failed)
    assert await call_back(deployment, made, late, failed) == 200
    after = await user.job(job["id"])
    assert {**after, "output": None} == {**job, "output": None}  # but for where its file can be got
    assert await user.entries(job["id"]) == [("hold", -5), ("capture", 0)]
    ignored = [line["verdict"] for line in lines.of(job["id"], "callback.ignored")]
    assert "late" in ignored
    assert len(lines.of(job["id"], "job.completed")) == 1


async def test_stu_08_without_a_callback_it_expires_and_is_refunded(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user(50)
    job_id, made = await waiting(deployment, user, "video")
    assert await user.balance() == 30
    await deployment.clock.advance(LIFETIME + timedelta(seconds=1))
    job = await user.ended(job_id)
    assert (job["status"], job["error"], job["output"]) == ("expired", EXPIRED, None)
    assert await user.entries(job_id) == [("hold", -20), ("release", 20)]
    assert made["id"] in deployment.provider.canceled
    (line,) = lines.of(job_id, "job.expired")
    assert (line["refunded"], line["to_status"]) == (20, "expired")
    deployment.provider.end(made, "succeeded")  # which comes too late
    body = json.dumps(made).encode()
    await call_back(deployment, made, deployment.provider.signed("msg_1", datetime.now(UTC), body), body)
    assert await user.job(job_id) == job
    assert await user.balance() == 50


async def test_stu_09_what_is_never_begun_fails_and_is_refunded(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user(50)
    async with deployment.paused("tts"):
        response = await user.generate("tts")
        await deployment.clock.advance(LIFETIME + timedelta(seconds=1))
        job = await user.ended(response["job_id"])
    assert (job["status"], job["error"], await user.balance()) == ("failed", LATE, 50)
    (line,) = lines.of(job["id"], "job.failed")
    assert (line["error"]["code"], line["refunded"]) == ("expired", 2)


async def test_stu_09_what_the_provider_cannot_do_fails_with_its_words(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user(50)
    deployment.provider.plan = lambda _: Script(status="failed", error="CUDA out of memory", callbacks=5)
    job = await user.ended((await user.generate("static-ad"))["job_id"])
    assert (job["status"], job["error"], job["attempts"]) == ("failed", "CUDA out of memory", 1)
    assert await user.entries(job["id"]) == [("hold", -5), ("release", 5)]
    (line,) = lines.of(job["id"], "job.failed")
    assert (line["error"]["message"], line["refunded"]) == ("CUDA out of memory", 5)


async def test_stu_09_a_cancel_stops_the_provider_and_refunds(deployment: Deployment) -> None:
    user = await deployment.user(50)
    job_id, made = await waiting(deployment, user, "static-ad")
    answer = await user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert answer.json()["status"] == "canceled"
    assert await user.entries(job_id) == [("hold", -5), ("release", 5)]
    async with asyncio.timeout(PATIENCE):
        while made["id"] not in deployment.provider.canceled:
            await asyncio.sleep(0.02)


async def test_stu_11_an_operator_retries_what_failed_or_expired(deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.plan = lambda _: Script(status="failed", error="no")
    job = await user.ended((await user.generate("static-ad"))["job_id"])
    deployment.provider.plan = lambda _: Script()
    async with deployment.paused("static_ad"):
        answer = await deployment.admin.send("POST", f"/api/admin/jobs/{job['id']}/retry")
        assert answer.status_code == 202
        assert answer.json() == {
            "job_id": job["id"],
            "status": "queued",
            "credits_cost": 5,
            "credits_remaining": 45,
        }
        again = await user.job(job["id"])
        assert (again["status"], again["attempts"], again["error"], again["started_at"]) == ("queued", 0, None, None)
        events = [event.state for event in await deployment.engine.events("acme", job["id"])]
        assert events[-3:] == ["failed", "pending", "queued"]
    done = await user.ended(job["id"])
    assert (done["status"], done["attempts"], done["created_at"]) == ("completed", 1, job["created_at"])
    assert await user.entries(job["id"]) == [("hold", -5), ("release", 5), ("hold", -5), ("capture", 0)]
    assert len(deployment.provider.predictions) == 2


async def test_stu_11_an_expired_job_is_retried_with_a_new_deadline(deployment: Deployment) -> None:
    user = await deployment.user(50)
    job_id, _ = await waiting(deployment, user)
    await deployment.clock.advance(LIFETIME + timedelta(seconds=1))
    assert (await user.ended(job_id))["status"] == "expired"
    deployment.provider.plan = lambda _: Script()
    assert (await deployment.admin.send("POST", f"/api/admin/jobs/{job_id}/retry")).status_code == 202
    assert (await user.ended(job_id))["status"] == "completed"
    assert await user.balance() == 48


async def test_stu_11_another_state_is_a_conflict(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user(50)
    done = await user.made("copy")
    async with deployment.paused("copy"):
        response = await user.generate("copy")
        for job_id, state in ((done["id"], "completed"), (response["job_id"], "pending")):
            before = await user.job(job_id)
            problem = await deployment.admin.refused("POST", f"/api/admin/jobs/{job_id}/retry", status=409)
            assert (problem["code"], problem["state"]) == ("retry_unavailable", state)
            assert await user.job(job_id) == before
            (line,) = lines.of(job_id, "job.transition_denied")
            assert (line["from_status"], line["to_status"]) == (state, "pending")
    assert await user.balance() == 48


async def test_stu_11_too_few_credits_leave_it_as_it_was(deployment: Deployment) -> None:
    user = await deployment.user(5)
    deployment.provider.plan = lambda _: Script(status="failed", error="no")
    job = await user.ended((await user.generate("static-ad"))["job_id"])
    await user.made("copy")
    problem = await deployment.admin.refused("POST", f"/api/admin/jobs/{job['id']}/retry", status=402)
    assert (problem["code"], problem["required"], problem["balance"]) == ("insufficient_credits", 5, 4)
    assert await user.job(job["id"]) == job
    assert await user.balance() == 4


async def test_stu_11_only_an_operator_may(deployment: Deployment) -> None:
    user = await deployment.user()
    job = await user.ended((await user.generate("scrape", url=f"{deployment.shop_url}/gone"))["job_id"])
    problem = await user.refused("POST", f"/api/admin/jobs/{job['id']}/retry", status=403)
    assert problem["code"] == "forbidden"
    assert (await deployment.http.post(f"/api/admin/jobs/{job['id']}/retry")).status_code == 401
    await deployment.admin.refused("POST", "/api/admin/jobs/job_01h455vb4pex5vsknk084sn02q/retry", status=404)
    assert await user.job(job["id"]) == job


async def test_stu_12_a_transient_error_is_tried_three_times_with_pauses(deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.refusals.extend(Refusal(500) for _ in range(3))
    job = await deployment.ended_soon(user, (await user.generate("static-ad"))["job_id"])
    assert (job["status"], job["attempts"], await user.balance()) == ("failed", 3, 50)
    assert "500" in job["error"]
    requeued = [event for event in await deployment.engine.events("acme", job["id"]) if event.type == "requeued"]
    assert [event.data["cause"] for event in requeued] == ["attempt", "attempt"]
    assert (requeued[1].at - requeued[0].at) >= timedelta(seconds=0.8)


async def test_stu_12_a_second_attempt_may_go_well(deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.refusals.append(Refusal(502))
    job = await deployment.ended_soon(user, (await user.generate("static-ad"))["job_id"])
    assert (job["status"], job["attempts"], job["error"]) == ("completed", 2, None)
    assert await user.entries(job["id"]) == [("hold", -5), ("capture", 0)]


async def test_stu_12_bad_input_at_the_provider_fails_at_once(deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.refusals.append(Refusal(422, "- input.voice: There is no such voice."))
    job = await user.ended((await user.generate("tts", **BODIES["tts"], voice="klingon"))["job_id"])
    assert (job["status"], job["attempts"], await user.balance()) == ("failed", 1, 50)
    assert "There is no such voice" in job["error"]
    assert len(deployment.provider.bodies) == 1


async def test_without_a_provider_nothing_is_charged(deployment: Deployment) -> None:
    user = await deployment.user(50)
    lines, deployment.engine.providers._clients = deployment.engine.providers._clients, {}
    try:
        answer = await user.send("POST", "/api/generate/static-ad", {"product": LAMP})
    finally:
        deployment.engine.providers._clients = lines
    assert answer.json()["code"] == "provider_missing"
    assert await user.balance() == 50
