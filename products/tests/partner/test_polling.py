"""PAR-12: polling has a limit of its own, hints and long polls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from products.tests.partner.deployments import TENANT, Deployment, number, running_deployment

from millpond.api.limits import WINDOW
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from products.tests.partner.deployments import Partner

    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def strict(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A server where a key may poll once a second, and ten times at once."""
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder, worker=False, poll_limit=1) as running:
        yield running


async def test_par_12_polling_is_limited_by_key_and_a_refusal_touches_nothing(strict: Deployment) -> None:
    partner, other = await strict.partner(), await strict.partner()
    job_id = (await partner.start("appstore_ingest"))["jobId"]
    before = await strict.engine.read(TENANT, number(job_id))
    answers = [await partner.send("GET", f"/v1/jobs/{job_id}") for _ in range(WINDOW + 3)]
    assert [answer.status_code for answer in answers[:WINDOW]] == [200] * WINDOW
    assert answers[-1].status_code == 429
    response = await partner.refused("GET", f"/v1/jobs/{job_id}", status=429, code="RATE_LIMITED")
    assert response["details"]["retryAfterMs"] >= 1_000
    refused = answers[-1]
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["ratelimit-policy"] == '"key";q=10;w=10'
    assert refused.headers["ratelimit"].startswith('"key";r=0')
    assert answers[0].headers["ratelimit"].startswith('"key";r=9')
    assert await strict.engine.read(TENANT, number(job_id)) == before
    assert (await partner.send("GET", "/v1/projects")).status_code == 200  # which is no polling
    assert (await partner.send("POST", f"/v1/jobs/{job_id}/cancel")).status_code == 202
    mine = (await other.start("appstore_ingest"))["jobId"]
    assert (await other.send("GET", f"/v1/jobs/{mine}")).status_code == 200


async def test_par_12_a_key_with_a_limit_of_its_own_polls_no_more_than_that(deployment: Deployment) -> None:
    partner = await deployment.partner(rate_limit=1)
    project = await partner.project()
    answer = await partner.send("GET", "/v1/jobs")
    assert answer.headers["ratelimit-policy"] == '"key";q=10;w=10'
    assert project


async def test_par_12_a_running_answer_says_when_to_ask_again(deployment: Deployment, partner: Partner) -> None:
    async with deployment.paused("content_generate"):
        started = await partner.start("content_generate")
        answer = await partner.send("GET", f"/v1/jobs/{started['jobId']}")
        assert int(answer.headers["retry-after"]) >= 1
        assert "immutable" not in answer.headers["cache-control"]
        known = await partner.send(
            "GET", f"/v1/jobs/{started['jobId']}", headers={"If-None-Match": answer.headers["etag"]}
        )
        assert (known.status_code, known.content) == (304, b"")
        assert int(known.headers["retry-after"]) >= 1
    assert "retry-after" not in (await _ended(partner, started["jobId"])).headers


async def _ended(partner: Partner, job_id: str):  # noqa: ANN202 - an answer
    await partner.ended(job_id)
    return await partner.send("GET", f"/v1/jobs/{job_id}")


async def test_par_12_a_long_poll_answers_when_the_job_has_ended_or_the_time_is_up(
    deployment: Deployment, partner: Partner
) -> None:
    async with deployment.paused("content_generate"):
        started = await partner.start("content_generate")
        brief = await partner.get(f"/v1/jobs/{started['jobId']}?wait=0.2")
        assert brief["status"] == "running"
        waiting = asyncio.create_task(partner.get(f"/v1/jobs/{started['jobId']}?wait=30"))
        await partner.get(f"/v1/jobs/{started['jobId']}?wait=0.2")  # who came later goes sooner
        assert not waiting.done()
    assert (await asyncio.wait_for(waiting, PATIENCE))["status"] == "completed"
    await partner.refused("GET", f"/v1/jobs/{started['jobId']}?wait=1000", status=400, code="VALIDATION")
