"""Deliveries: in order, at least once, the same each time; and jobs whose end waits for them."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import ids, webhooks
from millpond.engine.engine import Engine
from millpond.engine.jobs import jobs, transactions
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.deliveries import TryResult
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    NotFoundError,
    OutboundRefusedError,
    VaultError,
)
from millpond.outbound import Outbound
from millpond.services.courier import courier
from millpond.services.expirer import expirer
from millpond.services.pruner import pruner
from millpond.webhooks import NATIVE, SCHEDULE, Hook
from millpond.work import End
from tests.checks import snapshot
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, STRANGER, TENANT
from tests.post import SECRET, VAULT, taken
from tests.product import app

if TYPE_CHECKING:
    from millpond.engine.jobs.jobs import SubmitRequest
    from millpond.engine.webhooks.deliveries import Claimed, DeliveryRecord
    from tests.post import Post

DAY = timedelta(days=1)
ALL = webhooks.LIFECYCLE_EVENTS


async def claimed(post: Post) -> list[Claimed]:
    return await taken(post.engine.db, 10, MINUTE)


async def settled(post: Post, item: Claimed, status: int) -> str:
    settlement = deliveries.judged(item, TryResult(status), NATIVE)
    return (await deliveries.settle(post.engine, post.engine.db, [settlement]))[0]


async def logged(post: Post) -> DeliveryRecord:
    return await post.newest()


# What a job's own URL is told


async def test_a_job_with_a_url_notifies_it_how_it_ended(post: Post) -> None:
    lease = await post.make.leased("priced", {"product": "hat"}, hook=post.hook())
    await post.make.finish(lease, output={"url": "x"})
    assert await post.deliver() == 1
    (received,) = (post.read(each) for each in post.there.of("one"))
    assert received["type"] == "job.succeeded"
    assert received["data"] | {"id": ids.text("job", lease.job_id)} == received["data"]
    assert (received["data"]["input"], received["data"]["output"]) == ({"product": "hat"}, {"url": "x"})
    assert (received["data"]["price"], received["data"]["captured"], received["data"]["progress"]) == (5, 5, 1.0)
    assert (received["data"]["phase"], received["data"]["outcome"], received["data"]["kind"]) == (
        "ended",
        "succeeded",
        "priced",
    )


async def test_a_url_is_notified_of_the_tags_and_they_belong_to_its_key(post: Post) -> None:
    given: Any = {**OWNER, "idempotency_key": "k", "hook": post.hook(events=("submitted",))}
    first = await post.engine.submit("free", **given, tags={"team": "ads"})
    assert (await post.engine.submit("free", **given, tags={"team": "ads"})).job_id == first.job_id
    for other in ({"team": "other"}, None):
        with pytest.raises(IdempotencyConflictError):
            await post.engine.submit("free", **given, tags=other)
    await post.engine.submit("free", **OWNER, hook=post.hook(events=("submitted",)))
    await post.deliver()
    assert [post.read(each)["data"]["tags"] for each in post.there.of("one")] == [{"team": "ads"}, {}]


def test_a_delivery_from_before_there_were_tags_stays_the_same_bytes() -> None:
    old = webhooks.WebhookData(ids.new(), "succeeded", datetime.now(UTC), {"kind": "free"})
    assert "tags" not in NATIVE.body(old)["data"]


async def test_it_is_notified_of_the_events_that_were_asked_for_each_as_it_was_then(post: Post) -> None:
    lease = await post.make.leased("restartable", hook=post.hook(events=ALL))
    await post.make.finish(lease)
    await post.deliver()
    received = [post.read(each) for each in post.there.of("one")]
    assert [each["type"] for each in received] == ["job.submitted", "job.queued", "job.started", "job.succeeded"]
    assert [each["data"]["state"] for each in received] == ["pending", "queued", "processing", "completed"]
    assert [each["data"]["output"] for each in received] == [None] * 4
    assert received[0]["timestamp"] == received[1]["timestamp"] <= received[2]["timestamp"] <= received[3]["timestamp"]


async def test_a_url_that_may_not_be_called_is_refused_before_anything_is_charged(post: Post) -> None:
    await post.make.credits(5)
    for wrong, error, field in (
        (Hook(url="http://169.254.169.254/", secret=SECRET), OutboundRefusedError, "webhook.url"),
        (Hook(url=post.there.url("healthy"), secret="x"), InvalidError, "webhook.secret"),
        (Hook(url=post.there.url("healthy"), secret=SECRET, events=("never",)), InvalidError, "webhook.events"),
    ):
        with pytest.raises(error) as caught:
            await post.engine.submit("priced", **OWNER, hook=wrong)
        assert caught.value.field == field
        assert SECRET not in str(caught.value)
    assert (await post.engine.balance(TENANT, ACCOUNT)).available == 5


async def test_a_url_that_leads_inside_by_now_is_not_called(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook())
    await post.make.serve("free")
    wary = Engine(post.engine.db, app, vault=VAULT, outbound=Outbound())
    assert await courier(wary).run_once() == 1
    found = await logged(post)
    assert (found.state, found.log[0].status) == ("pending", None)
    assert found.log[0].error
    assert not post.there.tries
    await wary.outbound.close()


async def test_a_replay_reports_the_same_secret_and_another_url_is_another_request(post: Post) -> None:
    first = await post.engine.submit("free", **OWNER, idempotency_key="k", hook=post.hook())
    other = Hook(url=post.there.url("healthy"), secret=webhooks.new_secret())
    again = await post.engine.submit("free", **OWNER, idempotency_key="k", hook=other)
    assert (again.job_id, again.is_replay) == (first.job_id, True)
    assert await post.engine.hook_secret(TENANT, first.id) == SECRET
    for hook in (post.hook(name="two"), None):
        with pytest.raises(IdempotencyConflictError):
            await post.engine.submit("free", **OWNER, idempotency_key="k", hook=hook)
    plain = await post.engine.submit("free", **OWNER)
    for tenant, job_id in ((STRANGER, first.id), (TENANT, plain.id)):
        with pytest.raises(NotFoundError):
            await post.engine.hook_secret(tenant, job_id)


async def test_many_at_once_have_urls_of_their_own(post: Post) -> None:
    inside = Hook(url="http://10.0.0.1/", secret=SECRET)
    hooks = [post.hook(name="a"), None, inside, post.hook(name="b")]
    answers = await post.engine.submit_many([{"kind": "free", **OWNER, "hook": hook} for hook in hooks])
    assert [type(each).__name__ for each in answers] == ["Submitted", "Submitted", "OutboundRefusedError", "Submitted"]
    for _ in range(3):
        await post.make.serve("free")
    await post.deliver()
    assert (len(post.there.of("a")), len(post.there.of("b"))) == (1, 1)


async def test_a_job_in_the_callers_transaction_brings_its_url(post: Post) -> None:
    async with post.engine.db.transaction() as tx:
        kept = await post.engine.submit("free", **OWNER, tx=tx, hook=post.hook(events=("submitted",)))
    async with post.engine.db.connection() as connection:
        given_up = connection.transaction()
        await given_up.start()
        await post.engine.submit("free", **OWNER, tx=connection, hook=post.hook(events=("submitted",)))
        await given_up.rollback()
    await post.deliver()
    (received,) = (post.read(each) for each in post.there.of("one"))
    assert received["data"]["id"] == kept.id
    with pytest.raises(InvalidError, match=r"Engine\.submit") as caught:
        transactions.submit_in(None, app, "free", **OWNER, hook=post.hook())
    assert caught.value.field == "hook"


async def test_a_job_that_is_repeated_reports_the_same_url(post: Post) -> None:
    lease = await post.make.leased("free", hook=post.hook())
    await post.make.finish(lease, "failed")
    again = await post.engine.retry(TENANT, lease.job_id)
    await post.make.serve("free")
    await post.deliver()
    assert post.names() == ["job.failed", "job.succeeded"]
    assert await post.engine.hook_secret(TENANT, again.id) == SECRET


async def test_no_secret_stands_anywhere_in_the_database(post: Post) -> None:
    """Of an endpoint, before and after it was rotated, and of a job; whatever was sent, answered and logged."""
    _, first = await post.engine.endpoints.make(TENANT, url=post.there.url("healthy"), events=("*",))
    made = await post.endpoint("error", "two")
    second = await post.engine.endpoints.rotate(TENANT, made.id)
    await post.make.submitted("delivered", hook=post.hook(), idempotency_key="k")
    await post.make.serve("delivered")
    await post.deliver()
    shown = str(await snapshot(post.engine.db))
    assert "delivery_tries" in shown
    for secret in (first, second, SECRET):
        assert secret not in shown
        assert secret.removeprefix("whsec_") not in shown


# Tries


async def test_each_try_has_the_same_bytes_and_id_and_a_signature_of_its_own(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook("flaky", times=2))
    await post.make.serve("free")
    for _ in range(3):
        await post.deliver()
        await post.make.clock.advance(HOUR)
    found = await logged(post)
    assert (found.state, found.tries, [each.status for each in found.log]) == ("delivered", 3, [500, 500, 200])
    (last,) = post.there.of("one")
    assert {each.request_headers["webhook-id"] for each in found.log} == {found.id} == {last.id}
    assert found.log[-1].response_body == "taken"
    assert found.log[0].at < found.log[1].at < found.log[2].at
    assert found.log[-1].request_headers["webhook-signature"] == last.headers["webhook-signature"]
    body = last.body
    await post.engine.deliveries.resend(TENANT, found.id)
    await post.deliver()
    assert [each.body for each in post.there.of("one")] == [body, body]
    assert {each.id for each in post.there.of("one")} == {found.id}


async def test_a_try_that_failed_is_made_again_by_the_schedule_and_at_last_given_up(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook("error"))
    await post.make.serve("free")
    for number, pause in enumerate((*SCHEDULE, None), 1):
        assert await post.deliver() == 1
        found = await logged(post)
        assert found.tries == number
        if pause is None:
            assert (found.state, found.due_at) == ("failed", None)
        else:
            assert found.due_at is not None
            waits = found.due_at - await post.make.clock.now()
            assert pause * 0.8 - MINUTE < waits <= pause * 1.2
            assert await post.pass_time(pause * 0.75) == 0
            await post.make.clock.advance(pause * 0.5)


async def test_a_receiver_that_asks_for_time_gets_it(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook("limited", seconds=7200))
    await post.make.serve("free")
    await post.deliver()
    found = await logged(post)
    assert found.due_at is not None
    assert timedelta(hours=1, minutes=59) < found.due_at - await post.make.clock.now() <= timedelta(hours=2)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("120", 120), ("0", 0), ("999999999999", 86_400), ("soon", None), ("", None), ("-5", None)],
)
def test_a_pause_that_is_asked_for_is_read_and_bounded(said: str, seconds: int | None) -> None:
    pause = TryResult(503, headers={"Retry-After": said}).retry_after
    assert pause == (None if seconds is None else timedelta(seconds=seconds))


def test_a_pause_may_be_a_date() -> None:
    assert TryResult(503, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}).retry_after == timedelta(0)
    assert TryResult(503, headers={"retry-after": "Wed, 21 Oct 2115 07:28:00 GMT"}).retry_after == DAY


@pytest.mark.parametrize("mode", ["redirects", "resets", "down", "error", "garbage"])
async def test_whatever_is_not_taken_is_tried_again(post: Post, mode: str) -> None:
    await post.make.submitted("free", hook=post.hook(mode))
    await post.make.serve("free")
    await post.deliver()
    found = await logged(post)
    assert (found.state, found.tries) == ("pending", 1)
    assert found.log[0].status == {"redirects": 302, "error": 500}.get(mode)
    assert post.there.received == []


async def test_a_url_that_is_gone_is_given_up_at_once(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook("gone"))
    await post.make.serve("free")
    await post.deliver()
    assert (await logged(post)).state == "failed"


async def test_what_is_logged_of_an_answer_is_bounded(post: Post) -> None:
    await post.endpoint()
    await post.make.ended("free")
    (item,) = await claimed(post)
    result = TryResult(
        500, "x" * 5_000, 0.1, {f"h{n}": "v" * 1_000 for n in range(100)} | {"z": "\0"}, b"\xff\0" * 5_000
    )
    await deliveries.settle(post.engine, post.engine.db, [deliveries.judged(item, result, NATIVE)])
    (found,) = (await logged(post)).log
    assert len(found.response_headers) < 10
    assert len(found.response_body) <= 1_025
    assert len(found.error or "") <= 501


# Order


async def test_nothing_is_sent_before_what_came_before_it(post: Post) -> None:
    """The first fails: the others wait for it, and then go at once, each after the other."""
    lease = await post.make.leased("free", hook=post.hook("flaky", times=1, events=ALL))
    await post.make.finish(lease)
    await post.deliver()
    assert post.names() == []
    assert post.there.tries == {"flaky/one": 1}
    for _ in range(6):
        await post.pass_time(timedelta(seconds=10))
    assert post.names() == ["job.submitted", "job.started", "job.succeeded"]


async def test_what_waits_goes_when_what_it_waited_for_is_given_up(post: Post) -> None:
    lease = await post.make.leased("free", hook=post.hook(events=ALL))
    await post.make.finish(lease)
    (first,) = await claimed(post)
    assert await settled(post, first, 410) == "failed"
    await post.deliver()
    assert post.names() == ["job.started", "job.succeeded"]


async def test_jobs_do_not_wait_for_each_other_nor_urls_for_urls(post: Post) -> None:
    await post.endpoint("error", "sick", events=("*",))
    await post.endpoint(name="well", events=("*",))
    for _ in range(3):
        await post.make.submitted("free")
        await post.make.serve("free")
    await post.deliver()
    assert sorted(post.names("well")) == sorted(["job.submitted", "job.started", "job.succeeded"] * 3)
    by_job: dict[str, list[str]] = {}
    for each in post.there.of("well"):
        received = post.read(each)
        by_job.setdefault(received["data"]["id"], []).append(received["type"])
    assert list(by_job.values()) == [["job.submitted", "job.started", "job.succeeded"]] * 3


async def test_what_a_killed_courier_had_in_hand_comes_again_and_still_in_order(post: Post) -> None:
    lease = await post.make.leased("free", hook=post.hook(events=ALL))
    await post.make.finish(lease)
    assert [each.event for each in await claimed(post)] == ["submitted"]
    assert await post.deliver() == 0  # it is in hand
    await post.pass_time(MINUTE + timedelta(seconds=5))
    await post.pass_time(timedelta(seconds=5))
    assert post.names() == ["job.submitted", "job.started", "job.succeeded"]


async def test_who_was_too_late_changes_nothing_unless_it_was_taken(post: Post) -> None:
    await post.endpoint()
    await post.make.ended("free")
    (late,) = await claimed(post)
    await post.make.clock.advance(2 * MINUTE)
    (item,) = await claimed(post)
    assert await settled(post, late, 500) == "pending"
    assert (await logged(post)).tries == 0
    assert await claimed(post) == []  # the other one still has it
    assert await settled(post, late, 200) == "delivered"
    assert await settled(post, item, 500) == "delivered"
    assert await settled(post, late, 200) == "delivered"
    assert [each.status for each in (await logged(post)).log] == [200]


async def test_two_couriers_do_not_send_the_same(post: Post) -> None:
    await post.endpoint()
    await post.engine.submit_many([{"kind": "free", **OWNER} for _ in range(60)])
    leases = await post.make.claimed("free", want=60)
    await asyncio.gather(*map(post.make.finish, leases))
    sent = await asyncio.gather(*(post.deliver() for _ in range(4)))
    assert sum(sent) == 60
    assert len({each.id for each in post.there.received}) == len(post.there.received) == 60


# Once more


async def test_one_is_sent_once_more(post: Post) -> None:
    made = await post.endpoint("flaky", query={"times": 1, "status": 410})
    await post.make.ended("free")
    await post.deliver()
    found = await logged(post)
    assert found.state == "failed"
    await post.engine.endpoints.enable(TENANT, made.id)
    resent = await post.engine.deliveries.resend(TENANT, found.id)
    assert (resent.state, resent.tries, resent.settled_at) == ("pending", 1, None)
    await post.deliver()
    assert (await logged(post)).state == "delivered"
    assert post.there.received[0].id == found.id
    for tenant, name in ((STRANGER, found.id), (TENANT, "msg_00000000000000000000000000")):
        with pytest.raises(NotFoundError):
            await post.engine.deliveries.resend(tenant, name)


async def test_one_that_is_sent_once_more_has_its_whole_schedule_again(post: Post) -> None:
    await post.make.submitted("free", hook=post.hook("gone"))
    await post.make.serve("free")
    await post.deliver()
    found = await logged(post)
    async with post.engine.db.transaction() as tx:
        await tx.execute("update millpond.hooks set url = $1", post.there.url("error"))
    await post.engine.deliveries.resend(TENANT, found.id)
    await post.deliver()
    found = await logged(post)
    assert (found.state, found.tries) == ("pending", 2)
    assert found.due_at is not None
    assert found.due_at - await post.make.clock.now() < MINUTE


async def test_all_that_failed_since_are_sent_once_more_or_all(post: Post) -> None:
    made = await post.endpoint()
    for status in (500, 200, 200):
        await post.make.ended("free")
        await post.make.clock.advance(HOUR)
        (item,) = await claimed(post)
        settlement = deliveries.Settlement(item, TryResult(status), "delivered" if status == 200 else "failed", HOUR)
        await deliveries.settle(post.engine, post.engine.db, [settlement])
    begin = await post.make.clock.now() - 5 * HOUR
    resend = post.engine.deliveries.resend_since
    assert await resend(TENANT, made.id, begin + timedelta(hours=2, minutes=30)) == 0
    assert await resend(TENANT, made.id, begin) == 1
    await post.deliver()
    assert len(post.there.received) == 1
    assert await resend(TENANT, made.id, begin, only_failed=False) == 3
    await post.deliver()
    assert len(post.there.received) == 4
    with pytest.raises(NotFoundError):
        await resend(STRANGER, made.id, begin)


# Reading


async def test_they_are_listed_the_newest_first_and_filtered(post: Post) -> None:
    made = await post.endpoint()
    jobs_ = [(await post.make.ended("free")).job_id for _ in range(3)]
    await post.deliver()
    lease = await post.make.leased("free", hook=post.hook("error"))
    await post.make.finish(lease)
    listed = post.engine.deliveries.list
    everything = await listed(TENANT)
    assert [each.delivery_id for each in everything] == sorted((each.delivery_id for each in everything), reverse=True)
    assert len(everything) == 5
    assert len(await listed(TENANT, endpoint=made.id)) == 4
    assert [each.job_id for each in await listed(TENANT, job_id=jobs_[0])] == [jobs_[0]]
    assert len(await listed(TENANT, job_id=lease.job_id, endpoint=made.id)) == 1
    assert len(await listed(TENANT, state="delivered")) == 3
    assert len(await listed(TENANT, endpoint=made.id, state="pending")) == 1
    page = await listed(TENANT, limit=2)
    assert page + await listed(TENANT, before=page[-1].id) == everything
    assert await listed(STRANGER) == []
    assert everything[0].log == ()
    with pytest.raises(InvalidError):
        await listed(TENANT, state="lost")
    with pytest.raises(NotFoundError):
        await post.engine.deliveries.read(STRANGER, everything[0].id)


async def test_what_one_statement_reports_is_listed_in_the_order_of_its_events(post: Post) -> None:
    await post.make.credits(60)
    made = [await post.engine.submit("restartable", **OWNER, hook=post.hook(events=ALL)) for _ in range(20)]
    for job in made:
        listed = [(each.seq, each.event) for each in await post.engine.deliveries.list(TENANT, job_id=job.job_id)]
        assert listed == [(2, "queued"), (1, "submitted")]


async def test_what_is_done_is_forgotten_after_a_while(post: Post) -> None:
    await post.endpoint()
    await post.make.ended("free")
    await post.deliver()
    await post.make.clock.advance(2 * DAY)
    await post.make.ended("free")
    await pruner(post.engine, webhook_retention=DAY).run_once()
    assert await post.states() == ["pending"]
    async with post.engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.delivery_tries") == 0


# Listeners


async def test_a_listener_comes_for_what_is_due_and_says_what_became_of_it(post: Post) -> None:
    made, secret = await post.engine.endpoints.make(TENANT, events=("*",))
    lease = await post.make.leased("free")
    await post.make.finish(lease)
    assert await post.deliver() == 0
    pull, report = post.engine.deliveries.pull, post.engine.deliveries.report
    (first,) = await pull(TENANT, made.id, 10)
    assert webhooks.verify(first.body, first.headers, secret)["type"] == "job.submitted"
    assert await pull(TENANT, made.id, 10) == []
    await report(TENANT, first.id, TryResult(200, seconds=0.25, headers={"x": "y"}, body=b"fine"))
    await report(TENANT, first.id, TryResult(500))  # it was settled
    found = await post.engine.deliveries.read(TENANT, first.id)
    assert (found.state, found.log[0].seconds, found.log[0].response_body) == ("delivered", 0.25, "fine")
    (second,) = await pull(TENANT, made.id, 10)
    await post.make.clock.advance(MINUTE + timedelta(seconds=1))
    (again,) = await pull(TENANT, made.id, 10)
    assert (again.id, again.body) == (second.id, second.body)
    await report(TENANT, again.id, TryResult(None, "refused"))
    assert await pull(TENANT, made.id, 10) == []
    await post.make.clock.advance(MINUTE)
    assert [each.id for each in await pull(TENANT, made.id, 10)] == [second.id]


async def test_what_a_listener_gets_at_once_has_a_size(post: Post) -> None:
    made, _ = await post.engine.endpoints.make(TENANT, events=("succeeded",))
    large = {"text": '"' * 120_000}  # twice as long as JSON, and four times as text within JSON
    for _ in range(12):
        await post.make.finish(await post.make.leased("free"), output=large)
    pulled: list[str] = []
    while len(pulled) < 12:
        requests = await post.engine.deliveries.pull(TENANT, made.id)
        assert 0 < sum(len(msgspec.json.encode(each.body.decode())) for each in requests) < 5 * 1024**2
        pulled += [each.id for each in requests]
    assert len(set(pulled)) == len(pulled) == 12


async def test_what_a_listener_cannot_say_is_refused(post: Post) -> None:
    made, _ = await post.engine.endpoints.make(TENANT)
    called = await post.endpoint()
    await post.make.submitted("free", hook=post.hook())
    await post.make.serve("free")
    own = next(each for each in await post.engine.deliveries.list(TENANT) if each.endpoint_id is None)
    for call in (
        post.engine.deliveries.pull(TENANT, called.id),
        post.engine.deliveries.report(TENANT, own.id, TryResult(200)),
    ):
        with pytest.raises(ConflictError):
            await call
    for limit in (0, 101, True):
        with pytest.raises(InvalidError):
            await post.engine.deliveries.pull(TENANT, made.id, limit)
    for wrong in (TryResult(99), TryResult(600), TryResult(200, seconds=-1), TryResult(200, seconds=float("nan"))):
        with pytest.raises(InvalidError):
            await post.engine.deliveries.report(TENANT, own.id, wrong)
    with pytest.raises(NotFoundError):
        await post.engine.deliveries.pull(STRANGER, made.id)


# Jobs that have succeeded only when their URL has taken the news


async def test_a_job_succeeds_when_its_url_has_taken_the_news(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    assert await post.make.finish(lease, output={"n": 1}) == "delivering"
    job = await post.make.read(lease.job_id)
    assert (job.phase, job.outcome, job.output, job.captured) == ("delivering", None, {"n": 1}, None)
    assert (await post.engine.balance(TENANT, ACCOUNT)).held == 5
    await post.deliver()
    job = await post.make.read(lease.job_id)
    assert (job.state, job.outcome, job.captured) == ("succeeded", "succeeded", 5)
    assert (await post.engine.balance(TENANT, ACCOUNT)).held == 0
    assert post.names() == ["job.delivering", "job.succeeded"]
    assert await post.make.types(lease.job_id) == ["submitted", "started", "delivering", "succeeded"]


async def test_a_part_that_its_worker_captured_is_captured_then(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.engine.finish(End(lease, "succeeded", "{}", captured=2))
    await post.deliver()
    assert (await post.make.read(lease.job_id)).captured == 2
    assert (await post.engine.balance(TENANT, ACCOUNT)).available == 3


async def test_it_fails_when_the_news_is_given_up_and_costs_nothing(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook("gone"), expires_in=200 * HOUR)
    await post.make.finish(lease)
    await post.deliver()
    job = await post.make.read(lease.job_id)
    assert (job.outcome, job.captured, job.error["code"]) == ("failed", 0, "delivery_failed")
    assert (await post.engine.balance(TENANT, ACCOUNT)).available == 5


async def test_it_waits_for_a_receiver_that_is_down_for_a_while(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook("flaky", times=2), expires_in=DAY)
    await post.make.finish(lease)
    await post.deliver()
    assert (await post.make.read(lease.job_id)).phase == "delivering"
    await post.pass_time(MINUTE)
    await post.pass_time(MINUTE * 10)
    assert (await post.make.read(lease.job_id)).outcome == "succeeded"


async def test_its_deadline_withdraws_the_news(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook("error"))
    await post.make.finish(lease)
    await post.deliver()
    await post.make.clock.advance(HOUR + MINUTE)
    await expirer(post.engine).run_once()
    job = await post.make.read(lease.job_id)
    assert (job.outcome, job.captured) == ("expired", 0)
    assert await post.states() == ["withdrawn", "pending"]
    assert (await post.newest(state="pending")).event == "expired"


async def test_an_answer_that_comes_after_the_deadline_changes_nothing(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.make.finish(lease)
    (item,) = await claimed(post)
    await post.make.clock.advance(HOUR + MINUTE)
    await jobs.expire(post.engine.tenant_databases.executor_for_all, 10)
    assert await settled(post, item, 200) == "withdrawn"
    assert (await post.make.read(lease.job_id)).outcome == "expired"


async def test_without_a_url_it_succeeds_at_once(post: Post) -> None:
    await post.make.submitted("delivered", hook=post.hook())
    await post.make.submitted("delivered")
    leases = await post.make.claimed("delivered", want=2)
    states = await asyncio.gather(*map(post.make.finish, leases))
    assert states == ["delivering", "succeeded"]
    assert (await post.make.read(leases[1].job_id)).captured == 5
    await post.deliver()


async def test_what_does_not_end_well_is_not_waited_for(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook("error"))
    await post.engine.finish(End(lease, "failed", error=ERROR))
    assert (await post.make.read(lease.job_id)).outcome == "failed"
    assert (await post.newest()).event == "failed"


async def test_a_cancel_that_comes_too_late_is_forgotten(post: Post) -> None:
    """The work is done; the lifecycle has no way from there to a cancel, and nobody tries to force one."""
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.engine.cancel(TENANT, lease.job_id)
    await post.make.finish(lease)
    assert (await post.make.read(lease.job_id)).cancel_requested_at is None
    await post.make.clock.advance(MINUTE)
    assert await jobs.force_cancel(post.engine.tenant_databases.executor_for_all, 10) == 0
    await post.deliver()
    assert (await post.make.read(lease.job_id)).outcome == "succeeded"


async def test_what_nobody_concluded_is_concluded_by_the_next_who_looks(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.make.finish(lease)
    (item,) = await claimed(post)
    columns = deliveries._columns([deliveries.judged(item, TryResult(200), NATIVE)])
    await post.engine.db.run(deliveries.SQL["settle"], *columns, DAY)  # and then it was killed
    assert (await post.make.read(lease.job_id)).phase == "delivering"
    await post.deliver()
    assert (await post.make.read(lease.job_id)).outcome == "succeeded"


async def test_news_that_was_taken_in_time_is_concluded_also_past_the_deadline(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.make.finish(lease)
    (item,) = await claimed(post)
    columns = deliveries._columns([deliveries.judged(item, TryResult(200), NATIVE)])
    await post.engine.db.run(deliveries.SQL["settle"], *columns, DAY)  # and then it was killed
    await post.make.clock.advance(HOUR + MINUTE)
    await expirer(post.engine).run_once()
    job = await post.make.read(lease.job_id)
    assert (job.outcome, job.captured) == ("succeeded", job.price)


async def test_what_was_concluded_is_counted_and_nothing_else(post: Post) -> None:
    """Whoever goes on as long as there is something would otherwise never end."""
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.make.finish(lease)
    (item,) = await claimed(post)
    columns = deliveries._columns([deliveries.judged(item, TryResult(200), NATIVE)])
    await post.engine.db.run(deliveries.SQL["settle"], *columns, DAY)
    left = await post.engine.db.run(deliveries.SQL["undecided"], 10)
    assert [await deliveries.conclude(post.engine, left) for _ in range(2)] == [1, 0]


async def test_a_finish_whose_answer_got_lost_is_believed(post: Post) -> None:
    lease = await post.make.leased("delivered", hook=post.hook())
    await post.make.finish(lease)
    found = await post.engine.db.run(deliveries.SQL["delivering"], [lease.job_id], [lease.epoch])
    assert [(row["state"], row["is_ended"]) for row in found] == [("delivering", False)]
    await post.deliver()
    found = await post.engine.db.run(deliveries.SQL["delivering"], [lease.job_id], [lease.epoch])
    assert [(row["state"], row["is_ended"]) for row in found] == [("succeeded", True)]


async def test_without_a_vault_a_job_with_a_url_is_refused(post: Post) -> None:
    bare = Engine(post.engine.db, app, outbound=post.engine.outbound)
    with pytest.raises(VaultError):
        await bare.submit("free", **OWNER, hook=post.hook())
    assert await post.engine.list_jobs(**OWNER) == []


WILD = (
    "Fri, 31 Dec 2027 23:59:59 -9999999999999999",
    "Fri, 31 Dec 2027 23:59:59 -2359",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "9" * 400,
    "-1",
    "soon",
    "",
)


@pytest.mark.parametrize("said", WILD, ids=range(len(WILD)))
def test_whatever_a_receiver_asks_for_is_a_pause_or_none(said: str) -> None:
    pause = TryResult(503, headers={"Retry-After": said}).retry_after
    assert pause is None or timedelta(0) <= pause <= DAY


def test_what_is_shown_of_a_hook_on_its_way_is_no_secret(post: Post) -> None:
    hook = Hook(url="https://example.com/a?token=hunter2", secret=SECRET, is_secret_chosen=True)
    described = repr(post.engine.deliveries.asked(hook, app.kinds["free"]))
    assert "https://example.com/a" in described
    assert "hunter2" not in described
    assert "digest" not in described


async def test_a_secret_that_was_chosen_belongs_to_the_request(post: Post) -> None:
    own = Hook(url=post.there.url("healthy"), secret=SECRET, is_secret_chosen=True)
    first = await post.engine.submit("free", **OWNER, idempotency_key="k", hook=own)
    again = await post.engine.submit("free", **OWNER, idempotency_key="k", hook=own)
    assert (again.job_id, again.is_replay) == (first.job_id, True)
    other = Hook(url=own.url, secret=webhooks.new_secret(), is_secret_chosen=True)
    for hook in (other, Hook(url=own.url, secret=SECRET)):
        with pytest.raises(IdempotencyConflictError):
            await post.engine.submit("free", **OWNER, idempotency_key="k", hook=hook)


async def test_a_replay_is_one_also_where_its_url_is_not_there_any_more(post: Post) -> None:
    """It was good when the job was made; nobody is to be told of anything new."""
    where: list[str] = ["127.0.0.1"]

    async def resolve(host: str, port: int) -> list[str]:
        if not where:
            raise socket.gaierror(socket.EAI_NONAME, "gone")
        return where

    engine = Engine(post.engine.db, app, vault=VAULT, outbound=Outbound("loopback", resolve=resolve))
    hook = Hook(url="http://hooks.example.com/a", secret=SECRET)
    first = await engine.submit("free", **OWNER, idempotency_key="k", hook=hook)
    for then in ([], ["10.0.0.1"]):
        where[:] = then
        again = await engine.submit("free", **OWNER, idempotency_key="k", hook=hook)
        assert (again.job_id, again.is_replay) == (first.job_id, True)
        assert await engine.hook_secret(TENANT, again.job_id) == SECRET
        with pytest.raises(IdempotencyConflictError):
            await engine.submit("free", {"n": 1}, **OWNER, idempotency_key="k", hook=hook)
        with pytest.raises(OutboundRefusedError):
            await engine.submit("free", **OWNER, idempotency_key="new", hook=hook)
        with pytest.raises(OutboundRefusedError):
            await engine.submit("free", **OWNER, hook=hook)
        requests: list[SubmitRequest] = [
            {"kind": "free", **OWNER, "hook": hook, "idempotency_key": key} for key in ("k", "new")
        ]
        replayed, refused = await engine.submit_many(requests)
        assert isinstance(replayed, jobs.Submitted)
        assert (replayed.job_id, replayed.is_replay) == (first.job_id, True)
        assert isinstance(refused, OutboundRefusedError)
    await engine.outbound.close()
