"""The courier: nobody waits for a receiver that is slow or gone, and what it has in hand is bounded."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.webhooks import deliveries, endpoints
from millpond.engine.webhooks.deliveries import TryResult
from millpond.services.courier import ROOM, Courier, courier
from millpond.webhooks import SCHEDULE
from tests.checks import until
from tests.factories import OWNER, TENANT
from tests.post import VAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.post import Post

SECOND = timedelta(seconds=1)
couriers: Any = sys.modules[Courier.__module__]


@asynccontextmanager
async def running(made: Courier) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(made.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def ended(post: Post, jobs: int, **options: Any) -> None:
    requests: list[Any] = [{"kind": "free", **OWNER, **options}] * jobs
    answers = await post.engine.submit_many(requests)
    assert not [each for each in answers if isinstance(each, Exception)]
    while leases := await post.make.claimed("free", want=50):
        await asyncio.gather(*map(post.make.finish, leases))


async def test_it_sends_what_comes_while_it_runs(post: Post) -> None:
    await post.endpoint(events=("*",))
    async with running(post.courier()):
        for number in range(1, 4):
            await ended(post, 5)

            async def has_come(want: int = number * 15) -> bool:
                return len(post.there.received) == want

            await until(has_come)


async def test_the_sick_keep_nobody_waiting(post: Post) -> None:
    """All that the healthy are told is there while the first of the sick are still waited for."""
    sick = ("slow", "never_reads", "half_closes", "dribbles", "down", "error", "resets")
    patients = [await post.endpoint(mode, f"sick-{mode}") for mode in sick]
    for number in range(3):
        await post.endpoint(name=f"well{number}")
    await ended(post, 40)

    async def has_come() -> bool:
        return len(post.there.received) >= 120

    made = post.courier()
    async with running(made):
        await until(has_come)
        assert len({each.id for each in post.there.received}) == 120
        (first, *_) = await post.engine.deliveries.list(TENANT, endpoint=patients[0].id, limit=1)
        assert first.tries == 0  # the first of the slow ones is still waited for
        assert all(receiver.room <= 2 for receiver in made._receivers.values() if not receiver.is_quick)
        await post.there.hang_up()


async def test_one_that_fails_is_called_one_by_one_and_rests(post: Post) -> None:
    await post.endpoint("error")
    await ended(post, 30)
    assert await post.deliver() < 10
    assert (await post.states()).count("pending") == 30


async def test_one_that_comes_back_gets_everything(post: Post) -> None:
    made = await post.endpoint("error")
    await ended(post, 30)
    sender = post.courier()
    await sender.run_once()
    await post.engine.endpoints.change(TENANT, made.id, url=post.there.url("healthy"))
    await post.make.clock.advance(timedelta(hours=1))
    (receiver,) = sender._receivers.values()
    receiver.rests_until = 0.0
    assert await sender.run_once() == 30
    assert len({each.id for each in post.there.received}) == 30


async def test_no_more_is_under_way_to_an_endpoint_than_it_allows(post: Post) -> None:
    await post.endpoint("slow", "small", query={"seconds": 0.01}, limit=1)
    await post.endpoint("slow", "large", query={"seconds": 0.01})
    seen = {"small": 0, "large": 0}
    under_way = dict(seen)
    slow = post.there.slow

    async def watched(call: Any) -> None:
        under_way[call.name] += 1
        seen[call.name] = max(seen[call.name], under_way[call.name])
        await slow(call)
        under_way[call.name] -= 1

    post.there.slow = watched  # type: ignore[method-assign]
    try:
        await ended(post, 40)
        await post.deliver()
    finally:
        post.there.slow = slow  # type: ignore[method-assign]
    assert seen["small"] == 1
    assert 2 < seen["large"] <= ROOM
    assert len(post.there.received) == 80


async def test_what_it_has_in_hand_is_bounded_in_number_and_in_bytes(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(couriers, "OUT_MAX", 6)
    monkeypatch.setattr(couriers, "BYTES_MAX", 60_000)
    for number in range(4):
        await post.endpoint(name=f"r{number}")
    await ended(post, 10, input={"text": "x" * 20_000})
    made = post.courier()
    limit = [0, 0]
    take = made._take

    def watched(*item: Any) -> None:
        take(*item)
        limit[0] = max(limit[0], made._out)
        limit[1] = max(limit[1], made._bytes)

    made._take = watched  # type: ignore[method-assign]
    assert await made.run_once() == 40
    assert limit[0] <= 6
    assert limit[1] <= 200_000
    assert (made._out, made._bytes) == (0, 0)


async def test_all_are_served_however_few_it_takes_at_once(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on behind the last receiver it came to: those at the end of the alphabet are not forgotten."""
    monkeypatch.setattr(couriers, "_CLAIM_MAX", 2)
    for number in range(5):
        await post.endpoint(name=f"r{number}")
    await ended(post, 8)
    made = post.courier()
    for _ in range(3):
        await made._look()
        await made._idle()
    assert len({each.name for each in post.there.received}) >= 3
    await made.run_once()
    assert len(post.there.received) == 40


