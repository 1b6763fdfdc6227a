"""Idempotency keys: kept as long as they must be, and forgotten after that."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from millpond.engine.jobs import idempotency
from millpond.errors import IdempotencyConflictError
from tests.factories import HOUR, OWNER

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

DAY = timedelta(days=1)


async def test_a_key_is_kept_for_its_window(db: Database, engine: Engine, make: Factory) -> None:
    first = await engine.submit("free", **OWNER, idempotency_key="k")
    await make.serve("free")
    await make.clock.advance(DAY - HOUR)
    assert await idempotency.prune(db, DAY, 10) == 0
    assert (await engine.submit("free", **OWNER, idempotency_key="k")).job_id == first.job_id


async def test_after_its_window_a_key_is_free_again(db: Database, engine: Engine, make: Factory) -> None:
    first = await engine.submit("free", **OWNER, idempotency_key="k")
    await make.serve("free")
    await make.clock.advance(DAY + HOUR)
    assert await idempotency.prune(db, DAY, 10) == 1
    second = await engine.submit("free", **OWNER, idempotency_key="k")
    assert second.job_id != first.job_id
    assert not second.is_replay


async def test_a_key_is_not_forgotten_while_its_job_lives(db: Database, engine: Engine, make: Factory) -> None:
    await engine.submit("free", **OWNER, idempotency_key="k")
    await make.clock.advance(30 * DAY)
    assert await idempotency.prune(db, DAY, 10) == 0


async def test_keys_of_living_jobs_do_not_hide_those_that_can_go(db: Database, engine: Engine, make: Factory) -> None:
    for n in range(6):
        await engine.submit("free", **OWNER, idempotency_key=f"living-{n}")
    await engine.submit("free", **OWNER, idempotency_key="done", priority=9)
    await make.serve("free")
    await make.clock.advance(2 * DAY)
    assert await idempotency.prune(db, DAY, 3) == 1
    assert await idempotency.prune(db, DAY, 3) == 0


async def test_a_prune_takes_no_more_than_it_is_asked(db: Database, engine: Engine, make: Factory) -> None:
    for n in range(5):
        await engine.submit("free", **OWNER, idempotency_key=f"k{n}")
    for lease in await make.claimed("free", want=5):
        await make.finish(lease)
    await make.clock.advance(2 * DAY)
    assert [await idempotency.prune(db, DAY, 2) for _ in range(4)] == [2, 2, 1, 0]


async def test_who_asks_first_is_shown_what_a_key_was_answered(engine: Engine) -> None:
    """By the request, whatever the input was made from it at the time."""
    asked = {"idempotency_key": "k", "request": {"path": "/ads", "body": {"n": 1}}}
    assert await engine.replay("free", **OWNER, **asked) is None
    first = await engine.submit("free", {"size": 7}, **OWNER, **asked)
    known = await engine.replay("free", **OWNER, **asked)
    assert known is not None
    assert known.is_replay
    assert (known.job_id, known.price, known.created_at) == (first.job_id, first.price, first.created_at)
    for kind, request in (("free", {"path": "/ads", "body": {"n": 2}}), ("brief", asked["request"])):
        with pytest.raises(IdempotencyConflictError):
            await engine.replay(kind, **OWNER, idempotency_key="k", request=request)


async def test_who_asks_first_need_not_have_the_input(engine: Engine, make: Factory) -> None:
    """Neither its schema nor its price is looked at: it is made only for what is new."""
    await make.credits(3)
    asked = {"idempotency_key": "k", "request": {"order": 1}}
    assert await engine.replay("metered", **OWNER, **asked) is None
    first = await engine.submit("metered", {"units": 3}, **OWNER, **asked)
    known = await engine.replay("metered", **OWNER, **asked)
    assert known is not None
    assert (known.job_id, known.price, known.is_replay) == (first.job_id, 3, True)
