"""Endpoints, deliveries and the webhook of a job, by both clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import AsyncClient, Client, webhooks, wire
from millpond.errors import ConflictError, InvalidError, NotFoundError
from tests.api.posts import URL, post_site
from tests.client.both import Awaited
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.sites import Site
    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def site(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    async with post_site(server, template) as running:
        yield running


@pytest.fixture(params=["awaited", "blocking"])
async def admin(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The operator of a tenant of the test's own."""
    key = await site.key(scope="admin", tenant=f"t{uuid4().hex[:12]}", account=None)
    is_awaited = request.param == "awaited"
    client: Any = AsyncClient(site.url, key) if is_awaited else Awaited(Client(site.url, key))
    yield client
    await client.close()


async def test_an_endpoint_lives_and_dies(admin: Any) -> None:
    made = await admin.make_endpoint(URL, events=["job.failed"], kinds=["free"], description="old", limit=2)
    assert [each.id for each in await admin.endpoints()] == [made.id]
    changed = await admin.change_endpoint(made.id, description="new", events=["*"])
    assert await admin.endpoint(made.id) == changed
    assert (changed.description, changed.events, changed.url) == ("new", ["*"], URL)
    assert (await admin.rotate_endpoint(made.id, overlap=timedelta(hours=1))).secret != made.secret
    assert (await admin.disable_endpoint(made.id, "it hurts")).disabled_reason == "it hurts"
    with pytest.raises(ConflictError):
        await admin.test_endpoint(made.id)
    assert (await admin.enable_endpoint(made.id)).disabled_at is None
    await admin.delete_endpoint(made.id)
    with pytest.raises(NotFoundError):
        await admin.endpoint(made.id)


async def test_what_is_pulled_is_reported_and_can_be_sent_again(admin: Any) -> None:
    made = await admin.make_endpoint()
    sent = await admin.test_endpoint(made.id, "job.failed")
    (request,) = await admin.pull(made.id)
    assert webhooks.verify(request.body, request.headers, made.secret)["type"] == "job.failed"
    await admin.report(request.id, status=500, seconds=0.5, headers={"x-a": "b"}, body="no")
    log = (await admin.delivery(sent.id)).log
    assert [(each.status, each.response_body) for each in log] == [(500, "no")]
    await admin.resend(sent.id)
    (again,) = await admin.pull(made.id)
    await admin.report(again.id, status=200)
    assert [(each.id, each.state) async for each in admin.deliveries(endpoint=made.id)] == [(sent.id, "delivered")]
    assert (await admin.endpoint_stats(made.id)).delivered == 1
    began = datetime.now(UTC) - timedelta(minutes=1)
    assert await admin.resend_since(made.id, began) == 0
    assert await admin.resend_since(made.id, began, only_failed=False) == 1


async def test_a_job_brings_its_webhook_along(admin: Any) -> None:
    job = await admin.submit("free", account="ann", webhook=URL)
    assert webhooks.check_secret(job.webhook_secret) == job.webhook_secret
    secret = job.webhook_secret
    await job.cancel()
    await job.wait(timeout=PATIENCE)
    assert job.webhook_secret == secret
    (listed,) = [each async for each in admin.deliveries(job=job.id)]
    assert (listed.event, (await admin.delivery(listed.id)).url) == ("job.canceled", URL)
    chosen = {"url": URL, "secret": webhooks.new_secret(), "events": ["job.started"]}
    for webhook in (chosen, wire.JobWebhook(**chosen)):
        assert (await admin.submit("free", account="ann", webhook=webhook)).webhook_secret is None
    many = await admin.submit_many([{"kind": "free", "account": "ann", "webhook": URL}])
    assert webhooks.check_secret(many[0].webhook_secret)
    with pytest.raises(InvalidError) as caught:
        await admin.submit("free", account="ann", webhook={"address": URL})
    assert caught.value.field == "webhook"
