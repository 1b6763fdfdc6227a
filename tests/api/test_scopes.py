"""Which scopes may call which route: a table of its own, so that a wrong entry in the routes is noticed.

A route that is added has to be added here, too.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec
import pytest

from millpond import wire
from millpond.api import problems
from millpond.api.native import ROUTES
from millpond.api.webhooks import inbox
from millpond.ui import dashboard
from tests.api.sites import Site, running_site
from tests.ui.servers import Visitor
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.engine import Engine

TABLE: Final = """
POST   /v1/jobs                                    client operator admin
POST   /v1/jobs/bulk                               client operator admin
GET    /v1/jobs                                    client viewer operator admin
GET    /v1/jobs/{id}                               client viewer operator admin reading-token
POST   /v1/jobs/{id}/cancel                        client operator admin canceling-token
POST   /v1/jobs/{id}/retry                         client operator admin
POST   /v1/jobs/{id}/answer                        client operator admin
POST   /v1/jobs/{id}/transition                    operator admin
GET    /v1/jobs/{id}/events                        client viewer operator admin reading-token
GET    /v1/jobs/{id}/stream                        client viewer operator admin reading-token
GET    /v1/jobs/{id}/logs                          client viewer operator admin reading-token
GET    /v1/jobs/{id}/children                      client viewer operator admin
GET    /v1/jobs/{id}/questions                     client viewer operator admin
GET    /v1/jobs/{id}/text                          client viewer operator admin reading-token
POST   /v1/jobs/{id}/tokens                        client operator admin
GET    /v1/jobs/{id}/artifacts                     client viewer operator admin reading-token
POST   /v1/artifacts                               client operator admin
GET    /v1/artifacts/{id}                          client viewer operator admin
POST   /v1/quotes                                  client operator admin
GET    /v1/wallet                                  client viewer operator admin
GET    /v1/wallet/entries                          client viewer operator admin
POST   /v1/grants                                  admin
POST   /v1/adjustments                             admin
GET    /v1/kinds                                   client worker viewer operator admin
GET    /v1/kinds/{kind}                            client worker viewer operator admin
GET    /v1/kinds/{kind}/diagram                    client worker viewer operator admin
GET    /v1/queues                                  viewer operator admin
POST   /v1/queues/{queue}/pause                    operator admin
POST   /v1/queues/{queue}/resume                   operator admin
GET    /v1/workers                                 viewer operator admin
GET    /v1/workers/{id}                            viewer operator admin
POST   /v1/workers/{id}/approve                    operator admin
POST   /v1/workers/{id}/revoke                     operator admin
POST   /v1/workers/{id}/drain                      operator admin
POST   /v1/workers/{id}/resume                     operator admin
POST   /v1/workers/{id}/rotate                     operator admin
PUT    /v1/workers/{id}/routes                     operator admin
GET    /v1/routes                                  viewer operator admin
GET    /v1/scaling                                 viewer operator admin
GET    /v1/scaling/{route}                         viewer operator admin
POST   /v1/callbacks/{provider}/{token}            anybody
POST   /v1/worker/register                         worker
POST   /v1/worker/poll                             fleet
POST   /v1/worker/heartbeat                        fleet
POST   /v1/worker/emit                             fleet
POST   /v1/worker/note                             fleet
POST   /v1/worker/readiness                        fleet
POST   /v1/worker/traceback                        fleet
POST   /v1/worker/upload                           fleet
POST   /v1/worker/download                         fleet
POST   /v1/worker/complete                         fleet
POST   /v1/worker/fail                             fleet
POST   /v1/worker/requeue                          fleet
POST   /v1/worker/park                             fleet
POST   /v1/worker/recall                           fleet
POST   /v1/worker/record                           fleet
POST   /v1/worker/spawn                            fleet
POST   /v1/worker/results                          fleet
POST   /v1/worker/suspend                          fleet
POST   /v1/worker/deregister                       fleet
GET    /v1/tenants                                 viewer operator admin
GET    /v1/tenants/{tenant}                        viewer operator admin
POST   /v1/tenants                                 admin
GET    /v1/tenants/{tenant}/accounts               viewer operator admin
POST   /v1/tenants/{tenant}/accounts               admin
PUT    /v1/tenants/{tenant}/accounts/{account}/cap admin
GET    /v1/keys                                    viewer operator admin
GET    /v1/keys/{id}                               viewer operator admin
POST   /v1/keys                                    admin
POST   /v1/keys/{id}/rotate                        admin
DELETE /v1/keys/{id}                               admin
POST   /v1/endpoints                               operator admin
GET    /v1/endpoints                               viewer operator admin
GET    /v1/endpoints/{id}                          viewer operator admin
PATCH  /v1/endpoints/{id}                          operator admin
DELETE /v1/endpoints/{id}                          operator admin
POST   /v1/endpoints/{id}/rotate                   operator admin
POST   /v1/endpoints/{id}/disable                  operator admin
POST   /v1/endpoints/{id}/enable                   operator admin
POST   /v1/endpoints/{id}/test                     operator admin
POST   /v1/endpoints/{id}/resend                   operator admin
GET    /v1/endpoints/{id}/stats                    viewer operator admin
POST   /v1/endpoints/{id}/pull                     operator admin
GET    /v1/deliveries                              viewer operator admin
GET    /v1/deliveries/{id}                         viewer operator admin
POST   /v1/deliveries/{id}/resend                  operator admin
POST   /v1/deliveries/{id}/report                  operator admin
GET    /v1/audit                                   viewer operator admin
GET    /v1/verify                                  operator admin
GET    /v1/board                                   viewer operator admin
GET    /v1/board/series                            viewer operator admin
GET    /v1/board/kinds                             viewer operator admin
GET    /v1/board/stream                            viewer operator admin
GET    /v1/failures                                viewer operator admin
GET    /v1/board/jobs                              viewer operator admin
POST   /v1/bulk                                    operator admin
POST   /v1/bulk/preview                            viewer operator admin
GET    /v1/bulk                                    viewer operator admin
GET    /v1/bulk/{id}                               viewer operator admin
POST   /v1/bulk/{id}/abort                         operator admin
POST   /v1/batches                                 client operator admin
POST   /v1/batches/{id}/jobs                       client operator admin
GET    /v1/batches                                 client viewer operator admin
GET    /v1/batches/{id}                            client viewer operator admin
GET    /v1/batches/{id}/jobs                       client viewer operator admin
POST   /v1/batches/{id}/cancel                     client operator admin
GET    /v1/limits                                  viewer operator admin
GET    /v1/limits/{name}                           viewer operator admin
GET    /v1/limits/{name}/keys                      viewer operator admin
PATCH  /v1/limits/{name}                           operator admin
POST   /v1/limits/{name}/reset                     operator admin
POST   /v1/limits/{name}/close                     operator admin
POST   /v1/limits/{name}/open                      operator admin
POST   /v1/schedules                               operator admin
POST   /v1/schedules/preview                       viewer operator admin
GET    /v1/schedules                               viewer operator admin
GET    /v1/schedules/{id}                          viewer operator admin
PATCH  /v1/schedules/{id}                          operator admin
DELETE /v1/schedules/{id}                          operator admin
POST   /v1/schedules/{id}/pause                    operator admin
POST   /v1/schedules/{id}/resume                   operator admin
POST   /v1/schedules/{id}/run                      operator admin
POST   /v1/schedules/{id}/backfill                 operator admin
POST   /v1/schedules/{id}/backfill/preview         viewer operator admin
GET    /v1/schedules/{id}/fires                    viewer operator admin
POST   /v1/jobs/{id}/refund                        admin
PUT    /v1/jobs/{id}/priority                      operator admin
GET    /v1/board/jobs/{id}                         viewer operator admin
GET    /v1/search                                  viewer operator admin
GET    /v1/wallets                                 viewer operator admin
GET    /v1/holds                                   viewer operator admin
GET    /v1/board/fleet                             viewer operator admin
GET    /v1/system                                  viewer operator admin
GET    /healthz                                    anybody
GET    /readyz                                     anybody
GET    /metrics                                    viewer operator admin
GET    /openapi.json                               anybody
GET    /docs                                       anybody
GET    /docs/problems/{code}                       anybody
POST   /inbox/{name}                               anybody
GET    /inbox.json                                 viewer operator admin
POST   /inbox.json                                 operator admin
DELETE /inbox.json                                 operator admin
"""
MAY: Final = {(method, path): frozenset(who) for method, path, *who in map(str.split, TABLE.strip().splitlines())}
KEYS: Final = ("client", "worker", "viewer", "operator", "admin")
CALLERS: Final = (*KEYS, "fleet", "reading-token", "canceling-token")
ACCOUNTS: Final = ("client",)
REFUSALS: Final = (401, 403, 429)
"""The last one for whoever was refused too often."""
PROXIED: Final = {"X-Forwarded-For": "192.0.2.7"}
"""A caller on this machine needs no key for some routes; one that comes through a proxy does."""
SESSIONS: Final = ("viewer", "operator", "admin")
"""Who can sign in to the dashboard."""
NOT_THERE: Final = {
    ("GET", "/metrics"),
    *((method, path) for (method, path), who in MAY.items() if who.isdisjoint({*SESSIONS, *ACCOUNTS})),
} - {("GET", "/docs/problems/{code}")}
"""What the dashboard does not serve: its users have no use for it."""


def test_the_table_has_every_route_and_no_other() -> None:
    assert {(route.method, route.path) for route in (*ROUTES, *inbox.ROUTES)} == set(MAY)
    assert {who for each in MAY.values() for who in each} == {*CALLERS, "anybody"}


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    """The API with all that can be served with it."""
    async with running_site(engine, inbox=inbox.Inbox(), ui=dashboard) as running:
        yield running


@pytest.fixture
async def secrets(site: Site) -> dict[str, str]:
    """A key or token of each sort of caller, none of which is limited to a tenant if it need not be."""
    found = {scope: await site.key(scope=scope, tenant=None, account=None) for scope in KEYS if scope not in ACCOUNTS}
    found |= {"client": site.client_key}
    job_id = await site.submitted()
    for name, scopes in {"reading-token": ["read"], "canceling-token": ["cancel"]}.items():
        answer = await site.post(f"/v1/jobs/{job_id}/tokens", {"scopes": scopes, "expires_in": "1h"})
        found[name] = answer.json()["token"]
    joined = {"worker": "w1", "routes": ["filmed"], "slots": 1}
    answer = await site.post("/v1/worker/register", joined, key=found["worker"])
    assert answer.status_code == 201, answer.text
    return found | {"fleet": answer.json()["token"], "job": job_id}


async def test_each_route_is_open_to_exactly_the_scopes_of_the_table(site: Site, secrets: dict[str, str]) -> None:
    """An unknown query parameter ends each request after the check of the scope, so that none has an effect."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    async with httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE, headers=PROXIED) as http:
        for method, path in MAY:
            place = path.replace("{id}", secrets["job"]).replace("{", "").replace("}", "")
            answers = {
                who: await http.request(
                    method, f"{place}?unknown=1", headers={"Authorization": f"Bearer {secrets[who]}"}
                )
                for who in CALLERS
            }
            answers["anybody"] = await http.request(method, f"{place}?unknown=1")
            assert max(answer.status_code for answer in answers.values()) < 500, path
            for answer in answers.values():
                if answer.status_code in REFUSALS:
                    assert answer.headers["content-type"] == problems.MEDIA_TYPE.decode(), path
                    assert msgspec.json.decode(answer.content, type=wire.Problem).status == answer.status_code, path
            admitted = {who for who, answer in answers.items() if answer.status_code not in REFUSALS}
            found[method, path] = frozenset({"anybody"} if "anybody" in admitted else admitted)
    wrong = {name: (found[name], MAY[name]) for name in MAY if found[name] != MAY[name]}
    assert wrong == {}


