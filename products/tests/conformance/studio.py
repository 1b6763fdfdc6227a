"""The studio contract: with the local renderer on the steady server, and with Replicate on the mortal one."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx2
from products.tests.conformance.effects import number_of
from products.tests.conformance.system import TENANT, fresh, until
from products.tests.conformance.table import checks
from products.tests.studio.deployments import BODIES, COSTS, FIELDS, LAMP, User

from tests.doubles.replicate import Refusal, Script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from products.tests.conformance.system import Server, SystemUnderTest

STATES = ("pending", "queued", "processing", "completed", "failed", "canceled", "expired")
ARROWS = {
    ("pending", "queued"),
    ("pending", "processing"),
    ("pending", "failed"),
    ("pending", "canceled"),
    ("queued", "processing"),
    ("queued", "failed"),
    ("queued", "canceled"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "canceled"),
    ("processing", "expired"),
    ("failed", "pending"),
    ("expired", "pending"),
}
NOT_BY_HAND = {("pending", "processing"), ("queued", "processing"), ("failed", "pending"), ("expired", "pending")}
"""What only a worker's claim does, or a retry, which costs credits."""
ENDLESS = Script(seconds=float("inf"))


@checks("STU-1")
async def seven_states(system: SystemUnderTest) -> None:
    kept = await system.steady.sql("select state from millpond.lifecycle_states where lifecycle = 'studio'")
    assert {state for (state,) in kept} == set(STATES)
    response = await system.steady.order("GET", "/v1/kinds/studio.tts")
    assert set(response["lifecycle"]["states"]) == set(STATES)


@checks("STU-2")
async def thirteen_arrows(system: SystemUnderTest) -> AsyncGenerator[None]:
    """All 42 pairs, by an operator over HTTP and by hand in the database. Scrapes and films are this check's alone."""
    yield
    server, user = system.mortal, await system.mortal.user(2_000)
    await server.order("POST", "/v1/queues/studio.scrape/pause")
    await server.order("POST", "/v1/queues/studio.ugc_video/pause")
    for source in STATES:
        for target in STATES:
            if source == target:
                continue
            job_id = await _brought_to(system, user, source)
            before = await user.job(job_id)
            await _by_hand(server, job_id, source, target)
            assert await user.job(job_id) == before
            answer = await server.send("POST", f"/v1/jobs/{job_id}/transition?tenant={TENANT}", {"state": target})
            after = await user.job(job_id)
            if (source, target) in ARROWS - NOT_BY_HAND:
                assert (answer.status_code, after["status"]) == (200, target), (source, target)
            else:
                assert (answer.status_code, after) == (409, before), (source, target)
                denied = server.lines(job_id, "job.transition_denied")[-1]
                assert (denied["from_status"], denied["to_status"]) == (source, target)
            await user.send("POST", f"/api/jobs/{job_id}/cancel")


async def _brought_to(system: SystemUnderTest, user: User, state: str) -> str:
    """The id of a job in this state."""
    server, provider = system.mortal, system.provider.double
    if state in ("pending", "failed", "canceled"):
        job_id = (await user.generate("scrape", url=f"{system.shop.url}/good"))["job_id"]
    else:
        name = fresh("film")
        provider.arranged[name] = ENDLESS
        job_id = (await user.generate("video", product=LAMP | {"name": name}))["job_id"]
        if state != "queued":
            await server.order("POST", "/v1/queues/studio.ugc_video/resume")
            await until(lambda: asyncio.sleep(0, provider.made_of(name)))
            await server.order("POST", "/v1/queues/studio.ugc_video/pause")
            await _parked(server, job_id)
    if state not in ("pending", "queued", "processing"):
        await server.order("POST", f"/v1/jobs/{job_id}/transition?tenant={TENANT}", {"state": state})
    return job_id


