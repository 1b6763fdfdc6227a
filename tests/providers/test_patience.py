"""What is not about a job leaves it alone: refused tokens, rests, attempts that are given back, providers that go."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from millpond import logs
from millpond.engine.providers import predictions
from millpond.engine.providers.breakers import Breaker
from millpond.engine.providers.providers import GRACE
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.reads import details
from millpond.engine.tenant_databases import remote
from millpond.providers import Ask
from millpond.services.expirer import expirer
from millpond.services.pruner import pruner
from millpond.services.reaper import reaper
from millpond.services.reconciler import reconciler
from millpond.services.scheduler import scheduler
from millpond.worker.worker import Worker
from tests.doubles.replicate import Refusal, Replicate
from tests.factories import HOUR, MINUTE, TENANT
from tests.providers.deployments import PRICE, Deployment, kind, make_app, running_deployment
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.queue.leases import Lease
    from millpond.storage.local import Local
    from tests.clocks import Clock
    from tests.databases import DatabaseServer

FOREVER = 3600.0
ALONE: dict[str, Any] = {"with_site": False, "with_worker": False, "with_services": False}


def rested(here: Deployment) -> None:
    line = here.engine.providers.client("replicate")
    line.breaker = Breaker(line.name)


async def asked_again(here: Deployment, double: Replicate) -> None:
    """Until the provider was asked once more, and that was dealt with."""
    double.asked.clear()
    await here.poll_now()
    async with asyncio.timeout(PATIENCE):
        while not double.asked:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)  # it is dealt with now; on a busy machine less is proved, and nothing fails


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_token_that_is_refused_ends_nothing_that_is_under_way(
    here: Deployment, double: Replicate, status: int
) -> None:
    job_id = await here.submit(seconds=FOREVER, callbacks=0)
    await here.until(job_id, lambda job: job.phase == "parked")
    double.illness = Refusal(status, "You did not pass a valid authentication token")
    await asked_again(here, double)
    assert (await here.read(job_id)).phase == "parked"
    (asked,) = await here.rows("predictions")
    assert asked["status"] == "running"
    double.illness = None
    rested(here)
    (made,) = double.predictions.values()
    double.end(made, "succeeded")
    job = await here.ended_soon(job_id)
    assert (job.state, job.captured, job.attempts) == ("succeeded", PRICE, 0)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_cancel_that_is_refused_is_tried_until_it_is_heard(
    here: Deployment, double: Replicate, status: int
) -> None:
    job_id = await here.submit(seconds=FOREVER)
    await here.until(job_id, lambda job: job.phase == "parked")
    double.illness = Refusal(status)
    await here.engine.cancel(TENANT, job_id)
    await asked_again(here, double)
    (asked,) = await here.rows("predictions")
    assert asked["due_at"] is not None
    double.illness = None
    rested(here)
    await here.settled()
    assert double.canceled == list(double.predictions)


async def test_a_wrong_token_burns_no_attempt_of_what_is_new(
    here: Deployment, double: Replicate, capsys: pytest.CaptureFixture[str]
) -> None:
    double.refusals.append(Refusal(401, "You did not pass a valid authentication token"))
    logs.configure("info", as_json=True)
    try:
        job_id = await here.submit()
        await here.until(job_id, lambda job: job.phase == "parked")
    finally:
        logs.silence()
    output = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (resting,) = [line for line in output if line["event"] == "provider.suspended"]
    assert "valid authentication token" in resting["reason"]
    rested(here)
    job = await here.ended_soon(job_id)
    assert (job.state, job.attempts) == ("succeeded", 0)


@contextlib.asynccontextmanager
async def at_work(here: Deployment) -> AsyncIterator[None]:
    """A worker, for as long as the block lasts."""
    from millpond.api.product import bound  # noqa: PLC0415 - here alone
    from millpond.settings import Settings  # noqa: PLC0415 - here alone

    stop = asyncio.Event()
    source = here.engine.source(heartbeat=timedelta(seconds=0.5))
    worker = Worker(source, bound(here.engine, Settings(), ()), slots=1, grace=timedelta(seconds=1))
    running = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def begun(here: Deployment, **options: Any) -> tuple[Lease, predictions.StartedPrediction]:
    """A job whose worker has written what it is about to ask."""
    await here.submit(**options)
    (lease,) = await here.engine.claim(Lanes(("paint",)), 1, worker="w", duration=MINUTE)
    made = await predictions.begin(here.engine.database(TENANT), TENANT, lease.job_id, lease.epoch, "replicate")
    return lease, made


async def deferred(here: Deployment, job_id: UUID) -> timedelta:
    """How long after its deadline a job expires."""
    query = "select wakes_at - expires_at from millpond.dispatches where job_id = $1"
    async with here.engine.db.connection() as connection:
        return await connection.fetchval(query, job_id)


async def test_what_was_given_back_is_still_collected_at_the_deadline(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    async with running_deployment(
        dsn, files, double, make_app(kind(expires_in=timedelta(minutes=10))), **ALONE
    ) as here:
        lease, asked = await begun(here)  # and dies when it has written the answer
        made = await here.engine.providers.client("replicate").submit(
            lease.job_id, Ask("acme/painter", {"script": {"seconds": FOREVER}}), callback=None, deadline=None
        )
        await predictions.sent(here.engine.db, asked.id, made.id)
        await clock.advance(2 * MINUTE)
        await reaper(here.engine).run_once()
        await clock.advance(MINUTE)
        await scheduler(here.engine).run_once()
        async with at_work(here):
            await here.until(lease.job_id, lambda job: job.phase == "parked")
            assert await deferred(here, lease.job_id) == GRACE
            await clock.advance(timedelta(minutes=7, seconds=5))
            double.end(double.predictions[made.id], "succeeded")
            await expirer(here.engine).run_once()
            assert (await here.read(lease.job_id)).phase == "parked"
            await here.poll_now()
            await reconciler(here.engine).run_once()
            job = await here.ended(lease.job_id)
        assert (job.state, job.captured) == ("succeeded", PRICE)
        await here.poll_now()
        await reconciler(here.engine).run_once()


async def test_a_dispatch_that_is_brought_into_step_stays_deferred(
    dsn: str, server: DatabaseServer, template: str, files: Local, double: Replicate
) -> None:
    async with (
        server.database(template) as remote_dsn,
        running_deployment(dsn, files, double, with_site=False, tenant_databases={TENANT: remote_dsn}) as here,
    ):
        job_id = await here.submit(seconds=FOREVER)
        job = await here.until(job_id, lambda job: job.phase == "parked")
        assert await deferred(here, job_id) == GRACE
        place_ = [job_id], ["parked"], [1], [job.attempts], [False]
        await here.engine.db.run(
            remote.SQL["follow"], *place_, MINUTE, None, None
        )  # as a version that knows of no ranks does
        assert await deferred(here, job_id) == GRACE
        await here.engine.cancel(TENANT, job_id)


async def test_what_is_held_again_and_again_waits_longer(dsn: str, files: Local, double: Replicate) -> None:
    async with running_deployment(dsn, files, double, **ALONE) as here:
        lease, asked = await begun(here)
        pauses: list[float] = []
        for looks in (4, 20, 20):
            await predictions.hold(here.engine.db, asked, 1.0)
            async with here.engine.db.connection() as connection:
                query = "select extract(epoch from due_at - millpond.clock())::float8 from millpond.predictions"
                pauses.append(await connection.fetchval(query))
                await connection.execute("update millpond.predictions set looks = $1", looks)
            asked = await predictions.begin(here.engine.db, TENANT, lease.job_id, lease.epoch, "replicate")
        bounds = [(0, 2), (3, 10), (20, 40)]
        assert [low < pause < high for pause, (low, high) in zip(pauses, bounds, strict=True)] == [True] * 3, pauses
        await here.engine.park(lease)


async def test_the_last_prediction_is_that_of_the_last_attempt_whatever_the_clocks_of_its_machines(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(dsn, files, double, **ALONE) as here:
        lease, first = await begun(here)
        await predictions.refuse(here.engine.db, first.id)
        ahead = UUID(int=(1 << 128) - 1)  # as a machine makes whose clock is ahead
        async with here.engine.db.connection() as connection:
            await connection.execute("update millpond.predictions set id = $1", ahead)
        asked = await predictions.begin(here.engine.db, TENANT, lease.job_id, lease.epoch, "replicate")
        await predictions.sent(here.engine.db, asked.id, "pred-1")
        again = await predictions.begin(here.engine.db, TENANT, lease.job_id, lease.epoch, "replicate")
        assert (again.id, again.external_id) == (asked.id, "pred-1")
        described = (await details.read(here.engine, TENANT, lease.job_id)).predictions
        assert [each.prediction_id for each in described] == [ahead, asked.id]
        await here.engine.cancel(TENANT, lease.job_id)


async def test_nobody_is_woken_while_one_call_finds_out_whether_it_is_well(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(dsn, files, double, **ALONE) as here:
        lease, asked = await begun(here)
        await predictions.hold(here.engine.db, asked, 1.0)
        await here.engine.park(lease)
        breaker = here.engine.providers.client("replicate").breaker
        breaker._is_open = True
        breaker.enter()
        await here.poll_now()
        assert await reconciler(here.engine).run_once() == 1
        assert (await here.read(lease.job_id)).phase == "parked"
        breaker.passed()
        await here.poll_now()
        await reconciler(here.engine).run_once()
        assert (await here.read(lease.job_id)).phase == "ready"
        await here.engine.cancel(TENANT, lease.job_id)


async def test_a_cancel_that_comes_before_the_park_ends_the_job_at_once(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(dsn, files, double, **ALONE) as here:
        lease, asked = await begun(here)
        await predictions.sent(here.engine.db, asked.id, "p")
        await here.engine.cancel(TENANT, lease.job_id)
        assert await here.engine.park(lease, {"prediction": "s"}) == "canceled"
        assert (await here.read(lease.job_id)).state == "canceled"
        assert await here.balance() == (PRICE, 0)
        async with here.engine.db.connection() as connection:
            assert await connection.fetchval("select due_at <= millpond.clock() from millpond.predictions")


async def test_what_a_provider_that_is_gone_was_asked_is_closed_with_its_job(
    dsn: str, files: Local, double: Replicate, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_deployment(dsn, files, double, with_services=False) as here:
        waiting = await here.submit(seconds=FOREVER)
        await here.until(waiting, lambda job: job.phase == "parked")
    async with running_deployment(dsn, files, double, with_provider=False, **ALONE) as here:
        prune = pruner(here.engine)
        await prune.run_once()
        await clock.advance(2 * HOUR)
        logs.configure("info", as_json=True)
        try:
            for _ in range(2):
                await prune.run_once()
        finally:
            logs.silence()
        output = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line["provider"] for line in output if line["event"] == "provider.missing"] == ["replicate"]
        (asked,) = await here.rows("predictions")
        assert asked["status"] == "running"  # its job has not ended
        await expirer(here.engine).run_once()
        assert (await here.read(waiting)).state == "expired"
        await prune.run_once()
        (asked,) = await here.rows("predictions")
        assert (asked["status"], asked["due_at"]) == ("over", None)
