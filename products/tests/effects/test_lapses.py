"""Workers that fall silent. EFX-10, with the clock turned."""

from __future__ import annotations

from datetime import timedelta

import pytest
from products.tests.effects.deployments import Deployment, lease

from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from tests.clocks import Clock


@pytest.fixture(scope="module")
async def clock(deployment: Deployment) -> Clock:
    return Clock(deployment.engine.db)


async def test_efx_10_the_last_lease_that_runs_out_fails_the_job_and_refunds_it(
    deployment: Deployment, clock: Clock
) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    job = await user.order(slug)
    for attempt in (1, 2, 3):
        taken = await worker.take()
        assert taken["attempts"] == attempt
        await clock.advance(timedelta(seconds=901))
        await reaper(deployment.engine).run_once()
        await worker.refused("POST", "/api/worker/heartbeat", lease(taken), status=409)
    assert await worker.poll() is None
    response = await user.get(f"/api/ai-jobs/{job['id']}")
    assert (response["status"], response["attempts"], response["consumed_tokens"]) == ("failed", 3, 0)
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert (video["status"], bool(video["error"])) == ("failed", True)
    assert await user.types() == [("PAYMENT_CREDIT", 100), ("JOB_RESERVE", -5), ("JOB_REFUND", 5)]


async def test_efx_10_what_a_worker_gave_back_does_not_count(deployment: Deployment, clock: Clock) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    worker = await deployment.worker(slug)
    await user.order(slug)
    for _ in range(2):
        await worker.take()
        await clock.advance(timedelta(seconds=901))
        await reaper(deployment.engine).run_once()
        await worker.post("/api/worker/requeue", lease(await worker.take()) | {"reason": "spot"})
    last = await worker.take()
    assert last["attempts"] == 3
    await worker.complete(last)
    assert await user.balance() == 95


async def test_efx_09_a_lease_that_ran_out_is_given_to_another(deployment: Deployment, clock: Clock) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    first, second = await deployment.worker(slug), await deployment.worker(slug)
    await user.order(slug)
    lost = await first.take()
    size = await first.put_output(lost)
    await clock.advance(timedelta(seconds=901))
    await reaper(deployment.engine).run_once()
    won = await second.take()
    assert won["job_id"] == lost["job_id"]
    await first.refused("POST", "/api/worker/complete", lease(lost) | {"output": {"size": size}}, status=409)
    await second.complete(won)


async def test_a_job_that_nobody_takes_expires_with_a_refund(deployment: Deployment, clock: Clock) -> None:
    slug, user = await deployment.workflow(), await deployment.user()
    job = await user.order(slug)
    await clock.advance(timedelta(days=1, minutes=1))
    await expirer(deployment.engine).run_once()
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert (video["status"], video["error"]) == ("expired", "Processing took too long and was stopped.")
    assert await user.balance() == 100
