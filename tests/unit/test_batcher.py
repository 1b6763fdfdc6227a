"""The smart batcher: one round for many callers, to each his own answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from millpond.engine.batcher import Batcher
from millpond.errors import InvalidError, UnavailableError
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

POISON = -1


@dataclass
class Store:
    """Doubles numbers, one batch at a time, when it is let; a negative number breaks its whole batch."""

    batches: list[list[int]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    most_under_way: int = 0

    async def run(self, batch: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(batch))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if POISON in batch:
            raise ValueError(POISON)
        return [InvalidError("odd") if item % 2 else item * 2 for item in batch]


@pytest.fixture
def store() -> Store:
    return Store()


async def settled(*futures: asyncio.Future[int]) -> list[int | BaseException]:
    return await asyncio.gather(*futures, return_exceptions=True)


async def turn() -> None:
    """Let everybody else have a step."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_idle_batcher_runs_at_once(store: Store) -> None:
    store.gate.set()
    assert await Batcher(store.run).add(2) == 4
    assert store.batches == [[2]]


async def test_while_one_batch_is_under_way_the_next_collects(store: Store) -> None:
    batcher = Batcher(store.run)
    first = batcher.add(0)
    await turn()
    others = [batcher.add(item) for item in (2, 4, 6)]
    await turn()
    assert store.batches == [[0]]
    store.gate.set()
    assert await settled(first, *others) == [0, 4, 8, 12]
    assert store.batches == [[0], [2, 4, 6]]


async def test_each_item_has_its_own_outcome(store: Store) -> None:
    store.gate.set()
    batcher = Batcher(store.run)
    good, bad = await settled(batcher.add(2), batcher.add(3))
    assert good == 4
    assert isinstance(bad, InvalidError)


async def test_an_error_of_the_whole_batch_is_pinned_on_the_item_that_causes_it(store: Store) -> None:
    store.gate.set()
    batcher = Batcher(store.run)
    answers = await settled(*(batcher.add(item) for item in (0, 2, POISON, 4, 6, 8, 10)))
    assert [answer for answer in answers if not isinstance(answer, ValueError)] == [0, 4, 8, 12, 16, 20]
    assert isinstance(answers[2], ValueError)


async def test_a_database_that_is_away_is_not_asked_again_for_each_item() -> None:
    calls = 0

    async def run(batch: Sequence[int]) -> list[int | Exception]:
        nonlocal calls
        calls += 1
        raise UnavailableError

    batcher = Batcher(run)
    answers = await settled(*(batcher.add(item) for item in range(10)))
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    assert calls == 1


async def test_a_caller_that_leaves_before_its_turn_is_not_served(store: Store) -> None:
    batcher = Batcher(store.run)
    first, gone, kept = batcher.add(0), None, None
    await turn()
    gone, kept = batcher.add(2), batcher.add(4)
    gone.cancel()
    store.gate.set()
    assert await settled(first, kept) == [0, 8]
    assert store.batches == [[0], [4]]


async def test_a_caller_that_leaves_while_it_is_served_disturbs_nobody(store: Store) -> None:
    batcher = Batcher(store.run)
    gone, kept = batcher.add(2), batcher.add(4)
    await turn()
    gone.cancel()
    store.gate.set()
    assert await kept == 8
    assert await batcher.add(6) == 12


@pytest.mark.parametrize("lanes", [1, 2, 3])
async def test_no_more_batches_run_at_once_than_there_are_lanes(store: Store, lanes: int) -> None:
    batcher = Batcher(store.run, size=2, lanes=lanes)
    futures = [batcher.add(item) for item in range(0, 40, 2)]
    await turn()
    assert store.under_way == lanes
    store.gate.set()
    assert await settled(*futures) == [item * 2 for item in range(0, 40, 2)]
    assert store.most_under_way == lanes


async def test_a_batch_is_no_larger_than_its_limit_and_keeps_the_order(store: Store) -> None:
    store.gate.set()
    batcher = Batcher(store.run, size=3)
    await settled(*(batcher.add(item) for item in range(0, 16, 2)))
    assert store.batches == [[0, 2, 4], [6, 8, 10], [12, 14]]


async def test_a_store_that_answers_too_little_leaves_nobody_waiting() -> None:
    async def run(batch: Sequence[int]) -> list[int | Exception]:
        return [1] if len(batch) == 1 else []

    batcher = Batcher(run)
    async with asyncio.timeout(PATIENCE):
        assert await settled(batcher.add(1), batcher.add(2)) == [1, 1]


async def test_it_goes_on_after_an_error(store: Store) -> None:
    store.gate.set()
    batcher = Batcher(store.run)
    with pytest.raises(ValueError, match="-1"):
        await batcher.add(POISON)
    assert await batcher.add(2) == 4
