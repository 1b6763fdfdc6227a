"""Who may do what: keys, scopes, tenants, browser tokens, limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from millpond.api.limits import WINDOW, Limiter
from millpond.api.native import ROUTES
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, OPERATORS, READERS
from millpond.engine.access.access import Principal
from millpond.errors import RateLimitedError
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory

if TYPE_CHECKING:
    from millpond.engine.engine import Engine

GUARDED = [route for route in ROUTES if route.who]
ID = "job_01k9w3v6m2f4tb8r0e5s7q1xzc"
ORIGIN = {"Origin": "https://shop.example"}


def path(route: Route) -> str:
    return route.path.replace("{id}", ID).replace("{kind}", "free").replace("{", "").replace("}", "")


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_nothing_is_served_without_a_key(still_site: Site, route: Route) -> None:
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer mp_client_wrong"}):
        answer = await still_site.send(route.method, path(route), key=None, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("route", [route for route in GUARDED if route.who in (READERS, OPERATORS, ADMINS)], ids=named)
async def test_what_is_for_operators_is_not_for_clients(still_site: Site, route: Route) -> None:
    answer = await still_site.send(route.method, path(route))
    assert (answer.status_code, answer.json()["needed"]) == (403, " or ".join(sorted(route.who)))


async def test_a_worker_key_is_not_a_client_key(site: Site) -> None:
    key = await site.key(scope="worker", account=None)
    assert (await site.post("/v1/jobs", {"kind": "free"}, key=key)).status_code == 403


async def test_another_tenants_job_looks_absent(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    for account, tenant in ((ACCOUNT, STRANGER), ("bob", TENANT)):
        key = await site.key(account=account, tenant=tenant)
        for method, end in (("GET", ""), ("GET", "/events"), ("GET", "/stream"), ("GET", "/logs"), ("POST", "/cancel")):
            answer = await site.send(method, f"/v1/jobs/{job_id}{end}", key=key)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert (await site.get("/v1/jobs", key=key)).json()["data"] == []
        assert (await site.post(f"/v1/jobs/{job_id}/retry", key=key)).status_code == 404
    assert (await make.read((await site.engine.read(TENANT, job_id)).job_id)).outcome is None


async def test_a_client_cannot_name_another_account_or_tenant(site: Site) -> None:
    other = await site.post("/v1/jobs", {"kind": "free", "account": "bob"})
    assert (other.status_code, other.json()["field"]) == (403, "account")
    other = await site.get(f"/v1/wallet?tenant={STRANGER}")
    assert (other.status_code, other.json()["field"]) == (403, "tenant")


async def test_a_tenants_operator_stays_inside_the_tenant(site: Site) -> None:
    key = await site.key(scope="admin", account=None)
    job_id = await site.submitted()
    assert (await site.get(f"/v1/jobs/{job_id}", key=key)).status_code == 200
    post = {"tenant": STRANGER, "account": "x", "amount": 5}
    assert (await site.post("/v1/grants", post, key=key)).status_code == 403
    assert (await site.post("/v1/keys", {"scope": "admin", "tenant": STRANGER}, key=key)).status_code == 403
    assert (await site.post("/v1/keys", {"scope": "admin"}, key=key)).json()["tenant"] == TENANT
    assert (await site.get("/v1/verify", key=key)).status_code == 403
    assert (await site.post("/v1/queues/free/pause", key=key)).status_code == 403


# Browsers


async def token(site: Site, job_id: str, *scopes: str) -> str:
    answer = await site.post(f"/v1/jobs/{job_id}/tokens", {"scopes": list(scopes), "expires_in": "5m"})
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


async def test_a_token_reads_its_job_and_nothing_else(site: Site) -> None:
    job_id, other = await site.submitted(), await site.submitted()
    given = await token(site, job_id, "read")
    for end in ("", "/events", "/logs"):
        assert (await site.get(f"/v1/jobs/{job_id}{end}?token={given}", key=None)).status_code == 200
        assert (await site.get(f"/v1/jobs/{job_id}{end}", key=given)).status_code == 200
        assert (await site.get(f"/v1/jobs/{other}{end}?token={given}", key=None)).status_code == 404
    assert (await site.post(f"/v1/jobs/{job_id}/cancel?token={given}", key=None)).json()["needed"] == "cancel"
    assert (await site.get("/v1/wallet", key=given)).status_code == 403
    assert (await site.get(f"/v1/wallet?token={given}", key=None)).status_code == 401


async def test_a_token_that_may_cancel_cancels(site: Site) -> None:
    job_id = await site.submitted()
    given = await token(site, job_id, "read", "cancel")
    assert (await site.post(f"/v1/jobs/{job_id}/cancel?token={given}", key=None)).json()["state"] == "canceled"


async def test_a_token_that_was_touched_is_none(site: Site) -> None:
    job_id = await site.submitted()
    given = await token(site, job_id, "read")
    flipped = given[:-5] + ("A" if given[-5] != "A" else "B") + given[-4:]
    assert (await site.get(f"/v1/jobs/{job_id}?token={flipped}", key=None)).status_code == 401


async def test_a_key_may_not_stand_in_an_address(site: Site) -> None:
    answer = await site.get(f"/v1/jobs/{await site.submitted()}?token={site.client_key}", key=None)
    assert (answer.status_code, answer.json()["field"]) == (401, "token")
    assert site.client_key not in answer.text


async def test_a_page_of_any_origin_may_follow_a_job(site: Site) -> None:
    job_id = await site.submitted()
    given = await token(site, job_id, "read")
    wanted = {**ORIGIN, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    for end in ("", "/events", "/stream"):
        asked = await site.send("OPTIONS", f"/v1/jobs/{job_id}{end}", key=None, headers=wanted)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "*")
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        assert asked.headers["access-control-allow-methods"] == "GET"
    read = await site.get(f"/v1/jobs/{job_id}", key=given, headers=ORIGIN)
    assert read.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in read.headers


async def test_what_is_not_for_browsers_is_not_opened_to_them(site: Site) -> None:
    wanted = {**ORIGIN, "Access-Control-Request-Method": "POST"}
    assert (await site.send("OPTIONS", "/v1/jobs", key=None, headers=wanted)).status_code == 405
    assert "access-control-allow-origin" not in (await site.get("/v1/wallet", headers=ORIGIN)).headers


# Limits


async def test_a_key_has_its_own_limit_which_is_reported(site: Site) -> None:
    key = await site.key(rate_limit=1)
    answers = await asyncio.gather(*(site.get("/v1/wallet", key=key) for _ in range(WINDOW + 3)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.json()["code"] for answer in refused} == {"rate_limited"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {f'"key";q={WINDOW};w={WINDOW}'}
    assert all('"key";r=' in answer.headers["ratelimit"] for answer in answers)
    assert (await site.get("/v1/wallet")).status_code == 200


def test_a_limiter_lets_the_burst_pass_and_then_the_rate() -> None:
    now = 1_000.0
    limiter = Limiter(rate=2, clock=lambda: now)
    for left in reversed(range(2 * WINDOW)):
        assert dict(limiter.take("a", None))[b"ratelimit"].startswith(b'"key";r=%d;' % left)
    with pytest.raises(RateLimitedError) as refused:
        limiter.take("a", None)
    assert refused.value.details["retry_after"] == 1
    limiter.take("b", None)
    now += 0.5
    limiter.take("a", None)
    with pytest.raises(RateLimitedError):
        limiter.take("a", None)


def test_a_limiter_forgets_those_who_are_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.api.limits._KEYS_MAX", 3)
    now = 0.0
    limiter = Limiter(rate=1, clock=lambda: now)
    for name in "abc":
        limiter.take(name, None)
    now += 2
    limiter.take("d", None)
    assert set(limiter._arrivals) == {"d"}


# A host's own users


async def test_a_host_says_who_calls(engine: Engine) -> None:
    async def who(request: object) -> Principal:
        return Principal("client", TENANT, ACCOUNT, "host")

    async with running_site(engine, authenticate=who) as site:
        accepted = await site.post("/v1/jobs", {"kind": "free"}, key=None)
        assert (await site.get(accepted.headers["location"], key=None)).json()["account"] == ACCOUNT