async def test_the_dashboard_serves_a_route_to_sessions_of_exactly_these_scopes(site: Site) -> None:
    """The same routes, by cookie instead of by key: neither a key nor a token of a job opens any of them."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    key = {"Authorization": f"Bearer {site.admin_key}"}
    async with AsyncExitStack() as stack:
        visitors: dict[str, Visitor] = {}
        for who in ("nobody", *SESSIONS):
            http = await stack.enter_async_context(httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE))
            visitors[who] = Visitor(http)
            if who in SESSIONS:
                made = await visitors[who].sign_in(await site.key(scope=who, tenant=None, account=None))
                assert made.status_code == 201, made.text
        for method, path in MAY:
            place = f"/api{path.replace('{', '').replace('}', '')}?unknown=1"
            answers = {who: await visitor.act(method, place) for who, visitor in visitors.items()}
            answers["key"] = await visitors["nobody"].act(method, place, **key)
            statuses = {who: answer.status_code for who, answer in answers.items()}
            assert max(statuses.values()) < 500, path
            if set(statuses.values()) == {404}:
                continue
            admitted = frozenset(who for who, status in statuses.items() if status not in REFUSALS)
            found[method, path] = frozenset({"anybody"} if "nobody" in admitted else admitted)
    expected = {
        name: who if "anybody" in who else who & frozenset(SESSIONS)
        for name, who in MAY.items()
        if name not in NOT_THERE
    }
    wrong = {name: (found.get(name), expected.get(name)) for name in MAY if found.get(name) != expected.get(name)}
    assert wrong == {}
