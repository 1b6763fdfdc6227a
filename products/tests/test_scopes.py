"""Which scopes may call which route of a product: a table of its own, so that a wrong entry in the routes is noticed.

A route that is added has to be added here, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from products.tests.deployments import NOWHERE, Deployment, running_deployment

from millpond.engine.access.access import Principal
from millpond_products.catalog import PRODUCTS
from tests.api.test_scopes import CALLERS, KEYS, PROXIED, REFUSALS
from tests.factories import ACCOUNT, HOUR, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TABLE: Final = """
actions  GET    /api/actions                                               client
actions  POST   /api/jobs                                                  client
actions  GET    /api/jobs                                                  client
actions  GET    /api/jobs/{id}                                             client reading-token
actions  GET    /api/jobs/{id}/logs                                        client reading-token
actions  GET    /api/jobs/{id}/stream                                      client reading-token
actions  POST   /api/jobs/{id}/cancel                                      client canceling-token
actions  POST   /api/jobs/{id}/retry                                       client
actions  GET    /openapi.json                                              anybody
actions  GET    /docs                                                      anybody
actions  GET    /docs/problems/{code}                                      anybody
effects  POST   /api/videos/uploads                                        client
effects  POST   /api/videos                                                client
effects  GET    /api/videos                                                client
effects  GET    /api/videos/{video_id}                                     client
effects  GET    /api/files/{file_id}                                       client
effects  GET    /api/effects                                               client
effects  GET    /api/effects/{effect}                                      client
effects  POST   /api/ai-jobs                                               client
effects  GET    /api/ai-jobs                                               client
effects  GET    /api/ai-jobs/{job_id}                                      client
effects  POST   /api/ai-jobs/{job_id}/cancel                               client
effects  GET    /api/wallet                                                client
effects  GET    /api/wallet/transactions                                   client
effects  POST   /api/worker/register                                       worker
effects  POST   /api/worker/poll                                           fleet
effects  POST   /api/worker/heartbeat                                      fleet
effects  POST   /api/worker/complete                                       fleet
effects  POST   /api/worker/fail                                           fleet
effects  POST   /api/worker/requeue                                        fleet
effects  POST   /api/worker/deregister                                     fleet
effects  GET    /api/admin/workflows                                       viewer operator admin
effects  POST   /api/admin/workflows                                       operator admin
effects  GET    /api/admin/workflows/{workflow}                            viewer operator admin
effects  PATCH  /api/admin/workflows/{workflow}                            operator admin
effects  GET    /api/admin/workflows/{workflow}/workflow                   viewer operator admin
effects  PUT    /api/admin/workflows/{workflow}/workflow                   operator admin
effects  POST   /api/admin/workflows/{workflow}/activate                   operator admin
effects  POST   /api/admin/workflows/{workflow}/deactivate                 operator admin
effects  POST   /api/admin/workflows/{workflow}/assets                     operator admin
effects  DELETE /api/admin/workflows/{workflow}/assets/{asset}             operator admin
effects  GET    /api/admin/effects                                         viewer operator admin
effects  POST   /api/admin/effects                                         operator admin
effects  GET    /api/admin/effects/{effect}                                viewer operator admin
effects  PATCH  /api/admin/effects/{effect}                                operator admin
effects  POST   /api/admin/effects/{effect}/activate                       operator admin
effects  POST   /api/admin/effects/{effect}/deactivate                     operator admin
effects  GET    /api/admin/workers                                         viewer operator admin
effects  GET    /api/admin/workers/{worker}                                viewer operator admin
effects  POST   /api/admin/workers/{worker}/approve                        operator admin
effects  POST   /api/admin/workers/{worker}/revoke                         operator admin
effects  POST   /api/admin/workers/{worker}/drain                          operator admin
effects  POST   /api/admin/workers/{worker}/resume                         operator admin
effects  POST   /api/admin/workers/{worker}/rotate-token                   operator admin
effects  PUT    /api/admin/workers/{worker}/workflows                      operator admin
effects  GET    /api/admin/dispatches                                      viewer operator admin
effects  GET    /api/admin/ai-jobs                                         viewer operator admin
effects  GET    /api/admin/ai-jobs/{job_id}                                viewer operator admin
effects  POST   /api/admin/ai-jobs/{job_id}/cancel                         operator admin
effects  POST   /api/admin/tokens                                          operator admin
effects  GET    /api/admin/audit-logs                                      viewer operator admin
effects  GET    (root)                                                     anybody
effects  GET    /                                                          anybody
effects  GET    /static/{part}                                             anybody
effects  GET    /openapi.json                                              anybody
effects  GET    /docs                                                      anybody
effects  GET    /docs/problems/{code}                                      anybody
guard    POST   /v1/jobs                                                   client operator admin
guard    GET    /v1/jobs/{job_id}                                          client viewer operator admin
guard    POST   /v1/jobs/{job_id}/response                                 client operator admin
guard    GET    /v1/rules                                                  viewer operator admin
guard    POST   /v1/rules                                                  operator admin
guard    GET    /v1/rules/{rule_id}                                        viewer operator admin
guard    PATCH  /v1/rules/{rule_id}                                        operator admin
guard    DELETE /v1/rules/{rule_id}                                        operator admin
guard    POST   /v1/rules/reorder                                          operator admin
guard    POST   /v1/rules/dry-run                                          operator admin
guard    GET    /api/v1/health/queues                                      client worker viewer operator admin
guard    GET    (root)                                                     anybody
guard    GET    /                                                          anybody
guard    GET    /static/{part}                                             anybody
guard    GET    /openapi.json                                              anybody
guard    GET    /docs                                                      anybody
guard    GET    /docs/problems/{code}                                      anybody
partner  POST   /v1/projects                                               client
partner  GET    /v1/projects                                               client
partner  GET    /v1/projects/{projectId}                                   client
partner  GET    /v1/projects/{projectId}/containers                        client
partner  GET    /v1/projects/{projectId}/containers/{containerId}          client
partner  GET    /v1/projects/{projectId}/influencers                       client
partner  GET    /v1/projects/{projectId}/influencers/{influencerId}        client
partner  GET    /v1/assets/{assetId}                                       client
partner  POST   /v1/projects/{projectId}/ingest/github                     client
partner  POST   /v1/projects/{projectId}/ingest/website                    client
partner  POST   /v1/projects/{projectId}/ingest/appstore                   client
partner  POST   /v1/projects/{projectId}/content                           client
partner  POST   /v1/projects/{projectId}/content/clone                     client
partner  POST   /v1/projects/{projectId}/influencers                       client
partner  GET    /v1/jobs/{jobId}                                           client
partner  GET    /v1/jobs                                                   client
partner  POST   /v1/jobs/{jobId}/cancel                                    client
partner  POST   /v1/projects/{projectId}/tiktok-leases                     client
partner  GET    /v1/projects/{projectId}/tiktok-leases                     client
partner  GET    /v1/projects/{projectId}/tiktok-leases/{leaseId}           client
partner  GET    /v1/projects/{projectId}/social-accounts                   client
partner  POST   /v1/webhook-endpoints                                      client
partner  GET    /v1/webhook-endpoints                                      client
partner  GET    /v1/webhook-endpoints/{endpointId}                         client
partner  POST   /v1/webhook-endpoints/{endpointId}/rotate-secret           client
partner  POST   /v1/webhook-endpoints/{endpointId}/disable                 client
partner  POST   /v1/webhook-endpoints/{endpointId}/enable                  client
partner  POST   /v1/webhook-endpoints/{endpointId}/test                    client
partner  DELETE /v1/webhook-endpoints/{endpointId}                         client
partner  GET    /v1/admin/tiktok-leases                                    viewer operator admin
partner  POST   /v1/admin/tiktok-leases/{leaseId}/fulfil                   operator admin
partner  POST   /v1/admin/tiktok-leases/{leaseId}/reject                   operator admin
partner  GET    /openapi.json                                              anybody
partner  GET    /docs                                                      anybody
partner  GET    /docs/problems/{code}                                      anybody
studio   POST   /api/generate/scrape                                       client
studio   POST   /api/generate/copy                                         client
studio   POST   /api/generate/static-ad                                    client
studio   POST   /api/generate/tts                                          client
studio   POST   /api/generate/video                                        client
studio   GET    /api/jobs                                                  client
studio   GET    /api/jobs/{job_id}                                         client operator admin
studio   POST   /api/jobs/{job_id}/cancel                                  client operator admin
studio   GET    /api/credits                                               client
studio   POST   /api/admin/jobs/{job_id}/retry                             operator admin
studio   GET    (root)                                                     anybody
studio   GET    /                                                          anybody
studio   GET    /sample                                                    anybody
studio   GET    /static/{part}                                             anybody
studio   GET    /openapi.json                                              anybody
studio   GET    /docs                                                      anybody
studio   GET    /docs/problems/{code}                                      anybody
"""
MAY: Final = {
    (name, method, path): frozenset(who) for name, method, path, *who in map(str.split, TABLE.strip().splitlines())
}
TOKENS: Final = {None: (), "read": ("reading-token",), "cancel": ("canceling-token",)}
ROOT: Final = "(root)"
"""The path of a product itself."""


def test_each_route_is_declared_for_exactly_the_scopes_of_the_table() -> None:
    declared = {
        (product.name, route.method, route.path or ROOT): {*(route.who or ("anybody",)), *TOKENS[route.token]}
        for product in PRODUCTS
        for route in product.routes
    }
    assert declared == MAY


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with running_deployment(dsn, tmp_path) as deployment:
        yield deployment


async def test_each_route_is_open_to_exactly_the_scopes_of_the_table(deployment: Deployment) -> None:
    """An unknown query parameter ends each request after the check of the scope, so that none has an effect."""
    engine = deployment.engine
    job = await engine.submit("actions.http-request", {"url": NOWHERE}, tenant=TENANT, account=ACCOUNT)
    owners = {"client": {"tenant": TENANT, "account": ACCOUNT}}
    secrets = {scope: await deployment.key(scope=scope, **owners.get(scope, {})) for scope in KEYS}
    for name, scope in {"reading-token": "read", "canceling-token": "cancel"}.items():
        secrets[name], _ = await engine.access.make_token(TENANT, job.job_id, [scope], HOUR)
    await engine.workers.open_route("effects:invert")
    fleet = Principal("worker", None, None, "key_fleet")
    _, secrets["fleet"] = await engine.workers.register(
        worker="w1", routes=["effects:invert"], fleet=fleet, address="10.0.0.1"
    )
    found: dict[tuple[str, str, str], frozenset[str]] = {}
    for name, method, path in MAY:
        place = f"/{name}{re.sub('{.*?}', job.id, path.removeprefix(ROOT))}?unknown=1"
        answers = {
            who: await deployment.http.request(method, place, headers=PROXIED | {"Authorization": f"Bearer {secret}"})
            for who, secret in secrets.items()
        }
        answers["anybody"] = await deployment.http.request(method, place, headers=PROXIED)
        assert max(answer.status_code for answer in answers.values()) < 500, place
        admitted = {who for who, answer in answers.items() if answer.status_code not in REFUSALS}
        found[name, method, path] = frozenset({"anybody"} if "anybody" in admitted else admitted)
    assert {*secrets} == {*CALLERS}
    wrong = {place: (found[place], MAY[place]) for place in MAY if found[place] != MAY[place]}
    assert wrong == {}