async def _parked(server: Server, job_id: str) -> None:
    """Wait until a job waits for its provider."""

    async def is_parked() -> bool:
        return (await server.order("GET", f"/v1/jobs/{job_id}?tenant={TENANT}"))["phase"] == "parked"

    await until(is_parked)


async def _by_hand(server: Server, job_id: str, source: str, target: str) -> None:
    """An UPDATE that no arrow allows fails; one along an arrow is left to those who keep the accounts."""
    if (source, target) in ARROWS:
        return
    outcome = {"completed": "succeeded", "failed": "failed", "canceled": "canceled", "expired": "expired"}.get(target)
    try:
        await server.sql(
            "update millpond.jobs set state = $2, outcome = $3::text,"
            " phase = case when $3::text is null then phase else 'ended' end,"
            " captured = case when $3::text is null then null else 0 end,"
            " finished_at = case when $3::text is null then null else now() + interval '1 hour' end where id = $1",
            UUID(bytes=number_of(job_id)),
            target,
            outcome,
        )
    except Exception as error:  # noqa: BLE001 - whatever the driver calls it
        assert "transition denied" in str(error), (source, target, error)  # noqa: PT017 - which words it says is the point
    else:
        raise AssertionError(f"the database let {source} become {target}")


@checks("STU-3")
async def charge_job_and_queue_are_one(system: SystemUnderTest) -> AsyncGenerator[None]:
    """Many ask until the process is killed: then every charge has its job, and every job its charge."""
    asking = await system.mortal.user(5_000)
    heard: list[str] = []

    async def keep_asking() -> None:
        try:
            while True:
                heard.append((await asking.generate("copy"))["job_id"])
        except (httpx2.TransportError, AssertionError):
            return

    burst = asyncio.gather(*(keep_asking() for _ in range(4)))
    await until(lambda: asyncio.sleep(0, len(heard) > 20))
    yield
    await burst
    account = asking.name
    jobs = await system.mortal.sql("select id from millpond.jobs where account = $1", account)
    holds = await system.mortal.sql("select job_id from millpond.entries where account = $1 and type = 'hold'", account)
    assert sorted(jobs) == sorted(holds)
    assert {UUID(bytes=number_of(job_id)) for job_id in heard} <= {job_id for (job_id,) in jobs}
    lines = await system.mortal.sql(
        "select count(*) from millpond.jobs j where account = $1 and outcome is null"
        " and not exists (select from millpond.dispatches d where d.job_id = j.id)",
        account,
    )
    assert lines == [(0,)], "a job that is in no line"
    user = await system.steady.user(50)
    for path, cost in COSTS.items():
        body = {"url": f"{system.shop.url}/slow"} if path == "scrape" else BODIES[path]
        accepted = await user.send("POST", f"/api/generate/{path}", body)
        response = accepted.json()
        assert (accepted.status_code, set(response)) == (202, {"job_id", "status", "credits_cost", "credits_remaining"})
        assert (response["credits_cost"], response["status"]) == (
            cost,
            "pending" if path in ("copy", "scrape") else "queued",
        )
        first = (await system.steady.states(response["job_id"]))[: 1 if path in ("copy", "scrape") else 2]
        assert first == ["pending", "queued"][: len(first)]
        await user.send("POST", f"/api/jobs/{response['job_id']}/cancel")


@checks("STU-4")
async def too_few_credits(system: SystemUnderTest) -> None:
    user = await system.steady.user(7)
    problem = await user.refused("POST", "/api/generate/video", BODIES["video"], status=402)
    assert (problem["code"], problem["required"], problem["balance"]) == ("insufficient_credits", 20, 7)
    assert (await user.get("/api/jobs"))["data"] == []
    answers = await asyncio.gather(*(user.send("POST", "/api/generate/copy", BODIES["copy"]) for _ in range(30)))
    assert sorted(answer.status_code for answer in answers) == [202] * 7 + [402] * 23
    assert len((await user.get("/api/jobs"))["data"]) == 7


