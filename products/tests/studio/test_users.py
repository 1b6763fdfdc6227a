"""What users do: have things made, see what became of them, pay once."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.studio.deployments import BODIES, COSTS, LAMP

from millpond.store.db import connect
from millpond_products.studio.kinds import STUDIO

if TYPE_CHECKING:
    from products.tests.studio.deployments import Deployment, Lines

TYPES = {"copy": "copy", "scrape": "scrape", "tts": "tts", "static-ad": "static_ad", "video": "ugc_video"}


def test_stu_01_there_are_seven_states() -> None:
    assert set(STUDIO.states) == {"pending", "queued", "processing", "completed", "failed", "canceled", "expired"}


@pytest.mark.parametrize("path", BODIES)
async def test_stu_03_a_job_is_validated_charged_inserted_and_queued(deployment: Deployment, path: str) -> None:
    user = await deployment.user(50)
    async with deployment.paused(TYPES[path]):
        response = await user.generate(path)
        job = await user.job(response["job_id"])
        assert (response["credits_cost"], response["credits_remaining"]) == (COSTS[path], 50 - COSTS[path])
        assert response["status"] == job["status"] == ("pending" if path in ("copy", "scrape") else "queued")
        assert (job["type"], job["credits_cost"], job["attempts"]) == (TYPES[path], COSTS[path], 0)
        assert (job["output"], job["error"], job["started_at"], job["completed_at"]) == (None, None, None, None)
        assert datetime.fromisoformat(job["created_at"]) == datetime.fromisoformat(job["updated_at"])
        assert await user.entries(response["job_id"]) == [("hold", -COSTS[path])]
        events = await deployment.engine.events("acme", response["job_id"])
        assert [event.state for event in events] == (
            ["pending"] if path in ("copy", "scrape") else ["pending", "queued"]
        )
        await user.send("POST", f"/api/jobs/{response['job_id']}/cancel")


async def test_stu_04_too_few_credits(deployment: Deployment) -> None:
    user = await deployment.user(4)
    problem = await user.refused("POST", "/api/generate/static-ad", BODIES["static-ad"], status=402)
    assert (problem["code"], problem["required"], problem["balance"]) == ("insufficient_credits", 5, 4)
    assert (await user.get("/api/jobs"))["data"] == []
    assert await user.balance() == 4


async def test_stu_04_credits_for_k_jobs_make_exactly_k(deployment: Deployment) -> None:
    user = await deployment.user(7)
    answers = await asyncio.gather(*(user.send("POST", "/api/generate/copy", BODIES["copy"]) for _ in range(30)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [202] * 7 + [402] * 23
    left = sorted(answer.json()["credits_remaining"] for answer in answers if answer.status_code == 202)
    assert left == list(range(7))
    assert len((await user.get("/api/jobs"))["data"]) == 7
    assert await user.balance() == 0


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("scrape", {}, "url"),
    ("scrape", {"url": "ftp://shop.example/p"}, "url"),
    ("scrape", {"url": 7}, "url"),
    ("scrape", {"url": "http://10.0.0.1/p"}, "url"),
    ("scrape", {"url": "http://[fd00::1]/p"}, "url"),
    ("scrape", {"url": "https://user:word@shop.example/"}, "url"),
    ("copy", {}, "product_id"),
    ("copy", {"product_id": "job_x", "product": LAMP}, "product_id"),
    ("copy", {"product_id": "job_01h455vb4pex5vsknk084sn02q"}, "product_id"),
    ("copy", {"product_id": "nonsense"}, "product_id"),
    ("copy", {"product": {"name": ""}}, "product.name"),
    ("copy", {"product": {"description": "no name"}}, "product.name"),
    ("copy", {"product": LAMP, "tone": "shouting"}, "tone"),
    ("copy", {"product": LAMP, "headlines": 11}, "headlines"),
    ("copy", {"product": LAMP, "seed": -1}, "seed"),
    ("copy", {"product": LAMP, "sed": 1}, "sed"),
    ("copy", {"product": LAMP, "idempotency_key": "with space"}, "idempotency_key"),
    ("static-ad", {"product": LAMP, "style": "baroque"}, "style"),
    ("static-ad", {"product": LAMP, "aspect_ratio": "3:7"}, "aspect_ratio"),
    ("static-ad", {"product": {"name": "Lamp", "image": "http://192.168.0.1/a.png"}}, "product.image"),
    ("static-ad", {"product": LAMP, "copy_id": "job_01h455vb4pex5vsknk084sn02q"}, "copy_id"),
    ("video", {"product": LAMP, "script": "x" * 601}, "script"),
    ("video", {"product": LAMP, "voice": "a b"}, "voice"),
    ("tts", {}, "text"),
    ("tts", {"text": ""}, "text"),
    ("tts", {"text": "..."}, "text"),
    ("tts", {"text": "Hi.", "speed": 9}, "speed"),
]


@pytest.mark.parametrize(("path", "body", "field"), WRONG)
async def test_stu_05_bad_input_names_the_field(
    deployment: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    user = await deployment.user()
    problem = await user.refused("POST", f"/api/generate/{path}", body, status=422)
    assert problem["field"] == field
    assert await user.balance() == 100
    assert (await user.get("/api/jobs"))["data"] == []


async def test_stu_05_a_reference_must_be_theirs_and_done(deployment: Deployment) -> None:
    user, other = await deployment.user(), await deployment.user()
    page = await user.made("scrape", url=f"{deployment.shop_url}/good")
    body = {"product_id": page["id"]}
    assert (await other.refused("POST", "/api/generate/copy", body, status=422))["field"] == "product_id"
    problem = await user.refused("POST", "/api/generate/tts", {"copy_id": page["id"]}, status=422)
    assert (problem["field"], problem["detail"]) == ("copy_id", "The value must be the id of a copy job.")
    async with deployment.paused("copy"):
        waiting = await user.generate("copy", **body)
        problem = await user.refused("POST", "/api/generate/tts", {"copy_id": waiting["job_id"]}, status=422)
        assert (problem["field"], problem["state"]) == ("copy_id", "pending")


async def test_stu_06_what_a_worker_finishes_is_never_queued(deployment: Deployment) -> None:
    user = await deployment.user()
    page = await user.made("scrape", url=f"{deployment.shop_url}/good")
    copy = await user.made("copy", product_id=page["id"], seed=7)
    for job in (page, copy):
        events = await deployment.engine.events("acme", job["id"])
        assert [event.state for event in events] == ["pending", "processing", "completed"]
        assert (job["attempts"], job["error"]) == (1, None)
        assert job["created_at"] <= job["started_at"] <= job["completed_at"] == job["updated_at"]
        assert await user.entries(job["id"]) == [("hold", -1), ("capture", 0)]
    assert copy["input"]["product"]["name"] == "Lumen Desk Lamp"
    assert copy["input"]["product_id"] == page["id"]


async def test_stu_09_a_failure_is_reported_and_refunded(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user(10)
    response = await user.generate("scrape", url=f"{deployment.shop_url}/gone")
    job = await user.ended(response["job_id"])
    assert (job["status"], job["error"], job["output"]) == ("failed", "The page answered 404.", None)
    assert await user.entries(job["id"]) == [("hold", -1), ("release", 1)]
    assert await user.balance() == 10
    (line,) = lines.of(job["id"], "job.failed")
    assert (line["error"]["message"], line["refunded"]) == ("The page answered 404.", 1)


async def test_stu_09_a_cancel_refunds_once(deployment: Deployment) -> None:
    user = await deployment.user(30)
    async with deployment.paused("ugc_video"):
        response = await user.generate("video")
        answers = await asyncio.gather(
            *(user.send("POST", f"/api/jobs/{response['job_id']}/cancel") for _ in range(10))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.json()["status"] for answer in answers} == {"canceled"}
    assert await user.entries(response["job_id"]) == [("hold", -20), ("release", 20)]
    assert await user.balance() == 30


async def test_stu_10_a_repeat_is_the_existing_job_active_or_ended(deployment: Deployment) -> None:
    user = await deployment.user(50)
    body = BODIES["static-ad"] | {"idempotency_key": "ad-1"}
    async with deployment.paused("static_ad"):
        first = await user.generate("static-ad", **body)
        again = await user.send("POST", "/api/generate/static-ad", body)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
        assert again.json() == first
    done = await user.ended(first["job_id"])
    other = {"product": {"name": "Something else"}, "idempotency_key": "ad-1"}
    for path, repeat in (("static-ad", body), ("static-ad", other), ("copy", other)):
        answer = await user.send("POST", f"/api/generate/{path}", repeat)
        assert answer.status_code == 200
        assert answer.json() == first | {"status": done["status"]}
    assert await user.balance() == 45
    assert len((await user.get("/api/jobs"))["data"]) == 1


async def test_stu_10_a_failed_job_is_returned_too(deployment: Deployment) -> None:
    user = await deployment.user(1)
    body = {"url": f"{deployment.shop_url}/gone", "idempotency_key": "page-1"}
    first = await user.generate("scrape", **body)
    await user.ended(first["job_id"])
    again = await user.send("POST", "/api/generate/scrape", body)
    assert again.json() == first | {"status": "failed", "credits_remaining": 1}


async def test_stu_10_fifty_at_once_make_one_job_and_one_charge(deployment: Deployment) -> None:
    user, other = await deployment.user(100), await deployment.user(100)
    body = BODIES["copy"] | {"idempotency_key": "the-one"}
    answers = await asyncio.gather(*(user.send("POST", "/api/generate/copy", body) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert len((await user.get("/api/jobs"))["data"]) == 1
    assert await user.balance() == 99
    mine = await other.generate("copy", **body)
    assert mine["job_id"] != answers[0].json()["job_id"]


async def test_stu_10_the_database_itself_holds_the_key(deployment: Deployment) -> None:
    user = await deployment.user()
    await user.generate("copy", **BODIES["copy"], idempotency_key="held")
    connection = await connect(deployment.engine.db.dsn)
    try:
        with pytest.raises(Exception, match="idempotency_pkey"):
            await connection.execute(
                "insert into millpond.idempotency (tenant, scope, key, job_id, created_at)"
                " select tenant, scope, key, millpond.uuid7(), created_at from millpond.idempotency"
                " where scope = $1 and key = 'held'",
                user.name,
            )
    finally:
        await connection.close()


async def test_stu_10_a_key_of_another_product_is_a_conflict(deployment: Deployment) -> None:
    user = await deployment.user()
    job = await deployment.engine.submit("elsewhere", tenant="acme", account=user.name, idempotency_key="taken")
    body = BODIES["copy"] | {"idempotency_key": "taken"}
    problem = await user.refused("POST", "/api/generate/copy", body, status=409)
    assert (problem["code"], problem["field"]) == ("idempotency_conflict", "idempotency_key")
    assert (await user.get("/api/jobs"))["data"] == []
    await user.refused("GET", f"/api/jobs/{job.id}", status=404)


async def test_stu_14_jobs_come_in_pages(deployment: Deployment) -> None:
    user, other = await deployment.user(), await deployment.user()
    made = [(await user.generate("copy"))["job_id"] for _ in range(5)]
    await other.generate("copy")
    seen: list[str] = []
    cursor = ""
    while True:
        page = await user.get(f"/api/jobs?limit=2{cursor}")
        seen += [job["id"] for job in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == made[::-1]
    assert [job["id"] for job in (await user.get("/api/jobs?type=tts"))["data"]] == []
    await asyncio.gather(*(user.ended(job_id) for job_id in made))
    assert len((await user.get("/api/jobs?type=copy&status=completed"))["data"]) == 5
    assert (await user.refused("GET", "/api/jobs?status=gone", status=422))["field"] == "status"
    assert (await user.refused("GET", "/api/jobs?cursor=x", status=422))["field"] == "cursor"


async def test_stu_14_what_is_not_theirs_is_not_there(deployment: Deployment) -> None:
    user, other, far = await deployment.user(), await deployment.user(), await deployment.user(tenant="beta")
    job_id = (await user.generate("copy"))["job_id"]
    for stranger in (other, far):
        await stranger.refused("GET", f"/api/jobs/{job_id}", status=404)
        await stranger.refused("POST", f"/api/jobs/{job_id}/cancel", status=404)
    await user.refused("GET", "/api/jobs/nonsense", status=404)
    assert (await deployment.http.get(f"/api/jobs/{job_id}")).status_code == 401


async def test_stu_14_an_operator_reads_and_cancels_any_job(deployment: Deployment) -> None:
    user = await deployment.user()
    operators = {
        scope: {"Authorization": f"Bearer {await deployment.key(scope=scope, tenant='acme', account=None)}"}
        for scope in ("admin", "operator")
    }
    far = {"Authorization": f"Bearer {await deployment.key(scope='admin', tenant='beta', account=None)}"}
    async with deployment.paused("copy"):
        for headers in operators.values():
            job_id = (await user.generate("copy"))["job_id"]
            path = f"/api/jobs/{job_id}"
            assert (await deployment.http.get(path, headers=far)).status_code == 404
            assert (await deployment.http.post(f"{path}/cancel", headers=far)).status_code == 404
            assert (await deployment.http.get(path, headers=headers)).json() == await user.job(job_id)
            canceled = await deployment.http.post(f"{path}/cancel", headers=headers)
            assert (canceled.status_code, canceled.json()["status"]) == (200, "canceled")
            (entry, *_) = await deployment.engine.access.list_audit(tenant="acme")
            assert (entry.action, entry.subject) == ("studio.job.canceled", job_id)
    viewer = {"Authorization": f"Bearer {await deployment.key(scope='viewer', tenant='acme', account=None)}"}
    assert (await deployment.http.get(path, headers=viewer)).status_code == 403


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("static-ad", {"style": "lifestyle", "aspect_ratio": "1:1"}),
        ("static-ad", {"style": "bold", "aspect_ratio": "16:9"}),
        ("video", {"style": "lifestyle", "aspect_ratio": "1:1"}),
    ],
)
async def test_stu_05_what_was_sent_stays_in_the_input(deployment: Deployment, path: str, sent: dict[str, Any]) -> None:
    user = await deployment.user()
    async with deployment.paused(TYPES[path]):
        job = await user.job((await user.generate(path, **(BODIES[path] | sent)))["job_id"])
    assert {name: job["input"][name] for name in sent} == sent


async def test_stu_13_lines_name_the_type_of_the_contract(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user()
    job = await user.made("copy")
    for event in ("job.created", "job.transition", "job.completed"):
        assert {(line["type"], line["kind"]) for line in lines.of(job["id"], event)} == {("copy", "studio.copy")}


async def test_stu_14_what_has_ended_cannot_be_canceled(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user()
    job = await user.made("copy")
    problem = await user.refused("POST", f"/api/jobs/{job['id']}/cancel", status=409)
    assert (problem["code"], problem["state"]) == ("cancel_unavailable", "completed")
    (line,) = lines.of(job["id"], "job.transition_denied")
    assert (line["from_status"], line["to_status"]) == ("completed", "canceled")
    assert await user.job(job["id"]) == job


async def test_stu_14_credits_report_balance_and_entries(deployment: Deployment) -> None:
    user = await deployment.user(10)
    job = await user.made("copy")
    response = await user.get("/api/credits")
    assert (response["balance"], response["held"], response["next_cursor"]) == (9, 0, None)
    assert [(each["type"], each["amount"], each["balance_after"], each["job_id"]) for each in response["entries"]] == [
        ("capture", 0, 9, job["id"]),
        ("hold", -1, 9, job["id"]),
        ("grant", 10, 10, None),
    ]
    page = await user.get("/api/credits?limit=2")
    rest = await user.get(f"/api/credits?limit=2&cursor={page['next_cursor']}")
    assert page["entries"] + rest["entries"] == response["entries"]
