"""PAR-11: a key makes one job, whoever sends it how often."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.partner.deployments import STARTS, TENANT, new_key

from millpond.engine.jobs import idempotency
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import Name

if TYPE_CHECKING:
    import httpx2
    from products.tests.partner.deployments import Deployment, Partner

MANY = 100
ROUTES: list[tuple[Name, str, dict[str, Any]]] = [
    *((name, path, body) for name, (path, body) in STARTS.items()),
    ("content_generate", "content/clone", {}),
]


async def _body(partner: Partner, project: str, path: str, usual: dict[str, Any]) -> dict[str, Any]:
    """A clone is of a container that there is."""
    if path != "content/clone":
        return usual
    source = await partner.start("content_generate", project)
    await partner.ended(source["jobId"])
    return {"sourceContainerId": source["containerId"]}


async def _post(partner: Partner, path: str, body: Any, key: str) -> httpx2.Response:
    return await partner.send("POST", path, body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(("name", "path", "usual"), ROUTES, ids=[path for _, path, _ in ROUTES])
async def test_par_11_a_hundred_requests_at_once_make_one_job(
    deployment: Deployment, partner: Partner, name: Name, path: str, usual: dict[str, Any]
) -> None:
    project, key = await partner.project(), new_key()
    body = await _body(partner, project, path, usual)
    known = {job["jobId"] for job in (await partner.get("/v1/jobs"))["data"]}
    available, _ = await deployment.balance(partner)
    async with deployment.paused(name):
        target = f"/v1/projects/{project}/{path}"
        answers = await asyncio.gather(*(_post(partner, target, body, key) for _ in range(MANY)))
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.content for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        jobs = {job["jobId"] for job in (await partner.get("/v1/jobs"))["data"]} - known
        assert jobs == {answers[0].json()["jobId"]}
        price = KINDS[name].cost({})
        assert await deployment.balance(partner) == (available - price, price)
        made = await partner.get(f"/v1/projects/{project}/containers")
        assert len(made["data"]) == len(known) + (name == "content_generate")
        await partner.post(f"/v1/jobs/{jobs.pop()}/cancel", status=202)


async def test_par_11_the_same_body_replays_the_first_answer_byte_for_byte(
    deployment: Deployment, partner: Partner
) -> None:
    project, key = await partner.project(), new_key()
    path = f"/v1/projects/{project}/content"
    first = await _post(partner, path, {"brief": "Sun", "images": 2}, key)
    assert "idempotency-replayed" not in first.headers
    await partner.ended(first.json()["jobId"])
    headers = {"Authorization": f"Bearer {partner.key}", "Content-Type": "application/json"}
    for text, sent in (
        (b'{"images": 2, "brief": "Sun"}', key),  # another order
        (b'{ "images":2.0,\n "brief":"S\\u0075n" }', key),  # other letters for the same
        (b'{"brief": "Sun"}', key),  # what is so anyway
        (b'{"brief": "Sun"}', key.upper()),
    ):
        again = await partner.http.post(path, content=text, headers={**headers, "Idempotency-Key": sent})
        assert (again.status_code, again.content) == (202, first.content), again.text
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
    assert len((await partner.get("/v1/jobs"))["data"]) == 1


async def test_par_11_another_request_with_the_key_is_a_conflict(deployment: Deployment, partner: Partner) -> None:
    project, other, key = await partner.project(), await partner.project(), new_key()
    available = await deployment.balance(partner)  # before there is a job, which may end at any time
    first = await _post(partner, f"/v1/projects/{project}/content", {"brief": "Sun"}, key)
    assert first.status_code == 202
    for path, body in (
        (f"{project}/content", {"brief": "Rain"}),
        (f"{project}/content", {}),
        (f"{other}/content", {"brief": "Sun"}),
        (f"{project}/influencers", {"brief": "Sun"}),
        (f"{project}/content/clone", {"sourceContainerId": first.json()["containerId"]}),
    ):
        response = await partner.refused(
            "POST",
            f"/v1/projects/{path}",
            body,
            status=409,
            code="IDEMPOTENCY_CONFLICT",
            headers={"Idempotency-Key": key},
        )
        assert (response["details"]["jobId"], response["details"]["field"]) == (
            first.json()["jobId"],
            "Idempotency-Key",
        )
    await partner.ended(first.json()["jobId"])
    assert sum(available) == sum(await deployment.balance(partner)) + KINDS["content_generate"].cost({})


async def test_par_11_keys_of_others_are_others(deployment: Deployment, partner: Partner) -> None:
    key, stranger = new_key(), await deployment.partner()
    ours = await partner.start("appstore_ingest", key=key)
    theirs = await stranger.start("appstore_ingest", key=key)
    assert ours["jobId"] != theirs["jobId"]


@pytest.mark.parametrize(
    "key", ["", "abc", "254a4ce1f4ca42b19e3617ca45ef3d39", "{254a4ce1-f4ca-42b1-9e36-17ca45ef3d39}"]
)
@pytest.mark.parametrize("path", [path for _, path, _ in ROUTES] + ["tiktok-leases"])
async def test_par_11_a_key_that_is_no_uuid_is_refused(partner: Partner, path: str, key: str) -> None:
    body = {"ingest/github": STARTS["project_ingest_github"][1], "ingest/website": STARTS["project_ingest_website"][1]}
    given = body.get(path) or {"appId": "1"} if path == "ingest/appstore" else body.get(path, {})
    if path == "content/clone":
        given = {"sourceContainerId": f"cnt_{new_key()}"}
    response = await partner.refused(
        "POST",
        f"/v1/projects/prj_{new_key()}/{path}",
        given,
        status=400,
        code="VALIDATION",
        headers={"Idempotency-Key": key},
    )
    assert response["details"]["field"] == "Idempotency-Key"


async def test_par_11_a_replay_needs_nothing_that_the_first_request_needed(
    deployment: Deployment, partner: Partner
) -> None:
    """The project has learnt more since, its credits are spent, and the container that was cloned is gone."""
    project, key = await partner.project(), new_key()
    source = await partner.start("content_generate", project)
    await partner.ended(source["jobId"])
    path, body = f"/v1/projects/{project}/content/clone", {"sourceContainerId": source["containerId"]}
    first = await _post(partner, path, body, key)
    assert first.status_code == 202, first.text
    await partner.ended(first.json()["jobId"])
    database = deployment.engine.database(TENANT)
    async with database.transaction() as tx:
        await tx.execute(
            "update millpond.partner_projects set context = '{\"website\": {}}' where id = $1", project[4:]
        )
        await tx.execute("delete from millpond.partner_resources where id = $1", source["containerId"][4:])
    available, _ = await deployment.balance(partner)
    await deployment.engine.adjust(TENANT, partner.account, -available, reason="spent")
    again = await _post(partner, path, body, key)
    assert (again.status_code, again.content) == (202, first.content), again.text
    await partner.refused("POST", path, body, status=404, code="NOT_FOUND", headers={"Idempotency-Key": new_key()})


async def test_par_11_a_replay_mends_what_a_crash_has_left_out(deployment: Deployment, partner: Partner) -> None:
    project, key = await partner.project(), new_key()
    async with deployment.paused("content_generate"):
        started = await partner.start("content_generate", project, key=key)
        async with deployment.engine.database(TENANT).transaction() as tx:
            await tx.execute("delete from millpond.partner_resources where id = $1", started["containerId"][4:])
        path = f"/v1/projects/{project}/containers/{started['containerId']}"
        await partner.refused("GET", path, status=404, code="NOT_FOUND")
        assert await partner.start("content_generate", project, key=key) == started
        assert (await partner.get(path))["status"] == "running"
        await partner.post(f"/v1/jobs/{started['jobId']}/cancel", status=202)


async def test_par_11_a_key_is_forgotten_after_its_window(deployment: Deployment, partner: Partner) -> None:
    project, key = await partner.project(), new_key()
    first = await partner.start("appstore_ingest", project, key=key)
    await partner.ended(first["jobId"])
    async with deployment.engine.database(TENANT).transaction() as tx:
        await tx.execute(
            "update millpond.idempotency set created_at = created_at - $2::interval where key = $1",
            key,
            timedelta(hours=25),
        )
    await idempotency.prune(deployment.engine.database(TENANT), timedelta(hours=24), 1_000)
    assert (await partner.start("appstore_ingest", project, key=key))["jobId"] != first["jobId"]


@pytest.mark.parametrize("path", ["/v1/projects", "/v1/projects/{project}/tiktok-leases"])
async def test_par_11_projects_and_lease_requests_take_a_key_too(partner: Partner, path: str) -> None:
    project, key = await partner.project(), new_key()
    path = path.format(project=project)
    body = {"name": "Twice"} if path == "/v1/projects" else {"note": "soon"}
    answers = await asyncio.gather(*(_post(partner, path, body, key) for _ in range(10)))
    assert len({answer.content for answer in answers}) == 1, [answer.text for answer in answers]
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    other = {"name": "Thrice"} if path == "/v1/projects" else {"note": "later"}
    await partner.refused(
        "POST", path, other, status=409, code="IDEMPOTENCY_CONFLICT", headers={"Idempotency-Key": key}
    )