async def test_who_has_yet_to_prove_himself_has_half_of_what_there_is(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(couriers, "OUT_MAX", 8)
    for number in range(10):
        await post.endpoint("slow", f"slow{number}")
    await ended(post, 2)
    made = post.courier(webhook_timeout=2 * SECOND)
    async with running(made):
        await until(lambda: _is(made._out >= 4))
        await asyncio.sleep(0.1)
        assert made._out == 4
        quick = await post.endpoint(name="quick")
        made._receivers[str(quick.endpoint_id)] = couriers._Receiver(is_quick=True, room=ROOM)
        await ended(post, 3)

        async def has_come() -> bool:
            return len(post.there.of("quick")) == 3

        await until(has_come)
        await post.there.hang_up()


async def _is(holds: object) -> bool:
    return bool(holds)


async def test_the_last_is_served_while_those_before_it_have_more_and_more(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some of what is due steps back behind what comes before it."""
    monkeypatch.setattr(couriers, "_CLAIM_MAX", 4)
    for number in range(6):
        await post.endpoint(name=f"r{number}", events=("*",))
    await ended(post, 30)
    await by_hand(
        post,
        "update millpond.deliveries d set due_at = millpond.clock() - interval '1 hour' + n * interval '1 ms'"
        " from (select id, row_number() over (order by job_id, seq) as n from millpond.deliveries) r where r.id = d.id",
    )
    made = post.courier()
    for _ in range(8):
        await made._look()
        await made._idle()
    assert {each.name for each in post.there.received} == {f"r{number}" for number in range(6)}


async def test_pages_of_receivers_follow_each_other(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "_PAGE", 2)
    for number in range(5):
        await post.endpoint(name=f"r{number}")
    await ended(post, 3)
    made = post.courier()
    for _ in range(3):
        await made._look()
        await made._idle()
    assert {each.name for each in post.there.received} == {f"r{number}" for number in range(5)}
    assert await made.run_once() + 10 == 15


async def test_a_full_hand_does_not_forget_where_it_was(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    made = post.courier()
    database = post.engine.db
    made._after[database] = "m"
    monkeypatch.setattr(couriers, "OUT_MAX", 0)
    assert await made._look() == 0
    assert made._after[database] == "m"


async def test_one_that_was_never_met_goes_before_those_that_fail(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "OUT_MAX", 2)
    made = post.courier()
    for number in range(3):
        sick = await post.endpoint("error", f"sick{number}")
        made._receivers[str(sick.endpoint_id)] = couriers._Receiver(failures=1, room=1)
    await post.endpoint(name="well")
    await ended(post, 1)
    assert await made._look() == 1
    await made._idle()
    assert [each.name for each in post.there.received] == ["well"]


async def test_a_look_that_took_long_is_rested_from_but_not_for_long(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each home by itself; and news is looked for before that."""
    made = post.courier()
    database = post.engine.db
    made._look_in = _nothing  # type: ignore[method-assign]
    with monkeypatch.context() as turned:
        times = iter([100.0, 130.0])
        turned.setattr(couriers.time, "monotonic", lambda: next(times))
        await made._look_at(database)
    assert made._rests[database] == (131.0, 131.0)
    with monkeypatch.context() as turned:
        times = iter([100.0, 100.05])
        turned.setattr(couriers.time, "monotonic", lambda: next(times))
        await made._look_at(database)
    soonest, latest = made._rests[database]
    assert (round(soonest, 2), round(latest, 2)) == (100.1, 100.55)


async def _nothing(*_: Any) -> int:
    return 0


async def by_hand(post: Post, statement: str) -> None:
    async with post.engine.db.transaction() as tx:
        await tx.execute(statement)


async def test_deliveries_follow_their_endpoint_bit_by_bit(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for an endpoint may be very much: nobody rewrites it all at once."""
    monkeypatch.setattr(endpoints, "FOLLOW_MAX", 3)
    made = await post.endpoint()
    await ended(post, 8)
    await post.engine.endpoints.disable(TENANT, made.id)
    assert len([each for each in await post.engine.deliveries.list(TENANT) if each.due_at is not None]) == 8
    sender = post.courier()
    monkeypatch.setattr(couriers, "_LEFT_EVERY", 0.0)
    for _ in range(3):
        assert await sender.run_once() == 0
    assert [each.due_at for each in await post.engine.deliveries.list(TENANT)] == [None] * 8
    await post.engine.endpoints.enable(TENANT, made.id)
    assert len([each for each in await post.engine.deliveries.list(TENANT) if each.due_at is not None]) == 3
    for _ in range(3):
        await sender.run_once()
    assert len({each.id for each in post.there.received}) == 8


async def test_what_waits_for_one_that_is_enabled_is_sent(post: Post) -> None:
    """It was enabled while what had failed before was being written down."""
    await post.endpoint()
    await ended(post, 1)
    await by_hand(post, "update millpond.deliveries set due_at = 'infinity'")
    sender = post.courier()
    await sender.run_once()
    await sender.run_once()
    assert await post.states() == ["delivered"]


@pytest.mark.parametrize("part", ["body", "secret"])
async def test_what_cannot_be_made_counts_as_a_try(post: Post, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    made = await post.endpoint()
    await ended(post, 1)
    if part == "secret":
        await by_hand(post, "update millpond.endpoints set secret = 'x'")
    else:

        def body_of(*_: Any) -> Any:
            raise ValueError("wild")

        monkeypatch.setattr(deliveries, "body_of", body_of)
    await post.deliver()
    (found,) = await post.engine.deliveries.list(TENANT, endpoint=made.id)
    assert (found.state, found.tries) == ("pending", 1)
    (tried,) = (await post.engine.deliveries.read(TENANT, found.id)).log
    assert part in (tried.error or "")
    for pause in SCHEDULE:
        await post.pass_time(pause * 1.3)
    assert (await post.states(), post.there.received) == (["failed"], [])


async def test_words_that_nobody_knows_are_given_up_at_last(post: Post) -> None:
    await ended(post, 1, hook=post.hook())
    stranger = Engine(post.engine.db, Millpond(), vault=VAULT, outbound=post.engine.outbound)
    await post.make.clock.advance(sum(SCHEDULE, timedelta(minutes=-1)))
    await courier(stranger).run_once()
    assert await post.states() == ["pending"]
    await post.make.clock.advance(timedelta(minutes=5))
    await courier(stranger).run_once()
    assert await post.states() == ["failed"]


async def test_what_it_has_under_way_is_waited_for_when_it_is_asked_to_stop(post: Post) -> None:
    await post.endpoint("slow", query={"seconds": 0.5})
    await ended(post, 2)
    async with running(post.courier()):
        await until(lambda: _is(post.there.tries["slow/one"] > 0))
    assert "delivered" in await post.states()


async def test_what_waited_too_long_in_hand_is_left_to_come_again(post: Post) -> None:
    await post.endpoint()
    await ended(post, 1)
    made = post.courier()
    made._lease = timedelta(seconds=1)
    assert await made.run_once() == 1
    assert (made._out, post.there.received) == (0, [])
    await post.make.clock.advance(2 * SECOND)
    await post.deliver()
    assert len(post.there.received) == 1


async def test_words_that_it_does_not_know_are_left_to_a_process_that_does(post: Post) -> None:
    """Those of a job's own URL are its kind's; endpoints are told in our own."""
    await post.endpoint(name="endpoint")
    await ended(post, 1, hook=post.hook())
    stranger = Engine(post.engine.db, Millpond(), vault=VAULT, outbound=post.engine.outbound)
    assert await courier(stranger).run_once() == 2
    assert (len(post.there.of("endpoint")), len(post.there.of("one"))) == (1, 0)
    await post.make.clock.advance(timedelta(minutes=2))
    await post.deliver()
    assert len(post.there.of("one")) == 1


async def test_an_engine_without_a_vault_sends_nothing(post: Post) -> None:
    await post.endpoint()
    await ended(post, 1)
    assert await courier(Engine(post.engine.db, post.engine.app)).run_once() == 0


@pytest.mark.parametrize(
    ("status", "seconds", "room"),
    [(200, 0.1, 5), (404, 0.1, 5), (200, 2.0, 4), (200, 5.0, 2), (500, 0.1, 1), (429, 0.1, 1), (None, 0.1, 1)],
)
def test_room_grows_with_quick_answers_and_goes_with_trouble(status: int | None, seconds: float, room: int) -> None:
    receiver = couriers._Receiver(room=4)
    receiver.answered(TryResult(status, seconds=seconds), 100.0)
    assert receiver.room == room


def test_rest_grows_with_each_failure_and_ends_with_the_first_answer() -> None:
    receiver = couriers._Receiver()
    rests: list[float] = []
    for _ in range(9):
        receiver.answered(TryResult(503), 100.0)
        rests.append(receiver.rests_until - 100.0)
    assert rests[:4] == [0.0, 0.5, 1.0, 2.0]
    assert rests == sorted(rests)
    assert rests[-1] == 10.0
    assert receiver.left(101.0) == 0
    receiver.answered(TryResult(429, headers={"retry-after": "30"}), 100.0)
    assert receiver.rests_until == 130.0
    receiver.answered(TryResult(200), 100.0)
    assert (receiver.rests_until, receiver.failures) == (0.0, 0)


async def test_it_knows_only_so_many(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "_KNOWN_MAX", 3)
    for number in range(8):
        await post.endpoint(name=f"r{number}")
    await ended(post, 2)
    made = post.courier()
    assert await made.run_once() == 16
    assert len(made._receivers) <= 8
    assert len(post.there.received) == 16


async def test_a_wild_answer_is_a_try_like_any_other(post: Post) -> None:
    await post.endpoint("limited", query={"seconds": quote("Fri, 31 Dec 2027 23:59:59 -9999999999999999")})
    await ended(post, 1)
    await post.deliver()
    (found,) = await post.engine.deliveries.list(TENANT)
    assert (found.state, found.tries) == ("pending", 1)


@pytest.mark.parametrize("part", ["send", "judged", "settle"])
async def test_what_goes_wrong_here_after_it_was_sent_counts_as_a_try(
    post: Post, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Otherwise the receiver would be sent the same again and again, and nobody would ever see why."""
    await post.endpoint("error")
    await ended(post, 1)
    places: dict[str, Any] = {"send": post.engine.outbound, "judged": deliveries, "settle": deliveries}
    right = getattr(places[part], part)

    async def settle(engine: Any, db: Any, settled: Any) -> list[str]:
        if any(item.result.body for item in settled):
            raise ValueError("wild")
        return await right(engine, db, settled)

    async def send(*args: Any, **options: Any) -> Any:
        await right(*args, **options)
        raise ValueError("wild")

    def judged(item: Any, result: TryResult, words: Any) -> Any:
        if result.status is not None:
            raise ValueError("wild")
        return right(item, result, words)

    monkeypatch.setattr(places[part], part, {"settle": settle, "send": send, "judged": judged}[part])
    await post.deliver()
    (found,) = await post.engine.deliveries.list(TENANT)
    assert (found.state, found.tries, len(post.there.tries)) == ("pending", 1, 1)
    (tried,) = (await post.engine.deliveries.read(TENANT, found.id)).log
    assert tried.error
