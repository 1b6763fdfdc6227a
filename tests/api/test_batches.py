"""Batches over HTTP: created, extended, read, listed and canceled; what is refused; and who may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond import webhooks
from millpond.engine.engine import Engine
from millpond.outbound import Outbound
from tests.api.posts import URL
from tests.api.sites import running_site
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory
from tests.post import VAULT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.store.db import Database
    from tests.api.sites import Site
    from tests.clocks import Clock

FREE = {"kind": "free"}


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    async with running_site(engine) as running:
        yield running


async def made(site: Site, **body: Any) -> dict[str, Any]:
    answer = await site.post("/v1/batches", body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_batch_from_its_first_job_to_its_last(site: Site, clock: Clock) -> None:
    make = Factory(site.engine, clock)
    answer = await site.post("/v1/batches", {"jobs": [FREE, FREE], "total": 3, "name": "b", "tags": {"team": "ads"}})
    batch = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/batches/{batch['id']}")
    assert "webhook_secret" not in batch
    assert (batch["state"], batch["submitted"], batch["progress"], batch["account"]) == ("open", 2, 0.0, ACCOUNT)
    place = f"/v1/batches/{batch['id']}"
    added = await site.post(f"{place}/jobs", {"first": 2, "jobs": [{"kind": "free", "tags": {"last": "yes"}}]})
    assert (added.status_code, added.json()["state"]) == (200, "running")
    await make.serve("free")
    half = (await site.get(place)).json()
    assert (half["ended"], half["succeeded"], half["progress"]) == (1, 1, pytest.approx(1 / 3))
    listed = (await site.get(f"{place}/jobs?limit=2")).json()
    rest = (await site.get(f"{place}/jobs?limit=2&cursor={listed['next_cursor']}")).json()
    assert [job["tags"] for job in (*listed["data"], *rest["data"])] == [
        {"team": "ads"},
        {"team": "ads"},
        {"team": "ads", "last": "yes"},
    ]
    assert rest["next_cursor"] is None
    assert {job["batch_id"] for job in listed["data"]} == {batch["id"]}
    succeeded = (await site.get(f"{place}/jobs?outcome=succeeded")).json()
    assert [job["id"] for job in succeeded["data"]] == [listed["data"][0]["id"]]
    canceled = await site.post(f"{place}/cancel")
    assert (canceled.status_code, canceled.json()["is_accepted"]) == (200, True)
    assert (canceled.json()["batch"]["state"], canceled.json()["batch"]["canceled"]) == ("canceled", 2)
    again = await site.post(f"{place}/cancel")
    assert (again.status_code, again.json()["is_accepted"]) == (200, False)
    assert [each["id"] for each in (await site.get("/v1/batches?state=canceled&tag=team:ads")).json()["data"]] == [
        batch["id"]
    ]
    assert (await site.get("/v1/batches?tag=team:other")).json() == {"data": [], "next_cursor": None}


async def test_requests_can_be_repeated(site: Site) -> None:
    body = {"jobs": [FREE], "total": 2}
    answers = [await site.post("/v1/batches", body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true"]
    place = f"/v1/batches/{answers[0].json()['id']}/jobs"
    answers = [await site.post(place, {"first": 1, "jobs": [FREE]}) for _ in range(2)]
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true"]
    assert answers[1].json()["submitted"] == 2
    other = await site.post("/v1/batches", {"jobs": [FREE], "idempotency_key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({}, 422, "invalid", "jobs"),
        ({"jobs": []}, 422, "invalid", "jobs"),
        ({"jobs": [FREE] * 1_001}, 422, "invalid", "jobs"),
        ({"total": 0}, 422, "invalid", "total"),
        ({"total": 100_001}, 422, "invalid", "total"),
        ({"jobs": [FREE], "colour": "red"}, 422, "invalid", "colour"),
        ({"jobs": [FREE, {"kind": "nothing"}]}, 422, "unknown_kind", "jobs[1].kind"),
        ({"jobs": [{"kind": "free", "webhook": {}}]}, 422, "invalid", "jobs[0].webhook"),
        ({"jobs": [FREE, {"kind": "free", "input": {"x": "a\0"}}]}, 422, "invalid_input", "jobs[1].input.x"),
        ({"jobs": [{"kind": "priced"}]}, 402, "insufficient_credits", None),
        ({"jobs": [FREE], "name": ""}, 422, "invalid", "name"),
        ({"jobs": [FREE], "tags": {"a b": "c"}}, 422, "invalid", "tags"),
        ({"jobs": [FREE], "account": "other"}, 403, "forbidden", "account"),
    ],
)
async def test_what_is_refused_is_named(site: Site, body: Any, status: int, code: str, field: str | None) -> None:
    answer = await site.post("/v1/batches", body)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem.get("field")) == (status, code, field), problem
    assert (await site.get("/v1/batches")).json()["data"] == []


async def test_jobs_that_cannot_be_added(site: Site) -> None:
    batch = await made(site, jobs=[FREE], total=3)
    place = f"/v1/batches/{batch['id']}/jobs"
    cases: list[tuple[Any, int, str, str | None]] = [
        ({"first": 0, "jobs": [{"kind": "free", "priority": 1}]}, 409, "conflict", "first"),
        ({"first": 2, "jobs": [FREE]}, 409, "conflict", "first"),
        ({"first": 1, "jobs": [FREE] * 3}, 422, "invalid", "jobs"),
        ({"first": 1, "jobs": []}, 422, "invalid", "jobs"),
        ({"first": -1, "jobs": [FREE]}, 422, "invalid", "first"),
        ({"jobs": [FREE]}, 422, "invalid", "first"),
    ]
    for body, status, code, field in cases:
        problem = (await site.post(place, body)).json()
        assert (problem["status"], problem["code"], problem.get("field")) == (status, code, field), problem
    await site.post(f"/v1/batches/{batch['id']}/cancel")
    problem = (await site.post(place, {"first": 1, "jobs": [FREE]})).json()
    assert (problem["status"], problem["code"], problem["state"]) == (409, "batch_closed", "canceled")


async def test_a_batch_is_shown_to_its_account_and_to_operators(site: Site) -> None:
    batch = await made(site, jobs=[FREE], total=2)
    place = f"/v1/batches/{batch['id']}"
    other = await site.key(account="other")
    stranger = await site.key(tenant=STRANGER)
    for key in (other, stranger):
        for method, path, body in (
            ("GET", place, None),
            ("GET", f"{place}/jobs", None),
            ("POST", f"{place}/jobs", {"first": 1, "jobs": [FREE]}),
            ("POST", f"{place}/cancel", None),
        ):
            answer = await site.send(method, path, key=key, json=body)
            assert answer.status_code == 404, (method, path)
        assert (await site.get("/v1/batches", key=key)).json()["data"] == []
    operator = await site.key(scope="operator", account=None)
    for key in (operator, site.admin_key):
        assert (await site.get(place, key=key)).json()["id"] == batch["id"]
        assert len((await site.get(f"{place}/jobs", key=key)).json()["data"]) == 1
        assert [each["id"] for each in (await site.get("/v1/batches", key=key)).json()["data"]] == [batch["id"]]
    added = await site.post(f"{place}/jobs", {"first": 1, "jobs": [FREE]}, key=site.admin_key)
    assert added.json()["submitted"] == 2
    canceled = await site.post(f"{place}/cancel", key=operator)
    assert canceled.json()["batch"]["canceled"] == 2
    audit = (await site.get("/v1/audit", key=operator)).json()["data"]
    assert [(entry["action"], entry["subject"]) for entry in audit][:1] == [("batch.canceled", batch["id"])]


async def test_a_generated_secret_is_returned_and_replayed(db: Database) -> None:
    engine = Engine(db, app, vault=VAULT, outbound=Outbound("loopback"))
    async with running_site(engine) as site:
        body = {"jobs": [FREE], "webhook": {"url": URL}}
        answers = [await site.post("/v1/batches", body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
        secrets = [answer.json()["webhook_secret"] for answer in answers]
        assert secrets[0] == secrets[1]
        webhooks.check_secret(secrets[0], field="secret")
        assert secrets[0] not in (await site.get(f"/v1/batches/{answers[0].json()['id']}")).text


async def test_batches_are_paged(site: Site) -> None:
    ids = [(await made(site, total=1))["id"] for _ in range(5)]
    page = (await site.get("/v1/batches?limit=3")).json()
    rest = (await site.get(f"/v1/batches?limit=3&cursor={page['next_cursor']}")).json()
    assert [each["id"] for each in (*page["data"], *rest["data"])] == ids[::-1]
    assert (await site.get("/v1/batches?cursor=nonsense")).status_code == 422
    assert (await site.get(f"/v1/batches/{ids[0][:-1]}")).status_code == 404
    assert (await site.get(f"/v1/batches?tenant={TENANT}&account=other", key=site.admin_key)).json()["data"] == []
