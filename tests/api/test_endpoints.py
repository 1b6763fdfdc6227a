"""Endpoints over HTTP: made, changed, tried and removed by operators; and the webhook that a job brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond import ids, webhooks
from tests.api.posts import URL, Post, new_post, post_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.sites import Site
    from tests.databases import DatabaseServer

NOBODY = "ep_00000000000000000000000000"
ENDS = ["job.succeeded", "job.failed", "job.canceled", "job.expired", "job.blocked"]


@pytest.fixture(scope="module")
async def site(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    async with post_site(server, template) as running:
        yield running


@pytest.fixture
async def post(site: Site) -> AsyncIterator[Post]:
    async with new_post(site) as made:
        yield made


async def test_an_endpoint_is_made_and_its_secret_shown_once(post: Post) -> None:
    made = await post.endpoint(url=URL, description="the shop")
    assert made["id"].startswith("ep_")
    assert webhooks.check_secret(made["secret"]) == made["secret"]
    assert (made["url"], made["description"], made["events"], made["kinds"]) == (URL, "the shop", ENDS, [])
    read = await post.send("GET", f"/v1/endpoints/{made['id']}")
    listed = await post.send("GET", "/v1/endpoints")
    assert read.json() == {name: value for name, value in made.items() if name != "secret"}
    assert listed.json() == {"data": [read.json()], "next_cursor": None}
    audit = await post.send("GET", "/v1/audit")
    assert await post.actions() == ["endpoint.made"]
    for described in (read, listed, audit):
        assert "whsec_" not in described.text


async def test_endpoints_are_reported_in_pages(post: Post) -> None:
    made = [(await post.endpoint(url=URL))["id"] for _ in range(3)]
    first = await post.good("GET", "/v1/endpoints?limit=2")
    assert [each["id"] for each in first["data"]] == made[:2]
    rest = await post.good("GET", f"/v1/endpoints?limit=2&cursor={first['next_cursor']}")
    assert ([each["id"] for each in rest["data"]], rest["next_cursor"]) == (made[2:], None)
    refused = await post.send("GET", "/v1/endpoints?cursor=job_1")
    assert (refused.status_code, refused.json()["field"]) == (422, "cursor")


async def test_an_endpoint_takes_a_secret_and_events_of_its_own(post: Post) -> None:
    secret = webhooks.new_secret()
    made = await post.endpoint(url=URL, secret=secret, events=["job.started", "*", "endpoint.disabled"], kinds=["free"])
    assert (made["secret"], made["kinds"]) == (secret, ["free"])
    assert made["events"] == ["job.started", "*", "endpoint.disabled"]


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ({"events": ["job.nothing"]}, "events", "job.succeeded"),
        ({"events": ["succeeded"]}, "events", "job.succeeded"),
        ({"events": []}, "events", ""),
        ({"url": "http://10.0.0.1/"}, "url", ""),
        ({"url": "http://169.254.169.254/latest"}, "url", ""),
        ({"url": "ftp://example.com/"}, "url", ""),
        ({"url": "nonsense"}, "url", ""),
        ({"secret": "whsec_dG9vIHNob3J0"}, "secret", "24 to 64"),
        ({"limit": 0}, "limit", ""),
        ({"kinds": ["not a name"]}, "kinds[0]", ""),
        ({"colour": "red"}, "colour", "Known fields"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_wrong_is_reported_with_its_place(
    post: Post, body: dict[str, Any], field: str, expected: str
) -> None:
    answer = await post.send("POST", "/v1/endpoints", {"url": URL, **body})
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert expected in answer.text
    assert (await post.good("GET", "/v1/endpoints"))["data"] == []


async def test_what_is_named_is_changed_and_the_rest_stays(post: Post) -> None:
    made = await post.endpoint(url=URL, description="old", limit=3)
    path = f"/v1/endpoints/{made['id']}"
    changed = await post.good("PATCH", path, {"description": "new", "events": ["job.failed"], "limit": None})
    assert (changed["description"], changed["events"], changed["limit"]) == ("new", ["job.failed"], None)
    assert changed["url"] == URL
    changed = await post.good("PATCH", path, {"url": "http://127.0.0.1:9/other", "kinds": ["free"]})
    assert (changed["url"], changed["kinds"], changed["events"]) == (
        "http://127.0.0.1:9/other",
        ["free"],
        ["job.failed"],
    )
    refused = await post.send("PATCH", path, {"url": "http://192.168.0.1/"})
    assert (refused.status_code, refused.json()["code"]) == (422, "url_refused")
    assert await post.good("GET", path) == changed
    pulled = await post.endpoint()
    refused = await post.send("PATCH", f"/v1/endpoints/{pulled['id']}", {"url": URL})
    assert (refused.status_code, refused.json()["field"]) == (409, "url")
    assert await post.actions() == ["endpoint.made", "endpoint.changed", "endpoint.changed", "endpoint.made"]


async def test_a_rotated_secret_is_shown_once_and_both_sign(post: Post) -> None:
    made = await post.endpoint()
    path = f"/v1/endpoints/{made['id']}"
    rotated = await post.good("POST", f"{path}/rotate", {"overlap": "1h"})
    assert rotated["secret"] != made["secret"]
    assert rotated["rotated_until"] is not None
    await post.good("POST", f"{path}/test", {})
    (request,) = (await post.good("POST", f"{path}/pull", {}))["data"]
    for secret in (made["secret"], rotated["secret"]):
        assert webhooks.verify(request["body"], request["headers"], secret)["type"] == "job.succeeded"
    assert await post.actions() == ["endpoint.made", "endpoint.rotated", "endpoint.tested"]
    refused = await post.send("POST", f"{path}/rotate", {"overlap": "31d"})
    assert (refused.status_code, refused.json()["field"]) == (422, "overlap")


async def test_a_disabled_endpoint_is_not_tried_until_it_is_enabled(post: Post) -> None:
    made = await post.endpoint()
    path = f"/v1/endpoints/{made['id']}"
    disabled = await post.good("POST", f"{path}/disable", {"reason": "it hurts"})
    assert (disabled["disabled_reason"], disabled["disabled_at"] is None) == ("it hurts", False)
    refused = await post.send("POST", f"{path}/test", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    enabled = await post.good("POST", f"{path}/enable")
    assert enabled["disabled_at"] is None
    assert (await post.good("POST", f"{path}/test", {}))["event"] == "job.succeeded"
    assert (await post.actions())[1:] == ["endpoint.disabled", "endpoint.enabled", "endpoint.tested"]


async def test_a_test_reports_the_event_that_was_asked_for(post: Post) -> None:
    path = f"/v1/endpoints/{(await post.endpoint())['id']}"
    for event in ("job.failed", "endpoint.disabled"):
        sent = await post.good("POST", f"{path}/test", {"event": event})
        assert (sent["event"], sent["state"], sent["job_id"]) == (event, "pending", None)
        (request,) = (await post.good("POST", f"{path}/pull", {}))["data"]
        assert f'"type":"{event}"' in request["body"]
    refused = await post.send("POST", f"{path}/test", {"event": "*"})
    assert (refused.status_code, refused.json()["field"]) == (422, "event")


async def test_a_deleted_endpoint_is_gone(post: Post) -> None:
    path = f"/v1/endpoints/{(await post.endpoint())['id']}"
    sent = await post.good("POST", f"{path}/test", {})
    assert (await post.send("DELETE", path)).status_code == 204
    assert (await post.send("GET", path)).status_code == 404
    assert (await post.good("GET", "/v1/endpoints"))["data"] == []
    assert (await post.good("GET", f"/v1/deliveries/{sent['id']}"))["state"] == "withdrawn"
    assert (await post.actions())[-1] == "endpoint.deleted"


async def test_statistics_report_how_it_fared(post: Post) -> None:
    path = f"/v1/endpoints/{(await post.endpoint())['id']}"
    for status in (200, 500, None):
        await post.good("POST", f"{path}/test", {})
        (request,) = (await post.good("POST", f"{path}/pull", {}))["data"]
        if status is not None:
            await post.good("POST", f"/v1/deliveries/{request['id']}/report", {"status": status, "seconds": 0.25})
    response = await post.good("GET", f"{path}/stats?since=1h")
    assert (response["delivered"], response["pending"], response["failed"], response["tries"]) == (1, 2, 0, 2)
    assert response["seconds_p50"] == pytest.approx(0.25)
    refused = await post.send("GET", f"{path}/stats?since=soon")
    assert (refused.status_code, refused.json()["field"]) == (422, "since")


async def test_another_tenants_endpoint_is_not_there(post: Post) -> None:
    theirs = await (await post.beside()).endpoint(url=URL)
    calls = [(method, "") for method in ("GET", "PATCH", "DELETE")] + [("GET", "/stats")]
    calls += [("POST", f"/{verb}") for verb in ("rotate", "disable", "enable", "test", "pull")]
    for method, path in calls:
        for name in (theirs["id"], NOBODY, "nonsense", theirs["id"].replace("ep_", "key_")):
            answer = await post.send(method, f"/v1/endpoints/{name}{path}", None if method == "GET" else {})
            assert answer.status_code == 404, f"{method} {path}: {answer.text}"
    body = {"since": "2026-01-01T00:00:00Z"}
    assert (await post.send("POST", f"/v1/endpoints/{theirs['id']}/resend", body)).status_code == 404


async def test_only_operators_of_the_tenant_reach_them(site: Site, post: Post) -> None:
    assert (await post.send("GET", "/v1/endpoints", key=post.client_key)).status_code == 403
    own = await site.key(scope="admin", tenant=post.tenant, account=None)
    other = await site.key(scope="admin", tenant=f"{post.tenant}x", account=None)
    assert (await site.get("/v1/endpoints", key=own)).status_code == 200
    assert (await post.send("GET", "/v1/endpoints", key=other)).status_code == 403
    unnamed = await site.order("POST", "/v1/endpoints", {"url": URL})
    assert (unnamed.status_code, unnamed.json()["field"]) == (422, "tenant")


# The webhook that a job brings along


async def test_a_jobs_webhook_gets_a_secret_and_a_replay_reports_the_same(post: Post) -> None:
    webhook = {"url": URL, "events": ["job.canceled"]}
    first = await post.submit(webhook=webhook, key="order-1")
    again = await post.submit(webhook=webhook, key="order-1")
    assert first.status_code == again.status_code == 202
    assert webhooks.check_secret(first.json()["webhook_secret"])
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    read = await post.ask("GET", f"/v1/jobs/{first.json()['id']}")
    assert "whsec_" not in read.text


async def test_a_secret_that_was_given_is_not_reported_back(post: Post) -> None:
    answer = await post.submit(webhook={"url": URL, "secret": webhooks.new_secret()})
    assert answer.status_code == 202
    assert "webhook_secret" not in answer.json()
    assert "webhook_secret" not in (await post.submit()).json()


async def test_the_same_key_with_another_webhook_is_a_conflict(post: Post) -> None:
    assert (await post.submit(key="order-2")).status_code == 202
    answer = await post.submit(key="order-2", webhook={"url": URL})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("webhook", "field"),
    [
        ({"url": "http://10.1.2.3/"}, "webhook.url"),
        ({"url": "http://user:hunter2@example.com/"}, "webhook.url"),
        ({"url": URL, "events": ["endpoint.disabled"]}, "webhook.events"),
        ({"url": URL, "events": ["*"]}, "webhook.events"),
        ({"url": URL, "secret": ""}, "webhook.secret"),
        ({"url": URL, "secret": "hunter2hunter2"}, "webhook.secret"),
        ({}, "webhook.url"),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_a_wrong_webhook_is_refused_alone_and_among_many(post: Post, webhook: Any, field: str) -> None:
    answer = await post.submit(webhook=webhook)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert "hunter2" not in answer.text
    if "url" not in webhook:  # then the whole bulk cannot be read
        return
    jobs = [{"kind": "free", "webhook": webhook}, {"kind": "free", "webhook": {"url": URL}}, {"kind": "free"}]
    bulk = await post.ask("POST", "/v1/jobs/bulk", {"jobs": jobs})
    bad, good, plain = bulk.json()["results"]
    assert (bad["status"], bad["problem"]["field"]) == (422, field)
    assert webhooks.check_secret(good["job"]["webhook_secret"])
    assert "webhook_secret" not in plain["job"]


async def test_what_a_jobs_webhook_is_sent_is_in_the_log_of_deliveries(post: Post) -> None:
    job_id = await post.canceled(webhook={"url": URL})
    (delivery,) = (await post.good("GET", f"/v1/deliveries?job={job_id}"))["data"]
    assert (delivery["event"], delivery["endpoint_id"], delivery["state"]) == ("job.canceled", None, "pending")
    assert (await post.good("GET", f"/v1/deliveries/{delivery['id']}"))["url"] == URL


async def test_the_same_key_with_another_secret_of_the_callers_is_a_conflict(post: Post) -> None:
    """He would wait for signatures that never fit."""
    webhook = {"url": URL, "secret": webhooks.new_secret()}
    first = await post.submit(key="order-3", webhook=webhook)
    again = await post.submit(key="order-3", webhook=webhook)
    assert (first.status_code, again.json()) == (202, first.json())
    for other in ({"url": URL, "secret": webhooks.new_secret()}, {"url": URL}):
        answer = await post.submit(key="order-3", webhook=other)
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")


async def test_endpoints_that_fail_since_the_same_time_are_reported_in_one_order(site: Site, post: Post) -> None:
    made = [(await post.endpoint(url=URL))["id"] for _ in range(4)]
    async with site.engine.db.transaction() as tx:
        await tx.execute("update millpond.endpoints set failing_since = now()")
        for one in made[:2]:  # what was written last comes last, where nothing else tells
            touched = "update millpond.endpoints set description = 'touched' where id = $1"
            await tx.execute(touched, ids.parse("ep", one))
    named = [alarm["subject"]["id"] for alarm in (await site.order("GET", "/v1/board")).json()["alarms"]]
    assert [one for one in named if one in made] == made


async def test_what_an_alarm_names_is_found_without_naming_its_tenant(site: Site, post: Post) -> None:
    made = await post.endpoint(url=URL)
    async with site.engine.db.transaction() as tx:
        since = "update millpond.endpoints set failing_since = millpond.clock() where id = $1"
        await tx.execute(since, ids.parse("ep", made["id"]))
    alarms = (await site.order("GET", "/v1/board")).json()["alarms"]
    assert {"type": "endpoint", "id": made["id"], "tenant": post.tenant} in [alarm["subject"] for alarm in alarms]
    path = f"/v1/endpoints/{made['id']}"
    assert (await site.order("GET", path)).json()["tenant"] == post.tenant
    for verb in ("disable", "enable", "test"):
        answer = await site.order("POST", f"{path}/{verb}", {})
        assert answer.status_code < 300, answer.text
    delivery = f"/v1/deliveries/{answer.json()['id']}"
    assert (await site.order("GET", delivery)).json()["tenant"] == post.tenant
    assert (await site.order("POST", f"{delivery}/resend")).status_code == 202
    assert (await site.order("DELETE", path)).status_code == 204
    described = ["endpoint.made", "endpoint.disabled", "endpoint.enabled", "endpoint.tested", "delivery.resent"]
    assert await post.actions() == [*described, "endpoint.deleted"]
    for gone in (path, f"/v1/endpoints/{NOBODY}", "/v1/deliveries/msg_00000000000000000000000000"):
        assert (await site.order("GET", gone)).status_code == 404


async def test_who_only_looks_sees_no_secret_of_a_url(site: Site, post: Post) -> None:
    made = await post.endpoint(url=f"{URL}?token=hunter2")
    (delivery,) = [await post.good("POST", f"/v1/endpoints/{made['id']}/test")]
    viewer = await site.key(scope="viewer", tenant=post.tenant, account=None)
    for path in ("/v1/endpoints", f"/v1/endpoints/{made['id']}", f"/v1/deliveries/{delivery['id']}"):
        shown = (await site.get(path, key=viewer)).text
        assert (URL in shown, "hunter2" in shown) == (True, False), shown
        assert "hunter2" in (await post.send("GET", path)).text, "who acts sees where it goes"


async def test_the_audit_keeps_no_secret_of_a_url(post: Post) -> None:
    made = await post.endpoint(url=f"{URL}?token=hunter2")
    assert made["url"] == f"{URL}?token=hunter2"
    await post.good("PATCH", f"/v1/endpoints/{made['id']}", {"url": f"{URL}/more?token=hunter2"})
    audit = await post.send("GET", "/v1/audit")
    assert f'"{URL}"' in audit.text
    assert f'"{URL}/more"' in audit.text
    assert "hunter2" not in audit.text
