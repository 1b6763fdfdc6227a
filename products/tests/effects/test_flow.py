"""From an upload to a result, over HTTP."""

from __future__ import annotations

from products.tests.effects.deployments import Deployment, picture


async def test_the_seed_is_listed(deployment: Deployment) -> None:
    user = await deployment.user()
    page = await user.get("/api/effects")
    assert ("invert", 5) in [(effect["slug"], effect["credits_cost"]) for effect in page["data"]]


async def test_a_job_from_beginning_to_end(deployment: Deployment) -> None:
    slug = await deployment.workflow()
    user, worker = await deployment.user(), await deployment.worker(slug)
    job = await user.order(slug)
    assert job["status"] == "queued"
    taken = await worker.take()
    assert (await worker.complete(taken))["status"] == "completed"
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert video["status"] == "completed"
    assert (await deployment.http.get(video["processed_file_url"])).content == picture("white")
    assert await user.types() == [("PAYMENT_CREDIT", 100), ("JOB_RESERVE", -5), ("JOB_CONSUME", 0)]
