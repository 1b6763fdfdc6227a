"""Every read that takes an id, with the id of another tenant: nothing is told, also without one of the two walls.

The walls are row-level security and the condition in the statement (see docs/why/isolation.md). Reads that have the
second one alone are tried all the same: nothing may depend on which of the two a read has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from millpond import wire
from millpond.api.native import ROUTES
from millpond.engine.engine import Engine
from millpond.outbound import Outbound
from millpond.schedules import Schedule, Timing
from millpond.store import queries
from millpond.store.db import Database
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory
from tests.post import VAULT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.storage.local import Local
    from tests.clocks import Clock

READS: Final = {
    "/v1/jobs/{id}": "job",
    "/v1/jobs/{id}/events": "job",
    "/v1/jobs/{id}/stream": "job",
    "/v1/jobs/{id}/logs": "job",
    "/v1/jobs/{id}/children": "job",
    "/v1/jobs/{id}/questions": "job",
    "/v1/jobs/{id}/text": "job",
    "/v1/jobs/{id}/artifacts": "job",
    "/v1/board/jobs/{id}": "job",
    "/v1/artifacts/{id}": "artifact",
    "/v1/endpoints/{id}": "endpoint",
    "/v1/endpoints/{id}/stats": "endpoint",
    "/v1/deliveries/{id}": "delivery",
    "/v1/keys/{id}": "key",
    "/v1/bulk/{id}": "operation",
    "/v1/schedules/{id}": "schedule",
    "/v1/schedules/{id}/fires": "schedule",
    "/v1/batches/{id}": "batch",
    "/v1/batches/{id}/jobs": "batch",
    "/v1/tenants/{tenant}": "tenant",
    "/v1/tenants/{tenant}/accounts": "tenant",
}
"""The reads of single things of a tenant, and what their ids are of."""
SHARED: Final = {
    "/v1/kinds/{kind}",
    "/v1/kinds/{kind}/diagram",
    "/v1/limits/{name}",
    "/v1/limits/{name}/keys",
    "/v1/scaling/{route}",
    "/v1/workers/{id}",
    "/docs/problems/{code}",
}
"""What belongs to no tenant."""
LISTS: Final = {
    "/v1/jobs?limit=10": "job",
    "/v1/board/jobs?limit=10": "job",
    "/v1/deliveries?job={job}": "delivery",
    "/v1/deliveries?endpoint={endpoint}": "delivery",
    "/v1/endpoints?limit=10": "endpoint",
    "/v1/keys?limit=10": "key",
    "/v1/bulk?limit=10": "operation",
    "/v1/schedules?limit=10": "schedule",
    "/v1/batches?limit=10": "batch",
    "/v1/search?q={job}": "job",
    "/v1/search?q={artifact}": "artifact",
    "/v1/search?q={endpoint}": "endpoint",
    "/v1/search?q={delivery}": "delivery",
    "/v1/search?q={key}": "key",
    "/v1/search?q={operation}": "operation",
    "/v1/audit?subject={key}": "key",
}
"""Lists in which an id would appear."""
CONDITIONS: Final = (
    "(tenants is null or j.tenant = any(tenants))",
    "(view_events.tenant is null or j.tenant = view_events.tenant)",
    "(view_text.tenant is null or j.tenant = view_text.tenant)",
    "(view_last_chunk.tenant is null or j.tenant = view_last_chunk.tenant)",
    "c.tenant = j.tenant",
    "j.tenant = view_page.tenant",
    "e.tenant = view_entries.tenant",
    "e.tenant = j.tenant",
    "a.tenant = view_artifacts.tenant",
    "j.tenant = a.tenant",
)
"""The conditions of the functions that read for clients."""
WALLS: Final = ("both walls", "no row-level security", "no condition in the statement")


def test_every_read_of_a_single_thing_is_tried() -> None:
    """A new route with a parameter in its path belongs into one of the two tables."""
    assert {route.path for route in ROUTES if route.method == "GET" and "{" in route.path} == {*READS, *SHARED}


@pytest.fixture(params=WALLS)
async def weakened_site(
    request: pytest.FixtureRequest, db: Database, clock: Clock, files: Local
) -> AsyncIterator[Site]:
    """A site with one of its walls taken away, or none."""
    if request.param == "no condition in the statement":
        await lose_conditions(db)
    reader = None
    if request.param == "no row-level security":
        reader, db._reader = db._reader, await Database.open(db.dsn, size=2)
    engine = Engine(db, app, storage=files, vault=VAULT, outbound=Outbound("loopback"))
    try:
        async with running_site(engine) as site:
            yield site
    finally:
        if request.param == "no row-level security":
            assert db._reader is not None
            await db._reader.close()
            db._reader = reader


async def lose_conditions(db: Database) -> None:
    functions = (
        *queries.functions("millpond.engine.reads", "views").values(),
        *queries.functions("millpond.engine.jobs", "artifacts").values(),
    )
    lost = 0
    async with db.transaction() as tx:
        for definition in functions:
            text = definition
            for condition in CONDITIONS:
                lost += text.count(condition)
                text = text.replace(condition, "true")
            await tx.execute(text)
    assert lost == 15


async def things(site: Site, clock: Clock) -> dict[str, str]:
    """The ids of one of everything that a tenant may have."""
    engine = site.engine
    endpoint, _ = await engine.endpoints.make(TENANT, url="http://127.0.0.1:9/hook")
    job_id = await site.submitted("free")
    await Factory(engine, clock).serve("free")
    file = await engine.artifacts.save(TENANT, ACCOUNT, name="x", content_type="text/plain", data=b"x")
    key, _ = await engine.access.make_key(scope="client", tenant=TENANT, account=ACCOUNT, actor="test")
    order = wire.MakeBulkOperation(action="cancel", filter=wire.JobFilter(tenant=TENANT, kind="free"))
    operation, _ = await engine.bulk_operations.order(order, tenant=TENANT, bound=TENANT, actor="test", key=None)
    declared = Schedule("nightly", "free", Timing(cron="@daily"), tenant=TENANT, account=ACCOUNT)
    schedule, _ = await engine.schedules.make(declared, actor="test")
    (sent,) = await engine.deliveries.list(TENANT, endpoint=endpoint.endpoint_id)
    found = {"job": job_id, "artifact": file.id, "endpoint": endpoint.id, "delivery": sent.id, "key": key.id}
    batch = (await engine.batches.create(tenant=TENANT, account=ACCOUNT, total=1)).batch
    return found | {"operation": operation.id, "schedule": schedule.id, "batch": batch.id, "tenant": TENANT}


async def test_no_read_shows_a_stranger_another_tenants_things(weakened_site: Site, clock: Clock) -> None:
    ids = await things(weakened_site, clock)
    await weakened_site.engine.access.make_tenant(STRANGER, actor="test")
    owner = await weakened_site.key(scope="admin", account=None)
    strangers = {
        scope: await weakened_site.key(scope=scope, tenant=STRANGER, account=ACCOUNT if scope == "client" else None)
        for scope in ("client", "viewer", "operator", "admin")
    }
    fields: dict[str, Any] = {}
    for path, thing in READS.items():
        place = path.replace("{id}", ids[thing]).replace("{tenant}", ids[thing])
        assert (await weakened_site.get(place, key=owner)).status_code == 200, path
        for scope, key in strangers.items():
            answer = await weakened_site.get(place, key=key)
            if answer.status_code not in (403, 404):
                fields[f"{scope}: {path}"] = answer.text
    for path, thing in LISTS.items():
        place = path.format(**ids)
        assert ids[thing] in (await weakened_site.get(place, key=owner)).text, path
        for scope, key in strangers.items():
            answer = await weakened_site.get(place, key=key)
            if answer.status_code != 403 and ids[thing] in answer.text:
                fields[f"{scope}: {path}"] = answer.text
    assert fields == {}
