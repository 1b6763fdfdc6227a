"""Batches by both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import AsyncClient, Client, wire
from millpond.client import WaitTimeoutError
from millpond.client.batches import parts
from millpond.errors import BatchClosedError, InsufficientCreditsError, InvalidError, UnknownKindError
from tests.api.sites import running_site
from tests.client.both import Awaited
from tests.factories import Factory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.engine import Engine
    from tests.api.sites import Site
    from tests.clocks import Clock

FREE = {"kind": "free"}


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    async with running_site(engine) as running:
        yield running


@pytest.fixture(params=["awaited", "blocking"])
async def client(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The client of a tenant of the test's own."""
    key = await site.key(tenant=f"t{uuid4().hex[:12]}")
    is_awaited = request.param == "awaited"
    client: Any = AsyncClient(site.url, key) if is_awaited else Awaited(Client(site.url, key))
    yield client
    await client.close()


async def test_a_batch_is_submitted_followed_and_read(client: Any, site: Site, clock: Clock) -> None:
    batch = await client.batch([FREE, FREE | {"tags": {"n": "2"}}], name="two", tags={"team": "ads"})
    assert (batch.state, batch.total, batch.submitted, batch.ended, batch.name) == ("running", 2, 2, 0, "two")
    with pytest.raises(WaitTimeoutError, match="0 of 2 jobs"):
        await batch.wait(timeout=0.1)
    for _ in range(2):
        await Factory(site.engine, clock).serve("free")
    assert (await batch.wait(timeout=60)).is_ended
    assert (batch.succeeded, batch.failed, batch.canceled, batch.progress, batch.captured) == (2, 0, 0, 1.0, 0)
    assert [job.record.tags async for job in batch.jobs()] == [{"team": "ads"}, {"team": "ads", "n": "2"}]
    assert [job.id async for job in batch.jobs(outcome="failed")] == []
    assert [each.id async for each in client.batches(tags={"team": "ads"}, state="completed")] == [batch.id]
    assert (await client.get_batch(batch.id)).succeeded == 2
    assert (await client.batch_of(batch.id).refresh()).state == "completed"


async def test_more_than_a_thousand_jobs_are_sent_in_parts(client: Any) -> None:
    requests = ({"kind": "free", "input": {"n": n}} for n in range(2_500))
    batch = await client.batch(requests)
    assert (batch.state, batch.total, batch.submitted) == ("running", 2_500, 2_500)
    first = [job.record.input async for job in client.batch_jobs(batch, limit=200)][:3]
    assert first == [{"n": 0}, {"n": 1}, {"n": 2}]
    canceled = await batch.cancel()
    assert canceled.is_accepted
    assert batch.state in {"canceling", "canceled"}


async def test_the_same_call_with_the_same_key_continues_a_batch(client: Any) -> None:
    requests = [{"kind": "free", "input": {"n": n}} for n in range(1_500)]
    batches = [await client.batch(requests, idempotency_key="k") for _ in range(2)]
    assert len({batch.id for batch in batches}) == 1
    assert batches[1].submitted == 1_500


async def test_what_is_refused_is_named_by_its_position_in_the_batch(client: Any) -> None:
    with pytest.raises(UnknownKindError) as unknown:
        await client.batch([FREE] * 1_200 + [{"kind": "nothing"}])
    assert unknown.value.field == "requests[1200].kind"
    assert unknown.value.details["submitted"] == 1_000
    batch = await client.add_jobs(unknown.value.details["batch_id"], [FREE] * 201, first=1_000)
    assert (batch.state, batch.submitted) == ("running", 1_201)
    with pytest.raises(BatchClosedError):
        await client.add_jobs(batch, [FREE], first=1_201)
    await batch.cancel()


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([], "requests"),
        ([FREE, {}], "requests[1].kind"),
        ([FREE, {"kind": "free", "colour": "red"}], "requests[1]"),
        ([{"kind": "free", "input": [1]}], "requests[0].input"),
        ([{"kind": "free", "input": {"x": object()}}], "requests[0].input"),
        ([{"kind": "free", "expires_in": -1}], "requests[0].expires_in"),
        ([FREE] * (wire.BATCH_MAX + 1), "requests"),
    ],
)
async def test_what_cannot_be_sent_is_refused_here(client: Any, requests: list[Any], field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        await client.batch(requests)
    assert refused.value.field == field


async def test_a_batch_that_cannot_be_paid_for_does_not_exist(client: Any) -> None:
    with pytest.raises(InsufficientCreditsError):
        await client.batch([{"kind": "priced"}])
    assert [batch async for batch in client.batches()] == []


def test_parts_are_limited_by_number_and_size() -> None:
    assert [len(part) for part in parts([b"{}"] * 2_001)] == [1_000, 1_000, 1]
    assert [len(part) for part in parts([b"x" * 3_000_000] * 5)] == [2, 2, 1]
    assert list(parts([])) == []
