"""Phases: what holds for running jobs holds for those that wait, are parked or being delivered."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from millpond.engine.credits import holds
from millpond.engine.webhooks import deliveries
from millpond.errors import LeaseLostError, TransitionDeniedError
from millpond.store import partitions
from tests.checks import refused, unchanged
from tests.engine.test_replays import kept
from tests.factories import ACCOUNT, TENANT, attempt

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory
    from tests.post import Post

PHASES = ("waiting", "ready", "leased", "parked", "delivering")
WEEK = timedelta(weeks=1)
REVIVE = "select verdict from millpond.revive_job($1, $2, interval '1 hour')"
DROP_LOCK = "select pg_try_advisory_xact_lock(1885695604)"


class Undone(Exception):  # noqa: N818 - no error: it rolls a transaction back
    """Rolls back what a block has done."""


@pytest.mark.parametrize("phase", PHASES)
async def test_a_week_with_a_job_that_has_not_ended_is_not_dropped(post: Post, phase: str) -> None:
    job_id = await kept(post, phase)
    await post.make.clock.advance(5 * WEEK)
    await partitions.drop(post.engine.db, 3 * WEEK)
    assert (await post.make.read(job_id)).phase == phase
    assert await post.make.types(job_id)
    hook = await post.engine.db.run(deliveries.SQL["hook"], job_id, TENANT)
    assert hook is not None


@pytest.mark.parametrize("phase", PHASES)
async def test_the_hold_of_a_job_that_has_not_ended_is_listed(post: Post, phase: str) -> None:
    job_id = await kept(post, phase)
    page = await holds.page(post.engine, TENANT)
    assert [(hold.job_id, hold.phase, hold.price) for hold in page.data] == [(job_id, phase, 5)]


@pytest.mark.parametrize("phase", ["ready", "parked"])
async def test_the_input_of_a_job_that_has_not_ended_is_kept(engine: Engine, make: Factory, phase: str) -> None:
    record = await engine.artifacts.save(TENANT, ACCOUNT, name="x", content_type="text/plain", data=b"x")
    await make.submitted("free", {"image": record.id}, expires_in="3000d")
    if phase == "parked":
        (lease,) = await make.claimed("free")
        await engine.park(lease)
    await make.clock.advance(timedelta(days=1000))
    await engine.artifacts.sweep()
    assert (await engine.artifacts.read(TENANT, record.id)).id == record.id


async def test_a_job_whose_cancel_was_requested_does_not_continue(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    await engine.cancel(TENANT, lease.job_id)
    async with refused(db, LeaseLostError):
        await engine.proceed(lease, {"yes": True})


async def test_the_result_of_a_delivery_ends_no_job_that_is_not_being_delivered(db: Database, make: Factory) -> None:
    jobs_elsewhere = [(await make.parked()).job_id, (await make.leased("brief")).job_id]
    jobs_elsewhere.append((await make.submitted("brief")).job_id)
    async with unchanged(db):
        assert await db.run(deliveries.SQL["conclude"], "succeeded", jobs_elsewhere) == []


async def test_a_retry_keeps_the_week_of_its_job_until_it_commits(db: Database, engine: Engine, make: Factory) -> None:
    """The pruner takes this lock alone before it drops a week."""
    job = await make.ended("restartable", "failed")
    with contextlib.suppress(Undone):
        async with db.transaction() as retrying:
            assert await retrying.fetchval(REVIVE, TENANT, job.job_id) == "revived"
            async with db.transaction() as pruning:
                assert await pruning.fetchval(DROP_LOCK) is False
            raise Undone


async def test_a_retry_in_place_knows_nothing_of_the_former_run(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("restartable")
    async with db.transaction() as tx:
        await tx.execute(
            """update millpond.jobs set memo = '{"of": "run 1"}', answer = '{"to": "run 1"}' where id = $1""",
            lease.job_id,
        )
    await make.finish(lease, "failed")
    await engine.retry(TENANT, lease.job_id)
    (again,) = await make.claimed("restartable")
    assert (again.run, again.memo, again.answer) == (2, None, None)


async def test_a_success_has_no_error_of_an_earlier_attempt(engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    await engine.give_back(attempt(lease))
    assert (await make.read(lease.job_id)).error is not None
    await make.serve("brief")
    job = await make.read(lease.job_id)
    assert (job.outcome, job.error) == ("succeeded", None)


@pytest.mark.parametrize("state", ["running", "queued"])
async def test_no_operator_starts_or_retries_a_job_by_a_transition(
    db: Database, engine: Engine, make: Factory, state: str
) -> None:
    """Only a claim starts a job, and only a retry makes another hold."""
    job_id = (await make.submitted("brief")).job_id
    async with refused(db, TransitionDeniedError):
        await engine.transition(TENANT, job_id, state)
    ended = await make.ended("restartable", "failed")
    async with refused(db, TransitionDeniedError):
        await engine.transition(TENANT, ended.job_id, "pending")
