"""A tenant that lives in another PostgreSQL: the same contract. EFX-2 and 7, as far as they show here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.effects.deployments import Deployment, lease, picture, running_deployment

from millpond.engine.verify import verify_all
from millpond.services.ensurer import ensurer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.databases import DatabaseServer


@pytest.fixture
async def apart(server: DatabaseServer, template: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with (
        server.database(template) as dsn,
        server.database() as far,
        running_deployment(dsn, tmp_path, tenant_databases={"far": far}) as running,
    ):
        yield running
        assert await verify_all(running.engine.tenant_databases) == []


async def count(deployment: Deployment, tenant: str, table: str) -> Any:
    async with deployment.engine.database(tenant).transaction() as tx:
        return await tx.fetchval(f"select count(*) from millpond.{table} where tenant = $1", tenant)


async def test_efx_02_users_of_a_tenant_apart_see_no_difference(apart: Deployment) -> None:
    slug = await apart.workflow()
    user, near, worker = await apart.user(tenant="far"), await apart.user(), await apart.worker(slug)
    job = await user.order(slug)
    again = await user.ask(slug, {"id": job["video_id"]}, idempotency_key="k")
    assert again.status_code == 202
    same = await user.ask(slug, {"id": job["video_id"]}, idempotency_key="k")
    assert (same.status_code, same.json()["id"]) == (200, again.json()["id"])
    await near.order(slug)
    taken = await worker.take()
    assert (taken["job_id"], taken["tenant_id"]) == (job["id"], "far")
    assert taken["output_path"].startswith("tenants/far/ai-jobs/")
    await worker.complete(taken, picture("white"))
    video = await user.get(f"/api/videos/{job['video_id']}")
    assert video["ai_job_id"] == again.json()["id"]
    response = await user.get(f"/api/ai-jobs/{job['id']}")
    assert (await apart.http.get(response["output_url"])).content == picture("white")
    await worker.post("/api/worker/fail", lease(await worker.take()) | {"error": "x"})
    assert (await user.get(f"/api/videos/{job['video_id']}"))["error"] == "x"
    assert await user.balance() == 95
    assert [await count(apart, "far", table) for table in ("effects_videos", "effects_users", "artifacts")] == [1, 1, 2]
    async with apart.engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.effects_videos where tenant = 'far'") == 0
    page = await apart.admin.get("/api/admin/dispatches?tenant_id=far")
    assert {each["tenant_job_id"] for each in page["data"]} == {job["id"], again.json()["id"]}
    both = await apart.admin.get("/api/admin/ai-jobs?limit=200")
    assert {each["tenant_id"] for each in both["data"]} == {"far", "acme"}


async def test_efx_07_a_dispatch_that_is_missing_is_made_again_and_only_once(apart: Deployment) -> None:
    slug = await apart.workflow()
    user, worker = await apart.user(tenant="far"), await apart.worker(slug)
    job = await user.order(slug)
    async with apart.engine.db.transaction() as tx:  # as if the process had died between the two commits
        await tx.execute("delete from millpond.ready")
        await tx.execute("delete from millpond.dispatches")
    assert (await worker.post("/api/worker/poll", {}))["job"] is None
    sweeper = ensurer(apart.engine, delay=timedelta(0))
    for _ in range(3):
        await sweeper.run_once()
    async with apart.engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.dispatches") == 1
    taken = await worker.take()
    assert taken["job_id"] == job["id"]
    await worker.complete(taken, picture("white"))
    await sweeper.run_once()
    assert (await worker.post("/api/worker/poll", {}))["job"] is None
    assert await user.balance() == 95
