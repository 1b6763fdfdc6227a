"""What the scopes of operators may: viewers look, operators act, admins say who may come in and what anybody has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from millpond.api.native import ROUTES
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, CLIENTS, OPERATORS
from millpond.engine.access.access import Principal
from tests.checks import unchanged
from tests.factories import ACCOUNT, STRANGER, TENANT
from tests.ui.servers import DashboardServer, dashboard_server
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

ID = "job_01k9w3v6m2f4tb8r0e5s7q1xzc"
ASKS = {
    "/v1/bulk/preview": {"filter": {}},
    "/v1/schedules/preview": {"cron": "0 3 * * *"},
    "/v1/schedules/{id}/backfill/preview": {"since": "24h"},
}
"""What only asks, and sends a body because the question is long."""
ACTS = [route for route in ROUTES if route.method != "GET" and route.who and route.path not in ASKS]
LABOURS = {"/v1/verify"}
"""What only reads, but all there is: it is left to those who act."""
LOOKS = [route for route in ROUTES if route.method == "GET" and route.who and route.path not in LABOURS]


def path(route: Route) -> str:
    return route.path.replace("{id}", ID).replace("{kind}", "free").replace("{", "").replace("}", "")


@pytest.fixture(scope="module")
async def step(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DashboardServer]:
    async with server.database(template) as dsn, dashboard_server(dsn, tmp_path_factory.mktemp("files")) as opened:
        yield opened


async def statuses(step: DashboardServer, routes: list[Route], scope: str) -> dict[str, int]:
    """What each of these answers to a key of this scope that sends nothing else."""
    headers = {"Authorization": f"Bearer {step.keys[scope]}"}
    found: dict[str, int] = {}
    async with httpx2.AsyncClient(base_url=step.site.url, timeout=PATIENCE) as http:
        for route in routes:
            accept = {"Accept": route.offers[0].decode()}
            async with http.stream(route.method, path(route), headers=headers | accept) as answer:
                found[f"{route.method} {route.path}"] = answer.status_code
    return found


async def test_a_viewer_acts_on_nothing(step: DashboardServer) -> None:
    answered = await statuses(step, ACTS, "viewer")
    assert len(answered) > 40
    assert set(answered.values()) == {401, 403}
    unknown = {name for name, status in answered.items() if status == 401}
    assert unknown == {f"POST {route.path}" for route in ACTS if route.who == {"fleet"}}, "which ask for another token"


async def test_a_question_that_is_sent_changes_nothing(step: DashboardServer) -> None:
    schedule = {"name": "asked", "kind": "free", "account": ACCOUNT, "every": "1h"}
    made = (await step.site.order("POST", f"/v1/schedules?tenant={TENANT}", schedule)).json()
    async with unchanged(step.site.engine.db):
        for where, body in ASKS.items():
            answer = await step.site.post(where.replace("{id}", made["id"]), body, key=step.keys["viewer"])
            assert answer.status_code == 200, answer.text


async def test_a_viewer_looks_at_everything(step: DashboardServer) -> None:
    answered = await statuses(step, LOOKS, "viewer")
    assert len(answered) > 20
    assert not {name for name, status in answered.items() if status in (401, 403) or status >= 500}


async def test_an_operator_acts_but_hands_nothing_out(step: DashboardServer) -> None:
    answered = await statuses(step, ACTS, "operator")
    denied = {name for name, status in answered.items() if status == 403}
    assert denied == {f"{route.method} {route.path}" for route in ACTS if route.who in (ADMINS, {"worker"})}
    assert "POST /v1/keys" in denied
    assert "POST /v1/grants" in denied


def test_every_route_says_whom_it_is_for() -> None:
    for route in LOOKS:
        assert "viewer" in route.who, f"{route.path}: what anybody reads, a viewer does"
    for route in ACTS:
        assert "viewer" not in route.who, f"{route.path}: a viewer does not act"
        assert route.who in (CLIENTS, OPERATORS, ADMINS, {"worker"}, {"fleet"}), route.path


async def test_a_viewer_sees_no_secret(step: DashboardServer) -> None:
    """Whatever an admin's key lists, read by a viewer, has none of the secrets that were told when they were made."""
    site = step.site
    made = (await site.order("POST", "/v1/keys", {"scope": "viewer", "name": "the wall"})).json()
    viewer = made["key"]
    text = ""
    for where in ("keys", "audit", "endpoints?tenant=acme", "workers", "deliveries?tenant=acme"):
        answer = await site.get(f"/v1/{where}", key=viewer)
        assert answer.status_code == 200, answer.text
        text += answer.text
    assert made["id"] in text
    assert not [scope for scope, key in {**step.keys, "made": viewer}.items() if key in text or key[10:40] in text]


async def test_nobody_makes_a_key_that_may_more_than_he(step: DashboardServer) -> None:
    site, tenant = step.site, step.keys["tenant"]
    for scope in ("viewer", "operator"):
        for wanted in ("viewer", "admin"):
            assert (await site.post("/v1/keys", {"scope": wanted}, key=step.keys[scope])).status_code == 403
    made = (await site.post("/v1/keys", {"scope": "operator"}, key=tenant)).json()
    assert (made["scope"], made["tenant"]) == ("operator", TENANT)
    other = await site.post("/v1/keys", {"scope": "viewer", "tenant": STRANGER}, key=tenant)
    assert (other.status_code, other.json()["field"]) == (403, "tenant")


async def test_who_is_of_one_account_reaches_no_other_key(step: DashboardServer) -> None:
    site = step.site
    small = await site.key(scope="admin", account=ACCOUNT)
    assert (await site.post("/v1/keys", {"scope": "admin"}, key=small)).json()["account"] == ACCOUNT
    other = await site.post("/v1/keys", {"scope": "admin", "account": "bob"}, key=small)
    assert (other.status_code, other.json()["field"]) == (403, "account")
    wide = (await site.order("POST", "/v1/keys", {"scope": "admin", "tenant": TENANT})).json()["id"]
    assert (await site.post(f"/v1/keys/{wide}/rotate", {}, key=small)).status_code == 404
    assert (await site.send("DELETE", f"/v1/keys/{wide}", key=small)).status_code == 404


async def test_a_key_that_looks_is_for_no_account(step: DashboardServer) -> None:
    for scope in ("viewer", "operator"):
        answer = await step.site.order("POST", "/v1/keys", {"scope": scope, "tenant": TENANT, "account": ACCOUNT})
        assert (answer.status_code, answer.json()["field"]) == (422, "account")


async def test_a_viewer_of_one_tenant_stays_inside_it(step: DashboardServer) -> None:
    key = await step.site.key(scope="viewer", account=None)
    assert (await step.site.get(f"/v1/keys?tenant={STRANGER}", key=key)).status_code == 403
    response = (await step.site.get("/v1/keys", key=key)).json()["data"]
    assert {each["tenant"] for each in response} == {TENANT}
    job_id = await step.site.submitted()
    assert (await step.site.get(f"/v1/jobs/{job_id}", key=key)).status_code == 200


def test_a_principal_may_be_an_operator() -> None:
    """A host names its own people so."""
    assert Principal(scope="operator", tenant=None, account=None, actor="host").scope in OPERATORS
