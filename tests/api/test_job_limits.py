"""Limits over HTTP: what runs and waits under them, other numbers, keys that are closed and opened."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.work import Return
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory

if TYPE_CHECKING:
    from tests.api.sites import Site
    from tests.clocks import Clock

LIMIT = "/v1/limits/one"
VALUE = f"{TENANT}/{ACCOUNT}"


@pytest.fixture
async def busy(site: Site, clock: Clock) -> list[str]:
    """One job that runs, and two that wait for it."""
    make = Factory(site.engine, clock)
    submitted = [await make.submitted("limited") for _ in range(3)]
    assert len(await make.claimed("limited", want=3)) == 1
    return [job.id for job in submitted]


async def good(site: Site, method: str, path: str, body: Any = None) -> Any:
    answer = await site.order(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def test_a_limit_shows_what_runs_and_waits_under_it(site: Site, busy: list[str]) -> None:
    (limit,) = (await good(site, "GET", "/v1/limits"))["data"]
    assert limit == await good(site, "GET", LIMIT)
    numbers = {"at_once": 1, "starts": 1_000, "per_seconds": 60.0, "key": ["account"], "kinds": ["limited"]}
    state = {"running": 1, "waiting": 2, "is_changed": False, "changed_at": None, "changed_by": None}
    assert limit == {"name": "one"} | numbers | state
    keys = await good(site, "GET", f"{LIMIT}/keys?limit=1")
    (key,) = keys["data"]
    assert (key["value"], key["running"], key["waiting"], key["started"]) == (VALUE, 1, 2, 1)
    assert (await good(site, "GET", f"{LIMIT}/keys?cursor={keys['next_cursor']}"))["data"] == []


async def test_a_waiting_job_says_what_it_waits_for(site: Site, busy: list[str]) -> None:
    running, waiting, _ = [(await site.get(f"/v1/jobs/{job_id}")).json() for job_id in busy]
    assert running["limit_wait"] is None
    assert (waiting["phase"], waiting["position"]) == ("ready", None)
    wait = waiting["limit_wait"]
    assert (wait["limit"], wait["reason"], wait["more_at"]) == ("one", "at_once", None)
    listed = {job["id"]: job["limit_wait"] for job in (await site.get("/v1/jobs")).json()["data"]}
    assert [bool(listed[job_id]) for job_id in busy] == [False, True, True]


async def test_other_numbers_apply_until_they_are_reset(site: Site, busy: list[str]) -> None:
    changed = await good(site, "PATCH", LIMIT, {"at_once": 2})
    assert (changed["at_once"], changed["starts"], changed["is_changed"]) == (2, None, True)
    assert changed["changed_by"].startswith("key_")
    reset = await good(site, "POST", f"{LIMIT}/reset")
    assert (reset["at_once"], reset["starts"], reset["per_seconds"], reset["is_changed"]) == (1, 1_000, 60.0, False)
    audit = (await good(site, "GET", "/v1/audit?action=limit."))["data"]
    assert [entry["action"] for entry in audit] == ["limit.reset", "limit.changed"]


async def test_a_key_is_closed_and_opened(site: Site, busy: list[str]) -> None:
    assert await good(site, "POST", f"{LIMIT}/close", {"duration": "5m", "value": VALUE}) is None
    (key,) = (await good(site, "GET", f"{LIMIT}/keys"))["data"]
    assert key["closed_until"] == key["more_at"]
    waiting = (await site.get(f"/v1/jobs/{busy[1]}")).json()["limit_wait"]
    assert (waiting["reason"], waiting["more_at"]) == ("closed", key["closed_until"])
    await good(site, "POST", f"{LIMIT}/open", {"value": VALUE})
    (key,) = (await good(site, "GET", f"{LIMIT}/keys"))["data"]
    assert key["closed_until"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("PATCH", LIMIT, {}, 422, "at_once"),
        ("PATCH", LIMIT, {"at_once": 0}, 422, "at_once"),
        ("PATCH", LIMIT, {"starts": 5}, 422, "per"),
        ("PATCH", LIMIT, {"at_once": 1, "per": "1m"}, 422, "starts"),
        ("PATCH", LIMIT, {"starts": 5, "per": "0.1s"}, 422, "per"),
        ("POST", f"{LIMIT}/close", {"duration": "often"}, 422, "duration"),
        ("POST", f"{LIMIT}/close", {"duration": "5m", "value": "x" * 1_001}, 422, "value"),
        ("GET", "/v1/limits/nowhere", None, 404, "name"),
        ("GET", "/v1/limits/nowhere/keys", None, 404, "name"),
        ("PATCH", "/v1/limits/nowhere", {"at_once": 1}, 404, "name"),
        ("POST", "/v1/limits/nowhere/reset", None, 404, "name"),
        ("POST", "/v1/limits/nowhere/close", {"duration": "5m"}, 404, "name"),
        ("POST", "/v1/limits/nowhere/open", {}, 404, "name"),
    ],
)
async def test_what_is_wrong_is_reported_by_its_field(
    site: Site, method: str, path: str, body: Any, status: int, field: str
) -> None:
    answer = await site.order(method, path, json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text


async def test_keys_are_for_operators_of_all_tenants(site: Site, busy: list[str]) -> None:
    """A key may be the name of an account."""
    operator = await site.key(scope="operator", tenant=STRANGER, account=None)
    for method, path, body in (
        ("GET", f"{LIMIT}/keys", None),
        ("PATCH", LIMIT, {"at_once": 2}),
        ("POST", f"{LIMIT}/reset", None),
        ("POST", f"{LIMIT}/close", {"duration": "5m"}),
        ("POST", f"{LIMIT}/open", {}),
    ):
        answer = await site.send(method, path, key=operator, json=body)
        assert answer.status_code == 403, path


async def test_a_refusal_by_the_provider_closes_the_key_for_everyone(site: Site, clock: Clock) -> None:
    make = Factory(site.engine, clock)
    await make.submitted("limited")
    (lease,) = await make.claimed("limited")
    error = {"code": "transient", "message": "Too many requests.", "limit": "one"}
    await site.engine.give_back(Return(lease, "attempt", error, timedelta(minutes=1)))
    await make.submitted("limited")
    assert await make.claimed("limited") == []
    (key,) = (await good(site, "GET", f"{LIMIT}/keys"))["data"]
    assert key["closed_until"] is not None
