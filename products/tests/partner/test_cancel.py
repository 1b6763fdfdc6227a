"""PAR-9: canceling, at every stage of every kind."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.partner.deployments import TENANT, kind_names, made, number

from millpond.errors import CanceledError, PermanentError, TransientError
from millpond_products.partner import identifiers
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import Name
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

STAGES = [(name, stage) for name in kind_names() for stage in KINDS[name].stages]
FIRM = ("opening_pr", "merging_context")


class Steps:
    """Code that walks through the stages of its kind and stays in one of them until it may go on."""

    def __init__(self, name: Name, until: str) -> None:
        self.stages, self.until = KINDS[name].stages, until
        self.go_on = asyncio.Event()
        self.done: list[str] = []

    async def __call__(self, job: Any, given: dict[str, Any]) -> dict[str, Any]:
        for stage in self.stages:
            await job.stage(stage)
            while stage == self.until and not self.go_on.is_set():
                await job.checkpoint()
                await asyncio.sleep(0.005)
            self.done.append(stage)
        return made(given)


@pytest.mark.parametrize(("name", "stage"), STAGES)
async def test_par_09_a_cancel_at_every_stage_of_every_kind(
    deployment: Deployment, partner: Partner, name: Name, stage: str
) -> None:
    steps = deployment.scripts[name] = Steps(name, stage)
    before = await deployment.balance(partner)
    job_id = (await partner.start(name))["jobId"]
    await partner.until(job_id, stage)
    if stage in FIRM:
        refused = await partner.refused("POST", f"/v1/jobs/{job_id}/cancel", status=409, code="CONFLICT")
        assert (refused["details"]["subcode"], refused["details"]["stage"]) == ("JOB_CANCEL_UNAVAILABLE", stage)
        steps.go_on.set()
        assert (await partner.ended(job_id))["status"] == "completed"
        assert steps.done == list(steps.stages)
        return
    response = await partner.post(f"/v1/jobs/{job_id}/cancel", status=202)
    assert response == {"jobId": job_id, "accepted": True}
    assert (await partner.ended(job_id))["status"] == "canceled"
    assert steps.done == list(steps.stages[: steps.stages.index(stage)])  # what was finished stays finished
    assert await deployment.balance(partner) == before
    again = await partner.post(f"/v1/jobs/{job_id}/cancel", status=200)
    assert again == {"jobId": job_id, "accepted": False, "reason": "ALREADY_CANCELED", "stage": stage}


def test_par_09_these_stages_refuse_and_no_others() -> None:
    assert {stage for kind in KINDS.values() for stage in kind.firm_stages} == set(FIRM)


@pytest.mark.parametrize("name", kind_names())
async def test_par_09_a_job_that_waits_ends_at_once(deployment: Deployment, partner: Partner, name: Name) -> None:
    before = await deployment.balance(partner)
    async with deployment.paused(name):
        job_id = (await partner.start(name))["jobId"]
        assert await partner.post(f"/v1/jobs/{job_id}/cancel", status=202) == {"jobId": job_id, "accepted": True}
        assert (await partner.job(job_id))["status"] == "canceled"
    assert await deployment.balance(partner) == before
    response = await partner.post(f"/v1/jobs/{job_id}/cancel", status=200)
    assert response == {"jobId": job_id, "accepted": False, "reason": "ALREADY_CANCELED"}


async def test_par_09_a_job_that_has_ended_says_how(deployment: Deployment, partner: Partner) -> None:
    async def fail(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await job.stage("parsing")
        raise PermanentError("It is of no use.")

    deployment.scripts["appstore_ingest"] = fail
    project = await partner.project()
    failed = (await partner.start("appstore_ingest", project))["jobId"]
    completed = (await partner.start("influencer_create", project))["jobId"]
    for job_id in (failed, completed):
        await partner.ended(job_id)
    assert await partner.post(f"/v1/jobs/{failed}/cancel") == {
        "jobId": failed,
        "accepted": False,
        "reason": "ALREADY_FAILED",
        "stage": "parsing",
    }
    assert await partner.post(f"/v1/jobs/{completed}/cancel") == {
        "jobId": completed,
        "accepted": False,
        "reason": "ALREADY_COMPLETED",
        "stage": "rendering_references",
    }


@pytest.mark.parametrize("name", ["project_ingest_github", "project_ingest_website", "appstore_ingest"])
async def test_par_09_a_cancel_that_meets_a_worker_at_a_firm_stage_wins_or_is_refused(
    deployment: Deployment, partner: Partner, name: Name
) -> None:
    """Who comes first wins, and never both: no job is canceled that had entered the stage.

    One in four waits before the stage until the cancel is answered, one in four inside it; the others race.
    """
    firm = KINDS[name].firm_stages[0]
    turns: dict[str, int] = {}
    entered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    answered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def racing(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        job_id = identifiers.job_text(number(job.id))
        turn = turns[job_id] = len(turns) % 4
        await job.stage(KINDS[name].stages[0])
        if turn == 0:
            await answered[job_id].wait()
        await asyncio.sleep(0.01 * (turn == 3))
        await job.stage(firm)
        entered[job_id].set()
        if turn == 1:
            await answered[job_id].wait()
        await asyncio.sleep(0.02)
        return made(given)

    deployment.scripts[name] = racing
    project = await partner.project()
    outcomes: Counter[tuple[int, str]] = Counter()

    async def race() -> None:
        job_id = (await partner.start(name, project))["jobId"]
        while (await partner.job(job_id)).get("stage") == "queued":
            pass
        if turns[job_id] == 1:
            await entered[job_id].wait()
        answer = await partner.send("POST", f"/v1/jobs/{job_id}/cancel")
        answered[job_id].set()
        end = (await partner.ended(job_id))["status"]
        outcomes[turns[job_id], end] += 1
        assert (answer.status_code, end) in {(202, "canceled"), (409, "completed"), (200, "completed")}, answer.text
        assert entered[job_id].is_set() == (end == "completed")

    for _ in range(8):
        await asyncio.gather(*(race() for _ in range(4)))
    assert outcomes.total() == 32
    assert (outcomes[0, "canceled"], outcomes[1, "completed"]) == (8, 8)


async def test_par_09_a_stage_that_refuses_does_so_between_two_attempts(
    deployment: Deployment, partner: Partner
) -> None:
    """The first attempt may have opened it, and the second one finds it: nobody else would."""
    is_held = asyncio.Event()

    async def stumbling(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if job.attempt == 1:
            await job.stage("opening_pr")
            is_held.set()
            raise TransientError("Once more.")
        await job.stage("finalizing")
        return made(given)

    deployment.scripts["project_ingest_github"] = stumbling
    job_id = (await partner.start("project_ingest_github"))["jobId"]
    await asyncio.wait_for(is_held.wait(), PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while (await deployment.engine.read(TENANT, number(job_id))).phase == "leased":
            await asyncio.sleep(0.005)
    refused = await partner.refused("POST", f"/v1/jobs/{job_id}/cancel", status=409, code="CONFLICT")
    assert refused["details"]["subcode"] == "JOB_CANCEL_UNAVAILABLE"
    assert (await partner.ended(job_id))["status"] == "completed"


async def test_par_09_a_worker_is_notified_at_its_next_word(deployment: Deployment, partner: Partner) -> None:
    reported: list[str] = []
    is_asked = asyncio.Event()

    async def deaf(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await job.stage("generating")
        await is_asked.wait()
        try:
            await job.stage("rendering_references")
        except CanceledError:
            reported.append(job.id)
            raise
        return made(given)

    deployment.scripts["influencer_create"] = deaf
    job_id = (await partner.start("influencer_create"))["jobId"]
    await partner.until(job_id, "generating")
    await partner.post(f"/v1/jobs/{job_id}/cancel", status=202)
    await partner.post(f"/v1/jobs/{job_id}/cancel", status=202)  # asked twice
    is_asked.set()
    assert (await partner.ended(job_id))["status"] == "canceled"
    assert [each.upper() for each in reported] == [job_id.upper()]
