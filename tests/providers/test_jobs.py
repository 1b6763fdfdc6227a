"""Jobs that a provider runs, from the submit to the end, whatever happens to the calls between us and it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx2
import pytest

from millpond.errors import ProviderMissingError
from millpond.retry import Backoff
from tests.checks import until
from tests.doubles.replicate import Refusal, Replicate
from tests.factories import TENANT
from tests.lifecycles import RESTARTABLE
from tests.providers.deployments import PRICE, Deployment, kind, make_app, running_deployment, services
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from millpond.storage.local import Local
    from tests.clocks import Clock

FOREVER = 3600.0


async def test_what_a_provider_makes_is_in_storage_when_the_job_has_succeeded(
    here: Deployment, double: Replicate
) -> None:
    job_id = await here.submit()
    job = await here.ended(job_id)
    assert (job.state, job.captured, job.attempts) == ("succeeded", PRICE, 0)
    (made,) = await here.engine.artifacts.of_job(TENANT, job_id)
    assert (made.name, made.content_type) == ("out-0.png", "image/png")
    assert await here.engine.artifacts.fetch(made) == double.picture
    assert job.output["files"] == [made.id]
    await here.settled()
    assert len(double.predictions) == 1
    assert double.canceled == []
    (body,) = double.bodies
    assert body["webhook_events_filter"] == ["completed"]
    assert body["webhook"].startswith(f"{here.site and here.site.url}/v1/callbacks/replicate/")
    assert double.heads[0]["cancel-after"] in ("3599s", "3600s")


async def test_a_provider_that_never_calls_is_asked(here: Deployment) -> None:
    job = await here.ended(await here.submit(callbacks=0))
    assert job.state == "succeeded"
    assert await here.rows("callbacks") == []


async def test_without_a_public_url_no_callback_is_asked_for(
    here: Deployment, double: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here.engine.providers, "callbacks_url", None)
    assert (await here.ended(await here.submit())).state == "succeeded"
    assert "webhook" not in double.bodies[0]


async def test_a_callback_before_the_answer_to_the_prediction_is_not_lost(here: Deployment, double: Replicate) -> None:
    job_id = await here.submit(is_early=True, callbacks=2)
    assert (await here.ended(job_id)).state == "succeeded"
    assert len(double.predictions) == 1
    (heard,) = await here.rows("callbacks")
    assert (heard["verdict"], heard["times"]) == ("accepted", 2)


async def test_what_fails_at_the_provider_fails_at_once(here: Deployment, double: Replicate) -> None:
    job = await here.ended(await here.submit(status="failed", error="The prompt is too long."))
    assert (job.state, job.error["message"], job.captured) == ("failed", "The prompt is too long.", 0)
    assert len(double.predictions) == 1
    assert await here.balance() == (PRICE, 0)


async def test_bad_input_at_the_provider_fails_at_once(here: Deployment, double: Replicate) -> None:
    double.refusals.append(Refusal(422, "- input.width: must be at most 1024"))
    job = await here.ended(await here.submit())
    assert (job.state, job.attempts) == ("failed", 0)
    assert "input.width" in job.error["message"]
    assert len(double.bodies) == 1
    assert await here.balance() == (PRICE, 0)


async def test_passing_errors_are_tried_three_times(here: Deployment, double: Replicate) -> None:
    double.refusals.extend([Refusal(500), Refusal(502)])
    assert (await here.ended(await here.submit())).state == "succeeded"
    double.refusals.extend([Refusal(500)] * 3)
    job = await here.ended(await here.submit())
    assert (job.state, job.attempts) == ("failed", 3)
    assert len(double.bodies) == 6
    assert await here.balance() == (PRICE, 0)


async def test_a_provider_that_says_when_to_come_again_burns_no_attempt(here: Deployment, double: Replicate) -> None:
    double.refusals.extend([Refusal(429, headers={"Retry-After": "1"})] * 4)
    jobs = [await here.submit() for _ in range(2)]
    other = (await here.engine.submit("plain", **here.owner)).job_id
    first, *ended = [await here.ended(job_id) for job_id in (other, *jobs)]
    assert [(job.state, job.attempts) for job in (first, *ended)] == [("succeeded", 0)] * 3
    assert all(first.finished_at and job.finished_at and first.finished_at < job.finished_at for job in ended)


async def test_the_jobs_of_a_resting_provider_stay_in_line(here: Deployment, double: Replicate) -> None:
    double.refusals.append(Refusal(429, headers={"Retry-After": "60"}))
    first = await here.submit()
    await here.until(first, lambda job: job.phase == "parked")
    later = await here.submit()
    assert (await here.ended((await here.engine.submit("plain", **here.owner)).job_id)).state == "succeeded"
    assert (await here.read(later)).phase == "ready"
    assert here.engine.providers.resting() == {"paint", "album"}
    assert len(double.bodies) == 1
    for job_id in (first, later):
        await here.engine.cancel(TENANT, job_id)


async def test_a_lost_answer_costs_another_prediction_and_no_other_charge(here: Deployment, double: Replicate) -> None:
    lost = iter([True, False])
    plan = double.plan
    double.plan = lambda given: plan(given | {"script": {"is_lost": next(lost), "callbacks": 0, "seconds": 0.01}})
    job = await here.ended(await here.submit())
    assert (job.state, job.captured, job.attempts) == ("succeeded", PRICE, 1)
    assert len(double.predictions) == 2
    await here.settled()
    assert sorted(row["status"] for row in await here.rows("predictions")) == ["over", "unwanted"]


async def test_a_callback_reports_the_name_that_a_lost_answer_did_not(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    slow = make_app(kind(backoff=Backoff(first=timedelta(minutes=1))))
    async with running_deployment(dsn, files, double, slow) as here:
        job_id = await here.submit(is_lost=True)
        await here.until(job_id, lambda job: job.phase == "waiting")
        await until(lambda: asyncio.sleep(0, bool(double.sent) and len(double.reported) == len(double.sent)))
        await clock.advance(timedelta(minutes=2))
        job = await here.ended(job_id)
        assert (job.state, job.attempts) == ("succeeded", 1)
        assert len(double.predictions) == 1


async def test_a_superseded_prediction_is_canceled_when_it_calls(here: Deployment, double: Replicate) -> None:
    scripts = iter([{"is_lost": True, "seconds": FOREVER}, {"seconds": 0.01}])
    plan = double.plan
    double.plan = lambda given: plan(given | {"script": next(scripts)})
    job_id = await here.submit()
    await here.until(job_id, lambda job: job.attempts == 1)
    assert (await here.ended(job_id)).state == "succeeded"
    await here.settled()
    old = next(iter(double.predictions.values()))
    assert double.canceled == []
    body = b'{"id": "%s", "status": "processing"}' % old["id"].encode()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        await double.post(http, old, double.signed("late", datetime.now(UTC), body), body)
    await here.settled()
    assert double.canceled == [old["id"]]


async def test_a_cancel_reaches_the_provider(here: Deployment, double: Replicate) -> None:
    job_id = await here.submit(seconds=FOREVER)
    await here.until(job_id, lambda job: job.phase == "parked")
    await here.engine.cancel(TENANT, job_id)
    assert (await here.read(job_id)).state == "canceled"
    assert await here.balance() == (PRICE, 0)
    async with asyncio.timeout(PATIENCE):
        while not double.canceled:
            await asyncio.sleep(0.02)
    await here.settled()
    assert double.canceled == list(double.predictions)


async def test_a_cancel_that_the_provider_does_not_heed_is_repeated(here: Deployment, double: Replicate) -> None:
    job_id = await here.submit(seconds=FOREVER, ignores_cancel=True)
    await here.until(job_id, lambda job: job.phase == "parked")
    await here.engine.cancel(TENANT, job_id)
    async with asyncio.timeout(PATIENCE):
        while len(double.canceled) < 2:
            await here.poll_now()
            await asyncio.sleep(0.05)
    (made,) = double.predictions.values()
    double.end(made, "succeeded")
    await here.settled()
    assert (await here.read(job_id)).state == "canceled"
    assert await here.balance() == (PRICE, 0)


async def test_a_provider_is_asked_to_stop_before_the_job_expires(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    async with running_deployment(dsn, files, double, make_app(kind(expires_in=timedelta(hours=1)))) as here:
        job_id = await here.submit(seconds=FOREVER)
        await here.until(job_id, lambda job: job.phase == "parked")
        await clock.advance(timedelta(hours=1))
        job = await here.ended(job_id)
        assert job.state == "expired"
        assert double.canceled == list(double.predictions)
        stopped = double.predictions[double.canceled[0]]["completed_at"]
        assert job.finished_at is not None
        assert stopped < (job.finished_at - clock.offset).isoformat()
        await here.settled()
        assert await here.balance() == (PRICE, 0)


async def test_what_is_done_at_the_deadline_is_collected(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    """The customer gets what was paid for: the deadline is when nobody waits any longer, not when nothing counts."""
    app = make_app(kind(expires_in=timedelta(hours=1)))
    async with running_deployment(dsn, files, double, app, with_services=False) as here:
        job_id = await here.submit(callbacks=0)
        await here.until(job_id, lambda job: job.phase == "parked")
        made = double.predictions.values()
        await until(lambda: asyncio.sleep(0, all(each["status"] == "succeeded" for each in made)))
        await clock.advance(timedelta(hours=1))
        for service in services(here.engine):
            await service.run_once()
        job = await here.ended(job_id)
        assert (job.state, job.captured) == ("succeeded", PRICE)


async def test_a_job_whose_provider_cannot_be_reached_expires_all_the_same(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    app = make_app(kind(expires_in=timedelta(seconds=60)))
    async with running_deployment(dsn, files, double, app) as here:
        job_id = await here.submit(seconds=FOREVER)
        await here.until(job_id, lambda job: job.phase == "parked")
        double.illness = Refusal(500)
        double.asked.clear()
        await clock.advance(timedelta(seconds=75))
        await until(lambda: asyncio.sleep(0, bool(double.asked)))
        assert (await here.read(job_id)).phase == "parked"  # within the grace it is tried
        await clock.advance(timedelta(seconds=30))
        assert (await here.ended(job_id)).state == "expired"
        assert await here.balance() == (PRICE, 0)
        double.illness = None
        here.engine.providers.client("replicate").breaker._rests_until = 0
        await here.settled()
        assert double.canceled == list(double.predictions)


async def test_a_late_success_refunds_nothing_twice(here: Deployment, double: Replicate) -> None:
    job_id = await here.submit(seconds=FOREVER, ignores_cancel=True)
    await here.until(job_id, lambda job: job.phase == "parked")
    await here.engine.cancel(TENANT, job_id)
    (made,) = double.predictions.values()
    double.end(made, "succeeded")
    served = double.scripts[made["id"]]
    served.callbacks = 2
    before = await here.balance()
    await double._call_back(made, served)
    await here.settled()
    assert (await here.read(job_id)).state == "canceled"
    assert await here.balance() == before == (PRICE, 0)
    assert {row["verdict"] for row in await here.rows("callbacks")} == {"late"}


async def test_an_output_that_is_gone_fails_the_job(here: Deployment) -> None:
    job = await here.ended(await here.submit(is_removed=True))
    assert job.state == "failed"
    assert "deleted the output" in job.error["message"]
    assert await here.balance() == (PRICE, 0)


async def test_an_output_that_leads_inside_is_not_fetched(here: Deployment, double: Replicate) -> None:
    job = await here.ended(await here.submit(output="http://127.0.0.1:9/secrets"))
    assert (job.state, job.error["code"]) == ("failed", "url_refused")


async def test_every_url_of_an_output_is_fetched_once(here: Deployment, double: Replicate) -> None:
    url = f"{double.url}/files/%s/a.png"
    data = "data:text/plain;base64,aGVsbG8="
    job_id = await here.submit(seconds=FOREVER, callbacks=0)
    await here.until(job_id, lambda job: job.phase == "parked")
    (made,) = double.predictions.values()
    named = url % made["id"]
    double.end(made, "succeeded", {"big": named, "again": [named, data], "text": "see http://x.test for more"})
    job = await here.ended_soon(job_id)
    assert job.state == "succeeded"
    found = await here.engine.artifacts.of_job(TENANT, job_id)
    assert [(file.name, file.content_type) for file in found] == [("a.png", "image/png"), ("output.txt", "text/plain")]


async def test_a_kind_without_its_provider_is_refused_before_it_costs_anything(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(dsn, files, double, with_provider=False) as here:
        with pytest.raises(ProviderMissingError):
            await here.submit()
        assert await here.balance() == (PRICE, 0)
        (answer,) = await here.engine.submit_many([{"kind": "paint", "tenant": TENANT, "account": here.account}])
        assert isinstance(answer, ProviderMissingError)
        assert here.site is not None
        response = await here.site.post("/v1/jobs", {"kind": "paint", "input": {}})
        assert (response.status_code, response.json()["code"]) == (503, "provider_missing")


async def test_a_retry_in_place_is_another_prediction(dsn: str, files: Local, double: Replicate) -> None:
    async with running_deployment(dsn, files, double, make_app(kind(lifecycle=RESTARTABLE))) as here:
        results = iter([{"status": "failed", "error": "It broke."}, {}])
        plan = double.plan
        double.plan = lambda given: plan(given | {"script": next(results)})
        job_id = await here.submit()
        assert (await here.ended(job_id)).state == "failed"
        await here.engine.retry(TENANT, job_id)
        job = await here.until(job_id, lambda job: job.state == "completed")
        assert job.run == 2
        await here.settled()
        assert len(double.predictions) == 2
        assert {row["run"] for row in await here.rows("predictions")} == {1, 2}


@pytest.mark.parametrize("kind", ["paint", "album"])
async def test_a_client_cannot_answer_for_a_provider(here: Deployment, kind: str) -> None:
    """An answer would wake the job before its prediction has ended."""
    assert here.site is not None
    job_id = await here.submit(kind, seconds=3600, callbacks=0)
    job = await here.until(job_id, lambda job: job.phase == "parked")
    path = f"/v1/jobs/{job.id}/answer"
    refused = await here.site.post(path, {"answer": {}}, key=await here.site.key(account=here.account))
    assert (refused.status_code, refused.json()["needed"]) == (403, "operator")
    assert (await here.read(job_id)).phase == "parked"
    await here.engine.cancel(TENANT, job_id)
    await here.settled()
