"""Finding jobs and acting on many of them over HTTP, and who may."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millpond.api.jobs.jobs import export_line
from millpond.cli import bulk
from millpond.cli.reach import ApiConnection
from millpond.client import AsyncClient
from millpond.services.bulk_runner import BulkRunner
from millpond.wire import JobFilter
from tests.factories import ACCOUNT, STRANGER, TENANT

if TYPE_CHECKING:
    from millpond.storage.local import Local
    from tests.api.sites import Site
    from tests.factories import Factory

WHY = "the model was wrong"


async def test_jobs_are_found_in_pages(site: Site, make: Factory) -> None:
    jobs = [(await make.submitted("free")).id for _ in range(3)]
    job = await make.ended("priced", "failed")
    first = (await site.order("GET", "/v1/board/jobs?phase=ready&limit=2")).json()
    assert [line["id"] for line in first["data"]] == [jobs[2], jobs[1]]
    second = (await site.order("GET", f"/v1/board/jobs?phase=ready&limit=2&cursor={first['next_cursor']}")).json()
    assert ([line["id"] for line in second["data"]], second["next_cursor"]) == ([jobs[0]], None)
    (line,) = (await site.order("GET", "/v1/board/jobs?outcome=failed&error=boom&kind=pri*&since=1h")).json()["data"]
    assert (line["id"], line["error_code"], line["error_message"]) == (job.id, "boom", "It broke.")
    assert not {"input", "output", "error"} & line.keys()
    for query, field in (("since=soon", "since"), ("phase=x", "phase"), ("cursor=x", "cursor"), ("ids=x", "ids")):
        wrong = await site.order("GET", f"/v1/board/jobs?{query}")
        assert (wrong.status_code, wrong.json()["field"]) == (422, field)


async def test_a_key_for_one_account_has_no_bulk_operations(site: Site, make: Factory) -> None:
    job = await make.submitted("free")
    made = (await site.order("POST", "/v1/bulk", {"action": "cancel", "filter": {"kind": "free"}})).json()
    _, key = await site.engine.access.make_key(scope="admin", tenant=TENANT, account=ACCOUNT, actor="op")
    body = {"filter": {"ids": [job.id]}}
    for method, path, given in (
        ("POST", "/v1/bulk", body | {"action": "cancel"}),
        ("POST", "/v1/bulk/preview", body),
        ("GET", "/v1/bulk", None),
        ("GET", f"/v1/bulk/{made['id']}", None),
        ("POST", f"/v1/bulk/{made['id']}/abort", None),
    ):
        answer = await site.send(method, path, key=key, json=given)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
        assert "limited to one account" in answer.json()["detail"]
    assert (await site.send("GET", "/v1/board/jobs", key=key)).json()["data"][0]["id"] == job.id


async def test_a_command_orders_with_a_key(site: Site) -> None:
    given: dict[str, Any] = dict.fromkeys((*bulk.FILTERS, "job", "reason", "dry_run", "watch")) | {
        "all": True,
        "yes": True,
    }
    async with AsyncClient(site.url, site.admin_key) as client:
        (made,) = [seen async for seen in bulk._order(ApiConnection(client), "cancel", given, [])]
    async with site.engine.db.transaction() as tx:
        key: str = await tx.fetchval("select key from millpond.bulk_operations")
    assert (made.state, key[:4], len(key)) == ("waiting", "cli-", 36)


async def test_a_bulk_operation_is_ordered_seen_and_audited(site: Site, make: Factory) -> None:
    for _ in range(3):
        await make.submitted("free")
    order = {"action": "cancel", "filter": {"kind": "free", "phase": "ready"}}
    seen = (await site.order("POST", "/v1/bulk/preview", {"filter": order["filter"]})).json()
    assert (seen["matched"], seen["is_capped"], len(seen["sample"])) == (3, False, 3)
    headers = {"Idempotency-Key": "k"}
    made = await site.order("POST", "/v1/bulk", order, headers=headers)
    again = await site.order("POST", "/v1/bulk", order, headers=headers)
    assert (made.status_code, made.json()["state"], made.json()["tenant"]) == (202, "waiting", None)
    assert (again.json()["id"], again.headers["idempotency-replayed"]) == (made.json()["id"], "true")
    other = await site.order("POST", "/v1/bulk", order | {"action": "retry"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    await BulkRunner(site.engine, export_line).act()
    response = (await site.order("GET", f"/v1/bulk/{made.json()['id']}")).json()
    assert (response["state"], response["matched"], response["done"], response["refused"]) == ("done", 3, 3, 0)
    assert [one["id"] for one in (await site.order("GET", "/v1/bulk")).json()["data"]] == [response["id"]]
    over = await site.order("POST", f"/v1/bulk/{response['id']}/abort")
    assert (over.status_code, over.json()["state"]) == (409, "done")
    actions = [entry["action"] for entry in (await site.order("GET", "/v1/audit")).json()["data"]]
    assert actions[:2] == ["bulk.finished", "bulk.ordered"]


async def test_scopes_and_tenants_bound_what_may_be_ordered(site: Site, make: Factory) -> None:
    own, theirs = await make.submitted("free"), await make.submitted("free", tenant=STRANGER)
    keys = {scope: await site.key(scope=scope, account=None) for scope in ("viewer", "operator", "admin")}

    async def ordered(scope: str, **order: Any) -> Any:
        return await site.post("/v1/bulk", order, key=keys[scope])

    assert (await ordered("viewer", action="cancel", all=True)).status_code == 403
    assert (await site.post("/v1/bulk", {"action": "cancel", "all": True})).status_code == 403
    refund = {"action": "refund", "reason": WHY, "filter": {"outcome": "succeeded"}}
    assert (await ordered("operator", **refund)).json()["needed"] == "admin"
    assert (await ordered("admin", **refund)).status_code == 202
    assert (await ordered("operator", action="verify")).status_code == 403
    assert (await ordered("operator", action="cancel", filter={"tenant": STRANGER})).json()["field"] == "filter.tenant"
    assert (await ordered("operator", action="cancel")).json()["field"] == "filter"
    for wrong in ({"action": "explode"}, {"action": "cancel", "filter": {"colour": "red"}}, {}):
        assert (await ordered("operator", **wrong)).status_code == 422
    made = (await ordered("operator", action="cancel", all=True)).json()
    assert (made["tenant"], made["filter"]["tenant"]) == (TENANT, TENANT)
    await BulkRunner(site.engine, export_line).act()
    assert (await site.engine.read(TENANT, own.job_id)).outcome == "canceled"
    assert (await site.engine.read(STRANGER, theirs.job_id)).outcome is None
    lines = (await site.get("/v1/board/jobs", key=keys["viewer"])).json()["data"]
    assert [line["id"] for line in lines] == [own.id]
    assert (await site.get(f"/v1/board/jobs?tenant={STRANGER}", key=keys["viewer"])).status_code == 403
    stranger = await site.key(scope="admin", tenant=STRANGER, account=None)
    assert (await site.get(f"/v1/bulk/{made['id']}", key=stranger)).status_code == 404
    assert (await site.post(f"/v1/bulk/{made['id']}/abort", key=stranger)).status_code == 404
    assert (await site.get("/v1/bulk", key=stranger)).json()["data"] == []


async def test_an_export_is_read_back_as_the_jobs_are(site: Site, make: Factory, files: Local) -> None:
    job = await make.ended("priced")
    made = (await site.order("POST", "/v1/bulk", {"action": "export", "filter": {"outcome": "succeeded"}})).json()
    await BulkRunner(site.engine, export_line).read()
    response = (await site.order("GET", f"/v1/bulk/{made['id']}")).json()
    assert (response["state"], response["result"]["rows"], response["arguments"]) == ("done", 1, {"format": "ndjson"})
    assert response["result"]["url"].startswith("http://files.test/bulk/")
    text = await files.read(f"bulk/{made['id']}.ndjson")
    assert len(text) == response["result"]["size"]
    assert json.loads(text) == (await site.order("GET", f"/v1/jobs/{job.id}")).json()


async def test_a_refund_and_a_priority_over_http(site: Site, make: Factory) -> None:
    job, ready = await make.ended(), await make.submitted("free")
    path = f"/v1/jobs/{job.id}/refund"
    operator = await site.key(scope="operator", account=None)
    assert (await site.post(path, {"reason": WHY}, key=operator)).status_code == 403
    assert (await site.order("POST", path, {})).json()["field"] == "reason"
    given = await site.order("POST", path, {"reason": WHY})
    again = await site.order("POST", path, {"reason": WHY})
    assert given.json() == again.json() == {"job_id": job.id, "amount": 5, "available": 5}
    assert again.headers["idempotency-replayed"] == "true"
    more = await site.order("POST", path, {"reason": WHY, "amount": 1})
    assert (more.status_code, more.json()["code"], more.json()["captured"]) == (409, "refund_unavailable", 5)
    place = f"/v1/jobs/{ready.id}/priority"
    assert (await site.send("PUT", place, json={"priority": 7}, key=operator)).json()["state"] == "queued"
    assert (await site.send("PUT", place, json={"priority": 101}, key=operator)).json()["field"] == "priority"
    late = await site.order("PUT", f"/v1/jobs/{job.id}/priority", {"priority": 7})
    assert (late.status_code, late.json()["code"]) == (409, "priority_unavailable")
    actions = [entry["action"] for entry in (await site.order("GET", "/v1/audit")).json()["data"]]
    assert [action for action in actions if action.startswith("job.")] == ["job.prioritized", "job.refunded"]


async def test_the_sdk_has_a_verb_for_each(site: Site, make: Factory) -> None:
    job = await make.ended()
    async with AsyncClient(site.url, site.admin_key) as client:
        wanted = JobFilter(outcome="succeeded", tenant=TENANT, account=ACCOUNT)
        assert [line.id async for line in client.find_jobs(wanted)] == [job.id]
        assert (await client.preview(wanted)).matched == 1
        made = await client.order("refund", wanted, reason=WHY, idempotency_key="once")
        assert (await client.abort(made.id)).state == "aborted"
        assert (await client.bulk_operation(made.id)).filter.account == ACCOUNT
        assert [operation.id async for operation in client.bulk_operations()] == [made.id]
        assert [operation.id async for operation in client.bulk_operations(state="aborted")] == [made.id]
        assert [operation async for operation in client.bulk_operations(state="done")] == []
        assert (await client.refund(job.id, WHY, amount=2)).amount == 2
        ready = await make.submitted("free")
        assert (await client.set_priority(ready.id, -3)).state == "queued"
        with pytest.raises(Exception, match="every job"):
            await client.order("cancel")
