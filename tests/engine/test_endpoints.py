"""Endpoints: who is told of what, with which secret, and what becomes of those that fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import webhooks
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.deliveries import TryResult
from millpond.engine.webhooks.endpoints import ENDPOINTS_MAX, PAGE_MAX
from millpond.errors import (
    ConflictError,
    InvalidError,
    MillpondError,
    NotFoundError,
    OutboundRefusedError,
    VaultError,
    WebhookInvalidError,
)
from millpond.services.pruner import pruner
from millpond.webhooks import Webhook
from tests.factories import ACCOUNT, HOUR, MINUTE, STRANGER, TENANT
from tests.post import SECRET, VAULT, taken

if TYPE_CHECKING:
    from tests.post import Post

DAY = timedelta(days=1)
OTHER = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


async def ended(post: Post, kind: str = "free", outcome: Any = "succeeded") -> None:
    await post.make.ended(kind, outcome)


async def test_an_endpoint_is_notified_of_the_ends_of_jobs(post: Post) -> None:
    made = await post.endpoint()
    assert (made.events, made.kinds, made.disabled_at) == (webhooks.ENDS, (), None)
    await ended(post)
    await ended(post, outcome="failed")
    assert await post.deliver() == 2
    first, second = (post.read(each) for each in post.there.of("one"))
    assert (first["type"], second["type"]) == ("job.succeeded", "job.failed")
    assert first["data"].keys() >= {"id", "kind", "account", "state", "outcome", "input", "output", "error", "price"}
    assert second["data"]["error"]["code"] == "boom"
    assert first["timestamp"].endswith("Z")
    assert first["data"]["created_at"].endswith("Z")


async def test_its_secret_is_shown_once_and_kept_encrypted(post: Post) -> None:
    made, secret = await post.engine.endpoints.make(TENANT, url=post.there.url("healthy"))
    assert secret.startswith("whsec_")
    shown = repr([made, await post.engine.endpoints.read(TENANT, made.id), await post.engine.endpoints.list(TENANT)])
    assert secret not in shown
    async with post.engine.db.transaction() as tx:
        row = await tx.fetchrow("select e::text as shown, secret from millpond.endpoints e")
    assert row is not None
    assert secret not in row["shown"]
    assert secret.removeprefix("whsec_") not in row["shown"]
    assert VAULT.open(row["secret"], f"endpoint:{made.endpoint_id}") == secret


async def test_it_is_notified_of_the_events_and_kinds_it_asked_for(post: Post) -> None:
    await post.endpoint(name="starts", events=("started",))
    await post.endpoint(name="priced", kinds=("priced",))
    await post.endpoint(name="all", events=("*",))
    await ended(post, "free")
    await ended(post, "priced")
    await post.deliver()
    assert post.names("starts") == ["job.started", "job.started"]
    assert [post.read(each)["data"]["kind"] for each in post.there.of("priced")] == ["priced"]
    assert sorted(post.names("all")) == sorted(["job.submitted", "job.started", "job.succeeded"] * 2)


async def test_it_is_notified_of_nothing_of_another_tenant(post: Post) -> None:
    await post.endpoint()
    await post.make.submitted("free", tenant=STRANGER)
    await post.make.serve("free")
    assert await post.deliver() == 0


@pytest.mark.parametrize(
    ("wrong", "error", "field"),
    [
        ({"url": "http://10.0.0.1/x"}, OutboundRefusedError, "url"),
        ({"url": "file:///etc/passwd"}, OutboundRefusedError, "url"),
        ({"events": ()}, InvalidError, "events"),
        ({"events": ("job.succeeded",)}, InvalidError, "events"),
        ({"kinds": ("a b",)}, InvalidError, "kinds"),
        ({"kinds": tuple(f"k{n}" for n in range(101))}, InvalidError, "kinds"),
        ({"description": "x" * 501}, InvalidError, "description"),
        ({"description": "\0"}, MillpondError, "description"),
        ({"limit": 0}, InvalidError, "limit"),
        ({"limit": 101}, InvalidError, "limit"),
        ({"secret": "whsec_short"}, InvalidError, "secret"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_it_is_reported(
    post: Post, wrong: dict[str, Any], error: type[MillpondError], field: str
) -> None:
    traits: dict[str, Any] = {"url": post.there.url("healthy")} | wrong
    with pytest.raises(error) as caught:
        await post.engine.endpoints.make(TENANT, **traits)
    assert caught.value.field == field
    assert await post.engine.endpoints.list(TENANT) == []


async def test_one_of_an_account_is_notified_of_the_jobs_of_that_alone(post: Post) -> None:
    mine = await post.endpoint(name="mine", account=ACCOUNT, events=("*",))
    await post.endpoint(name="theirs", account="somebody", events=("*",))
    await post.endpoint(name="all", events=("*",))
    await ended(post)
    await post.deliver()
    await post.engine.endpoints.disable(TENANT, mine.id)  # of which somebody else is not told
    await post.deliver()
    assert post.names("mine") == ["job.submitted", "job.started", "job.succeeded"]
    assert post.names("theirs") == []
    assert post.names("all") == ["job.submitted", "job.started", "job.succeeded", "endpoint.disabled"]
    assert [each.account for each in await post.engine.endpoints.list(TENANT)] == [ACCOUNT, "somebody", None]
    with pytest.raises(InvalidError) as caught:
        await post.endpoint(name="wrong", account="a b")
    assert caught.value.field == "account"


async def test_one_that_is_not_native_is_notified_in_the_words_of_each_kind(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Webhook(
        names={"succeeded": "done"},
        body=lambda expected: {"what": expected.name, "state": expected.job["state"], "event": expected.event},
        schedule=(timedelta(seconds=1),),
    )
    kinds = post.engine.app._kinds
    monkeypatch.setitem(kinds, "free", replace(kinds["free"], webhook=words))
    made = await post.endpoint(name="one", is_native=False, events=("succeeded",))
    await post.endpoint(name="other")
    await post.endpoint(mode="error", name="ill", is_native=False, events=("succeeded",))
    assert not made.is_native
    await ended(post, "free")
    await ended(post, "priced")
    await post.deliver()
    own, native = (post.read(each) for each in post.there.of("one"))
    assert own == {"what": "done", "state": "succeeded", "event": "succeeded"}
    assert (native["type"], native["data"]["kind"]) == ("job.succeeded", "priced")
    assert post.names("other") == ["job.succeeded"] * 2
    await post.pass_time(timedelta(seconds=2))  # and by their schedule: the last try of the one was this
    (ill,) = [each for each in await post.engine.endpoints.list(TENANT) if each.url and "ill" in each.url]
    assert sorted(each.state for each in await post.engine.deliveries.list(TENANT, endpoint=ill.endpoint_id)) == [
        "failed",
        "pending",
    ]


async def test_one_that_is_not_native_is_notified_only_of_what_its_kinds_have_words_for(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = post.engine.app._kinds
    monkeypatch.setitem(kinds, "free", replace(kinds["free"], webhook=Webhook(names={"succeeded": "done"})))
    made = await post.endpoint(is_native=False, events=("succeeded",), kinds=("free",))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"events": ("*",)}, "events"),
        ({"events": ("failed",)}, "events"),
        ({"events": ("endpoint.disabled",)}, "events"),
        ({"kinds": ("nobody-knows",)}, "kinds"),
    ]
    for changes, field in wrong:
        with pytest.raises(InvalidError) as caught:
            await post.engine.endpoints.change(TENANT, made.id, **changes)
        assert caught.value.field == field
        traits: dict[str, Any] = {"events": ("succeeded",), "kinds": ("free",)} | changes
        with pytest.raises(InvalidError):
            await post.endpoint(is_native=False, **traits)
    assert await post.engine.endpoints.list(TENANT) == [made]
    await post.engine.endpoints.change(TENANT, made.id, kinds=("priced",), events=("failed",))  # of which it has
    with pytest.raises(InvalidError, match="'failed'"):
        await post.engine.endpoints.change(TENANT, made.id, kinds=("free", "priced"))
    with pytest.raises(InvalidError, match="'failed'"):
        await post.engine.endpoints.change(TENANT, made.id, kinds=())  # which are all


async def test_they_are_listed_in_pages_and_by_their_account(post: Post) -> None:
    made = [await post.endpoint(account=account) for account in (ACCOUNT, "somebody", None, ACCOUNT)]
    endpoints = post.engine.endpoints
    assert await endpoints.list(TENANT, limit=3) == made[:3]
    assert await endpoints.list(TENANT, after=made[2].endpoint_id) == made[3:]
    assert await endpoints.list(TENANT, account=ACCOUNT) == [made[0], made[3]]
    assert await endpoints.list(TENANT, account=ACCOUNT, after=made[0].endpoint_id) == [made[3]]
    with pytest.raises(InvalidError):
        await endpoints.list(TENANT, limit=PAGE_MAX + 1)


async def test_one_is_tested_in_the_very_words_of_real_events(post: Post) -> None:
    made = await post.endpoint(is_native=False)
    await post.engine.endpoints.test(TENANT, made.id, "succeeded", body={"job": 1, "is_test": True})
    await post.deliver()
    assert [post.read(each) for each in post.there.of("one")] == [{"job": 1, "is_test": True}]


async def test_those_of_an_account_count_for_that_alone(post: Post) -> None:
    for _ in range(ENDPOINTS_MAX):
        await post.engine.endpoints.make(TENANT, account=ACCOUNT)
    with pytest.raises(ConflictError, match="account has"):
        await post.engine.endpoints.make(TENANT, account=ACCOUNT)
    await post.engine.endpoints.make(TENANT, account="somebody")
    await post.engine.endpoints.make(TENANT)


async def test_there_are_only_so_many(post: Post) -> None:
    for number in range(ENDPOINTS_MAX):
        await post.engine.endpoints.make(TENANT, description=str(number))
    with pytest.raises(ConflictError, match="limit"):
        await post.engine.endpoints.make(TENANT)
    assert [each.description for each in await post.engine.endpoints.list(TENANT)][::99] == ["0", "99"]


async def test_without_a_vault_there_are_none(post: Post) -> None:
    post.engine.safe.vault = None
    try:
        with pytest.raises(VaultError):
            await post.endpoint()
    finally:
        post.engine.safe.vault = VAULT


async def test_one_that_is_not_there_or_another_tenants_is_not_found(post: Post) -> None:
    made = await post.endpoint()
    endpoints = post.engine.endpoints
    for tenant, name in ((STRANGER, made.id), (TENANT, "ep_00000000000000000000000000"), (TENANT, "nonsense")):
        for verb in (endpoints.read, endpoints.rotate, endpoints.enable, endpoints.delete, endpoints.test):
            with pytest.raises(NotFoundError):
                await verb(tenant, name)
        with pytest.raises(NotFoundError):
            await endpoints.disable(tenant, name)
        with pytest.raises(NotFoundError):
            await endpoints.change(tenant, name, description="mine")


async def test_what_was_not_sent_goes_where_it_is_now(post: Post) -> None:
    made = await post.endpoint(name="old")
    await ended(post)
    changed = await post.engine.endpoints.change(
        TENANT, made.id, url=post.there.url("healthy", "new"), events=("failed",), limit=3, description="moved"
    )
    assert (changed.events, changed.limit, changed.description) == (("failed",), 3, "moved")
    assert await post.engine.endpoints.read(TENANT, made.id) == changed
    await ended(post)
    await ended(post, outcome="failed")
    await post.deliver()
    assert (post.names("old"), post.names("new")) == ([], ["job.succeeded", "job.failed"])


async def test_a_change_is_checked_like_what_was_there_before(post: Post) -> None:
    made = await post.endpoint()
    for wrong in ({"url": "http://127.0.0.1.:0/"}, {"url": None}, {"events": ("never",)}, {"secret": OTHER}):
        with pytest.raises((InvalidError, ConflictError)):
            await post.engine.endpoints.change(TENANT, made.id, **wrong)
    assert await post.engine.endpoints.read(TENANT, made.id) == made


async def test_a_secret_is_rotated_with_an_overlap(post: Post) -> None:
    """While it lasts each of the two verifies; then the new one alone."""
    made = await post.endpoint()
    assert await post.engine.endpoints.rotate(TENANT, made.id, HOUR, secret=OTHER) == OTHER
    assert (await post.engine.endpoints.read(TENANT, made.id)).rotated_until is not None
    await ended(post)
    await post.deliver()
    (both,) = post.there.of("one")
    assert post.read(both, SECRET) == post.read(both, OTHER)
    await post.make.clock.advance(HOUR + MINUTE)
    await ended(post)
    await post.deliver()
    alone = post.there.of("one")[-1]
    post.read(alone, OTHER)
    with pytest.raises(WebhookInvalidError):
        post.read(alone, SECRET)


async def test_a_secret_that_got_out_is_void_at_once(post: Post) -> None:
    made = await post.endpoint()
    await post.engine.endpoints.rotate(TENANT, made.id, timedelta(0), secret=OTHER)
    await ended(post)
    await post.deliver()
    with pytest.raises(WebhookInvalidError):
        post.names()
    with pytest.raises(InvalidError):
        await post.engine.endpoints.rotate(TENANT, made.id, timedelta(days=31))


async def test_one_that_is_disabled_gets_what_waited_when_it_is_enabled(post: Post) -> None:
    made = await post.endpoint()
    await ended(post)
    disabled = await post.engine.endpoints.disable(TENANT, made.id, "Too loud.")
    assert disabled.disabled_reason == "Too loud."
    await ended(post, outcome="failed")
    assert await post.pass_time(DAY) == 0
    assert (await post.newest()).due_at is None
    with pytest.raises(ConflictError, match="disabled"):
        await post.engine.endpoints.test(TENANT, made.id)
    with pytest.raises(ConflictError, match="disabled"):
        await post.engine.deliveries.resend(TENANT, (await post.newest()).id)
    enabled = await post.engine.endpoints.enable(TENANT, made.id)
    assert enabled.disabled_at is None
    await ended(post)
    await post.deliver()
    assert post.names() == ["job.succeeded", "job.succeeded"]


async def test_one_that_is_disabled_while_it_is_called_waits_from_then_on(post: Post) -> None:
    made = await post.endpoint("error")
    await ended(post)
    (item,) = await taken(post.engine.db, 5, MINUTE)
    await post.engine.endpoints.disable(TENANT, made.id)
    result = deliveries.judged(item, TryResult(500), webhooks.NATIVE)
    assert await deliveries.settle(post.engine, post.engine.db, [result]) == ["pending"]
    assert await post.pass_time(DAY) == 0


async def test_what_one_that_is_deleted_was_to_be_sent_is_withdrawn(post: Post) -> None:
    made = await post.endpoint()
    await ended(post)
    await post.engine.endpoints.delete(TENANT, made.id)
    assert await post.deliver() == 0
    assert await post.states() == ["withdrawn"]
    await ended(post)
    assert await post.states() == ["withdrawn"]
    with pytest.raises(ConflictError, match="withdrawn"):
        await post.engine.deliveries.resend(TENANT, (await post.newest()).id)


async def test_what_came_for_one_that_was_just_deleted_is_withdrawn(post: Post) -> None:
    await post.engine.endpoints.make(TENANT)  # Its listener does not come any more: no courier sees it.
    await ended(post)
    async with post.engine.db.transaction() as tx:
        await tx.execute("delete from millpond.endpoints; delete from millpond.subscriptions")
    await pruner(post.engine).run_once()
    assert await post.states() == ["withdrawn"]


async def test_it_can_be_tried(post: Post) -> None:
    made = await post.endpoint(kinds=("priced",), events=("failed",))
    await post.engine.endpoints.test(TENANT, made.id)
    await post.engine.endpoints.test(TENANT, made.id, "succeeded")
    described = await post.engine.endpoints.test(TENANT, made.id, "endpoint.disabled")
    assert (described.state, described.job_id, described.event) == ("pending", None, "endpoint.disabled")
    await post.deliver()
    assert sorted(post.names()) == ["endpoint.disabled", "endpoint.test", "job.succeeded"]
    with pytest.raises(InvalidError, match="no lifecycle event"):
        await post.engine.endpoints.test(TENANT, made.id, "never")


async def test_one_that_says_it_is_gone_is_disabled_and_the_others_are_notified(post: Post) -> None:
    gone = await post.endpoint("gone", "gone")
    await post.endpoint(name="watch", events=("endpoint.disabled",))
    await ended(post)
    await ended(post)
    await post.deliver()
    found = await post.engine.endpoints.read(TENANT, gone.id)
    assert found.disabled_at is not None
    assert "410" in (found.disabled_reason or "")
    (received,) = (post.read(each) for each in post.there.of("watch"))
    assert (received["type"], received["data"]["id"], received["data"]["url"]) == (
        "endpoint.disabled",
        gone.id,
        gone.url,
    )
    (audited,) = [
        each for each in await post.engine.access.list_audit(tenant=TENANT, limit=5) if each.subject == gone.id
    ]
    assert (audited.actor, audited.action) == ("courier", "endpoint.disabled")
    assert set(await post.states()) <= {"failed", "pending", "delivered"}


async def test_one_that_does_nothing_but_fail_for_days_is_disabled(post: Post) -> None:
    made = await post.endpoint("error")
    await ended(post)
    await post.deliver()
    since = (await post.engine.endpoints.read(TENANT, made.id)).failing_since
    assert since is not None
    await post.pass_time(4 * DAY)
    assert (await post.engine.endpoints.read(TENANT, made.id)).disabled_at is None
    await post.pass_time(DAY + HOUR)
    found = await post.engine.endpoints.read(TENANT, made.id)
    assert (found.disabled_at is not None, found.failing_since) == (True, since)
    assert "failed for days" in (found.disabled_reason or "")


async def test_one_that_takes_something_in_between_is_not(post: Post) -> None:
    made = await post.endpoint("flaky", query={"times": 2})
    await ended(post)
    await post.deliver()
    await post.pass_time(3 * DAY)
    assert (await post.engine.endpoints.read(TENANT, made.id)).failing_since is not None
    await post.pass_time(DAY)
    assert (await post.engine.endpoints.read(TENANT, made.id)).failing_since is None
    await ended(post)
    await post.pass_time(3 * DAY)
    assert (await post.engine.endpoints.read(TENANT, made.id)).disabled_at is None


async def test_stats_count_what_became_of_it(post: Post) -> None:
    made = await post.endpoint("flaky", query={"times": 1})
    since = await post.make.clock.now()
    await ended(post)
    await post.deliver()
    stats = await post.engine.endpoints.stats(TENANT, made.id, since)
    assert (stats.pending, stats.delivered, stats.tries, stats.seconds_p50) == (1, 0, 1, None)
    await post.pass_time(HOUR)
    await ended(post)
    stats = await post.engine.endpoints.stats(TENANT, made.id, since)
    assert (stats.pending, stats.delivered, stats.failed, stats.withdrawn, stats.tries) == (1, 1, 0, 0, 2)
    assert 0 < (stats.seconds_p50 or 0) <= (stats.seconds_p90 or 0) < 15
    late = await post.engine.endpoints.stats(TENANT, made.id, await post.make.clock.now())
    assert (late.pending, late.delivered) == (0, 0)


async def test_an_endpoint_whose_listener_stays_away_is_forgotten(post: Post) -> None:
    made, _ = await post.engine.endpoints.make(TENANT, events=("*",))
    stays = await post.endpoint()
    await post.make.clock.advance(MINUTE * 59)
    await post.engine.deliveries.pull(TENANT, made.id)
    await post.make.clock.advance(MINUTE * 59)
    await pruner(post.engine).run_once()
    assert len(await post.engine.endpoints.list(TENANT)) == 2
    await post.make.clock.advance(MINUTE * 2)
    await pruner(post.engine).run_once()
    assert [each.id for each in await post.engine.endpoints.list(TENANT)] == [stays.id]
