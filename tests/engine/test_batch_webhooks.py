"""The webhook at the end of a batch: one for each receiver, signed, whoever ends the last job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millpond.errors import InvalidError, NotFoundError, OutboundRefusedError
from millpond.webhooks import Hook
from tests.factories import ACCOUNT, OWNER, TENANT
from tests.post import SECRET

if TYPE_CHECKING:
    from millpond.engine.composition.batches import Batch
    from tests.post import Post


async def batch_of(post: Post, count: int, **options: Any) -> Batch:
    jobs: Any = [{"kind": "free"}] * count
    return (await post.engine.batches.create(**OWNER, jobs=jobs, **options)).batch


async def finish(post: Post, outcome: Any = "succeeded") -> None:
    (lease,) = await post.make.claimed("free")
    await post.make.finish(lease, outcome)


def ends_sent(post: Post, name: str) -> list[Any]:
    return [post.read(each) for each in post.there.of(name) if post.read(each)["type"] == "batch.completed"]


async def test_the_end_of_a_batch_is_sent_once_to_its_url_and_to_each_endpoint(post: Post) -> None:
    await post.endpoint(name="tenant", events=("batch.completed",), kinds=("brief",))
    await post.endpoint(name="account", events=("batch.completed",), account=ACCOUNT)
    await post.endpoint(name="all", events=("*",))
    await post.endpoint(name="stranger", events=("batch.completed",), account="other")
    await post.endpoint(name="jobs")
    batch = await batch_of(post, 2, name="two", tags={"team": "ads"}, hook=post.hook(name="own"))
    await finish(post)
    await post.deliver()
    assert not ends_sent(post, "own"), "a job has not ended"
    await finish(post, "failed")
    await post.deliver()
    (own,) = ends_sent(post, "own")
    ended = await post.engine.batches.read(TENANT, ACCOUNT, batch.id)
    assert ended.ended_at is not None
    assert datetime.fromisoformat(own["timestamp"]).astimezone(UTC) == ended.ended_at
    assert own["data"] == {
        "id": batch.id,
        "account": ACCOUNT,
        "name": "two",
        "state": "completed",
        "total": 2,
        "submitted": 2,
        "ended": 2,
        "succeeded": 1,
        "failed": 1,
        "canceled": 0,
        "price": 0,
        "captured": 0,
        "tags": {"team": "ads"},
        "created_at": ended.created_at.isoformat().replace("+00:00", "Z"),
        "canceled_at": None,
        "ended_at": ended.ended_at.isoformat().replace("+00:00", "Z"),
    }
    for name in ("tenant", "account", "all"):
        assert ends_sent(post, name) == [own], name
    assert post.names("stranger") == []
    assert post.names("jobs") == ["job.succeeded", "job.failed"]


async def test_the_end_of_a_canceled_batch_is_sent_too(post: Post) -> None:
    await batch_of(post, 1, hook=post.hook(name="kept"))
    started = await batch_of(post, 2, hook=post.hook(name="started"))
    empty = await batch_of(post, 0, total=5, hook=post.hook(name="empty"))
    for batch in (started, empty):
        await post.engine.batches.cancel(TENANT, batch.id)
    await post.deliver()
    (sent,) = ends_sent(post, "started")
    assert (sent["data"]["state"], sent["data"]["canceled"], sent["data"]["total"]) == ("canceled", 2, 2)
    (sent,) = ends_sent(post, "empty")
    assert (sent["data"]["state"], sent["data"]["total"]) == ("canceled", 0)
    assert ends_sent(post, "kept") == []
    await finish(post)
    await post.deliver()
    assert len(ends_sent(post, "kept")) == 1


async def test_a_failed_delivery_is_sent_again_with_the_same_body(post: Post) -> None:
    batch = await batch_of(post, 1, hook=post.hook("flaky", name="own", failures=1))
    await finish(post)
    await post.deliver()
    listed = await post.newest()
    assert (listed.state, listed.event) == ("pending", "batch.completed")
    assert (listed.job_id, listed.batch_id) == (None, batch.batch_id)
    assert listed.url == post.hook("flaky", name="own", failures=1).url


async def test_the_secret_of_a_batch_is_kept_for_replays(post: Post) -> None:
    batch = await batch_of(post, 1, hook=post.hook(name="own"), key="k")
    assert await post.engine.batches.secret(batch) == SECRET
    other = Hook(url=post.hook(name="own").url, secret="whsec_" + "b" * 32)
    again = await post.engine.batches.create(**OWNER, jobs=[{"kind": "free"}], hook=other, key="k")
    assert again.is_replay
    assert await post.engine.batches.secret(again.batch) == SECRET
    with pytest.raises(NotFoundError):
        await post.engine.batches.secret(await batch_of(post, 1))
    assert SECRET.encode() not in (await post.engine.db.pool.fetchval("select secret from millpond.batch_hooks"))


@pytest.mark.parametrize("url", ["https://10.0.0.1/hook", "ftp://example.com", "nonsense"])
async def test_a_url_that_may_not_be_called_is_refused(post: Post, url: str) -> None:
    with pytest.raises((OutboundRefusedError, InvalidError)) as refused:
        await batch_of(post, 1, hook=Hook(url=url, secret=SECRET))
    assert refused.value.field == "webhook.url"
    assert await post.engine.batches.list(TENANT) == []


async def test_an_endpoint_can_be_tested_with_the_event(post: Post) -> None:
    made = await post.endpoint(name="one", events=("batch.completed",))
    await post.engine.endpoints.test(TENANT, made.id, "batch.completed")
    await post.deliver()
    assert post.names() == ["batch.completed"]
