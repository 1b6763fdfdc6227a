"""PAR-8 and PAR-14: projects, what is known of them, what was made for them, and TikTok leases."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from products.tests.partner.deployments import TENANT, made, new_key, number

from millpond.errors import LeaseLostError, PermanentError, TransientError
from millpond_products.partner import identifiers, projects, resources
from millpond_products.partner.kinds import KINDS
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


# PAR-14


async def test_par_14_a_project_is_made_and_read(deployment: Deployment, partner: Partner) -> None:
    response = await partner.post("/v1/projects", {"name": "Lumen", "description": "A lamp"}, 201)
    assert set(response) == {"projectId", "name", "description", "context", "createdAt", "updatedAt"}
    assert response["context"] == {
        "summary": {"name": "Lumen", "description": "A lamp", "category": None, "keywords": []}
    }
    assert TIME.fullmatch(response["createdAt"])
    assert await partner.get(f"/v1/projects/{response['projectId']}") == response
    second = await partner.project(name="Umbra")
    listed = await partner.get("/v1/projects?limit=1")
    assert [each["projectId"] for each in listed["data"]] == [second]
    rest = await partner.get(f"/v1/projects?cursor={listed['nextCursor']}")
    assert rest == {"data": [response], "nextCursor": None}
    await partner.refused("GET", "/v1/projects?cursor=prj_1", status=400, code="VALIDATION")
    stranger = await deployment.partner()
    await stranger.refused("GET", f"/v1/projects/{second}", status=404, code="NOT_FOUND")
    await stranger.refused("POST", f"/v1/projects/{second}/content", {}, status=404, code="NOT_FOUND")
    assert (await stranger.get("/v1/projects"))["data"] == []


async def _merged(deployment: Deployment, partner: Partner, project: str, source: str, facts: dict[str, Any]) -> str:
    """What an ingest finds out."""
    names: Any = {"github": "project_ingest_github", "website": "project_ingest_website", "appstore": "appstore_ingest"}

    async def find(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        where: Any = source
        await projects.merge(deployment.engine, job, UUID(given["project_id"]), where, facts)
        return made(given)

    deployment.scripts[names[source]] = find
    job_id = (await partner.start(names[source], project))["jobId"]
    assert (await partner.ended(job_id))["status"] == "completed"
    return job_id


async def test_par_14_the_context_shows_what_ingests_merged(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project(description="A lamp")
    github = {"name": "lumen", "description": "Code of a lamp", "topics": ["iot"], "languages": {"Swift": 0.9}}
    website = {"name": "Lumen.io", "description": "Light for desks", "keywords": ["lamp", "desk"]}
    appstore = {"name": "Lumen App", "category": "Lifestyle", "genres": ["Lifestyle", "Home"]}
    await _merged(deployment, partner, project, "github", github)
    response = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert (response["github"], response["summary"]["name"]) == (github, "lumen")
    await _merged(deployment, partner, project, "website", website)
    await _merged(deployment, partner, project, "appstore", appstore)
    response = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert response == {
        "github": github,
        "website": website,
        "appstore": appstore,
        "summary": {
            "name": "Lumen App",
            "description": "Light for desks",
            "category": "Lifestyle",
            "keywords": ["Lifestyle", "Home", "lamp", "desk", "iot"],
        },
    }
    await _merged(deployment, partner, project, "github", {"name": "umbra"})
    assert (await partner.get(f"/v1/projects/{project}"))["context"]["github"] == {"name": "umbra"}


async def test_par_14_an_order_has_the_context_of_its_time(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    seen: list[Any] = []

    async def look(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        seen.append(given["context"])
        return made(given)

    deployment.scripts["influencer_create"] = look
    await _merged(deployment, partner, project, "website", {"title": "Before"})
    async with deployment.paused("influencer_create"):
        job_id = (await partner.start("influencer_create", project))["jobId"]
        await _merged(deployment, partner, project, "website", {"title": "After"})
    await partner.ended(job_id)
    summary = {"name": "Before", "description": None, "category": None, "keywords": []}
    assert seen == [{"summary": summary}]


async def test_par_14_however_much_is_known_content_is_made_and_projects_are_listed(
    deployment: Deployment, partner: Partner
) -> None:
    """An order is bounded, and so is a page: both tell what is known in short."""
    project = await partner.project()
    much = "y" * 12_000
    facts = {"name": much, "description": much, "category": much, "keywords": [much, "lamp"], "text": [much]}
    for source in ("github", "website", "appstore"):
        await _merged(deployment, partner, project, source, facts)
    known = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert known["github"] == known["website"] == known["appstore"] == facts
    answer = await partner.send("GET", "/v1/projects?limit=200")
    assert answer.json()["data"][0]["context"] == {"summary": known["summary"]}
    assert len(answer.content) < 10_000
    assert (len(known["summary"]["name"]), known["summary"]["keywords"]) == (200, ["lamp"])
    seen: list[Any] = []

    async def look(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        seen.append(given["context"])
        return made(given)

    deployment.scripts["content_generate"] = deployment.scripts["influencer_create"] = look
    source = await partner.start("content_generate", project)
    await partner.ended(source["jobId"])
    body = {"sourceContainerId": source["containerId"]}
    for job in (
        await partner.post(f"/v1/projects/{project}/content/clone", body, 202),
        await partner.start("influencer_create", project),
    ):
        assert (await partner.ended(job["jobId"]))["status"] == "completed"
    assert seen == [{"summary": known["summary"]}] * 3


async def test_par_14_an_attempt_that_lost_its_job_merges_nothing(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    attempts: list[Any] = []

    async def find(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        project_id = UUID(given["project_id"])
        attempts.append(job)
        if job.attempt == 1:
            raise TransientError("Once more.", retry_after=timedelta(milliseconds=1))
        with pytest.raises(LeaseLostError):  # the first one did not know that it had ended
            await projects.merge(deployment.engine, attempts[0], project_id, "website", {"title": "stale"})
        await projects.merge(deployment.engine, job, project_id, "website", {"title": "good"})
        await projects.merge(deployment.engine, job, project_id, "website", {"title": "good"})
        return made(given)

    deployment.scripts["project_ingest_website"] = find
    job_id = (await partner.start("project_ingest_website", project))["jobId"]
    assert (await partner.ended(job_id))["status"] == "completed"
    with pytest.raises(LeaseLostError):  # and when the job has ended, nobody holds it
        await projects.merge(deployment.engine, attempts[1], UUID(project[4:]), "website", {"title": "late"})
    assert (await partner.get(f"/v1/projects/{project}"))["context"]["website"] == {"title": "good"}


async def test_par_14_what_a_later_job_found_out_stays(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    goes_on: dict[str, asyncio.Event] = {}

    async def find(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await goes_on[given["url"]].wait()
        await projects.merge(deployment.engine, job, UUID(given["project_id"]), "website", {"url": given["url"]})
        return made(given)

    deployment.scripts["project_ingest_website"] = find
    urls = [f"http://127.0.0.1:9/{n}" for n in range(2)]
    goes_on |= {url: asyncio.Event() for url in urls}
    jobs = [(await partner.start("project_ingest_website", project, url=url))["jobId"] for url in urls]
    for job_id, url in reversed(list(zip(jobs, urls, strict=True))):
        goes_on[url].set()
        assert (await partner.ended(job_id))["status"] == "completed"
    assert (await partner.get(f"/v1/projects/{project}"))["context"]["website"] == {"url": urls[1]}


# What jobs make


async def test_containers_and_influencers_outlive_their_jobs(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    started = await partner.start("content_generate", project)
    path = f"/v1/projects/{project}/containers/{started['containerId']}"
    result = (await partner.ended(started["jobId"]))["result"]
    response = await partner.get(path)
    assert (response["status"], response["jobId"], response["result"]) == ("completed", started["jobId"], result)
    persona = await partner.start("influencer_create", project)
    await partner.ended(persona["jobId"])
    assert [each["influencerId"] for each in (await partner.get(f"/v1/projects/{project}/influencers"))["data"]] == [
        persona["influencerId"]
    ]
    assert (await partner.get(f"/v1/projects/{project}/influencers/{persona['influencerId']}"))["status"] == "completed"
    await _forget(deployment, project)
    after = await partner.get(path)
    assert (after["status"], after["result"]) == ("completed", result)
    assert (await partner.get(f"/v1/projects/{project}/containers"))["data"] == [after]


async def _kept(deployment: Deployment, container: str) -> tuple[str | None, bool]:
    """How its job has ended, as the resource itself says, and whether something is kept of it."""
    async with deployment.engine.database(TENANT).transaction() as tx:
        row = await tx.fetchrow(
            "select status, made is not null as is_made from millpond.partner_resources where id = $1", container[4:]
        )
    assert row is not None
    return row["status"], row["is_made"]


async def _forget(deployment: Deployment, project: str) -> None:
    """As when the week of the jobs was dropped, before anybody had read what they made."""
    async with deployment.engine.database(TENANT).transaction() as tx:
        await tx.execute(
            "update millpond.partner_resources set job_id = gen_random_uuid() where project_id = $1", project[4:]
        )


@pytest.mark.parametrize("end", ["failed", "canceled"])
async def test_what_a_job_kept_that_did_not_complete_was_not_made(
    deployment: Deployment, partner: Partner, end: str
) -> None:
    is_kept = asyncio.Event()

    async def output(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        return made(given)

    async def keep(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await resources.kept(deployment.engine, "content_generate", output)(job, given)
        is_kept.set()
        if end == "failed":
            raise PermanentError("After all it is of no use.")
        while True:
            await job.checkpoint()
            await asyncio.sleep(0.01)

    deployment.scripts["content_generate"] = keep
    project = await partner.project()
    started = await partner.start("content_generate", project)
    await asyncio.wait_for(is_kept.wait(), PATIENCE)
    if end == "canceled":
        await partner.post(f"/v1/jobs/{started['jobId']}/cancel", status=202)
    assert (await partner.ended(started["jobId"]))["status"] == end
    assert await _kept(deployment, started["containerId"]) == (end, False)
    await _forget(deployment, project)
    response = await partner.get(f"/v1/projects/{project}/containers/{started['containerId']}")
    assert (response["status"], "result" in response) == (end, False)
    body = {"sourceContainerId": started["containerId"]}
    await partner.refused("POST", f"/v1/projects/{project}/content/clone", body, status=409, code="CONFLICT")


async def test_a_job_that_ends_before_it_is_answered_for_says_how(deployment: Deployment, partner: Partner) -> None:
    """The end comes between the job and what it makes: whoever writes that down second says it."""
    project = await partner.project()
    async with deployment.paused("content_generate"):
        started = await partner.start("content_generate", project, key=(key := new_key()))
        async with deployment.engine.database(TENANT).transaction() as tx:
            await tx.execute("delete from millpond.partner_resources where id = $1", started["containerId"][4:])
        await partner.post(f"/v1/jobs/{started['jobId']}/cancel", status=202)
    assert await partner.start("content_generate", project, key=key) == started
    assert await _kept(deployment, started["containerId"]) == ("canceled", False)


async def test_what_is_too_large_to_be_reported_is_not_kept(deployment: Deployment, partner: Partner) -> None:
    async def endless(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        return made(given) | {"script": "x" * 300_000}

    deployment.scripts["content_generate"] = endless
    started = await partner.start("content_generate")
    assert (await partner.ended(started["jobId"]))["status"] == "failed"
    assert await _kept(deployment, started["containerId"]) == ("failed", False)


async def test_par_09_a_cancel_is_heard_before_something_is_kept(deployment: Deployment, partner: Partner) -> None:
    is_asked, is_there = asyncio.Event(), asyncio.Event()

    async def deaf(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        await job.stage("rendering")
        is_there.set()
        await is_asked.wait()
        return made(given)

    deployment.scripts["content_generate"] = deaf
    started = await partner.start("content_generate")
    await asyncio.wait_for(is_there.wait(), PATIENCE)
    await partner.post(f"/v1/jobs/{started['jobId']}/cancel", status=202)
    is_asked.set()
    assert (await partner.ended(started["jobId"]))["status"] == "canceled"
    assert await _kept(deployment, started["containerId"]) == ("canceled", False)


async def test_a_container_is_made_by_the_job_that_completed(deployment: Deployment, partner: Partner) -> None:
    """An operator has a failed one tried again: that is another job, at the same order."""
    does_fail = True

    async def fail_once(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if does_fail:
            raise PermanentError("Not now.")
        return made(given)

    deployment.scripts["content_generate"] = fail_once
    project = await partner.project()
    started = await partner.start("content_generate", project)
    assert (await partner.ended(started["jobId"]))["status"] == "failed"
    does_fail = False
    again = await deployment.engine.retry(TENANT, number(started["jobId"]))
    result = (await partner.ended(identifiers.job_text(again.job_id)))["result"]
    response = await partner.get(f"/v1/projects/{project}/containers/{started['containerId']}")
    assert (response["status"], response["result"]) == ("completed", result)
    assert response["jobId"] == identifiers.job_text(again.job_id)


async def test_par_08_a_clone_shows_who_its_source_showed(deployment: Deployment, partner: Partner) -> None:
    shown: list[str | None] = []

    async def look(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        shown.append(given["influencer_id"])
        return made(given)

    deployment.scripts["content_generate"] = look
    project = await partner.project()
    first, other = [await partner.start("influencer_create", project) for _ in range(2)]
    for persona in (first, other):
        await partner.ended(persona["jobId"])
    source = await partner.start("content_generate", project, influencerId=first["influencerId"])
    await partner.ended(source["jobId"])
    body = {"sourceContainerId": source["containerId"]}
    for more, persona in (({}, first), ({"influencerId": other["influencerId"]}, other)):
        clone = await partner.post(f"/v1/projects/{project}/content/clone", body | more, 202)
        assert clone["influencerId"] == persona["influencerId"]
        await partner.ended(clone["jobId"])
    assert shown == [each["influencerId"][4:] for each in (first, first, other)]


async def test_par_08_a_clone_is_content_made_like_its_source(deployment: Deployment, partner: Partner) -> None:
    given: list[dict[str, Any]] = []

    async def note(job: Any, order: dict[str, Any]) -> dict[str, Any]:
        given.append(order)
        return made(order)

    deployment.scripts["content_generate"] = note
    project = await partner.project()
    source = await partner.start("content_generate", project, brief="Sun", style="bold", images=3)
    await partner.ended(source["jobId"])
    path, body = f"/v1/projects/{project}/content/clone", {"sourceContainerId": source["containerId"]}
    clone = await partner.post(path, body | {"style": "tech"}, 202)
    assert (clone["kind"], clone["status"], clone["stage"]) == ("content_generate", "running", "queued")
    assert set(clone) == set(source)
    assert clone["containerId"] != source["containerId"]
    assert (await partner.ended(clone["jobId"]))["result"]["containerId"] == clone["containerId"]
    first, second = given
    assert (second["brief"], second["style"], second["images"]) == ("Sun", "tech", 3)
    assert (second["cloned_from"], second["plan"]) == (source["containerId"][4:], {"scenes": 1})
    assert first["plan"] is None
    stranger = await deployment.partner()
    other = await stranger.project()
    for whose, theirs in ((stranger, other), (partner, await partner.project())):
        await whose.refused("POST", f"/v1/projects/{theirs}/content/clone", body, status=404, code="NOT_FOUND")


async def test_par_08_what_was_not_made_cannot_be_cloned(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    async with deployment.paused("content_generate"):
        source = await partner.start("content_generate", project)
        body = {"sourceContainerId": source["containerId"]}
        response = await partner.refused(
            "POST", f"/v1/projects/{project}/content/clone", body, status=409, code="CONFLICT"
        )
        assert (response["details"]["field"], response["details"]["state"]) == ("sourceContainerId", "running")
        await partner.post(f"/v1/jobs/{source['jobId']}/cancel", status=202)
    assert (await partner.get(f"/v1/projects/{project}/containers/{source['containerId']}"))["status"] == "canceled"


async def test_content_shows_an_influencer_that_was_made(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    async with deployment.paused("influencer_create"):
        persona = await partner.start("influencer_create", project)
        body = {"influencerId": persona["influencerId"]}
        await partner.refused("POST", f"/v1/projects/{project}/content", body, status=409, code="CONFLICT")
    await partner.ended(persona["jobId"])
    response = await partner.start("content_generate", project, **body)
    assert response["influencerId"] == persona["influencerId"]
    assert (await partner.ended(response["jobId"]))["result"]["containerId"] == response["containerId"]


# TikTok leases


async def _lease(partner: Partner, project: str) -> dict[str, Any]:
    answer = await partner.send("POST", f"/v1/projects/{project}/tiktok-leases", {"country": "de"})
    assert answer.status_code == 202, answer.text
    response = answer.json()
    assert answer.headers["location"] == response["locationUrl"]
    return response


async def test_par_08_a_lease_request_is_no_job_and_has_a_status_of_its_own(
    deployment: Deployment, partner: Partner
) -> None:
    assert not any("lease" in name for name in KINDS)
    project = await partner.project()
    lease = await _lease(partner, project)
    assert (lease["status"], lease["projectId"], lease["country"]) == ("pending", project, "de")
    assert lease["locationUrl"].startswith("/partner/v1/projects/")
    path = f"/v1/projects/{project}/tiktok-leases/{lease['leaseId']}"
    assert await partner.get(path) == lease
    assert (await partner.get("/v1/jobs"))["data"] == []
    assert (await partner.get(f"/v1/projects/{project}/social-accounts"))["data"] == []

    admin = f"/v1/admin/tiktok-leases/{lease['leaseId']}"
    handle = f"@lumen{new_key()[:6]}"
    body = {"handle": handle, "displayName": "Lumen"}
    await partner.refused("POST", f"{admin}/fulfil?tenant={TENANT}", body, status=403, code="FORBIDDEN")
    await deployment.admin.refused("POST", f"{admin}/fulfil", body, status=400, code="VALIDATION")
    waiting = await deployment.admin.get(f"/v1/admin/tiktok-leases?tenant={TENANT}")
    assert lease["leaseId"] in [each["leaseId"] for each in waiting["data"]]
    response = await deployment.admin.post(f"{admin}/fulfil?tenant={TENANT}", body)
    assert response["status"] == "fulfilled"
    assert await partner.get(path) == response
    (account,) = (await partner.get(f"/v1/projects/{project}/social-accounts"))["data"]
    assert account["socialAccountId"] == response["socialAccountId"]
    assert (account["platform"], account["handle"], account["displayName"]) == ("tiktok", handle, "Lumen")
    assert (account["leaseId"], account["projectId"]) == (lease["leaseId"], project)
    assert (await partner.get(f"/v1/projects/{project}/tiktok-leases"))["data"] == [response]
    for act, sent in (("fulfil", body), ("reject", {"reason": "no"})):
        await deployment.admin.refused("POST", f"{admin}/{act}?tenant={TENANT}", sent, status=409, code="CONFLICT")
    headers = {"Authorization": f"Bearer {deployment.admin.key}"}
    noted = (await deployment.http.get(f"{deployment.url}/v1/audit?tenant={TENANT}&limit=5", headers=headers)).json()[
        "data"
    ]
    assert ("partner.lease.fulfilled", lease["leaseId"]) in [(entry["action"], entry["subject"]) for entry in noted]


async def test_par_08_a_lease_request_may_be_rejected(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    lease = await _lease(partner, project)
    admin = f"/v1/admin/tiktok-leases/{lease['leaseId']}/reject?tenant={TENANT}"
    response = await deployment.admin.post(admin, {"reason": "None is left."})
    assert (response["status"], response["reason"]) == ("rejected", "None is left.")
    assert (await partner.get(f"/v1/projects/{project}/social-accounts"))["data"] == []
    await deployment.admin.refused(
        "POST", admin.replace(lease["leaseId"], "lse_1"), {"reason": "-"}, status=404, code="NOT_FOUND"
    )
    stranger = await deployment.partner()
    path = f"/v1/projects/{project}/tiktok-leases"
    await stranger.refused("GET", path, status=404, code="NOT_FOUND")
    await stranger.refused("POST", path, {}, status=404, code="NOT_FOUND")


async def test_par_08_no_account_is_given_to_two(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    leases = [await _lease(partner, project) for _ in range(2)]
    handle = f"@two{new_key()[:6]}"
    answers = await asyncio.gather(
        *(
            deployment.admin.send(
                "POST", f"/v1/admin/tiktok-leases/{lease['leaseId']}/fulfil?tenant={TENANT}", {"handle": handle}
            )
            for lease in leases
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert refused.json()["error"]["details"]["field"] == "handle"
    states = [each["status"] for each in (await partner.get(f"/v1/projects/{project}/tiktok-leases"))["data"]]
    assert sorted(states) == ["fulfilled", "pending"]
    other = await deployment.partner(tenant="globex")
    lease = await _lease(other, await other.project())
    path = f"/v1/admin/tiktok-leases/{lease['leaseId']}/fulfil?tenant=globex"
    body = {"handle": handle.upper()}
    response = await deployment.admin.refused("POST", path, body, status=409, code="CONFLICT")
    assert response["details"]["field"] == "handle"


async def test_a_text_that_cannot_be_kept_is_refused_by_its_field(deployment: Deployment, partner: Partner) -> None:
    project = await partner.project()
    lease = await _lease(partner, project)
    admin = f"/v1/admin/tiktok-leases/{lease['leaseId']}"
    nul = "a\0b"
    wrong: list[tuple[Partner, str, dict[str, str], str]] = [
        (partner, "/v1/projects", {"name": nul}, "name"),
        (partner, "/v1/projects", {"name": "Lumen", "description": nul}, "description"),
        (partner, f"/v1/projects/{project}/tiktok-leases", {"note": nul}, "note"),
        (deployment.admin, f"{admin}/reject?tenant={TENANT}", {"reason": nul}, "reason"),
        (deployment.admin, f"{admin}/fulfil?tenant={TENANT}", {"handle": "lumen", "displayName": nul}, "displayName"),
    ]
    for who, path, body, field in wrong:
        response = await who.refused("POST", path, body, status=400, code="VALIDATION")
        assert response["details"]["field"] == field
    assert (await partner.get(f"/v1/projects/{project}/tiktok-leases"))["data"] == [lease]
