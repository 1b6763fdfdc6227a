"""The courier: nobody waits for a receiver that is slow or gone, and what it has in hand is bounded."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.app import Penstock
from penstock.engine.deliveries import Result
from penstock.engine.engine import Engine
from penstock.services.courier import ROOM, Courier, courier
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
    answers = await post.engine.submit_many([{"kind": "free", **OWNER, **options} for _ in range(jobs)])
    assert not [each for each in answers if isinstance(each, Exception)]
    while leases := await post.make.claimed("free", want=50):
        await asyncio.gather(*map(post.make.finish, leases))


async def test_it_sends_what_comes_while_it_runs(post: Post) -> None:
    await post.endpoint(moments=("*",))
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
    most = [0, 0]
    take = made._take

    def watched(*item: Any) -> None:
        take(*item)
        most[0] = max(most[0], made._out)
        most[1] = max(most[1], made._bytes)

    made._take = watched  # type: ignore[method-assign]
    assert await made.run_once() == 40
    assert most[0] <= 6
    assert most[1] <= 200_000
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
        assert 4 <= made._out <= 8
        quick = await post.endpoint(name="quick")
        made._receivers[str(quick.endpoint_id)] = couriers._Receiver(is_quick=True, room=ROOM)
        await ended(post, 3)

        async def has_come() -> bool:
            return len(post.there.of("quick")) == 3

        await until(has_come)
        await post.there.hang_up()


async def _is(holds: object) -> bool:
    return bool(holds)


async def test_what_it_has_under_way_is_waited_for_when_it_is_told_to_stop(post: Post) -> None:
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
    stranger = Engine(post.engine.db, Penstock(), vault=VAULT, outbound=post.engine.outbound)
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
    receiver.answered(Result(status, seconds=seconds), 100.0)
    assert receiver.room == room


def test_rest_grows_with_each_failure_and_ends_with_the_first_answer() -> None:
    receiver = couriers._Receiver()
    rests: list[float] = []
    for _ in range(9):
        receiver.answered(Result(503), 100.0)
        rests.append(receiver.rests_until - 100.0)
    assert rests[:4] == [0.0, 0.5, 1.0, 2.0]
    assert rests == sorted(rests)
    assert rests[-1] == 10.0
    assert receiver.left(101.0) == 0
    receiver.answered(Result(429, headers={"retry-after": "30"}), 100.0)
    assert receiver.rests_until == 130.0
    receiver.answered(Result(200), 100.0)
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
