"""PAR-1 to PAR-7: the envelope, polling, stages and progress, and answers that never change."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.partner.deployments import (
    RUNNING_FIELDS,
    STARTS,
    TENANT,
    kind_names,
    made,
    number,
    running_deployment,
)

from millpond.errors import InputError, PermanentError, TransientError
from millpond.lifecycle import OUTCOMES
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import Name
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from products.tests.partner.deployments import Deployment, Partner

    from tests.databases import DatabaseServer

JOB_ID = re.compile(r"job_[0-7][0-9A-HJKMNP-TV-Z]{25}")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
POINTERS: dict[Name, dict[str, str]] = {
    "content_generate": {"containerId": "cnt"},
    "influencer_create": {"influencerId": "inf"},
}
ENVELOPE = {"jobId", "kind", "status", "stage", "locationUrl", "startedAt", "projectId"}


@pytest.mark.parametrize("name", kind_names())
async def test_par_01_a_start_answers_202_with_the_envelope(
    deployment: Deployment, partner: Partner, name: Name
) -> None:
    project = await partner.project()
    path, body = STARTS[name]
    async with deployment.paused(name):
        answer = await partner.send("POST", f"/v1/projects/{project}/{path}", body)
        assert answer.status_code == 202
        response = answer.json()
        pointers = POINTERS.get(name, {})
        assert set(response) == ENVELOPE | set(pointers)
        assert JOB_ID.fullmatch(response["jobId"])
        assert re.fullmatch(f"prj_{UUID}", project)
        assert all(re.fullmatch(f"{prefix}_{UUID}", response[field]) for field, prefix in pointers.items())
        assert TIME.fullmatch(response["startedAt"])
        assert (response["kind"], response["status"], response["stage"], response["projectId"]) == (
            name,
            "running",
            "queued",
            project,
        )
        assert answer.headers["location"] == response["locationUrl"] == f"/partner/v1/jobs/{response['jobId']}"
        read = await partner.http.get(
            f"{deployment.url}{response['locationUrl']}", headers={"Authorization": f"Bearer {partner.key}"}
        )
        assert read.json()["jobId"] == response["jobId"]
    assert (await partner.ended(response["jobId"]))["status"] == "completed"


async def test_par_01_ids_sort_by_time_and_are_read_in_upper_or_in_lower_case(partner: Partner) -> None:
    project = await partner.project()
    jobs = [(await partner.start("appstore_ingest", project))["jobId"] for _ in range(5)]
    assert jobs == sorted(jobs)
    assert (await partner.job(jobs[0].lower()))["jobId"] == jobs[0]
    mixed = jobs[0].title().replace("Job", "job")
    for other in (mixed, f"JOB{jobs[0][3:]}"):
        assert (await partner.send("GET", f"/v1/jobs/{other}")).status_code == 404
    upper = project.upper().replace("PRJ", "prj")
    assert (await partner.send("GET", f"/v1/projects/{upper}")).status_code == 404


@pytest.mark.parametrize("name", kind_names())
async def test_par_02_a_running_job_reports_progress_and_stage(
    deployment: Deployment, partner: Partner, name: Name
) -> None:
    go_on = asyncio.Event()

    async def half(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await job.stage(KINDS[name].stages[0])
        await job.progress(0.42)
        await go_on.wait()
        return made(given)

    deployment.scripts[name] = half
    started = await partner.start(name)
    response = await partner.until(started["jobId"], KINDS[name].stages[0])
    while response["progress"] == 0:
        response = await partner.job(started["jobId"])
    assert set(response) == RUNNING_FIELDS | set(POINTERS.get(name, {}))
    assert response["progress"] == 0.42
    assert {field: response[field] for field in ("startedAt", "projectId", "jobId", "kind")} == {
        field: started[field] for field in ("startedAt", "projectId", "jobId", "kind")
    }
    go_on.set()
    assert (await partner.ended(started["jobId"]))["status"] == "completed"


async def test_par_03_a_completed_job_has_a_result_with_its_assets(deployment: Deployment, partner: Partner) -> None:
    async def paint(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        saved = await job.save("one.png", b"pixels", "image/png")
        asset = {"assetId": saved.id, "type": "image", "contentType": "image/png", "bytes": 6, "name": "one.png"}
        return made(given) | {"assets": [asset]}

    deployment.scripts["content_generate"] = paint
    started = await partner.start("content_generate")
    response = await partner.ended(started["jobId"])
    assert set(response) == {
        *("jobId", "kind", "status", "projectId", "containerId", "startedAt", "finishedAt", "result")
    }
    assert response["result"]["containerId"] == started["containerId"]
    (asset,) = response["result"]["assets"]
    assert asset["url"] == f"/partner/v1/assets/{asset['assetId']}"
    led = await partner.send("GET", f"/v1/assets/{asset['assetId']}")
    assert (led.status_code, led.headers["cache-control"]) == (302, "no-store")
    assert (await partner.http.get(led.headers["location"])).content == b"pixels"
    stranger = await deployment.partner()
    await stranger.refused("GET", f"/v1/assets/{asset['assetId']}", status=404, code="NOT_FOUND")


async def _terminal(partner: Partner, job_id: str) -> tuple[bytes, str, str]:
    answer = await partner.send("GET", f"/v1/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return answer.content, answer.headers["etag"], answer.headers["cache-control"]


async def _one_of_each_end(deployment: Deployment, partner: Partner) -> list[str]:
    """A job that is completed, one that has failed, one that was canceled."""

    async def fail(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        raise PermanentError("No such app.", code="NOT_FOUND", field="appId")

    async def paint(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        saved = await job.save("one.png", b"pixels", "image/png")
        return made(given) | {"assets": [{"assetId": saved.id, "type": "image"}], "share": 0.1, "count": 12345678901234}

    deployment.scripts |= {"appstore_ingest": fail, "content_generate": paint}
    project = await partner.project()
    started = [(await partner.start(name, project))["jobId"] for name in ("content_generate", "appstore_ingest")]
    async with deployment.paused("influencer_create"):
        started.append((await partner.start("influencer_create", project))["jobId"])
        await partner.post(f"/v1/jobs/{started[-1]}/cancel", status=202)
    ends = [(await partner.ended(job_id))["status"] for job_id in started]
    assert ends == ["completed", "failed", "canceled"]
    return started


async def test_par_03_a_terminal_answer_is_the_same_for_ever(deployment: Deployment, partner: Partner) -> None:
    jobs = await _one_of_each_end(deployment, partner)
    first = [await _terminal(partner, job_id) for job_id in jobs]
    for (body, tag, cache), job_id in zip(first, jobs, strict=True):
        assert {"private", "immutable"} <= {word.strip() for word in cache.split(",")}
        known = await partner.send("GET", f"/v1/jobs/{job_id}", headers={"If-None-Match": tag})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        assert b'"finishedAt"' in body
    for job_id in jobs:  # whatever is tried with them
        for path in (f"/v1/jobs/{job_id.lower()}/retry", f"/v1/jobs/{job_id.lower()}/transition"):
            headers = {"Authorization": f"Bearer {deployment.admin.key}"}
            tried = await deployment.http.post(f"{deployment.url}{path}", json={"state": "running"}, headers=headers)
            assert tried.status_code in {403, 409, 422}, tried.text
        assert (await partner.send("POST", f"/v1/jobs/{job_id}/cancel")).status_code == 200
    artifacts = await deployment.engine.artifacts.of_job(TENANT, number(jobs[0]))
    for record in artifacts:
        await deployment.engine.artifacts.delete(record)
    assert [await _terminal(partner, job_id) for job_id in jobs] == first
    (asset,) = (await partner.job(jobs[0]))["result"]["assets"]
    await partner.refused("GET", f"/v1/assets/{asset['assetId']}", status=404, code="NOT_FOUND")


async def test_par_03_a_terminal_answer_stays_the_same_where_the_server_is_started_again_and_moved(
    server: DatabaseServer, template: str, tmp_path: Path
) -> None:
    async with server.database(template) as dsn:
        async with running_deployment(dsn, tmp_path) as deployment:
            partner = await deployment.partner(account="mover")
            jobs = await _one_of_each_end(deployment, partner)
            first = [await _terminal(partner, job_id) for job_id in jobs]
        async with running_deployment(dsn, tmp_path, alone=True) as deployment:
            partner = await deployment.partner(account="mover", amount=0)
            assert [await _terminal(partner, job_id) for job_id in jobs] == first
            assert (await partner.start("appstore_ingest"))["locationUrl"].startswith("/v1/jobs/")


async def test_par_03_a_canceled_job_carries_neither_result_nor_error(deployment: Deployment, partner: Partner) -> None:
    at_work = asyncio.Event()

    async def slow(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if job.attempt == 1:
            raise TransientError("Not yet.")
        await job.stage("fetching")
        at_work.set()
        while True:
            await job.checkpoint()
            await asyncio.sleep(0.01)

    deployment.scripts["appstore_ingest"] = slow
    started = await partner.start("appstore_ingest")
    await asyncio.wait_for(at_work.wait(), PATIENCE)
    assert await partner.post(f"/v1/jobs/{started['jobId']}/cancel", status=202) == {
        "jobId": started["jobId"],
        "accepted": True,
    }
    response = await partner.ended(started["jobId"])
    assert set(response) == {"jobId", "kind", "status", "projectId", "startedAt", "finishedAt"}
    assert response["status"] == "canceled"


def test_par_04_running_leads_to_three_ends_and_none_of_them_anywhere() -> None:
    for kind in KINDS.values():
        states = kind.lifecycle.states
        assert set(states) == {"running", "completed", "failed", "canceled"}
        assert kind.lifecycle.pairs == {("running", end) for end in ("completed", "failed", "canceled")}
        taken = {transition.event for transition in kind.lifecycle.transitions if states[transition.target].outcome}
        assert taken == set(OUTCOMES)


async def test_par_05_progress_never_goes_back_whatever_a_worker_says(deployment: Deployment, partner: Partner) -> None:
    steps: asyncio.Queue[float] = asyncio.Queue()
    said: list[Any] = []

    async def lying(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if job.attempt == 2:
            await job.progress(0.1)  # begun again
        while (value := await steps.get()) is not None:
            try:
                await job.progress(value)
                said.append(value)
            except InputError as error:
                said.append(error.field)
            await asyncio.sleep(0.26)  # what comes sooner is passed over
        if job.attempt == 1:
            raise TransientError("Once more.")
        return made(given)

    deployment.scripts["content_generate"] = lying
    started = await partner.start("content_generate")
    seen: list[float] = []
    stop: Any = None
    for value in (0.3, 0.2, 0.3, 0.7, 7.0, math.nan, -1.0, 0.5, stop, 0.2, 0.4, 0.9, math.inf, 0.8):
        await steps.put(value)
    async with asyncio.timeout(PATIENCE):
        while (response := await partner.job(started["jobId"]))["status"] == "running":
            seen.append(response["progress"])
            if len(said) == 13 and seen[-1] >= 0.9:
                await steps.put(stop)
            await asyncio.sleep(0.02)
    assert said == [0.3, 0.2, 0.3, 0.7, "progress", "progress", "progress", 0.5, 0.2, 0.4, 0.9, "progress", 0.8]
    assert seen == sorted(seen)
    assert set(seen) <= {0.0, 0.3, 0.7, 0.9}
    assert seen[-1] == 0.9


@pytest.mark.parametrize("name", kind_names())
async def test_par_06_stages_come_in_their_order_whatever_a_worker_says(
    deployment: Deployment, partner: Partner, name: Name
) -> None:
    """It goes back, repeats, jumps, and names what does not exist; between two words it waits until it was seen."""
    first, *_, last = stages = KINDS[name].stages
    seen: list[str] = []
    steps: asyncio.Queue[str | None] = asyncio.Queue()
    refused: list[str] = []

    async def lying(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        while (stage := await steps.get()) is not None:
            try:
                await job.stage(stage)
            except InputError:
                refused.append(stage)
            steps.task_done()
        return made(given)

    deployment.scripts[name] = lying
    async with deployment.paused(name):
        started = await partner.start(name)
        seen.append((await partner.job(started["jobId"]))["stage"])
    for stage in (first, first, "queued", "daydreaming", last, first, *stages[1:-1], last):
        await steps.put(stage)
        await steps.join()
        seen.append((await partner.job(started["jobId"]))["stage"])
    await steps.put(None)
    assert (await partner.ended(started["jobId"]))["status"] == "completed"
    assert refused == ["queued", "daydreaming"]
    assert list(dict.fromkeys(seen)) == ["queued", first, last]
    places = ["queued", *stages]
    assert [places.index(stage) for stage in seen] == sorted(places.index(stage) for stage in seen)


async def test_par_06_a_second_attempt_does_not_take_the_stage_back(deployment: Deployment, partner: Partner) -> None:
    again = asyncio.Event()

    async def stumbling(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if job.attempt == 1:
            await job.stage("parsing")
            raise TransientError("Once more.")
        await job.stage("fetching")
        again.set()
        await job.stage("merging_context")
        return made(given)

    deployment.scripts["project_ingest_website"] = stumbling
    started = await partner.start("project_ingest_website")
    seen: list[str] = []
    while (response := await partner.job(started["jobId"]))["status"] == "running":
        seen.append(response["stage"])
        await asyncio.sleep(0.01)
    assert again.is_set()
    assert [stage for stage in dict.fromkeys(seen) if stage != "merging_context"] in (
        ["queued", "parsing"],
        ["parsing"],
    )


def test_par_07_the_kinds_and_their_stages() -> None:
    assert {name: " ".join(kind.stages) for name, kind in KINDS.items()} == {
        "project_ingest_github": "cloning analyzing generating_sdk_patch opening_pr finalizing",
        "project_ingest_website": "fetching parsing merging_context",
        "appstore_ingest": "fetching parsing merging_context",
        "content_generate": "planning generating_visuals assembling rendering",
        "influencer_create": "generating rendering_references",
    }


async def test_par_07_a_job_is_listed_for_its_owner_alone(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    async with deployment.paused("appstore_ingest"):
        running = (await partner.start("appstore_ingest", project))["jobId"]
        done = (await partner.start("project_ingest_website", project))["jobId"]
        await partner.ended(done)
        await deployment.engine.submit("elsewhere", {}, tenant=TENANT, account=partner.account)
        listed = await partner.get("/v1/jobs")
        assert [job["jobId"] for job in listed["data"]] == [done, running]
        assert listed["data"][0] == await partner.job(done)
        page = await partner.get("/v1/jobs?limit=1")
        rest = await partner.get(f"/v1/jobs?limit=1&cursor={page['nextCursor']}")
        assert [job["jobId"] for job in (*page["data"], *rest["data"])] == [done, running]
        only = await partner.get("/v1/jobs?status=running&kind=appstore_ingest")
        assert [job["jobId"] for job in only["data"]] == [running]
    stranger = await deployment.partner()
    assert (await stranger.get("/v1/jobs"))["data"] == []
    await stranger.refused("GET", f"/v1/jobs/{done}", status=404, code="NOT_FOUND")
    await stranger.refused("POST", f"/v1/jobs/{done}/cancel", status=404, code="NOT_FOUND")
    elsewhere = await deployment.engine.submit("elsewhere", {}, tenant=TENANT, account=partner.account)
    await partner.refused("GET", f"/v1/jobs/{elsewhere.id}", status=404, code="NOT_FOUND")


async def test_a_job_that_is_late_has_timed_out(deployment: Deployment, partner: Partner) -> None:
    async with deployment.paused("appstore_ingest"):
        started = await partner.start("appstore_ingest")
        await deployment.clock.advance(timedelta(minutes=6))
        response = await partner.ended(started["jobId"])
    assert response["error"] == {
        "code": "TIMEOUT",
        "message": "The job did not end before its deadline. The credits were released.",
        "details": {},
    }
