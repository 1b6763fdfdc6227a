"""Messages through the contract: GRD-1 to 6 and 12, over HTTP, with a worker, a courier and a receiver."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from products.tests.guard.deployments import running_deployment
from products.tests.guard.receivers import status

from millpond import logs
from millpond.engine.verify import verify
from millpond.lifecycle import OUTCOMES
from millpond_products.guard.kinds import GUARD, KIND, TEXT_MAX
from tests.checks import snapshot, until
from tests.clocks import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from products.tests.guard.deployments import Customer, Deployment

WHOLE = ["processing_inbound", "awaiting_response", "processing_outbound", "delivering", "completed"]
SECRET = {"type": "keywords", "words": ["secret"]}
EMAIL = {"type": "pii", "labels": ["email"]}
LATE = timedelta(seconds=10)
"""A job expires within a second or two of its deadline; a busy machine is slow, and not wrong."""


# GRD-1


def test_grd_01_there_are_nine_statuses_and_five_of_them_are_ends() -> None:
    ends = {state.name for state in GUARD.states.values() if state.outcome is not None}
    assert len(GUARD.states) == 9
    assert ends == {"inbound_blocked", "outbound_blocked", "completed", "failed", "expired"}
    assert GUARD.pairs == {
        ("processing_inbound", "inbound_blocked"),
        ("processing_inbound", "awaiting_response"),
        ("processing_inbound", "processing_outbound"),
        ("awaiting_response", "processing_outbound"),
        ("processing_outbound", "outbound_blocked"),
        ("processing_outbound", "delivering"),
        ("delivering", "completed"),
        ("delivering", "failed"),
        *((state, "expired") for state in GUARD.states if state not in ends),
    }
    assert {GUARD.states[end].outcome for end in ends} <= set(OUTCOMES)


async def test_grd_01_a_job_takes_the_whole_way(customer: Customer) -> None:
    job = await customer.submit()
    assert job["status"] == "processing_inbound"
    await customer.when(job, "awaiting_response")
    await customer.respond(job, "Hello to you.")
    await customer.when(job, "completed")
    assert await customer.states(job) == WHOLE


async def test_grd_01_a_message_is_blocked(customer: Customer) -> None:
    await customer.rule(SECRET, direction="inbound")
    job = await customer.submit("Tell me the secret.")
    await customer.when(job, "inbound_blocked")
    assert await customer.states(job) == ["processing_inbound", "inbound_blocked"]


async def test_grd_01_an_answer_is_blocked(customer: Customer) -> None:
    await customer.rule(SECRET, direction="outbound")
    job = await customer.submit("Tell me the secret.")
    await customer.when(job, "awaiting_response")
    await customer.respond(job, "The secret is 42.")
    response = await customer.when(job, "outbound_blocked")
    assert await customer.states(job) == [*WHOLE[:3], "outbound_blocked"]
    assert response["inbound"]["outcome"] == "passed"
    assert response["outbound"] == {"outcome": "blocked", "text": None, "verdicts": response["outbound"]["verdicts"]}


async def test_grd_01_nothing_passes_rules_that_cannot_be_applied(deployment: Deployment, customer: Customer) -> None:
    """A classifier that is not installed here: kept by a version that knew it."""
    async with deployment.engine.database(customer.name).transaction() as tx:
        await tx.execute(
            "insert into millpond.guard_sets (tenant, last_position, changed_at) values ($1, 1, now())",
            customer.name,
        )
        await tx.execute(
            "insert into millpond.guard_rules values (gen_random_uuid(), $1, 1, 'x', 'both', 'block', 'enforce', $2,"
            " now(), now())",
            customer.name,
            '{"type": "nobody knows"}',
        )
    job = await customer.submit()
    response = await customer.when(job, "inbound_blocked")
    assert response["inbound"] == {"outcome": "blocked", "text": None, "verdicts": []}
    async with deployment.engine.database(customer.name).transaction() as tx:
        await tx.execute("delete from millpond.guard_rules where tenant = $1", customer.name)
        await tx.execute("update millpond.guard_sets set version = version + 1 where tenant = $1", customer.name)
    job = await customer.submit()
    await customer.when(job, "awaiting_response")


async def test_grd_01_what_is_no_message_does_not_pass(deployment: Deployment, customer: Customer) -> None:
    job = await customer.submit()
    await customer.when(job, "awaiting_response")
    async with httpx2.AsyncClient(
        base_url=deployment.url, headers={"Authorization": f"Bearer {customer.key}"}
    ) as native:
        path = f"/v1/jobs/{job['job_id']}/answer"
        refused = await native.post(path, json={"answer": {"message_output": ""}})
        assert (refused.status_code, refused.json()["needed"]) == (403, "operator")
        operator = {"Authorization": f"Bearer {await deployment.key(scope='operator', tenant=customer.name)}"}
        answer = await native.post(path, json={"answer": {}}, headers=operator)
        assert answer.status_code == 200, answer.text
        await customer.when(job, "outbound_blocked")
        closed = await native.post("/v1/jobs", json={"kind": "guard", "input": {"message_input": "Hi"}})
        assert closed.status_code == 403


# GRD-2


async def test_grd_02_a_job_is_accepted_with_its_secret(customer: Customer) -> None:
    answer = await customer.send("POST", "/v1/jobs", {"message_input": "Hi", "webhook_url": customer.url()})
    assert answer.status_code == 202
    job = answer.json()
    assert set(job) == {"job_id", "status", "created_at", "expires_at", "webhook_secret"}
    assert job["webhook_secret"].startswith("whsec_")
    assert job["job_id"].startswith("job_")
    assert answer.headers["location"].endswith(f"/v1/jobs/{job['job_id']}")
    assert answer.headers["cache-control"] == "no-store"


async def test_grd_02_the_old_name_of_the_message_is_understood(customer: Customer) -> None:
    job = await customer.post("/v1/jobs", {"message": "Hi", "webhook_url": customer.url()})
    assert (await customer.when(job, "awaiting_response"))["inbound"]["text"] == "Hi"
    both = {"message": "Hi", "message_input": "Hi", "webhook_url": customer.url()}
    assert (await customer.refused("POST", "/v1/jobs", both, status=422))["field"] == "message"


async def test_grd_02_metadata_comes_back(customer: Customer) -> None:
    job = await customer.submit(metadata={"order": 7, "tags": ["a"]})
    assert (await customer.when(job, "awaiting_response"))["metadata"] == {"order": 7, "tags": ["a"]}
    (came,) = await customer.deployment.receiver.wait(customer.name, 1)
    assert came.payload["data"]["metadata"] == {"order": 7, "tags": ["a"]}


async def test_grd_02_the_secret_is_shown_once_and_kept_nowhere_in_the_clear(
    deployment: Deployment, customer: Customer
) -> None:
    lines = io.StringIO()
    logs.configure("debug", as_json=True, stream=lines)
    try:
        job = await customer.submit("Hello!")
        secret = job["webhook_secret"]
        await customer.when(job, "awaiting_response")
        await customer.respond(job, "Hello to you.")
        await customer.when(job, "completed")
        response = [json.dumps(await customer.get(f"/v1/jobs/{job['job_id']}"))]
        async with httpx2.AsyncClient(base_url=deployment.url) as native:
            for key in (customer.key, customer.admin_key):
                for path in (
                    f"/v1/jobs/{job['job_id']}",
                    f"/v1/jobs/{job['job_id']}/events",
                    f"/v1/jobs/{job['job_id']}/logs",
                    "/v1/jobs",
                    "/v1/deliveries",
                    "/v1/endpoints",
                    "/v1/audit",
                    "/openapi.json",
                ):
                    answer = await native.get(path, headers={"Authorization": f"Bearer {key}"})
                    assert answer.status_code in (200, 403), (path, answer.text)
                    response.append(answer.text)
        response += [row for rows in (await snapshot(deployment.engine.db)).values() for row in rows]
        response += [
            lines.getvalue(),
            *(came.body.decode() + str(came.headers) for came in deployment.receiver.at(customer.name)),
        ]
    finally:
        logs.silence()
    assert "job.completed" in lines.getvalue()
    assert len(response) > 50
    key = secret.removeprefix("whsec_")
    raw = base64.b64decode(key).hex()
    assert not [text for text in response if secret in text or key in text or raw in text]


async def test_grd_02_the_same_request_with_a_key_gets_the_same_answer(customer: Customer) -> None:
    body = {"message_input": "Hi", "webhook_url": customer.url(), "metadata": {"a": 1, "b": 2}}
    headers = {"Idempotency-Key": "order-7"}
    first = await customer.send("POST", "/v1/jobs", body, headers=headers)
    await customer.when(first.json(), "awaiting_response")
    again = await customer.send("POST", "/v1/jobs", body | {"metadata": {"b": 2, "a": 1}}, headers=headers)
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    other = await customer.refused("POST", "/v1/jobs", body | {"message_input": "Ho"}, status=409, headers=headers)
    assert other["code"] == "idempotency_conflict"


# GRD-3


async def test_grd_03_both_messages_never_wait_for_a_response(customer: Customer) -> None:
    await customer.rule(EMAIL, action="redact")
    job = await customer.submit("I am ann@example.com.", message_output="Hello, bob@example.com!")
    response = await customer.when(job, "completed")
    assert await customer.states(job) == ["processing_inbound", "processing_outbound", "delivering", "completed"]
    assert response["inbound"]["text"] == "I am [EMAIL]."
    assert response["outbound"]["text"] == "Hello, [EMAIL]!"
    assert customer.deployment.receiver.events(customer.name) == ["job.completed"]
    (came,) = customer.deployment.receiver.at(customer.name)
    assert came.payload["data"] == {"inbound": response["inbound"], "outbound": response["outbound"]}
    late = await customer.refused(
        "POST", f"/v1/jobs/{job['job_id']}/response", {"message_output": "Hello, bob@example.com!"}, status=409
    )
    assert late["code"] == "answer_unavailable"


async def test_grd_03_either_message_can_block_both(customer: Customer) -> None:
    await customer.rule(SECRET)
    first = await customer.submit("The secret?", message_output="No.")
    second = await customer.submit("Well?", message_output="A secret.")
    assert await customer.when(first, "inbound_blocked")
    assert await customer.when(second, "outbound_blocked")
    assert await customer.states(second) == ["processing_inbound", "processing_outbound", "outbound_blocked"]


# GRD-4


async def test_grd_04_a_response_moves_a_job_on_and_can_be_sent_again(customer: Customer) -> None:
    job = await customer.submit()
    path = f"/v1/jobs/{job['job_id']}/response"
    await customer.when(job, "awaiting_response")
    first = await customer.send("POST", path, {"message_output": "Yes."})
    assert (first.status_code, first.json()["status"]) == (202, "processing_outbound")
    again = await customer.send("POST", path, {"message_output": "Yes."})
    assert (again.status_code, again.content) == (202, first.content)
    await customer.when(job, "completed")
    late = await customer.send("POST", path, {"message_output": "Yes."})
    assert (late.status_code, late.content) == (202, first.content)
    other = await customer.refused("POST", path, {"message_output": "No."}, status=409)
    assert (other["code"], other["state"]) == ("answer_unavailable", "completed")


async def test_grd_04_a_response_in_another_status_is_refused(deployment: Deployment, customer: Customer) -> None:
    await customer.rule(SECRET)
    blocked = await customer.submit("A secret.")
    await customer.when(blocked, "inbound_blocked")
    path = f"/v1/jobs/{blocked['job_id']}/response"
    assert (await customer.refused("POST", path, {"message_output": "Hm."}, status=409))["state"] == "inbound_blocked"
    await deployment.engine.pause(KIND.queue)
    try:
        early = await customer.submit()
        path = f"/v1/jobs/{early['job_id']}/response"
        assert (await customer.refused("POST", path, {"message_output": "Hm."}, status=409))["state"] == early["status"]
    finally:
        await deployment.engine.resume(KIND.queue)
    await customer.when(early, "awaiting_response")


async def test_grd_04_many_responses_at_once_have_one_effect(customer: Customer) -> None:
    job = await customer.submit()
    await customer.when(job, "awaiting_response")
    path = f"/v1/jobs/{job['job_id']}/response"
    answers = await asyncio.gather(
        *(customer.send("POST", path, {"message_output": f"Answer {n % 4}."}) for n in range(16))
    )
    taken = {n % 4 for n, answer in enumerate(answers) if answer.status_code == 202}
    assert len(taken) == 1
    assert sorted(answer.status_code for answer in answers) == [202] * 4 + [409] * 12
    response = await customer.when(job, "completed")
    assert response["outbound"]["text"] == f"Answer {taken.pop()}."
    assert customer.deployment.receiver.events(customer.name) == ["job.inbound_completed", "job.completed"]


# GRD-5


async def test_grd_05_a_job_reports_what_the_rules_have_found(deployment: Deployment, customer: Customer) -> None:
    rule = await customer.rule(EMAIL, name="No mail", action="redact", direction="inbound")
    await deployment.engine.pause(KIND.queue)
    job = await customer.submit("I am ann@example.com.")
    response = await customer.read(job)
    assert response == {name: job[name] for name in ("job_id", "status", "created_at", "expires_at")}
    await deployment.engine.resume(KIND.queue)
    response = await customer.when(job, "awaiting_response")
    (verdict,) = response["inbound"]["verdicts"]
    assert response["inbound"]["text"] == "I am [EMAIL]."
    assert (verdict["rule"], verdict["name"], verdict["action"]) == (rule["id"], "No mail", "redact")
    assert (verdict["start"], verdict["end"]) == (5, 20)
    assert "outbound" not in response
    await customer.respond(job, "ann@example.com is welcome.")
    response = await customer.when(job, "completed")
    assert response["outbound"] == {"outcome": "passed", "text": "ann@example.com is welcome.", "verdicts": []}


async def test_grd_05_a_job_is_its_owners(deployment: Deployment, customer: Customer) -> None:
    job = await customer.submit()
    stranger = await deployment.customer()
    path = f"/v1/jobs/{job['job_id']}"
    await stranger.refused("GET", path, status=404)
    await stranger.refused("POST", f"{path}/response", {"message_output": "x"}, status=404)
    await stranger.refused("GET", "/v1/jobs/job_nothing", status=404)
    neighbour = await deployment.key(scope="client", tenant=customer.name, account="bob")
    await customer.refused("GET", path, status=404, key=neighbour)
    await customer.refused("GET", path, status=401, key="mp_client_nobody")
    operator = await deployment.key(scope="admin")
    assert (await customer.get(f"{path}?tenant={customer.name}", key=operator))["job_id"] == job["job_id"]
    await deployment.engine.grant(customer.name, "free", 5)
    gated = await deployment.engine.submit("gated", {"text": "x"}, tenant=customer.name, account="free")
    await customer.refused("GET", f"/v1/jobs/{gated.job_id}", status=404, key=customer.admin_key)


# GRD-6


async def test_grd_06_a_job_lives_an_hour_unless_it_is_set_otherwise(customer: Customer) -> None:
    for given, lives in ((None, 3_600), (1, 1), (604_800, 604_800)):
        body = {"message_input": "Hello!", "webhook_url": customer.url(), "expires_in_seconds": given}
        job = await customer.post("/v1/jobs", body)
        assert _time(job["expires_at"]) - _time(job["created_at"]) == timedelta(seconds=lives)
    for wrong in (0, -1, 604_801, 10**9, 1.5, "60", True):
        body = {"message_input": "x", "webhook_url": customer.url(), "expires_in_seconds": wrong}
        assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == "expires_in_seconds"


async def test_grd_06_a_job_expires_from_every_status_in_time_under_load(dsn: str) -> None:
    """The clock is turned to the deadline when each is where it should be: how long that takes proves nothing."""
    async with running_deployment(dsn) as deployment:
        clock, lives = Clock(deployment.engine.db), timedelta(minutes=30)
        customer, down = await deployment.customer(), await deployment.customer()
        deployment.receiver.answers[down.name] = lambda _: status(503, "retry-after: 3600")
        texts = [f"One of many, {n}." for n in range(200)]
        crowd = await asyncio.gather(*(customer.submit(text, expires_in_seconds=1800) for text in texts))
        parked = await customer.submit(expires_in_seconds=1800)
        answered = await customer.submit(expires_in_seconds=1800)
        delivering = await down.submit(message_output="Hello to you.", expires_in_seconds=1800)
        await customer.when(parked, "awaiting_response")
        await customer.when(answered, "awaiting_response")
        await down.when(delivering, "delivering")
        await deployment.engine.pause(KIND.queue)
        new = await customer.submit(expires_in_seconds=1800)
        await customer.respond(answered, "Hello to you.")
        assert (await customer.read(new))["status"] == "processing_inbound"
        assert (await customer.read(answered))["status"] == "processing_outbound"
        await clock.advance(lives)
        due = await clock.now()
        for job in (new, answered, parked, *crowd):
            await customer.when(job, "expired")
        await down.when(delivering, "expired")
        for owner, job in ((customer, new), (customer, answered), (customer, parked), (down, delivering)):
            record = await deployment.engine.read(owner.name, job["job_id"])
            assert record.finished_at is not None
            assert record.expires_at is not None
            assert record.expires_at <= record.finished_at < due + LATE
        path = f"/v1/jobs/{parked['job_id']}/response"
        assert (await customer.refused("POST", path, {"message_output": "Late."}, status=409))["state"] == "expired"
        assert (await customer.respond(answered, "Hello to you."))["status"] == "processing_outbound"  # as before
        assert (await customer.read(answered))["status"] == "expired"
        assert await verify(deployment.engine.db) == []


async def test_grd_06_expiry_is_reported(deployment: Deployment, customer: Customer) -> None:
    job = await customer.submit(expires_in_seconds=1)
    came = await deployment.receiver.wait(customer.name, 2)
    assert [one.payload["event"] for one in came] == ["job.inbound_completed", "job.expired"]
    assert came[1].verified(job["webhook_secret"])["status"] == "expired"
    await customer.when(job, "expired")


# GRD-12


LARGE: dict[str, Callable[[int], str]] = {"letters": lambda n: "x" * n, "three bytes each": lambda n: "語" * (n // 3)}


@pytest.mark.parametrize("what", LARGE)
async def test_grd_12_a_mebibyte_is_taken_and_not_a_byte_more(customer: Customer, what: str) -> None:
    whole, more = LARGE[what](TEXT_MAX), LARGE[what](TEXT_MAX + 3)
    job = await customer.submit(whole)
    await customer.deployment.receiver.wait(customer.name, 1)
    assert (await customer.when(job, "awaiting_response"))["inbound"]["text"] == whole
    path = f"/v1/jobs/{job['job_id']}/response"
    for refused, text, field in (
        ("/v1/jobs", {"message_input": more}, "message_input"),
        ("/v1/jobs", {"message": more}, "message"),
        ("/v1/jobs", {"message_input": "x", "message_output": more}, "message_output"),
    ):
        body = text | {"webhook_url": customer.url()}
        assert (await customer.refused("POST", refused, body, status=422))["field"] == field
    assert (await customer.refused("POST", path, {"message_output": more}, status=422))["field"] == "message_output"
    await customer.respond(job, whole)
    came = await customer.deployment.receiver.wait(customer.name, 2)
    assert (await customer.when(job, "completed"))["outbound"]["text"] == whole
    assert came[1].payload["data"]["outbound"]["text"] == whole


async def test_grd_12_both_messages_may_be_as_long_as_they_can(customer: Customer) -> None:
    text = "\x01" * TEXT_MAX  # which JSON writes with six letters
    job = await customer.submit(text, message_output=text)
    await customer.deployment.receiver.wait(customer.name, 1)
    response = await customer.when(job, "completed")
    assert (response["inbound"]["text"], response["outbound"]["text"]) == (text, text)


BAD: dict[str, tuple[bytes, int]] = {
    "empty": (b'""', 422),
    "not UTF-8": (b'"caf\xe9"', 400),
    "a part of a character": (b'"\xf0\x9f\x98"', 400),
    "NUL": (b'"a\\u0000b"', 422),
    "NUL as it is": (b'"a\x00b"', 400),
    "half a pair": (b'"\\ud83d"', 400),
    "a number": (b"5", 422),
    "a list": (b'["x"]', 422),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("field", ["message_input", "message", "message_output"])
async def test_grd_12_a_text_that_is_none_is_refused_by_its_field(customer: Customer, field: str, what: str) -> None:
    text, code = BAD[what]
    url = customer.url().encode()
    first = b"" if field != "message_output" else b'"message_input": "x", '
    body = b'{%s"%s": %s, "webhook_url": "%s"}' % (first, field.encode(), text, url)
    assert await _refused(customer, "/v1/jobs", body) == (code, field)


async def test_grd_12_a_response_that_is_no_text_is_refused_by_its_field(customer: Customer) -> None:
    job = await customer.submit()
    await customer.when(job, "awaiting_response")
    for text, code in (*BAD.values(), (b"null", 422)):
        path = f"/v1/jobs/{job['job_id']}/response"
        assert await _refused(customer, path, b'{"message_output": %s}' % text) == (code, "message_output")
    assert await _refused(customer, f"/v1/jobs/{job['job_id']}/response", b"{}") == (422, "message_output")
    assert (await customer.read(job))["status"] == "awaiting_response"


async def test_grd_12_what_else_is_wrong_is_reported_by_its_field(customer: Customer) -> None:
    url = customer.url()
    for body, field in (
        ({"webhook_url": url}, "message_input"),
        ({"message_input": "x"}, "webhook_url"),
        ({"message_input": "x", "webhook_url": url, "metadata": []}, "metadata"),
        ({"message_input": "x", "webhook_url": url, "metadata": {"a": "x" * 20_000}}, "metadata"),
        ({"message_input": "x", "webhook_url": url, "colour": "red"}, "colour"),
    ):
        assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == field
    much = await customer.send("POST", "/v1/jobs", {"message_input": "x" * (17 * TEXT_MAX), "webhook_url": url})
    assert (much.status_code, much.json()["code"]) == (413, "too_large")


async def _refused(customer: Customer, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {customer.key}"}
    answer = await customer.deployment.http.post(path, content=body, headers=headers)
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json().get("field")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


async def test_every_job_of_the_module_comes_to_an_end(deployment: Deployment) -> None:
    """What waits for a response goes when it expires; nothing else may be left."""

    async def is_quiet() -> bool:
        async with deployment.engine.db.transaction() as tx:
            return not await tx.fetchval("select count(*) from millpond.dispatches where phase <> 'parked'")

    await until(is_quiet)
