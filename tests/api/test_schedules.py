"""Schedules over HTTP: what an operator does with them, what is refused, and that a page can show all of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.access.access import Principal
from millpond.services.firer import firer
from tests.api.sites import running_site
from tests.checks import unchanged
from tests.factories import ACCOUNT, STRANGER, TENANT

if TYPE_CHECKING:
    from tests.api.sites import Site
    from tests.clocks import Clock

HOUR = timedelta(hours=1)
HOSTILE: list[Any] = [
    None,
    "",
    "\0",
    "a\0b",
    "\ud800",
    "💥" * 50,
    "x" * 100_000,
    "../../etc/passwd",
    "'; drop table millpond.schedules; --",
    "0 0 * * *\n0 1 * * *",
    "99999999999999999999 * * * *",
    "*/99999999999 * * * *",
    "1-1,1-1,1-1,1-1 * * * *",
    -1,
    1e308,
    2**63,
    True,
    [],
    {},
    [["* * * * *"]],
    {"a": {"b": "\0"}},
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
]
PLACE = f"/v1/schedules?tenant={TENANT}"
BODY: dict[str, Any] = {"name": "nightly", "kind": "free", "account": ACCOUNT, "every": "1h"}


async def made(site: Site, **body: Any) -> dict[str, Any]:
    answer = await site.order("POST", PLACE, json=BODY | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def fired(site: Site) -> None:
    await firer(site.engine).run_once()


async def good(site: Site, method: str, path: str, body: Any = None) -> Any:
    answer = await site.order(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def actions(site: Site) -> list[str]:
    found = await good(site, "GET", f"/v1/audit?tenant={TENANT}&action=schedule.")
    return [entry["action"] for entry in found["data"]][::-1]


async def test_a_schedule_is_made_read_and_listed_with_what_it_will_do(site: Site) -> None:
    body = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "jitter": "5m", "tags": {"team": "ads"}, "input": {"a": 1}}
    body |= {"overlap": "skip", "catch_up": "all", "catch_up_max": 5, "expires_in": "2h", "priority": 3}
    answer = await site.order("POST", PLACE, json={**BODY, "due_field": "day", **body} | {"every": None})
    assert answer.status_code == 201, answer.text
    schedule = answer.json()
    assert schedule["id"].startswith("sched_")
    expected = body | {"name": "nightly", "tenant": TENANT, "account": ACCOUNT, "kind": "free", "due_field": "day"}
    expected |= {"jitter_seconds": 300.0, "expires_in_seconds": 7200.0, "every_seconds": None, "at": None}
    expected |= {"source": "api", "state": "active", "is_overdue": False, "last_fire": None, "fires": []}
    shown = {name: schedule[name] for name in expected if name in schedule}
    assert shown == {name: value for name, value in expected.items() if name in schedule}
    assert len(schedule["upcoming"]) == 10
    assert schedule["upcoming"] == sorted(schedule["upcoming"])
    assert schedule["upcoming"][0] == schedule["due_at"] <= schedule["next_at"]
    path = f"/v1/schedules/{schedule['id']}"
    assert await good(site, "GET", path) == schedule
    (listed,) = (await good(site, "GET", PLACE))["data"]
    assert listed == {name: value for name, value in schedule.items() if name not in ("input", "upcoming", "fires")}
    assert await actions(site) == ["schedule.created"]


async def test_what_it_did_is_shown_with_the_states_of_its_jobs(site: Site, clock: Clock) -> None:
    schedule = await made(site, overlap="skip")
    path = f"/v1/schedules/{schedule['id']}"
    for _ in range(3):
        await clock.advance(HOUR)
        await fired(site)
    detail = await good(site, "GET", path)
    skipped, _, first = detail["fires"]
    assert (first["outcome"], first["job_state"], first["job_phase"], first["reason"]) == (
        "submitted",
        "queued",
        "ready",
        None,
    )
    assert (skipped["outcome"], skipped["reason"], skipped["job_id"]) == ("skipped", "overlap", None)
    assert detail["last_fire"] == skipped
    assert datetime.fromisoformat(detail["due_at"]) - datetime.fromisoformat(skipped["due_at"]) == HOUR
    (listed,) = (await good(site, "GET", PLACE))["data"]
    assert listed["last_fire"] == skipped
    job = await good(site, "GET", f"/v1/jobs/{first['job_id']}?tenant={TENANT}")
    assert job["tags"] == {"schedule": "nightly"}
    page = await good(site, "GET", f"{path}/fires?limit=2")
    rest = await good(site, "GET", f"{path}/fires?limit=2&cursor={page['next_cursor']}")
    assert [*page["data"], *rest["data"]] == detail["fires"]
    assert rest["next_cursor"] is None
    only = await good(site, "GET", f"{path}/fires?outcome=submitted")
    assert only["data"] == [first]


async def test_a_schedule_that_nobody_fires_is_overdue(site: Site, clock: Clock) -> None:
    schedule = await made(site)
    await clock.advance(2 * HOUR)
    assert (await good(site, "GET", f"/v1/schedules/{schedule['id']}"))["is_overdue"] is True
    metrics = await site.order("GET", "/metrics")
    assert "millpond_schedules_overdue 1.0" in metrics.text
    await fired(site)
    assert (await good(site, "GET", f"/v1/schedules/{schedule['id']}"))["is_overdue"] is False
    metrics = await site.order("GET", "/metrics")
    assert 'millpond_schedule_fires_total{outcome="submitted"}' in metrics.text
    assert "millpond_schedule_lateness_seconds_count" in metrics.text


async def test_an_operator_updates_pauses_resumes_and_deletes(site: Site) -> None:
    schedule = await made(site, jitter="10m", priority=5, expires_in="1h")
    path = f"/v1/schedules/{schedule['id']}"
    changed = await good(site, "PATCH", path, {"input": {"b": 2}, "jitter": None, "priority": None, "expires_in": None})
    assert (changed["input"], changed["jitter_seconds"], changed["priority"]) == ({"b": 2}, 0.0, None)
    assert (changed["expires_in_seconds"], changed["every_seconds"]) == (None, 3600.0)
    changed = await good(site, "PATCH", path, {"cron": "@daily", "zone": "Asia/Tokyo", "tags": {"x": "y"}})
    assert (changed["cron"], changed["every_seconds"], changed["zone"]) == ("@daily", None, "Asia/Tokyo")
    paused = await good(site, "POST", f"{path}/pause")
    assert (paused["state"], paused["due_at"], len(paused["upcoming"])) == ("paused", None, 10)
    assert [each["name"] for each in (await good(site, "GET", f"{PLACE}&state=paused"))["data"]] == ["nightly"]
    resumed = await good(site, "POST", f"{path}/resume")
    assert resumed["due_at"] == resumed["upcoming"][0]
    assert await good(site, "DELETE", path) is None
    assert (await site.order("GET", path)).status_code == 404
    assert await actions(site) == [
        "schedule.created",
        "schedule.updated",
        "schedule.updated",
        "schedule.paused",
        "schedule.resumed",
        "schedule.deleted",
    ]


async def test_a_schedule_is_run_now_once_for_a_key(site: Site) -> None:
    schedule = await made(site)
    path = f"/v1/schedules/{schedule['id']}/run"
    first = await site.order("POST", path, headers={"Idempotency-Key": "k"})
    assert (first.status_code, first.json()["cause"]) == (202, "manual")
    assert first.json()["actor"].startswith("key_")
    again = await site.order("POST", path, headers={"Idempotency-Key": "k"})
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    other = await good(site, "POST", path)
    assert other["job_id"] != first.json()["job_id"]
    assert await actions(site) == ["schedule.created", "schedule.run", "schedule.run"]


async def test_a_run_that_is_refused_is_a_problem_and_is_recorded(site: Site) -> None:
    schedule = await made(site, kind="priced")
    answer = await site.order("POST", f"/v1/schedules/{schedule['id']}/run")
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credits")
    (fire,) = (await good(site, "GET", f"/v1/schedules/{schedule['id']}"))["fires"]
    assert (fire["outcome"], fire["reason"]) == ("failed", "insufficient_credits")
    assert "5 credits" in fire["message"]


async def test_a_period_is_backfilled(site: Site, clock: Clock) -> None:
    schedule = await made(site, catch_up="none")
    path = f"/v1/schedules/{schedule['id']}"
    await clock.advance(4 * HOUR + HOUR / 2)
    await fired(site)
    viewer = await site.key(scope="viewer", account=None)
    asked = await site.send("POST", f"{path}/backfill/preview", json={"since": "24h", "until": "2h"}, key=viewer)
    assert (asked.status_code, asked.json()) == (200, {"due_times": 2, "fires": 2})
    done = await good(site, "POST", f"{path}/backfill", {"since": "24h", "until": "2h"})
    assert done == {"due_times": 2, "fires": 2}
    await fired(site)
    assert len((await good(site, "GET", f"{path}/fires?outcome=submitted"))["data"]) == 2
    assert await good(site, "POST", f"{path}/backfill", {"since": "24h"}) == {"due_times": 4, "fires": 2}
    await fired(site)
    for body, field in (({"since": "soon"}, "since"), ({"since": "1h", "until": "2h"}, "since"), ({}, "since")):
        for where in ("backfill", "backfill/preview"):
            answer = await site.order("POST", f"{path}/{where}", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_a_repeated_request_makes_one_schedule(site: Site) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await site.order("POST", PLACE, json=BODY, headers=headers)
    again = await site.order("POST", PLACE, json=BODY, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    other = await site.order("POST", PLACE, json=BODY | {"name": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    taken = await site.order("POST", PLACE, json=BODY)
    assert (taken.status_code, taken.json()["code"], taken.json()["field"]) == (409, "conflict", "name")


async def test_a_preview_shows_due_times_before_anything_is_made(site: Site) -> None:
    viewer = await site.key(scope="viewer", account=None)
    body = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 3}
    answer = await site.send("POST", "/v1/schedules/preview", json=body, key=viewer)
    assert len(answer.json()["upcoming"]) == 3
    answer = await site.send("POST", "/v1/schedules/preview", json=body | {"cron": "0 0 31 2 *"}, key=viewer)
    assert (answer.status_code, answer.json()["field"]) == (422, "cron")
    assert "never" in answer.json()["detail"]
    assert (await good(site, "GET", PLACE))["data"] == []


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"cron": "* * * * *"}, "every", "Exactly one"),
    ({"every": None}, "cron", "Exactly one"),
    ({"every": None, "cron": "61 * * * *"}, "cron", "bad minute"),
    ({"every": None, "cron": "0 0 30 2 *"}, "cron", "never"),
    ({"every": None, "cron": "* * * * * *"}, "cron", "6 fields"),
    ({"every": None, "cron": "@daily", "zone": "Europe/Berln"}, "zone", "no time zone"),
    ({"zone": "Europe/Berlin"}, "zone", "cron expression only"),
    ({"every": "0s"}, "every", "positive"),
    ({"every": "0.5s"}, "every", "one second"),
    ({"every": "often"}, "every", "not a duration"),
    ({"every": None, "at": "2020-01-01T00:00:00Z"}, "at", "never fires"),
    ({"every": None, "at": "2099-01-01T00:00:00"}, "at", ""),
    ({"jitter": "2h"}, "jitter", "longer"),
    ({"kind": "nothing"}, "kind", "no kind"),
    ({"kind": "priced", "input": {"size": "big"}}, "input.size", ""),
    ({"kind": "drawn", "input": {"width": 0}}, "input.width", ""),
    ({"name": "not a name"}, "name", ""),
    ({"name": "x" * 129}, "name", ""),
    ({"overlap": "wait"}, "overlap", ""),
    ({"catch_up": "some"}, "catch_up", ""),
    ({"catch_up_max": 1_001}, "catch_up_max", ""),
    ({"priority": 101}, "priority", ""),
    ({"expires_in": "0s"}, "expires_in", "positive"),
    ({"tags": {"a b": "c"}}, "tags", ""),
    ({"due_field": ""}, "due_field", ""),
    ({"due_field": "when", "kind": "priced"}, "input.when", ""),
    ({"account": "not an account"}, "account", ""),
    ({"colour": "red"}, "colour", "Known fields"),
]


@pytest.mark.parametrize(("body", "field", "expected"), REFUSED, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_reported_by_its_field_and_nothing_is_written(
    site: Site, body: dict[str, Any], field: str, expected: str
) -> None:
    async with unchanged(site.engine.db):
        answer = await site.order("POST", PLACE, json=BODY | body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert expected in answer.text


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize(
    "field", ["name", "cron", "zone", "every", "at", "jitter", "kind", "due_field", "tags", "input"]
)
async def test_hostile_values_are_refused_or_stored(site: Site, field: str, value: Any) -> None:
    base = {**BODY, "every": None, "cron": "@daily"} if field in ("cron", "zone") else BODY
    body = json.dumps({**base, field: value})  # with half a surrogate pair as an escape
    headers = {"Content-Type": "application/json"}
    answer = await site.send("POST", PLACE, content=body.encode(), headers=headers, key=site.admin_key)
    assert answer.status_code in (201, 400, 409, 422), answer.text
    if answer.status_code == 201:
        await good(site, "GET", f"/v1/schedules/{answer.json()['id']}")


async def test_an_operator_of_one_account_sees_and_makes_its_own(site: Site) -> None:
    """Keys of operators have no account; a host's own authentication may limit them to one."""
    mine, theirs = await made(site), await made(site, name="theirs", account="bob")

    async def one_account(_: Any) -> Principal:
        return Principal("operator", TENANT, ACCOUNT, "host")

    async with running_site(site.engine, authenticate=one_account) as limited:
        assert [each["id"] for each in (await limited.get("/v1/schedules")).json()["data"]] == [mine["id"]]
        for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/run"), ("DELETE", ""), ("GET", "/fires")):
            answer = await limited.send(method, f"/v1/schedules/{theirs['id']}{path}")
            assert answer.status_code == 404, path
        answer = await limited.post("/v1/schedules", BODY | {"name": "x", "account": "bob"})
        assert (answer.status_code, answer.json()["field"]) == (403, "account")
        answer = await limited.post("/v1/schedules", BODY | {"name": "x", "account": None})
        assert answer.json()["account"] == ACCOUNT
        answer = await limited.send("PATCH", f"/v1/schedules/{mine['id']}", json={"account": "bob"})
        assert (answer.status_code, answer.json()["field"]) == (403, "account")


async def test_a_key_of_another_tenant_acts_on_nothing(site: Site, clock: Clock) -> None:
    schedule = await made(site)
    key = await site.key(scope="admin", tenant=STRANGER, account=None)
    acts: list[tuple[str, str, Any]] = [
        ("PATCH", "", {"priority": 1}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/run", None),
        ("POST", "/backfill", {"since": "1h"}),
    ]
    await clock.advance(HOUR)
    async with unchanged(site.engine.db):
        for method, path, body in acts:
            answer = await site.send(method, f"/v1/schedules/{schedule['id']}{path}", json=body, key=key)
            assert answer.status_code == 404, path
    assert (await site.send("GET", PLACE, key=key)).status_code == 403
