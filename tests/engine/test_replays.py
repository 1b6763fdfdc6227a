"""Replays: a key answers with the job of its own tenant, scope and request, as long as it must."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.jobs import idempotency
from millpond.engine.jobs import jobs as verbs
from millpond.errors import IdempotencyConflictError
from tests.engine.test_lease_boundaries import TICK, frozen
from tests.factories import ACCOUNT, OWNER, STRANGER, TENANT

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory
    from tests.post import Post

DAY = timedelta(days=1)
OWNERS = {
    "of the tenant": OWNER,
    "of the same account elsewhere": OWNER | {"tenant": STRANGER},
    "of another account": OWNER | {"account": "bob"},
}


async def test_each_owner_of_a_key_is_answered_with_the_job_that_it_made(engine: Engine) -> None:
    """Also below the views: the statement that finds an answer compares the tenant and the scope itself."""
    made = {name: await engine.submit("free", **owner, idempotency_key="k") for name, owner in OWNERS.items()}
    assert len({each.job_id for each in made.values()}) == len(OWNERS)
    for name, owner in OWNERS.items():
        again = await engine.submit("free", **owner, idempotency_key="k")
        known = await engine.replay("free", **owner, idempotency_key="k")
        assert known is not None
        assert (again.job_id, again.is_replay) == (known.job_id, known.is_replay) == (made[name].job_id, True)


async def test_a_key_that_only_others_have_used_is_a_new_one(engine: Engine, db: Database) -> None:
    await engine.submit("free", **OWNER, idempotency_key="k")
    for owner in (OWNERS["of the same account elsewhere"], OWNERS["of another account"]):
        assert await engine.replay("free", **owner, idempotency_key="k") is None
        (judged,) = await db.run(
            verbs.SQL["judge"], [owner["tenant"]], [owner["account"]], [owner["account"]], ["k"], 1
        )
        assert not judged["is_replay"]
    (judged,) = await db.run(verbs.SQL["judge"], [TENANT], [ACCOUNT], [ACCOUNT], ["k"], 1)
    assert judged["is_replay"]


async def test_a_key_of_a_job_of_another_kind_is_a_conflict(engine: Engine, make: Factory) -> None:
    await make.credits(50)
    await engine.submit("free", **OWNER, idempotency_key="k")
    with pytest.raises(IdempotencyConflictError):
        await engine.submit("brief", **OWNER, idempotency_key="k")


async def test_a_replay_states_what_was_answered_first_however_far_the_job_is(engine: Engine, make: Factory) -> None:
    first = await engine.submit("free", **OWNER, idempotency_key="k")
    await make.serve("free")
    again = await engine.submit("free", **OWNER, idempotency_key="k")
    assert (again.is_replay, again.state) == (True, first.state)


async def kept(post: Post, phase: str) -> UUID:
    """A job with a key, in this phase, far from its deadline."""
    given: dict[str, Any] = {"idempotency_key": "k", "expires_in": 90 * DAY}
    if phase == "waiting":
        given["run_at"] = await post.make.clock.now() + 80 * DAY
    job_id = (await post.make.submitted("delivered", hook=post.hook("error"), **given)).job_id
    if phase in ("leased", "parked", "delivering"):
        (lease,) = await post.make.claimed("delivered", duration=60 * DAY)
        if phase == "parked":
            await post.engine.park(lease)
        elif phase == "delivering":
            await post.make.finish(lease)
    assert (await post.make.read(job_id)).phase == phase
    return job_id


@pytest.mark.parametrize("phase", ["waiting", "ready", "leased", "parked", "delivering"])
async def test_the_key_of_a_job_that_has_not_ended_is_not_forgotten(post: Post, phase: str) -> None:
    await kept(post, phase)
    await post.make.clock.advance(30 * DAY)
    assert await idempotency.prune(post.engine.db, DAY, 10) == 0


async def test_a_key_is_kept_until_the_last_second_of_its_window(engine: Engine, db: Database, make: Factory) -> None:
    first = await engine.submit("free", **OWNER, idempotency_key="k")
    await make.serve("free")
    async with frozen(make.clock, first.created_at + DAY):
        assert await idempotency.prune(db, DAY, 10) == 0
    async with frozen(make.clock, first.created_at + DAY + TICK):
        assert await idempotency.prune(db, DAY, 10) == 1
