"""Deliveries over HTTP: what was told to whom, what came of each try, pulling, reporting and sending once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import webhooks
from tests.api.posts import URL, Post, new_post, post_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.sites import Site
    from tests.databases import DatabaseServer

NOBODY = "msg_00000000000000000000000000"


@pytest.fixture(scope="module")
async def site(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    async with post_site(server, template) as running:
        yield running


@pytest.fixture
async def post(site: Site) -> AsyncIterator[Post]:
    async with new_post(site) as made:
        yield made


async def pull(post: Post, endpoint: str, **body: Any) -> list[dict[str, Any]]:
    return (await post.good("POST", f"/v1/endpoints/{endpoint}/pull", body))["data"]


async def report(post: Post, delivery: str, **body: Any) -> None:
    await post.good("POST", f"/v1/deliveries/{delivery}/report", body)


async def test_the_events_of_a_job_are_sent_in_order_signed_and_byte_for_byte(post: Post) -> None:
    endpoint = await post.endpoint(events=["*"])
    job_id = await post.canceled()
    reported: list[dict[str, Any]] = []
    while requests := await pull(post, endpoint["id"]):
        for request in requests:
            assert request["headers"]["webhook-id"] == request["id"]
            reported.append(webhooks.verify(request["body"], request["headers"], endpoint["secret"]))
            await report(post, request["id"], status=204)
    assert [event["type"] for event in reported] == ["job.submitted", "job.canceled"]
    assert {event["data"]["id"] for event in reported} == {job_id}
    assert reported[-1]["data"]["outcome"] == "canceled"
    states = [each["state"] for each in (await post.good("GET", f"/v1/deliveries?job={job_id}"))["data"]]
    assert states == ["delivered"] * 2


async def test_a_delivery_reports_every_try(post: Post) -> None:
    endpoint = await post.endpoint()
    await post.canceled()
    (request,) = await pull(post, endpoint["id"])
    await report(post, request["id"], status=503, seconds=1.5, headers={"Retry-After": "60", "X-A": "b"}, body="busy")
    delivery = await post.good("GET", f"/v1/deliveries/{request['id']}")
    assert (delivery["state"], delivery["tries"], delivery["event"]) == ("pending", 1, "job.canceled")
    assert delivery["body"] == request["body"]
    assert msgspec.convert(delivery["due_at"], datetime) > datetime.now(UTC) + timedelta(seconds=30)
    (tried,) = delivery["log"]
    assert (tried["number"], tried["status"], tried["error"], tried["seconds"]) == (1, 503, None, 1.5)
    assert (tried["response_headers"]["X-A"], tried["response_body"]) == ("b", "busy")
    assert await pull(post, endpoint["id"]) == []
    await post.good("POST", f"/v1/deliveries/{request['id']}/resend")
    (again,) = await pull(post, endpoint["id"])
    assert (again["id"], again["body"]) == (request["id"], request["body"])
    await report(post, again["id"], error="connection refused")
    log = (await post.good("GET", f"/v1/deliveries/{request['id']}"))["log"]
    assert [(each["status"], each["error"]) for each in log] == [(503, None), (None, "connection refused")]
    assert "delivery.resent" in await post.actions()


async def test_what_was_delivered_can_be_sent_again_since_a_time(post: Post) -> None:
    endpoint = await post.endpoint()
    began = datetime.now(UTC) - timedelta(minutes=1)
    for status in (200, 410):  # the second gives it up, and disables the endpoint
        await post.canceled()
        (request,) = await pull(post, endpoint["id"])
        await report(post, request["id"], status=status)
    path = f"/v1/endpoints/{endpoint['id']}"
    refused = await post.send("POST", f"{path}/resend", {"since": began.isoformat()})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    await post.good("POST", f"{path}/enable")
    later = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    assert await post.good("POST", f"{path}/resend", {"since": later}) == {"count": 0}
    assert await post.good("POST", f"{path}/resend", {"since": began.isoformat()}) == {"count": 1}
    (request,) = await pull(post, endpoint["id"])
    await report(post, request["id"], status=200)
    everything = {"since": began.isoformat(), "only_failed": False}
    assert await post.good("POST", f"{path}/resend", everything) == {"count": 2}
    assert len(await pull(post, endpoint["id"])) == 2


async def test_deliveries_come_in_pages_and_by_endpoint_job_and_state(post: Post) -> None:
    first, second = await post.endpoint(), await post.endpoint()
    jobs = [await post.canceled() for _ in range(3)]
    (request,) = await pull(post, first["id"], limit=1)
    await report(post, request["id"], status=200)
    path, seen = "/v1/deliveries?limit=4", list[str]()
    page = await post.good("GET", path)
    while True:
        seen += [each["id"] for each in page["data"]]
        if page["next_cursor"] is None:
            break
        page = await post.good("GET", f"{path}&cursor={page['next_cursor']}")
    assert len(set(seen)) == 6
    assert seen == sorted(seen, reverse=True)
    of_first = (await post.good("GET", f"/v1/deliveries?endpoint={first['id']}"))["data"]
    assert {each["endpoint_id"] for each in of_first} == {first["id"]}
    of_job = (await post.good("GET", f"/v1/deliveries?job={jobs[0]}"))["data"]
    assert {each["endpoint_id"] for each in of_job} == {first["id"], second["id"]}
    assert len((await post.good("GET", "/v1/deliveries?state=delivered"))["data"]) == 1
    both = f"/v1/deliveries?endpoint={second['id']}&job={jobs[1]}&state=pending"
    assert [each["job_id"] for each in (await post.good("GET", both))["data"]] == [jobs[1]]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("state=lost", 422, "state"),
        ("cursor=job_1", 422, "cursor"),
        ("endpoint=nonsense", 404, "id"),
        ("job=nonsense", 404, "id"),
        ("limit=0", 422, "limit"),
    ],
)
async def test_a_wrong_filter_is_reported(post: Post, query: str, status: int, field: str) -> None:
    answer = await post.send("GET", f"/v1/deliveries?{query}")
    assert (answer.status_code, answer.json()["field"]) == (status, field)


@pytest.mark.parametrize("body", [{"status": 99}, {"status": 600}, {"seconds": -1}, {"headers": {"a": 1}}])
async def test_a_wrong_report_changes_nothing(post: Post, body: dict[str, Any]) -> None:
    endpoint = await post.endpoint()
    await post.canceled()
    (request,) = await pull(post, endpoint["id"])
    assert (await post.send("POST", f"/v1/deliveries/{request['id']}/report", body)).status_code == 422
    assert (await post.good("GET", f"/v1/deliveries/{request['id']}"))["tries"] == 0


async def test_only_what_is_pulled_is_reported(post: Post) -> None:
    job_id = await post.canceled(webhook={"url": URL})
    (delivery,) = (await post.good("GET", f"/v1/deliveries?job={job_id}"))["data"]
    refused = await post.send("POST", f"/v1/deliveries/{delivery['id']}/report", {"status": 200})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    endpoint = await post.endpoint(url=URL)
    pulled = await post.send("POST", f"/v1/endpoints/{endpoint['id']}/pull", {})
    assert (pulled.status_code, pulled.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/resend"), ("POST", "/report")])
async def test_another_tenants_delivery_is_not_there(post: Post, method: str, path: str) -> None:
    other = await post.beside()
    endpoint = await other.endpoint()
    theirs = await other.good("POST", f"/v1/endpoints/{endpoint['id']}/test", {})
    body = {"status": 200} if path == "/report" else None
    for name in (theirs["id"], NOBODY, "nonsense"):
        assert (await post.send(method, f"/v1/deliveries/{name}{path}", body)).status_code == 404
    listed = await post.good("GET", f"/v1/deliveries?endpoint={endpoint['id']}")
    assert listed["data"] == []
    assert (await post.send("GET", "/v1/deliveries", key=post.client_key)).status_code == 403


async def test_a_wild_report_is_taken(post: Post) -> None:
    endpoint = await post.endpoint()
    await post.canceled()
    (request,) = await pull(post, endpoint["id"])
    wild = {"Retry-After": "Fri, 31 Dec 2027 23:59:59 -9999999999999999", "x\x00": "\x00"}
    await report(post, request["id"], status=503, headers=wild, body="\x00", error="\x00")
    response = await post.good("GET", f"/v1/deliveries/{request['id']}")
    assert (response["state"], response["tries"]) == ("pending", 1)
