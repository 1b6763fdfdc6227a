"""What operators look at: a job with all that belongs to it, anything by its id, money, the fleet, the system."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import ids
from millpond.engine.engine import Engine
from millpond.engine.fleet.workers import FleetSettings
from millpond.engine.providers import predictions
from millpond.engine.queue.leases import Note
from millpond.engine.reads import details, system
from millpond.settings import Settings, setting
from tests.api.posts import URL, new_post, post_site
from tests.api.sites import Site, running_site
from tests.factories import ERROR, HOUR, MINUTE, STRANGER, TENANT, Factory, attempt, progress, stage
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.posts import Post
    from tests.databases import DatabaseServer

KIND = "filmed"


@pytest.fixture(scope="module")
async def shared_site(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    """One server for all tests that need no clock: each has tenants of its own."""
    async with post_site(server, template) as site:
        yield site


@pytest.fixture
async def post(shared_site: Site) -> AsyncIterator[Post]:
    async with new_post(shared_site) as made:
        yield made


async def seen(site: Site, path: str, **options: Any) -> Any:
    answer = await site.send("GET", path, key=options.pop("key", site.admin_key), **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def viewer(site: Site, tenant: str | None) -> str:
    return await site.key(scope="viewer", tenant=tenant, account=None)


def phases(detail: dict[str, Any]) -> list[tuple[str, str | None, int, bool]]:
    return [(span["phase"], span["stage"], span["attempt"], span["to"] is None) for span in detail["spans"]]


# A job


async def test_a_detail_reports_how_a_job_spent_its_time_and_its_money(site: Site, make: Factory) -> None:
    lease = await make.leased("staged")
    await make.engine.note(stage(lease, 1, "planning"), progress(lease, 2, 0.5), stage(lease, 3, "rendering"))
    await make.engine.give_back(attempt(lease))
    await make.clock.advance(MINUTE)
    (again,) = await make.claimed("staged", worker="second")
    response = await seen(site, f"/v1/board/jobs/{ids.text('job', lease.job_id)}")
    assert phases(response) == [
        ("ready", None, 0, False),
        ("leased", None, 1, False),
        ("leased", "planning", 1, False),
        ("leased", "rendering", 1, False),
        ("ready", None, 1, False),
        ("leased", None, 2, True),
    ]
    ends = [(span["from"], span["to"]) for span in response["spans"]]
    assert all(end == start for (_, end), (start, _) in pairwise(ends))
    first, second = response["attempts"]
    assert (first["outcome"], first["cause"], first["error_code"], first["worker"]) == (
        "requeued",
        "attempt",
        ERROR["code"],
        None,
    )
    assert (second["number"], second["outcome"], second["to"], second["worker"]) == (2, None, None, "second")
    assert (response["worker"], response["worker_id"], response["events_left_out"]) == ("second", None, 0)
    assert [(entry["type"], entry["held"]) for entry in response["entries"]] == [("hold", 5)]
    assert response["job"]["id"] == ids.text("job", lease.job_id)
    assert response["lifecycle"]["states"]["running"] == "leased"

    await make.finish(again)
    done = await seen(site, f"/v1/board/jobs/{ids.text('job', lease.job_id)}")
    assert (done["worker"], done["attempts"][1]["outcome"], done["spans"][-1]["to"]) == (
        None,
        "succeeded",
        done["job"]["finished_at"],
    )
    assert [entry["type"] for entry in done["entries"]] == ["hold", "capture"]


async def test_a_job_that_failed_reports_why_and_what_was_made_from_it(site: Site, make: Factory) -> None:
    job = await make.ended("priced", "failed")
    await make.credits(5)
    retried = await make.engine.retry(TENANT, job.job_id)
    response = await seen(site, f"/v1/board/jobs/{job.id}?tenant={TENANT}")
    (tried,) = response["attempts"]
    assert (tried["outcome"], tried["error_code"]) == ("failed", ERROR["code"])
    assert response["retries"] == [retried.id]
    assert [entry["type"] for entry in response["entries"]] == ["hold", "release"]
    assert (await seen(site, f"/v1/board/jobs/{retried.id}"))["job"]["retry_of"] == job.id


async def test_a_refund_is_among_the_money_of_a_job(site: Site, make: Factory) -> None:
    job, other = await make.ended("priced"), await make.ended("priced")
    await make.engine.refund(TENANT, job.job_id, amount=2, key="a", reason="blurred", actor="test")
    await make.engine.refund(TENANT, job.job_id, reason="all of it", actor="test")
    await make.engine.refund(TENANT, other.job_id, reason="another's", actor="test")
    response = (await seen(site, f"/v1/board/jobs/{job.id}"))["entries"]
    assert [(entry["type"], entry["available"]) for entry in response] == [
        ("hold", -5),
        ("capture", 0),
        ("adjust", 2),
        ("adjust", 3),
    ]
    assert {entry["job_id"] for entry in response} == {job.id}


async def test_a_parked_job_and_what_a_provider_was_asked(site: Site, make: Factory) -> None:
    lease = await make.leased("brief")
    begun = await predictions.begin(make.engine.db, TENANT, lease.job_id, lease.epoch, "replicate")
    await predictions.sent(make.engine.db, begun.id, "pred-7")
    await make.engine.park(lease, None)
    response = await seen(site, f"/v1/board/jobs/{ids.text('job', lease.job_id)}")
    assert [phase for phase, *_ in phases(response)] == ["ready", "leased", "parked"]
    (asked,) = response["predictions"]
    assert (asked["provider"], asked["external_id"], asked["status"]) == ("replicate", "pred-7", "running")
    (found,) = (await seen(site, "/v1/search?q=pred-7"))["data"]
    assert (found["type"], found["id"], found["by"]) == ("job", response["job"]["id"], "external_id")
    await make.engine.cancel(TENANT, lease.job_id)


async def test_of_a_very_long_life_the_middle_is_left_out(site: Site, make: Factory) -> None:
    lease = await make.leased("staged")
    for start in range(1, 2_101, 300):
        await make.engine.note(*(Note(lease, n, "log", '{"text": "x"}') for n in range(start, start + 300)))
    await make.engine.note(stage(lease, 3_000, "rendering"))
    response = await seen(site, f"/v1/board/jobs/{ids.text('job', lease.job_id)}")
    assert response["events_left_out"] == response["job"]["events"] - 2 * details.EVENTS_MAX > 0
    assert phases(response) == [("ready", None, 0, False), ("leased", None, 1, False), ("leased", "rendering", 1, True)]
    await make.finish(lease)


async def test_a_detail_that_is_not_there(site: Site) -> None:
    absent = await site.order("GET", f"/v1/board/jobs/{ids.text('job', ids.new())}")
    assert (absent.status_code, absent.json()["code"]) == (404, "not_found")
    assert (await site.order("GET", "/v1/board/jobs/nonsense")).status_code == 404


# Anything


async def test_anything_is_found_by_its_id_or_how_that_begins(post: Post) -> None:
    site = post.site
    job_id = (await post.http.post("/v1/jobs", json={"kind": "free"}, headers=_bearer(post.client_key))).json()["id"]
    endpoint = (await post.send("POST", "/v1/endpoints", {"url": f"{URL}?secret=x"})).json()["id"]
    delivery = (await post.send("POST", f"/v1/endpoints/{endpoint}/test", {"event": "job.succeeded"})).json()["id"]
    (audited, *_) = (await post.send("GET", "/v1/audit")).json()["data"]
    (key,) = (await post.send("GET", "/v1/keys")).json()["data"]
    order = {"action": "cancel", "filter": {"tenant": post.tenant, "phase": "ready"}}
    operation = (await site.order("POST", "/v1/bulk", order)).json()["id"]
    schedule = {"name": "nightly", "kind": "free", "account": "ann", "every": "1h"}
    schedule_id = (await post.send("POST", "/v1/schedules", schedule)).json()["id"]
    batch = {"jobs": [{"kind": "free"}], "name": "catalogue"}
    batch_id = (await post.http.post("/v1/batches", json=batch, headers=_bearer(post.client_key))).json()["id"]
    uuid = ids.parse("job", job_id)
    for asked, kind, found_id in (
        (job_id, "job", job_id),
        (job_id.upper(), "job", job_id),
        (f"  {job_id[:-3]} ", "job", job_id),
        (str(uuid), "job", job_id),
        (uuid.hex, "job", job_id),
        (job_id.partition("_")[2], "job", job_id),
        (ids.text("dispatch", uuid), "job", job_id),
        (endpoint, "endpoint", endpoint),
        (delivery, "delivery", delivery),
        (key["id"], "key", key["id"]),
        (operation, "bulk_operation", operation),
        (batch_id, "batch", batch_id),
        (schedule_id, "schedule", schedule_id),
        (audited["id"], "audit", audited["id"]),
    ):
        (found,) = (await seen(site, "/v1/search", params={"q": asked}))["data"]
        assert (found["type"], found["id"], found["tenant"], found["by"]) == (kind, found_id, post.tenant, "id"), asked
    (found,) = (await seen(site, "/v1/search", params={"q": endpoint}))["data"]
    assert "secret" not in found["title"]


async def test_anything_is_found_by_its_name(post: Post) -> None:
    site = post.site
    key = f"order-{uuid4().hex}"
    headers = _bearer(post.client_key) | {"Idempotency-Key": key}
    job_id = (await post.http.post("/v1/jobs", json={"kind": "free"}, headers=headers)).json()["id"]
    (found,) = (await seen(site, "/v1/search", params={"q": key}))["data"]
    assert (found["id"], found["by"]) == (job_id, "idempotency_key")
    by_tenant = (await seen(site, "/v1/search", params={"q": post.tenant[:-1]}))["data"]
    assert [(each["type"], each["id"]) for each in by_tenant] == [("tenant", post.tenant)]
    own = await viewer(site, post.tenant)
    accounts = (await seen(site, "/v1/search?q=ann", key=own))["data"]
    assert [(each["type"], each["id"], each["tenant"]) for each in accounts] == [("account", "ann", post.tenant)]
    name = f"report-{uuid4().hex[:8]}"
    schedule = {"name": name, "kind": "free", "account": "ann", "every": "1h"}
    schedule_id = (await post.send("POST", "/v1/schedules", schedule)).json()["id"]
    for caller in (site.admin_key, own):
        (found,) = (await seen(site, "/v1/search", params={"q": name[:-1]}, key=caller))["data"]
        assert (found["type"], found["id"], found["by"]) == ("schedule", schedule_id, "name")
        assert (found["tenant"], found["title"]) == (post.tenant, f"{name}, free")
    other = await viewer(site, STRANGER)
    assert (await seen(site, "/v1/search", params={"q": name}, key=other))["data"] == []
    kinds = {(each["type"], each["id"]) for each in (await seen(site, "/v1/search?q=stag"))["data"]}
    assert kinds == {("kind", "staged"), ("queue", "staged")}


async def test_what_cannot_be_found_is_not_and_nonsense_is_reported(post: Post) -> None:
    site = post.site
    for asked in ("job_zzzz", "job_01u", "nothing-of-this-name", "ein Wort mehr", "%", "_", "Ω", "job_" + "0" * 26):
        assert (await seen(site, "/v1/search", params={"q": asked}))["data"] == [], asked
    for asked in ("", " ", "x" * 256, "\x00"):
        wrong = await site.order("GET", "/v1/search", params={"q": asked})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "q"), wrong.text
    assert (await site.order("GET", "/v1/search")).json()["field"] == "q"


# Money


async def test_wallets_of_all_tenants_come_in_pages(post: Post) -> None:
    site, other = post.site, await post.beside()
    for tenant, account in ((post.tenant, "bea"), (post.tenant, "carl"), (other.tenant, "bea")):
        await site.engine.grant(tenant, account, 7)
    whole = [(post.tenant, "ann"), (post.tenant, "bea"), (post.tenant, "carl"), (other.tenant, "ann")]
    found, cursor = [], ""
    while cursor is not None and len(found) < 5:
        page = await seen(site, f"/v1/wallets?prefix={post.tenant}&limit=2{cursor and f'&cursor={cursor}'}")
        found += [(wallet["tenant"], wallet["account"]) for wallet in page["data"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == ([*whole, (other.tenant, "bea")], None)
    named = await seen(site, f"/v1/wallets?tenant={post.tenant}&prefix=bea")
    assert [(wallet["account"], wallet["available"]) for wallet in named["data"]] == [("bea", 7)]
    wrong = await site.order("GET", "/v1/wallets?cursor=nonsense")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "cursor")


async def test_holds_are_reported_by_age_the_oldest_first(site: Site, make: Factory) -> None:
    oldest = await make.submitted("priced")
    await make.submitted("free")
    await make.clock.advance(HOUR)
    younger = await make.submitted("priced", tenant=STRANGER)
    await make.clock.advance(timedelta(minutes=5))
    youngest = await make.submitted("priced")
    first = await seen(site, "/v1/holds?limit=2")
    assert [(hold["job_id"], hold["price"]) for hold in first["data"]] == [(oldest.id, 5), (younger.id, 5)]
    second = await seen(site, f"/v1/holds?limit=2&cursor={first['next_cursor']}")
    assert ([hold["job_id"] for hold in second["data"]], second["next_cursor"]) == ([youngest.id], None)
    assert second["ages"] == []
    assert [age["seconds"] for age in first["ages"]] == [60, 600, 3600, 21600, 86400, 604800, None]
    counted = {age["seconds"]: (age["jobs"], age["credits"]) for age in first["ages"] if age["jobs"]}
    assert counted == {60: (1, 5), 600: (1, 5), 21600: (1, 5)}
    assert not first["is_capped"]
    own = await seen(site, f"/v1/holds?tenant={STRANGER}")
    assert [hold["job_id"] for hold in own["data"]] == [younger.id]
    assert sum(age["jobs"] for age in own["ages"]) == 1
    await make.serve("priced")
    assert [hold["job_id"] for hold in (await seen(site, "/v1/holds"))["data"]] == [younger.id, youngest.id]


# The fleet


async def joined(site: Site, worker: str, **body: Any) -> str:
    secret = await site.key(scope="worker", tenant=None, account=None)
    answer = await site.post("/v1/worker/register", {"worker": worker, "routes": [KIND], **body}, key=secret)
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


async def beaten(site: Site, token: str) -> None:
    """A worker says that it lives, and this is written down."""
    assert (await site.post("/v1/worker/heartbeat", {"jobs": []}, key=token)).status_code == 200
    await site.engine.workers._tend()


async def test_the_fleet_is_shown_with_its_jobs_and_who_went_deaf(make: Factory) -> None:
    engine = Engine(make.engine.db, app)
    engine.workers.settings = FleetSettings(silence=timedelta(seconds=30))
    async with running_site(engine) as site:
        remote_worker, deaf = await joined(site, "hand", slots=2), await joined(site, "deaf")
        job = await make.submitted(KIND)
        (given,) = (await site.post("/v1/worker/poll", {"want": 1}, key=remote_worker)).json()["jobs"]
        lease = {"job_id": given["job_id"], "lease_token": given["lease_token"]}
        notes = [{"number": 1, "type": "stage", "stage": "drawing"}, {"number": 2, "type": "progress", "value": 0.25}]
        assert (await site.post("/v1/worker/note", {**lease, "notes": notes}, key=remote_worker)).status_code == 200
        (beside,) = [await make.leased("free")]
        await engine.workers._tend()

        await make.submitted(KIND)
        await make.clock.advance(MINUTE)
        engine.workers._known.clear()
        await beaten(site, deaf)
        engine.scaling._seen = type(engine.scaling._seen)(engine.scaling._look, 0.0)
        board = await seen(site, "/v1/board/fleet")
        shown = {worker["worker"]: worker for worker in board["workers"]}
        assert set(shown) == {"hand", "deaf", "w"}
        assert [(each["id"], each["stage"], each["progress"]) for each in shown["hand"]["jobs"]] == [
            (job.id, "drawing", 0.25)
        ]
        assert (shown["hand"]["held"], shown["hand"]["slots"], shown["hand"]["status"]) == (1, 2, "lost")
        assert 60 <= shown["hand"]["claim_age_seconds"] < 120
        assert shown["deaf"]["heartbeat_age_seconds"] < 30
        assert (shown["deaf"]["claim_age_seconds"], shown["deaf"]["is_deaf"]) == (None, True)
        assert (shown["w"]["id"], shown["w"]["heartbeat_age_seconds"], shown["w"]["is_deaf"]) == (None, None, False)
        assert [each["id"] for each in shown["w"]["jobs"]] == [ids.text("job", beside.job_id)]
        (route,) = [route for route in board["routes"] if route["route"] == KIND]
        assert (route["ready"], route["leased"], route["idle"]) == (1, 1, 1)
        assert board["desired"] == sum(route["desired"] for route in board["routes"]) >= 1

        (other,) = (await site.post("/v1/worker/poll", {"want": 1}, key=deaf)).json()["jobs"]
        engine.workers._known.clear()
        await beaten(site, deaf)
        heard = {worker["worker"]: worker for worker in (await seen(site, "/v1/board/fleet"))["workers"]}
        assert (heard["deaf"]["is_deaf"], heard["deaf"]["claim_age_seconds"] < 30) == (False, True)
        assert heard["deaf"]["polled_at"] is not None

        ended = {"job_id": other["job_id"], "lease_token": other["lease_token"], "output": {}}
        assert (await site.post("/v1/worker/complete", ended, key=deaf)).status_code == 200


async def test_who_made_the_attempts_of_the_fleet_is_known_when_they_are_over(site: Site, make: Factory) -> None:
    for name in ("one", "two"):
        token = await joined(site, name)
        if name == "one":
            job = await make.submitted(KIND)
        (given,) = (await site.post("/v1/worker/poll", {"want": 1}, key=token)).json()["jobs"]
        lease = {"job_id": given["job_id"], "lease_token": given["lease_token"]}
        verb, more = ("requeue", {}) if name == "one" else ("complete", {"output": {}})
        assert (await site.post(f"/v1/worker/{verb}", lease | more, key=token)).status_code == 200
    response = await seen(site, f"/v1/board/jobs/{job.id}")
    assert [(each["worker"], each["outcome"]) for each in response["attempts"]] == [
        ("one", "requeued"),
        ("two", "succeeded"),
    ]
    assert all(each["worker_id"].startswith("worker_") for each in response["attempts"])
    (found,) = (await seen(site, "/v1/search?q=two"))["data"]
    assert (found["type"], found["id"]) == ("worker", response["attempts"][1]["worker_id"])
    (found,) = (await seen(site, f"/v1/search?q={found['id'].upper()}"))["data"]
    assert (found["title"], found["by"]) == ("two", "id")


# Webhooks and the audit, of every tenant


async def test_endpoints_and_deliveries_of_every_tenant_come_in_pages(post: Post) -> None:
    site, other = post.site, await post.beside()
    made = []
    for whose in (post, other, post):
        endpoint = (await whose.send("POST", "/v1/endpoints", {"url": URL})).json()["id"]
        made.append((endpoint, (await whose.send("POST", f"/v1/endpoints/{endpoint}/test", {})).json()["id"]))
    endpoints, newest = [endpoint for endpoint, _ in made], [delivery for _, delivery in reversed(made)]
    listed, cursor = [], ""
    while cursor is not None:
        page = await seen(site, f"/v1/endpoints?limit=2{cursor and f'&cursor={cursor}'}")
        listed += [endpoint["id"] for endpoint in page["data"]]
        cursor = page["next_cursor"]
    assert listed[-3:] == endpoints
    first = await seen(site, "/v1/deliveries?limit=2")
    assert [delivery["id"] for delivery in first["data"]] == newest[:2]
    second = await seen(site, f"/v1/deliveries?limit=2&cursor={first['next_cursor']}")
    assert second["data"][0]["id"] == newest[2]
    pending = await seen(site, "/v1/deliveries?state=pending&limit=2")
    assert [delivery["id"] for delivery in pending["data"]] == newest[:2]
    assert (await seen(site, f"/v1/deliveries?state=pending&cursor={newest[1]}"))["data"][0]["id"] == newest[2]
    assert newest[0] not in [
        delivery["id"] for delivery in (await seen(site, "/v1/deliveries?state=delivered"))["data"]
    ]
    of_one = await seen(site, f"/v1/deliveries?endpoint={endpoints[1]}")
    assert [(delivery["id"], delivery["tenant"]) for delivery in of_one["data"]] == [(newest[1], other.tenant)]


async def test_the_audit_is_searched_by_who_what_and_when(post: Post) -> None:
    site = post.site
    account = await site.engine.access.make_account(post.tenant, "zoe", active_max=None, actor=f"by-{post.tenant}")
    by_actor = (await seen(site, f"/v1/audit?actor=by-{post.tenant}"))["data"]
    assert [(entry["action"], entry["subject"]) for entry in by_actor] == [("account.made", account.account)]
    path = f"/v1/audit?tenant={post.tenant}"
    assert {entry["action"] for entry in (await seen(site, f"{path}&action=key."))["data"]} == {"key.made"}
    assert [entry["id"] for entry in (await seen(site, f"{path}&subject=zoe"))["data"]] == [by_actor[0]["id"]]
    assert len((await seen(site, f"{path}&since=1h"))["data"]) == len((await seen(site, path))["data"]) >= 2
    assert (await seen(site, f"{path}&since=2999-01-01T00:00:00Z"))["data"] == []
    assert (await seen(site, f"{path}&actor=nobody"))["searched_to"] is None
    wrong = await site.order("GET", f"{path}&since=yesterday")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "since")


async def test_a_walk_over_the_audit_has_an_end(shared_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        await shared_site.engine.access.audit("walker", "test.step", subject=f"s{n}")
    monkeypatch.setattr("millpond.engine.access.access.AUDIT_WALK", 3)
    first = await seen(shared_site, "/v1/audit?actor=walker&subject=s0")
    assert (first["data"], first["searched_to"] is None) == ([], False)
    second = await seen(shared_site, f"/v1/audit?actor=walker&subject=s0&cursor={first['next_cursor']}")
    assert ([entry["subject"] for entry in second["data"]], second["next_cursor"]) == (["s0"], None)


# The system

SECRETS: dict[str, Any] = {
    "api_key": "mp_client_hidden1",
    "fleet_secret": "mp_worker_hidden2",
    "encryption_key": "aGlkZGVuM2hpZGRlbjNoaWRkZW4zaGlkZGVuM2hpZGQ=",
    "replicate_api_token": "r8_hidden4",
    "chat_key": "sk-hidden6",
}


@dataclass(frozen=True)
class Extended(Settings):
    """As an installed package extends them."""

    chat_url: str | None = None
    chat_key: str | None = setting(None, is_secret=True)
    commands: str = setting("", show=lambda text: ", ".join(json.loads(text)))


async def test_the_system_reports_how_it_is_and_no_secret(engine: Engine) -> None:
    settings = Extended(
        database_url="postgresql://u:hidden8@db/x?password=hidden9&sslmode=require&sslkey=hidden12#hidden13",
        chat_url="https://hidden10@chat.test/v1",
        storage="s3://bucket/films?endpoint=http://me:hidden14@s3.test&region=eu&token=hidden15",
        commands='{"publish": ["curl", "-H", "Authorization: hidden16"], "count": ["seq"]}',
        tenant_databases={"acme": "postgresql://u:hidden11@elsewhere/x"},
        **SECRETS,
    )
    async with running_site(engine, settings=settings) as site:
        answer = await site.order("GET", "/v1/system")
        assert answer.status_code == 200, answer.text
        response = answer.json()
        assert "hidden" not in answer.text
        assert SECRETS["encryption_key"] not in answer.text
    shown = {setting["name"]: setting for setting in response["configuration"]}
    assert {name for name, setting in shown.items() if setting["is_secret"]} == SECRETS.keys()
    assert {setting["value"] for setting in shown.values() if setting["is_secret"]} == {"…"}
    assert (shown["chat_url"]["value"], shown["chat_url"]["source"]) == ("https://…@chat.test/v1", "given")
    assert (shown["lease"]["value"], shown["lease"]["source"]) == ("1m", "default")
    assert shown["database_url"]["value"] == "postgresql://…@db/x?password=…&sslmode=require&sslkey=…#…"
    assert shown["storage"]["value"] == "s3://bucket/films?endpoint=http://…%40s3.test&region=eu&token=…"
    assert shown["commands"]["value"] == "publish, count"
    assert {check["check"] for check in response["checks"]} >= {"clock", "schema", "isolation", "services"}
    assert response["checks"][0] == {**response["checks"][0], "check": "clock", "verdict": "ok"}
    assert response["database"]["size"] > 1_000_000
    assert 0 < response["database"]["connections"] <= response["database"]["connections_max"]
    assert {table["table"] for table in response["tables"]} >= {"jobs", "events", "entries"}
    assert len(response["tables"]) <= system.TABLES_MAX
    assert [migration["number"] for migration in response["migrations"]][:2] == [1, 2]
    assert {pool["name"] for pool in response["pools"]} >= {"central"}
    assert response["slow"] or "pg_stat_statements" in response["slow_reason"]
    assert response["is_development"] is False


def test_a_statement_is_shown_without_what_stands_in_quotes() -> None:
    assert system.shown("select *\n from t where a = 'x''y' and b = $1") == "select * from t where a = '…' and b = $1"
    assert system.shown("do $body$ set password 'x' $body$ and 'open") == "do '…' and '…'"
    assert len(system.shown("select " + "a, " * 1_000)) <= 501


# Whose it is


async def test_a_viewer_of_one_tenant_sees_nothing_of_another(post: Post) -> None:
    site, other = post.site, await post.beside()
    await site.engine.grant(other.tenant, "ann", 5)
    headers = _bearer(other.client_key) | {"Idempotency-Key": f"secret-{other.tenant}"}
    job = (await post.http.post("/v1/jobs", json={"kind": "priced"}, headers=headers)).json()["id"]
    endpoint = (await other.send("POST", "/v1/endpoints", {"url": URL})).json()["id"]
    delivery = (await other.send("POST", f"/v1/endpoints/{endpoint}/test", {})).json()["id"]
    (key,) = (await other.send("GET", "/v1/keys")).json()["data"]
    audited = (await other.send("GET", "/v1/audit")).json()["data"][0]["id"]
    own = await viewer(site, post.tenant)

    assert (await site.get(f"/v1/board/jobs/{job}", key=own)).status_code == 404
    sought = (job, str(ids.parse("job", job)), job[:12], endpoint, delivery, key["id"], audited, other.tenant)
    for asked in (*sought, f"secret-{other.tenant}", "priced"):
        found = (await seen(site, "/v1/search", params={"q": asked}, key=own))["data"]
        assert [each for each in found if each["tenant"] not in (None, post.tenant)] == [], asked
        assert {each["type"] for each in found} <= {"kind", "audit", "job", "key"}
    for path in ("/v1/wallets", "/v1/endpoints", "/v1/deliveries", "/v1/audit", "/v1/holds"):
        answer = await site.get(path, key=own)
        assert (answer.status_code, other.tenant in answer.text) == (200, False), path
        refused = await site.get(f"{path}?tenant={other.tenant}", key=own)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
    assert (await seen(site, "/v1/holds", key=own))["ages"][0]["jobs"] == 0
    assert (await site.get("/v1/system", key=own)).status_code == 403
    fleet = await site.get("/v1/board/fleet", key=own)
    assert (fleet.status_code, "all tenants" in fleet.json()["detail"]) == (403, True)

    theirs = await viewer(site, other.tenant)
    assert (await seen(site, f"/v1/board/jobs/{job}", key=theirs))["job"]["tenant"] == other.tenant
    assert [hold["job_id"] for hold in (await seen(site, "/v1/holds", key=theirs))["data"]] == [job]


async def test_clients_and_workers_do_not_look(site: Site) -> None:
    worker = await site.key(scope="worker", tenant=None, account=None)
    of_account = await site.key(scope="admin")
    for path in ("/v1/search?q=x", "/v1/wallets", "/v1/holds"):
        small = await site.get(path, key=of_account)
        assert (small.status_code, "one account" in small.json()["detail"]) == (403, True), path
    paths = ("/v1/search?q=x", "/v1/wallets", "/v1/holds", "/v1/board/fleet", "/v1/system", f"/v1/board/jobs/{NOBODY}")
    for path in paths:
        assert (await site.get(path)).status_code == 403, path
        assert (await site.get(path, key=worker)).status_code == 403, path
        assert (await site.get(path, key=None)).status_code == 401, path


NOBODY = "job_00000000000000000000000000"


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
