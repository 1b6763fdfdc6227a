"""PAR-13: endpoints that are told how jobs end, in the very words of GET."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.partner.deployments import TENANT

from millpond import ids
from millpond.errors import PermanentError
from tests.checks import until

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

BASE = "/v1/webhook-endpoints"
FIELDS = {
    *("endpointId", "url", "events", "description", "status", "disabledReason", "createdAt", "rotatedUntil"),
}


async def _make(deployment: Deployment, partner: Partner, *events: str) -> tuple[dict[str, Any], str]:
    """An endpoint that is told of these, and the name of the path at which it listens."""
    path = f"{partner.account}-{len(deployment.receiver.came)}-{'-'.join(events)}"
    body = {"url": deployment.receiver.url(path)} | ({"events": list(events)} if events else {})
    return await partner.post(BASE, body, 201), path


async def _three_ends(deployment: Deployment, partner: Partner) -> dict[str, str]:
    async def fail(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        raise PermanentError("Meta said no.", platform="meta", platformCode="1", platformMessage="Zu groß ☂")

    deployment.scripts["appstore_ingest"] = fail
    project = await partner.project()
    async with deployment.paused("project_ingest_website"):
        canceled = (await partner.start("project_ingest_website", project))["jobId"]
        await partner.post(f"/v1/jobs/{canceled}/cancel", status=202)
    jobs = {
        "completed": (await partner.start("content_generate", project))["jobId"],
        "failed": (await partner.start("appstore_ingest", project))["jobId"],
        "canceled": canceled,
    }
    for status, job_id in jobs.items():
        assert (await partner.ended(job_id))["status"] == status
    return jobs


async def test_par_13_the_payload_is_byte_for_byte_what_get_returns(deployment: Deployment, partner: Partner) -> None:
    made, path = await _make(deployment, partner)
    assert set(made) == FIELDS | {"secret"}
    jobs = await _three_ends(deployment, partner)
    came = {one.payload["jobId"]: one for one in await deployment.receiver.wait(path, 3)}
    assert set(came) == set(jobs.values())
    for status, job_id in jobs.items():
        answer = await partner.send("GET", f"/v1/jobs/{job_id}")
        assert came[job_id].body == answer.content
        assert came[job_id].verified(made["secret"])["status"] == status


async def test_par_13_an_endpoint_is_notified_of_what_it_subscribes_to(
    deployment: Deployment, partner: Partner
) -> None:
    paths = {event: (await _make(deployment, partner, f"job.{event}"))[1] for event in ("completed", "failed")}
    _, last = await _make(deployment, partner, "job.canceled", "job.completed")
    jobs = await _three_ends(deployment, partner)
    await deployment.receiver.wait(last, 2)
    for event, path in paths.items():
        (one,) = await deployment.receiver.wait(path, 1)
        assert one.payload["jobId"] == jobs[event]
    assert {one.payload["status"] for one in deployment.receiver.at(last)} == {"canceled", "completed"}


async def test_par_13_an_endpoint_is_notified_of_its_own_accounts_jobs_alone(
    deployment: Deployment, partner: Partner
) -> None:
    stranger = await deployment.partner()
    made, theirs = await _make(deployment, stranger)
    _, ours = await _make(deployment, partner)
    job_id = (await partner.start("content_generate"))["jobId"]
    elsewhere = await deployment.engine.submit("elsewhere", {}, tenant=TENANT, account=partner.account)
    await deployment.engine.cancel(TENANT, elsewhere.job_id)  # which is no job of this product
    await deployment.receiver.wait(ours, 1)
    own = (await stranger.start("influencer_create"))["jobId"]
    await deployment.receiver.wait(theirs, 1)
    assert [one.payload["jobId"] for one in deployment.receiver.at(theirs)] == [own]
    assert [one.payload["jobId"] for one in deployment.receiver.at(ours)] == [job_id]
    path = f"{BASE}/{made['endpointId']}"
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/disable"), ("POST", "/test")):
        await partner.refused(method, path + rest, status=404, code="NOT_FOUND")
    assert [each["url"] for each in (await partner.get(BASE))["data"]] == [deployment.receiver.url(ours)]


async def test_par_13_an_endpoint_of_operators_stays_in_their_words_and_hands(
    deployment: Deployment, partner: Partner
) -> None:
    made, _ = await deployment.engine.endpoints.make(TENANT, url=deployment.receiver.url("operators"))
    await partner.refused("GET", f"{BASE}/{made.id}", status=404, code="NOT_FOUND")
    job_id = (await partner.start("content_generate"))["jobId"]

    async def is_notified() -> bool:
        listed = [one.payload for one in deployment.receiver.at("operators")]
        return any(each["data"]["id"] == job_id.lower() and each["type"] == "job.succeeded" for each in listed)

    await until(is_notified)
    await deployment.engine.endpoints.delete(TENANT, made.endpoint_id)


async def test_par_13_an_operator_cannot_subscribe_it_to_what_has_no_name(
    deployment: Deployment, partner: Partner
) -> None:
    made, path = await _make(deployment, partner)
    native = f"{deployment.url}/v1/endpoints/{made['endpointId']}?tenant={TENANT}"
    headers = {"Authorization": f"Bearer {deployment.admin.key}"}
    response = (await deployment.http.get(native, headers=headers)).json()
    assert (response["account"], response["is_native"]) == (partner.account, False)
    for events in (["*"], ["job.started"], ["endpoint.disabled", "job.succeeded"]):
        refused = await deployment.http.patch(native, headers=headers, json={"events": events})
        assert (refused.status_code, refused.json()["field"]) == (422, "events"), refused.text
        assert "succeeded" in refused.json()["hint"]
    changed = await deployment.http.patch(native, headers=headers, json={"events": ["job.succeeded"]})
    assert changed.status_code == 200, changed.text
    assert [each["events"] for each in (await partner.get(BASE))["data"]] == [["job.completed"]]
    job_id = (await partner.start("influencer_create"))["jobId"]
    assert [one.payload["jobId"] for one in await deployment.receiver.wait(path, 1)] == [job_id]


async def test_par_13_an_endpoint_with_what_has_no_name_is_notified_nevertheless(
    deployment: Deployment, partner: Partner
) -> None:
    """As one that was written before it was refused."""
    made, _ = await _make(deployment, partner, "job.failed")
    async with deployment.engine.database(TENANT).transaction() as tx:
        await tx.execute(
            "update millpond.endpoints set events = '{*,started,canceled}' where id = $1",
            ids.parse("ep", made["endpointId"]),
        )
    (response,) = (await partner.get(BASE))["data"]
    assert response["events"] == ["job.canceled"]
    assert await partner.get(f"{BASE}/{made['endpointId']}") == response


async def test_par_13_rotate_disable_enable_and_delete(deployment: Deployment, partner: Partner) -> None:
    made, path = await _make(deployment, partner)
    endpoint = f"{BASE}/{made['endpointId']}"
    rotated = await partner.post(f"{endpoint}/rotate-secret", {"overlap": "1h"}, 201)
    assert rotated["secret"] != made["secret"]
    assert rotated["rotatedUntil"] is not None
    await partner.ended((await partner.start("influencer_create"))["jobId"])
    (one,) = await deployment.receiver.wait(path, 1)
    assert one.verified(made["secret"]) == one.verified(rotated["secret"])
    disabled = await partner.post(f"{endpoint}/disable")
    assert (disabled["status"], disabled["disabledReason"]) == ("disabled", "Disabled by you.")
    await partner.refused("POST", f"{endpoint}/test", {}, status=409, code="CONFLICT")
    await partner.ended((await partner.start("influencer_create"))["jobId"])
    assert (await partner.post(f"{endpoint}/enable"))["status"] == "enabled"
    last = (await partner.start("influencer_create"))["jobId"]
    await partner.ended(last)
    assert [one.payload["jobId"] for one in await deployment.receiver.wait(path, 2)][1:] == [last]
    read = await partner.get(endpoint)
    assert set(read) == FIELDS
    assert (await partner.get(BASE))["data"] == [read]
    assert (await partner.send("DELETE", endpoint)).status_code == 204
    await partner.refused("GET", endpoint, status=404, code="NOT_FOUND")
    assert (await partner.get(BASE))["data"] == []


@pytest.mark.parametrize("event", ["job.completed", "job.failed", "job.canceled"])
async def test_par_13_a_test_is_reported_in_the_form_of_the_real_thing(
    deployment: Deployment, partner: Partner, event: str
) -> None:
    made, path = await _make(deployment, partner, "job.completed")
    response = await partner.post(f"{BASE}/{made['endpointId']}/test", {"event": event}, 202)
    (one,) = await deployment.receiver.wait(path, 1)
    assert one.id == response["deliveryId"]
    body = one.verified(made["secret"])
    assert body["status"] == event.removeprefix("job.")
    assert {"jobId", "kind", "projectId", "containerId", "startedAt", "finishedAt"} <= set(body)


async def test_par_13_what_is_wrong_with_an_endpoint_is_reported(deployment: Deployment, partner: Partner) -> None:
    for body, field in (
        ({}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": deployment.receiver.url("x"), "events": []}, "events"),
        ({"url": deployment.receiver.url("x"), "events": ["job.succeeded"]}, "events[0]"),
        ({"url": deployment.receiver.url("x"), "secret": "whsec_short"}, "secret"),
    ):
        response = await partner.refused("POST", BASE, body, status=400, code="VALIDATION")
        assert response["details"]["field"] == field, response
    assert (await partner.get(BASE))["data"] == []


async def test_par_13_a_job_that_is_polled_and_reported_is_the_same(deployment: Deployment, partner: Partner) -> None:
    """Both at once, many times."""
    _, path = await _make(deployment, partner)
    project = await partner.project()
    started = [(await partner.start("project_ingest_website", project))["jobId"] for _ in range(10)]
    polled = await asyncio.gather(*(partner.ended(job_id) for job_id in started))
    came = {one.payload["jobId"]: one.payload for one in await deployment.receiver.wait(path, 10)}
    assert came == {job["jobId"]: job for job in polled}
