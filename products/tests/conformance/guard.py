"""The guard contract, with a receiver that answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import standardwebhooks
from products.tests.conformance.system import until
from products.tests.conformance.table import checks
from products.tests.guard.receivers import status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from products.tests.conformance.system import Customer, SystemUnderTest

WHOLE = ["processing_inbound", "awaiting_response", "processing_outbound", "delivering", "completed"]
ENDS = {"inbound_blocked", "outbound_blocked", "completed", "failed", "expired"}
SECRET = {"type": "keywords", "words": ["secret"]}
EMAIL = {"type": "pii", "labels": ["email"]}


async def came(customer: Customer, count: int) -> list[Any]:
    receiver = customer.deployment.receiver
    await until(lambda: asyncio.sleep(0, len(receiver.at(customer.name)) >= count))
    return receiver.at(customer.name)


@checks("GRD-1")
async def nine_statuses(system: SystemUnderTest) -> None:
    customer = await system.steady.customer(system.receiver)
    await customer.rule(SECRET)
    both, inbound = await customer.submit(message_output="Hi."), await customer.submit("A secret.")
    outbound, whole = await customer.submit(message_output="A secret."), await customer.submit()
    await customer.when(whole, "awaiting_response")
    await customer.respond(whole, "Hello.")
    passed = ["processing_inbound", "processing_outbound"]
    for job, states in (
        (whole, WHOLE),
        (both, [*passed, "delivering", "completed"]),
        (inbound, ["processing_inbound", "inbound_blocked"]),
        (outbound, [*passed, "outbound_blocked"]),
    ):
        await customer.when(job, states[-1])
        assert await system.steady.states(job["job_id"], customer.name) == states
    kept = await system.steady.sql("select state from millpond.lifecycle_states where lifecycle = 'guard'")
    transitions = await system.steady.sql(
        "select from_state, to_state from millpond.lifecycle_transitions where lifecycle = 'guard'"
    )
    assert len(kept) == 9
    assert {row[0] for row in kept} - {source for source, _ in transitions} == ENDS
    assert {source for source, target in transitions if target == "expired"} == {row[0] for row in kept} - ENDS


@checks("GRD-2")
async def the_secret_is_told_once(system: SystemUnderTest) -> None:
    server, customer = system.steady, await system.steady.customer(system.receiver)
    made = await customer.send(
        "POST", "/v1/jobs", {"message": "Hi", "webhook_url": customer.url(), "metadata": {"n": 1}}
    )
    job = made.json()
    assert (made.status_code, set(job)) == (202, {"job_id", "status", "created_at", "expires_at", "webhook_secret"})
    assert (await customer.when(job, "awaiting_response"))["inbound"]["text"] == "Hi", "the old name of the message"
    await came(customer, 1)
    key = job["webhook_secret"].removeprefix("whsec_")
    raw = base64.b64decode(key).hex()
    tables = await server.sql(
        "select c.relname from pg_class c where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p')"
        " and not c.relispartition"
    )
    for (table,) in tables:
        found = await server.sql(
            f"select count(*) from millpond.{table} t where strpos(t::text, $1) + strpos(t::text, $2) > 0", key, raw
        )
        assert found == [(0,)], table
    paths = ["", "/events", "/logs"]
    texts = [
        (await server.send("GET", f"/v1/jobs/{job['job_id']}{path}?tenant={customer.name}")).text for path in paths
    ]
    texts += [(await customer.send("GET", f"/v1/jobs/{job['job_id']}")).text, server.output]
    texts += [(await server.send("GET", f"/v1/{name}?tenant={customer.name}")).text for name in ("deliveries", "audit")]
    assert not [text for text in texts if key in text or raw in text]
    assert all(len(text) > 20 for text in texts)


@checks("GRD-3")
async def both_messages_at_once(system: SystemUnderTest) -> None:
    customer = await system.steady.customer(system.receiver)
    job = await customer.submit("Hi.", message_output="Hello.")
    await customer.when(job, "completed")
    assert "awaiting_response" not in await system.steady.states(job["job_id"], customer.name)
    assert [one.payload["event"] for one in await came(customer, 1)] == ["job.completed"]


@checks("GRD-4")
async def a_response(system: SystemUnderTest) -> None:
    customer = await system.steady.customer(system.receiver)
    job = await customer.submit()
    await customer.when(job, "awaiting_response")
    path = f"/v1/jobs/{job['job_id']}/response"
    first = await customer.send("POST", path, {"message_output": "Yes."})
    assert first.json()["status"] == "processing_outbound"
    await customer.when(job, "completed")
    again = await customer.send("POST", path, {"message_output": "Yes."})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    await customer.refused("POST", path, {"message_output": "No."}, status=409)
    await customer.rule(SECRET)
    blocked = await customer.submit("A secret.")
    await customer.when(blocked, "inbound_blocked")
    path = f"/v1/jobs/{blocked['job_id']}/response"
    await customer.refused("POST", path, {"message_output": "Yes."}, status=409)


@checks("GRD-5")
async def a_job_tells_verdicts_and_text(system: SystemUnderTest) -> None:
    customer = await system.steady.customer(system.receiver)
    rule = await customer.rule(EMAIL, action="redact", direction="inbound")
    job = await customer.submit("I am ann@example.com.")
    now = await customer.when(job, "awaiting_response")
    assert {name: now[name] for name in ("job_id", "created_at", "expires_at")} == {
        name: job[name] for name in ("job_id", "created_at", "expires_at")
    }
    assert now["inbound"]["text"] == "I am [EMAIL]."
    assert [verdict["rule"] for verdict in now["inbound"]["verdicts"]] == [rule["id"]]
    assert "outbound" not in now
    await customer.respond(job, "Hello, ann@example.com.")
    assert (await customer.when(job, "completed"))["outbound"]["text"] == "Hello, ann@example.com."


@checks("GRD-6")
async def expiry(system: SystemUnderTest) -> None:
    customer, down = await system.steady.customer(system.receiver), await system.steady.customer(system.receiver)
    system.receiver.answers[down.name] = lambda _: status(503, "retry-after: 3600")
    for given, lives in ((None, 3_600), (604_800, 604_800)):
        job = await customer.submit(expires_in_seconds=given)
        lived = datetime.fromisoformat(job["expires_at"]) - datetime.fromisoformat(job["created_at"])
        assert lived.total_seconds() == lives
    for wrong in (0, 604_801):
        body = {"message_input": "x", "webhook_url": customer.url(), "expires_in_seconds": wrong}
        assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == "expires_in_seconds"
    parked, described = (
        await customer.submit(expires_in_seconds=2),
        await down.submit(message_output="x", expires_in_seconds=2),
    )
    await asyncio.gather(*(customer.submit(f"One of many {n}.", expires_in_seconds=3) for n in range(60)))
    for owner, job in ((customer, parked), (down, described)):
        await owner.when(job, "expired")
        (event,) = [one for one in await system.steady.events(job["job_id"], owner.name) if one["state"] == "expired"]
        late = datetime.fromisoformat(event["at"]) - datetime.fromisoformat(job["expires_at"])
        assert 0 <= late.total_seconds() < 2
    path = f"/v1/jobs/{parked['job_id']}/response"
    await customer.refused("POST", path, {"message_output": "Late."}, status=409)


MATCHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "words": (SECRET, "Tell me the secret.", "Tell me the secretary."),
    "pattern": ({"type": "pattern", "pattern": r"\border-\d{6}\b"}, "See order-123456.", "See order-12345."),
    "e-mail": (EMAIL, "I am ann@example.com.", "I am ann at home."),
    "phone": ({"type": "pii", "labels": ["phone"]}, "Call +44 20 7946 0958.", "Call 12."),
    "IBAN": ({"type": "pii", "labels": ["iban"]}, "DE89 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),
    "card": ({"type": "pii", "labels": ["card"]}, "4111 1111 1111 1111", "4111 1111 1111 1112"),
    "IP": ({"type": "pii", "labels": ["ip"]}, "From 192.0.2.17.", "From 192.0.2.300."),
    "secrets": ({"type": "secrets"}, f"Use {'AKIA'}{'IOSFODNN7EXAMPLE'} today.", "Use a key today."),
    "domain": ({"type": "urls", "deny": ["bad.example"]}, "See https://bad.example/x", "See https://good.example/x"),
    "length": ({"type": "length", "max": 10}, "Eleven char", "Ten chars!"),
    "profanity": ({"type": "profanity"}, "What the fuck.", "I live in Scunthorpe."),
    "back-tracking": ({"type": "pattern", "pattern": "(a+)+$"}, "a" * 50_000, "a" * 50_000 + "!"),
}


@checks("GRD-7")
async def rules(system: SystemUnderTest) -> None:
    customer, stranger = [await system.steady.customer(system.receiver) for _ in range(2)]
    first = await customer.rule({"type": "keywords", "words": ["question"]}, direction="inbound", action="redact")
    second = await customer.rule({"type": "keywords", "words": ["answer"]}, direction="outbound", action="redact")
    third = await customer.rule({"type": "keywords", "words": ["word"]}, direction="both", action="flag")
    text = "A question, an answer, a word."
    response = await customer.when(await customer.submit(text, message_output=text), "completed")
    assert response["inbound"]["text"] == "A [KEYWORD], an answer, a word."
    assert response["outbound"]["text"] == "A question, an [KEYWORD], a word."
    order = [third["id"], first["id"], second["id"]]
    await customer.operate("POST", "/v1/rules/reorder", {"ids": order})
    assert [rule["id"] for rule in (await customer.operate("GET", "/v1/rules"))["data"]] == order
    changed = await customer.operate("PATCH", f"/v1/rules/{third['id']}", {"action": "block"})
    assert changed["action"] == "block"
    await customer.operate("DELETE", f"/v1/rules/{first['id']}")
    assert len((await customer.operate("GET", "/v1/rules"))["data"]) == 2
    assert (await stranger.operate("GET", "/v1/rules"))["data"] == []
    for what, (matcher, found, clean) in MATCHERS.items():
        tried = [{"name": what, "matcher": matcher}]
        for sample, outcome in ((found, "blocked"), (clean, "passed")):
            body = {"text": sample, "direction": "inbound", "rules": tried}
            assert (await stranger.operate("POST", "/v1/rules/dry-run", body))["outcome"] == outcome, what
    body = {"name": "x", "matcher": {"type": "classifier", "name": "nobody"}}
    refused = await stranger.refused("POST", "/v1/rules", body, status=422, key=stranger.admin_key)
    assert refused["field"].startswith("matcher"), "the kind of rule is known, and this one is not installed"


@checks("GRD-8")
async def webhooks(system: SystemUnderTest) -> None:
    customer, other = await system.steady.customer(system.receiver), await system.steady.customer(system.receiver)
    left = [503]
    system.receiver.answers[customer.name] = lambda _: status(left.pop() if left else 204)
    job, stranger = await customer.submit(metadata={"n": 7}), await other.submit()
    await customer.when(job, "awaiting_response")
    await customer.respond(job, "Hello!")
    await until(lambda: _sent_soon(system, customer.name, lambda: len(system.receiver.at(customer.name)) >= 3))
    await customer.when(job, "completed")
    seen = system.receiver.at(customer.name)
    assert [one.payload["event"] for one in seen] == ["job.inbound_completed"] * 2 + ["job.completed"], "in order"
    assert seen[0].id == seen[1].id != seen[2].id, "sent again, it keeps its id"
    for one in seen:
        assert set(one.payload) == {"job_id", "event", "status", "created_at", "data"}
        assert one.headers["webhook-signature"].startswith("v1,")
        standardwebhooks.Webhook(job["webhook_secret"]).verify(one.body.decode(), one.headers)
        with pytest.raises(standardwebhooks.webhooks.WebhookVerificationError):
            standardwebhooks.Webhook(stranger["webhook_secret"]).verify(one.body.decode(), one.headers)
    await other.rule(SECRET)
    await other.submit("A secret.")
    await other.submit(expires_in_seconds=1)
    await until(lambda: asyncio.sleep(0, {"job.blocked", "job.expired"} <= set(system.receiver.events(other.name))))


@checks("GRD-9")
async def webhooks_are_tried_again(system: SystemUnderTest) -> None:
    """The pauses between tries are cut short by hand, but for those that a receiver asks for."""
    absent, gone = await system.steady.customer(system.receiver), await system.steady.customer(system.receiver)
    answers = [status(503), status(429, "retry-after: 2")]
    at: list[float] = []

    def answer(_: Any) -> bytes:
        at.append(asyncio.get_running_loop().time())
        return answers.pop(0) if answers else status(204)

    system.receiver.answers[absent.name] = answer
    system.receiver.answers[gone.name] = lambda _: status(500)
    job, lost = await absent.submit(), await gone.submit(message_output="x")
    await until(lambda: asyncio.sleep(0, len(at) >= 1))
    statement = "select due_at - now() from millpond.deliveries where tenant = $1 and not is_out and tries = 1"
    ((due,),) = await until(lambda: system.steady.sql(statement, absent.name))
    assert due.total_seconds() <= 7.5, "a pause, which grows"
    await until(lambda: _sent_soon(system, absent.name, lambda: len(at) >= 2))
    await absent.when(job, "awaiting_response")
    await absent.respond(job, "Hello!")
    await until(lambda: asyncio.sleep(0, len(at) >= 3))
    assert at[2] - at[1] >= 1.9, "as long as it was asked to wait"
    await absent.when(job, "completed")
    events = system.receiver.events(absent.name)
    assert events == ["job.inbound_completed"] * 3 + ["job.completed"]

    async def is_failed() -> bool:
        return (await gone.read(lost))["status"] == "failed"

    async def is_given_up() -> bool:
        return await _sent_soon(system, gone.name, lambda: False) or await is_failed()

    await until(is_given_up)
    assert set(system.receiver.events(gone.name)) == {"job.completed"}
    assert len(system.receiver.at(gone.name)) >= 5


async def _sent_soon(system: SystemUnderTest, tenant: str, is_done: Any) -> bool:
    await system.steady.sql(
        "update millpond.deliveries set due_at = now() where tenant = $1 and not is_out and due_at > now()", tenant
    )
    return is_done()


@checks("GRD-10")
async def queues(system: SystemUnderTest) -> None:
    path = "/guard/api/v1/health/queues"
    server, client = system.steady, await system.steady.key("client", "queues", "one")
    assert (await system.http.get(f"{server.url}{path}")).status_code == 401
    await server.order("POST", "/v1/queues/hello/pause")
    try:
        made = await server.send("POST", "/v1/jobs", {"kind": "hello", "input": {}}, key=server.up.ready["client_key"])
        assert made.status_code == 202

        async def look() -> dict[str, Any] | None:
            (found,) = [one for one in (await server.order("GET", path))["queues"] if one["queue"] == "hello"]
            return found if found["depth"] else None

        found = await until(look)
    finally:
        await server.order("POST", "/v1/queues/hello/resume")
    figures = {"queue", "depth", "oldest_age_seconds", "in_flight", "verdict"}
    figures |= {f"rate_{way}_{span}m" for way in ("in", "out") for span in (1, 5)}
    assert figures <= set(found)
    assert (found["depth"], found["verdict"]) == (1, "stalled")
    assert found["rate_in_1m"] > 0
    (own,) = (await server.send("GET", path, key=client)).json()["queues"]
    assert (own["queue"], own["verdict"]) == ("guard", "ok")


INSIDE = [
    "http://127.0.0.1:1/",
    "http://localhost:1/",
    "http://2130706433/",
    "http://10.1.2.3/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "file:///etc/passwd",
]


@checks("GRD-11")
async def urls_that_lead_inside(system: SystemUnderTest) -> AsyncGenerator[None]:
    """What an address is may change: a port that was open when the job was made is closed when its webhook is sent."""
    mortal = await system.mortal.customer(system.closed_later)
    system.closed_later.answers[mortal.name] = lambda _: status(503, "retry-after: 3600")
    job = await mortal.submit(message_output="x")
    assert await came(mortal, 1), "what is opened for development is reached"
    yield
    customer = await system.steady.customer(system.receiver)
    for url in INSIDE:
        body = {"message_input": "x", "webhook_url": url}
        assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == "webhook_url"
    system.receiver.answers[customer.name] = lambda _: status(307, f"location: {system.receiver.url('elsewhere')}")
    await customer.submit(message_output="x")
    await came(customer, 1)
    assert system.receiver.at("elsewhere") == [], "no redirect is followed"
    system.closed_later.answers.clear()
    again = await system.mortal.sql("select tries from millpond.deliveries where tenant = $1", mortal.name)

    async def is_tried() -> bool:
        await system.mortal.sql(
            "update millpond.deliveries set due_at = now() where tenant = $1 and not is_out and due_at > now()",
            mortal.name,
        )
        found = await system.mortal.sql("select tries from millpond.deliveries where tenant = $1", mortal.name)
        return found[0][0] > again[0][0] + 1

    await until(is_tried)
    assert len(system.closed_later.at(mortal.name)) == 1
    mortal.deployment.http = (await system.mortal.customer(system.receiver)).deployment.http
    assert (await mortal.read(job))["status"] in ("delivering", "failed")
    body = {"message_input": "x", "webhook_url": mortal.url()}
    assert (await mortal.refused("POST", "/v1/jobs", body, status=422))["field"] == "webhook_url"


@checks("GRD-12")
async def texts_that_are_none(system: SystemUnderTest) -> None:
    customer = await system.steady.customer(system.receiver)
    job = await customer.submit()
    await customer.when(job, "awaiting_response")
    large = b'"' + b"x" * (1024 * 1024 + 1) + b'"'
    bad = {"empty": b'""', "NUL": b'"a\\u0000b"', "not UTF-8": b'"caf\xe9"', "over 1 MiB": large}
    url = customer.url().encode()
    for what, text in bad.items():
        for path, field, body in (
            ("/v1/jobs", "message_input", b'{"message_input": %s, "webhook_url": "%s"}' % (text, url)),
            ("/v1/jobs", "message", b'{"message": %s, "webhook_url": "%s"}' % (text, url)),
            (
                "/v1/jobs",
                "message_output",
                b'{"message_input": "x", "message_output": %s, "webhook_url": "%s"}' % (text, url),
            ),
            (f"/v1/jobs/{job['job_id']}/response", "message_output", b'{"message_output": %s}' % text),
        ):
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {customer.key}"}
            answer = await customer.deployment.http.post(path, content=body, headers=headers)
            assert re.fullmatch("4..", str(answer.status_code)), what
            assert answer.json()["field"] == field, what
    whole = await customer.submit("x" * 1024 * 1024, message_output="ok")
    await customer.when(whole, "completed")
