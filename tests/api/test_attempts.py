"""Requests with an invalid key: limited by address, without harm to those with a valid one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.api.limits import WINDOW
from millpond.engine.access import credentials
from millpond.settings import Settings
from tests.api.sites import Site, running_site
from tests.factories import TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from millpond.engine.engine import Engine

MANY = 100_000


@pytest.fixture
async def site(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """An API that allows one failure a second, and whose clock for that stands still."""
    async with running_site(engine, settings=Settings(failure_limit=1)) as running:
        monkeypatch.setattr(running.app._attempts._limiter, "clock", lambda: 0.0)
        yield running


async def tried(site: Site, *, key: str | None = None, **headers: str) -> httpx2.Response:
    """A request with a well-formed key that does not exist, unless another one is given."""
    return await site.get("/v1/jobs", key=key or credentials.new_key("client"), headers=headers)


async def exhausted(site: Site, **headers: str) -> None:
    for _ in range(WINDOW):
        assert (await tried(site, **headers)).status_code == 401


async def test_after_too_many_failures_an_address_is_refused(site: Site) -> None:
    await exhausted(site)
    for key in (None, "mp_client_malformed", "mpt_invalid"):
        refused = await tried(site, key=key)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 1
        assert "invalid keys" in refused.json()["detail"]
    assert (await site.post("/v1/worker/poll", {}, key=credentials.new_worker_token())).status_code == 429


async def test_a_refused_guess_is_not_looked_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await exhausted(site)
    monkeypatch.delattr(type(site.engine.access), "authenticate")
    assert (await tried(site)).status_code == 429


async def test_those_who_are_known_are_not_refused_because_of_others(site: Site) -> None:
    assert (await site.get("/v1/jobs")).status_code == 200
    job_id = await site.submitted()
    token = (await site.post(f"/v1/jobs/{job_id}/tokens", {})).json()["token"]
    await exhausted(site)
    assert (await tried(site)).status_code == 429
    assert (await site.get("/v1/jobs")).status_code == 200
    assert (await site.get(f"/v1/jobs/{job_id}?token={token}", key=None)).status_code == 200


async def test_valid_keys_and_requests_without_one_cost_nothing(site: Site) -> None:
    for _ in range(2 * WINDOW):
        assert (await site.get("/v1/jobs", key=None)).status_code == 401
    for _ in range(2 * WINDOW):
        assert (await tried(site, key=await site.key(tenant=TENANT))).status_code == 200
    await exhausted(site)


async def test_clients_of_a_proxy_are_counted_one_by_one(site: Site) -> None:
    await exhausted(site, **{"X-Forwarded-For": "203.0.113.7"})
    assert (await tried(site, **{"X-Forwarded-For": "203.0.113.7"})).status_code == 429
    assert (await tried(site, **{"X-Forwarded-For": "203.0.113.8"})).status_code == 401


async def test_whoever_invents_addresses_meets_the_limit_of_the_proxy(site: Site) -> None:
    statuses = [
        (await tried(site, **{"X-Forwarded-For": f"203.0.113.{number}"})).status_code for number in range(12 * WINDOW)
    ]
    assert statuses[: 10 * WINDOW] == [401] * (10 * WINDOW)
    assert set(statuses[10 * WINDOW :]) == {429}
