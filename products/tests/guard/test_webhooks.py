"""Webhooks of the contract: GRD-8, 9 and 11, with a real courier and a real receiver."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import standardwebhooks
import svix.webhooks
from products.tests.guard.deployments import running_deployment
from products.tests.guard.receivers import status

from millpond.errors import WebhookInvalidError
from millpond.outbound import Outbound
from millpond_products.guard.kinds import EXPIRES_IN, KIND
from tests.checks import until
from tests.clocks import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from products.tests.guard.deployments import Customer, Deployment

    from tests.databases import DatabaseServer

SECRET = {"type": "keywords", "words": ["secret"]}


@pytest.fixture(scope="module", autouse=True)
async def _no_webhook_goes_where_it_should_not(deployment: Deployment) -> AsyncIterator[None]:
    """Whatever these tests do, and in whatever order."""

    async def is_quiet() -> bool:
        async with deployment.engine.db.transaction() as tx:
            return not await tx.fetchval("select count(*) from millpond.dispatches where phase <> 'parked'")

    yield
    await until(is_quiet)
    assert {one.path.split("-")[0] for one in deployment.receiver.came} <= {"/tenant"}


# GRD-8


async def test_grd_08_webhooks_report_a_whole_job_in_order(deployment: Deployment, customer: Customer) -> None:
    await customer.rule({"type": "pii", "labels": ["email"]}, action="redact")
    job = await customer.submit("I am ann@example.com.")
    (first,) = await deployment.receiver.wait(customer.name, 1)
    response = await customer.when(job, "awaiting_response")
    assert first.payload == {
        "job_id": job["job_id"],
        "event": "job.inbound_completed",
        "status": "awaiting_response",
        "created_at": job["created_at"],
        "data": {"inbound": response["inbound"]},
    }
    assert first.payload["data"]["inbound"]["text"] == "I am [EMAIL]."
    await customer.respond(job, "Hello!")
    _, second = await deployment.receiver.wait(customer.name, 2)
    response = await customer.when(job, "completed")
    assert second.payload == {
        "job_id": job["job_id"],
        "event": "job.completed",
        "status": "completed",
        "created_at": job["created_at"],
        "data": {"inbound": response["inbound"], "outbound": response["outbound"]},
    }


async def test_grd_08_webhooks_report_what_is_blocked(deployment: Deployment, customer: Customer) -> None:
    await customer.rule(SECRET)
    inbound = await customer.submit("A secret.")
    (first,) = await deployment.receiver.wait(customer.name, 1)
    assert (first.payload["event"], first.payload["status"]) == ("job.blocked", "inbound_blocked")
    assert first.payload["data"]["inbound"]["verdicts"][0]["action"] == "block"
    assert first.payload["data"]["inbound"]["text"] is None
    outbound = await customer.submit("Well?", message_output="A secret.")
    _, second = await deployment.receiver.wait(customer.name, 2)
    assert (second.payload["event"], second.payload["status"]) == ("job.blocked", "outbound_blocked")
    assert second.payload["data"]["inbound"]["outcome"] == "passed"
    assert second.payload["data"]["outbound"]["outcome"] == "blocked"
    assert first.verified(inbound["webhook_secret"])
    assert second.verified(outbound["webhook_secret"])


async def test_grd_08_webhooks_are_signed_with_the_secret_of_their_job(
    deployment: Deployment, customer: Customer
) -> None:
    job, other = await customer.submit(), await customer.submit()
    came = await deployment.receiver.wait(customer.name, 2)
    (own,) = [one for one in came if one.payload["job_id"] == job["job_id"]]
    assert own.headers["webhook-signature"].startswith("v1,")
    assert own.headers["content-type"] == "application/json"
    text = own.body.decode()
    for library, refusal in (
        (svix.webhooks.Webhook, svix.webhooks.WebhookVerificationError),
        (standardwebhooks.Webhook, standardwebhooks.webhooks.WebhookVerificationError),
    ):
        library(job["webhook_secret"]).verify(text, own.headers)
        with pytest.raises(refusal):
            library(other["webhook_secret"]).verify(text, own.headers)
        with pytest.raises(refusal):
            library(job["webhook_secret"]).verify(text.replace("Hello", "Hallo"), own.headers)
    assert own.verified(job["webhook_secret"]) == own.payload
    with pytest.raises(WebhookInvalidError):
        own.verified(other["webhook_secret"])


async def test_grd_08_a_webhook_that_is_sent_again_keeps_its_id(deployment: Deployment, customer: Customer) -> None:
    left = [503, 429, 204]
    deployment.receiver.answers[customer.name] = lambda _: status(left.pop(0)) if left else status(204)
    job = await customer.submit()
    came = await deployment.receiver.wait(customer.name, 3)
    assert {one.id for one in came[:3]} == {came[0].id}
    assert len({one.body for one in came[:3]}) == 1
    await customer.respond(job, "Hello!")
    await customer.when(job, "completed")
    last = deployment.receiver.at(customer.name)[-1]
    assert last.payload["event"] == "job.completed"
    assert last.id != came[0].id


# GRD-9


async def test_grd_09_webhooks_wait_as_long_as_they_are_asked_to(deployment: Deployment, customer: Customer) -> None:
    left = [status(429, "retry-after: 2"), status(204)]
    deployment.receiver.answers[customer.name] = lambda _: left.pop(0) if left else status(204)
    job = await customer.submit(message_output="Hello!")
    await customer.when(job, "completed")
    (delivery,) = await deployment.engine.deliveries.list(customer.name, job_id=job["job_id"])
    first, second = (await deployment.engine.deliveries.read(customer.name, delivery.delivery_id)).log
    assert second.at - first.at >= timedelta(seconds=2)


async def test_grd_09_a_job_whose_webhook_is_never_taken_has_failed(deployment: Deployment, customer: Customer) -> None:
    deployment.receiver.answers[customer.name] = lambda _: status(500)
    job = await customer.submit(message_output="Hello!")
    response = await customer.when(job, "failed")
    assert await customer.states(job) == ["processing_inbound", "processing_outbound", "delivering", "failed"]
    assert response["outbound"]["text"] == "Hello!"
    assert Counter(deployment.receiver.events(customer.name)) == {"job.completed": 4}  # the first try, and three more


def test_grd_09_the_last_try_comes_before_a_job_expires() -> None:
    assert sum(KIND.webhook.schedule, timedelta()) * 1.5 < EXPIRES_IN
    assert list(KIND.webhook.schedule) == sorted(KIND.webhook.schedule)


async def test_grd_09_a_receiver_that_was_away_gets_everything_in_order(
    deployment: Deployment, customer: Customer
) -> None:
    is_down = True
    deployment.receiver.answers[customer.name] = lambda _: status(503 if is_down else 204)
    jobs = [await customer.submit(f"Message {n}.") for n in range(5)]
    for job in jobs:
        await customer.when(job, "awaiting_response")
        await customer.respond(job, "Hello!")
        await customer.when(job, "delivering")
    await deployment.receiver.wait(customer.name, 3)
    is_down = False
    seen = len(deployment.receiver.at(customer.name))
    for job in jobs:
        await customer.when(job, "completed")
    taken = deployment.receiver.at(customer.name)[seen:]
    for job in jobs:
        own = [one.payload["event"] for one in taken if one.payload["job_id"] == job["job_id"]]
        assert list(dict.fromkeys(own)) == ["job.inbound_completed", "job.completed"]
        assert own == sorted(own, key=["job.inbound_completed", "job.completed"].index)


# GRD-11


INSIDE = [
    "http://127.0.0.1:1/",
    "http://localhost/",
    "http://0.0.0.0/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://metadata.google.internal/",
    "http://100.64.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://user@127.0.0.1/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "//example.com/",
    "nonsense",
    "",
]


@pytest.mark.parametrize("url", INSIDE)
async def test_grd_11_a_url_that_leads_inside_is_refused_at_creation(customer: Customer, url: str) -> None:
    body = {"message_input": "x", "webhook_url": url}
    assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == "webhook_url"


async def test_grd_11_a_name_that_leads_inside_later_is_refused_at_the_connect(
    server: DatabaseServer, template: str
) -> None:
    """DNS rebinding: the name led outside when the job was made, and does not when its webhook is sent."""
    leads_to = ["93.184.216.34"]

    async def resolve(_host: str, _port: int) -> list[str]:
        return leads_to

    outbound = Outbound(resolve=resolve)
    async with server.database(template) as dsn, running_deployment(dsn, outbound=outbound) as deployment:
        customer = await deployment.customer()
        await deployment.engine.pause(KIND.queue)
        url = f"http://hooks.example.com:{deployment.receiver.port}/rebound"
        job = await customer.submit(webhook_url=url, message_output="Hello!")
        leads_to[:] = ["127.0.0.1"]
        await deployment.engine.resume(KIND.queue)
        await customer.when(job, "failed")
        assert deployment.receiver.came == []
        body = {"message_input": "x", "webhook_url": url}
        assert (await customer.refused("POST", "/v1/jobs", body, status=422))["field"] == "webhook_url"


async def test_grd_11_a_redirect_is_not_followed(deployment: Deployment, customer: Customer) -> None:
    target = deployment.receiver.url("elsewhere")
    deployment.receiver.answers[customer.name] = lambda _: status(307, f"location: {target}")
    job = await customer.submit(message_output="Hello!")
    await customer.when(job, "failed")
    assert deployment.receiver.at("elsewhere") == []


async def test_grd_09_a_sick_receiver_does_not_hold_up_another(deployment: Deployment, customer: Customer) -> None:
    sick = await deployment.customer()
    deployment.receiver.answers[sick.name] = lambda _: status(503, "retry-after: 3600")
    stuck = [await sick.submit(f"Message {n}.", message_output="Hello!", expires_in_seconds=600) for n in range(10)]
    well = await asyncio.gather(*(customer.submit(f"Message {n}.", message_output="Hello!") for n in range(10)))
    for job in well:
        await customer.when(job, "completed")
    for job in stuck:
        await sick.when(job, "delivering")
    clock = Clock(deployment.engine.db)
    await clock.advance(timedelta(seconds=600))
    for job in stuck:
        await sick.when(job, "expired")
    await clock.advance(timedelta(seconds=-600))