@checks("STU-5")
async def bad_input(system: SystemUnderTest) -> None:
    user = await system.steady.user()
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("scrape", {"url": "http://10.0.0.1/p"}, "url"),
        ("copy", {"product": {"name": ""}}, "product.name"),
        ("static-ad", {"product": LAMP, "aspect_ratio": "3:7"}, "aspect_ratio"),
        ("video", {"product": LAMP, "voice": "a b"}, "voice"),
        ("tts", {}, "text"),
    )
    for path, body, field in wrong:
        assert (await user.refused("POST", f"/api/generate/{path}", body, status=422))["field"] == field
    assert (await user.balance(), (await user.get("/api/jobs"))["data"]) == (100, [])


@checks("STU-6")
async def how_the_types_run(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    user = await system.steady.user()
    page = await user.made("scrape", url=f"{system.shop.url}/good")
    assert (page["output"]["title"], page["output"]["price"]) == ("Lumen Desk Lamp", "89.5"), page["output"]
    copy = await user.made("copy", product_id=page["id"], seed=7)
    same = await user.made("copy", product_id=page["id"], seed=7)
    assert "Lumen" in json.dumps(copy["output"])
    assert same["output"] == copy["output"]
    for job in (page, copy):
        assert await system.steady.states(job["id"]) == ["pending", "processing", "completed"]
    for path, form in (("static-ad", b"\x89PNG"), ("tts", b"ID3"), ("video", b"ftyp")):
        response = await user.generate(path)
        job = await user.ended(response["job_id"], patience=100)
        assert job["status"] == "completed", job
        assert await system.steady.states(job["id"]) == ["pending", "queued", "processing", "completed"]
        assert form in (await system.http.get(job["output"]["files"][0]["url"])).content[:16]
    user, text = await system.mortal.user(), fresh("Words")
    await user.made("tts", text=text)
    (asked,) = [body for body in system.provider.double.bodies if body["input"].get("text") == text]
    assert asked["webhook_events_filter"] == ["completed"]
    assert asked["webhook"].startswith(f"{system.mortal.url}/v1/callbacks/replicate/")


async def _waiting(system: SystemUnderTest, user: User) -> tuple[str, dict[str, Any]]:
    """A job that waits for its provider, and the prediction."""
    provider, text = system.provider.double, fresh("Words")
    provider.arranged[text] = ENDLESS
    job_id = (await user.generate("tts", text=text))["job_id"]
    await _parked(system.mortal, job_id)
    (made,) = provider.made_of(text)
    return job_id, made


@checks("STU-7")
async def callbacks(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    provider, user = system.provider.double, await system.mortal.user()
    job_id, made = await _waiting(system, user)
    before = await user.job(job_id)
    body = json.dumps(made | {"status": "succeeded", "output": "http://127.0.0.1:9/evil.png"}).encode()
    now = datetime.now(UTC)
    stale = provider.signed("msg_old", now - timedelta(minutes=6), body)
    forged = provider.signed("msg_forged", now, b"{}")
    for headers in (stale, forged, {}):
        assert (await system.http.post(made["webhook"], content=body, headers=headers)).status_code == 401
    assert await user.job(job_id) == before
    assert '"callback.refused"' in system.mortal.output
    provider.end(made, "succeeded")
    done = json.dumps(made).encode()
    good = provider.signed("msg_good", datetime.now(UTC), done)
    assert (await system.http.post(made["webhook"], content=done, headers=good)).status_code == 200
    job = await user.ended(job_id)
    (file,) = job["output"]["files"]
    assert not file["url"].startswith(provider.url), "it is in storage by then"
    assert (await system.http.get(file["url"])).content == provider.picture
    late = json.dumps(made | {"status": "failed", "error": "late"}).encode()
    for words, headers in ((done, good), (late, provider.signed("msg_late", datetime.now(UTC), late))):
        await system.http.post(made["webhook"], content=words, headers=headers)
    after = await user.job(job_id)
    assert after | {"output": None} == job | {"output": None}
    assert await user.entries(job_id) == [("hold", -2), ("capture", 0)]
    assert system.mortal.lines(job_id, "callback.ignored")


@checks("STU-8")
async def no_callback_before_the_deadline(system: SystemUnderTest) -> AsyncGenerator[None]:
    """The deadline is brought nearer by hand: it is a quarter of an hour away."""
    yield
    user = await system.mortal.user(50)
    job_id, _ = await _waiting(system, user)
    await _hasten(system, job_id)
    job = await user.ended(job_id)
    assert (job["status"], (await system.mortal.states(job_id))[-2:]) == ("expired", ["processing", "expired"])
    assert await user.entries(job_id) == [("hold", -2), ("release", 2)]


async def _hasten(system: SystemUnderTest, job_id: str) -> None:
    number = UUID(bytes=number_of(job_id))
    await system.mortal.sql(
        "update millpond.dispatches set expires_at = now(), wakes_at = now() where job_id = $1", number
    )
    await system.mortal.sql(
        "update millpond.predictions set expires_at = now(), due_at = now() where job_id = $1", number
    )


@checks("STU-9")
async def failures_are_refunded_once(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    server, user = system.mortal, await system.mortal.user(30)
    text = fresh("Words")
    system.provider.double.arranged[text] = Script(status="failed", error="CUDA out of memory", callbacks=5)
    job = await user.ended((await user.generate("tts", text=text))["job_id"])
    assert (job["status"], job["error"]) == ("failed", "CUDA out of memory")
    assert await user.entries(job["id"]) == [("hold", -2), ("release", 2)]
    (line,) = await until(lambda: asyncio.sleep(0, server.lines(job["id"], "job.failed")))
    assert line["refunded"] == 2
    job_id, _ = await _waiting(system, user)
    await asyncio.gather(*(user.send("POST", f"/api/jobs/{job_id}/cancel") for _ in range(10)))
    assert (await user.ended(job_id))["status"] == "canceled"
    assert await user.entries(job_id) == [("hold", -2), ("release", 2)]
    assert await user.balance() == 30


@checks("STU-10")
async def a_key_makes_one_job(system: SystemUnderTest) -> None:
    user, other = await system.steady.user(), await system.steady.user()
    body = BODIES["copy"] | {"idempotency_key": "the-one"}
    answers = await asyncio.gather(*(user.send("POST", "/api/generate/copy", body) for _ in range(50)))
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    job_id = answers[0].json()["job_id"]
    assert (await user.ended(job_id))["status"] == "completed"
    again = await user.send("POST", "/api/generate/copy", body)
    assert (again.json()["job_id"], again.json()["status"]) == (job_id, "completed")
    assert await user.balance() == 99
    assert (await other.generate("copy", **body))["job_id"] != job_id
    statement = (
        "insert into millpond.idempotency (tenant, scope, key, job_id, created_at)"
        " select tenant, scope, key, millpond.uuid7(), created_at from millpond.idempotency"
        " where scope = $1 and key = 'the-one'"
    )
    try:
        await system.steady.sql(statement, user.name)
    except Exception as error:  # noqa: BLE001 - whatever the driver calls it
        assert "duplicate key" in str(error)  # noqa: PT017 - which words it says is the point
    else:
        raise AssertionError("the database took the key twice")


@checks("STU-11")
async def retries(system: SystemUnderTest) -> None:
    server, user = system.steady, await system.steady.user(1)
    job = await user.ended((await user.generate("scrape", url=f"{system.shop.url}/gone"))["job_id"])
    path = f"/studio/api/admin/jobs/{job['id']}/retry"
    assert (await server.send("POST", path, key=user.key)).status_code == 403
    response = await server.order("POST", path)
    assert (response["job_id"], response["credits_cost"], response["credits_remaining"]) == (job["id"], 1, 0)
    await user.ended(job["id"])
    assert await user.entries(job["id"]) == [("hold", -1), ("release", 1)] * 2
    assert (await server.states(job["id"]))[-4:] == ["failed", "pending", "processing", "failed"]
    done = await user.made("copy")
    assert (await server.send("POST", f"/studio/api/admin/jobs/{done['id']}/retry")).status_code == 409
    before = await user.job(job["id"])
    poor = await server.send("POST", path)
    assert (poor.status_code, poor.json()["code"]) == (402, "insufficient_credits")
    assert await user.job(job["id"]) == before


@checks("STU-12")
async def transient_errors(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    provider, user = system.provider.double, await system.mortal.user()
    thrice, once, bad = fresh("Words"), fresh("Words"), fresh("Words")
    provider.refused[thrice] = deque(Refusal(500) for _ in range(3))
    provider.refused[once] = deque([Refusal(502)])
    provider.refused[bad] = deque([Refusal(422, "- input.voice: There is no such voice.")])
    jobs = [(await user.generate("tts", text=text))["job_id"] for text in (thrice, once, bad)]
    ended = [await user.ended(job_id) for job_id in jobs]
    assert [(job["status"], job["attempts"]) for job in ended] == [("failed", 3), ("completed", 2), ("failed", 1)]
    assert "There is no such voice" in ended[2]["error"]
    again = [event for event in await system.mortal.events(jobs[0]) if event["type"] == "requeued"]
    pauses = [datetime.fromisoformat(event["at"]) for event in again]
    assert (pauses[1] - pauses[0]).total_seconds() > 0.5, "with a pause between"


@checks("STU-13")
async def lines_of_the_log(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    server, user = system.mortal, await system.mortal.user()
    done = await user.made("tts")
    await user.refused("POST", f"/api/jobs/{done['id']}/cancel", status=409)
    text = fresh("Words")
    system.provider.double.arranged[text] = Script(status="failed", error="no")
    failed = await user.ended((await user.generate("tts", text=text))["job_id"])
    await until(lambda: asyncio.sleep(0, server.lines(failed["id"], "job.failed")))
    (created,) = server.lines(done["id"], "job.created")
    assert (created["type"], created["credits_cost"]) == ("tts", 2)
    transitions = [(line["from_status"], line["to_status"]) for line in server.lines(done["id"], "job.transition")]
    assert transitions == list(itertools.pairwise(["pending", "queued", "processing", "completed"]))
    (completed,) = server.lines(done["id"], "job.completed")
    assert completed["output"]
    (denied,) = server.lines(done["id"], "job.transition_denied")
    assert (denied["from_status"], denied["to_status"], bool(denied["reason"])) == ("completed", "canceled", True)
    (line,) = server.lines(failed["id"], "job.failed")
    assert (line["error"]["message"], line["refunded"]) == ("no", 2)
    assert datetime.fromisoformat(line["ts"])


@checks("STU-14")
async def jobs_and_credits(system: SystemUnderTest) -> None:
    user, other = await system.steady.user(), await system.steady.user()
    made = [(await user.generate("copy"))["job_id"] for _ in range(3)]
    assert set(await user.get(f"/api/jobs/{made[0]}")) == FIELDS
    page = await user.get("/api/jobs?limit=2")
    rest = await user.get(f"/api/jobs?limit=2&cursor={page['next_cursor']}")
    assert [job["id"] for job in (*page["data"], *rest["data"])] == made[::-1]
    film = (await user.generate("video"))["job_id"]
    assert (await user.send("POST", f"/api/jobs/{film}/cancel")).status_code == 200
    assert (await user.ended(film))["status"] == "canceled"
    await asyncio.gather(*map(user.ended, made))
    wallet = await user.get("/api/credits")
    assert (wallet["balance"], sum(entry["amount"] for entry in wallet["entries"])) == (97, 97)
    for path in (f"/api/jobs/{made[0]}", f"/api/jobs/{made[0]}/cancel"):
        await other.refused("POST" if path.endswith("cancel") else "GET", path, status=404)
