"""A provider's jobs of a tenant that lives in another database: the same, over two of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.clocks import Clock
from tests.factories import TENANT
from tests.providers.deployments import ALBUM, PRICE, Deployment, kind, make_app, running_deployment
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from millpond.storage.local import Local
    from tests.databases import DatabaseServer
    from tests.doubles.replicate import Replicate


async def test_jobs_of_a_tenant_that_lives_elsewhere_are_run_the_same_way(
    dsn: str, server: DatabaseServer, template: str, files: Local, double: Replicate
) -> None:
    app = make_app(kind(), kind("hasty", expires_in=timedelta(hours=1)), ALBUM)
    async with (
        server.database(template) as remote_dsn,
        running_deployment(dsn, files, double, app, tenant_databases={TENANT: remote_dsn}) as here,
    ):
        good, dropped, late = [
            await here.submit(),
            await here.submit(seconds=3600),
            await here.submit("hasty", seconds=3600),
        ]
        job = await here.ended(good)
        assert (job.state, job.captured) == ("succeeded", PRICE)
        assert len(await here.engine.artifacts.of_job(TENANT, good)) == 1
        album = await here.submit("album", callbacks=0)
        assert (await here.ended(album)).state == "succeeded"
        assert len(await here.engine.artifacts.of_job(TENANT, album)) == 3
        await here.until(dropped, lambda job: job.phase == "parked")
        await here.engine.cancel(TENANT, dropped)
        await here.until(late, lambda job: job.phase == "parked")
        for db in (here.engine.db, here.engine.database(TENANT)):
            await Clock(db).advance(timedelta(hours=1))
        assert (await here.ended(late)).state == "expired"
        async with asyncio.timeout(PATIENCE):
            while any(row["due_at"] for row in await rows(here, "predictions")):
                await asyncio.sleep(0.1)
        assert sorted(double.canceled) == sorted(
            made["id"] for made in double.predictions.values() if made["status"] == "canceled"
        )
        assert len(double.canceled) == 2
        assert [row["verdict"] for row in await rows(here, "callbacks")] == ["accepted"]
        assert await here.rows("predictions") == []  # in central there are none
        assert await here.balance() == (PRICE * 2, 0)


async def rows(here: Deployment, table: str) -> list[Any]:
    async with here.engine.database(TENANT).connection() as connection:
        return [dict(row) for row in await connection.fetch(f"select * from millpond.{table}")]
