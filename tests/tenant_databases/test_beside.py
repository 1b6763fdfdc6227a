"""An engine beside another knows the same databases, by connections of its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millpond.errors import OverdueError
from millpond.store.db import connect
from tests.factories import TENANT
from tests.tenant_databases.conftest import SystemUnderTest


async def test_a_tenant_that_lives_elsewhere_is_found_there(system: SystemUnderTest) -> None:
    await system.clear()
    beside = await system.engine.beside(pool_size=2, cut=timedelta(seconds=1))
    try:
        made = await beside.submit("free", {}, tenant=TENANT, account="ann")
        assert (await system.engine.read(TENANT, made.id)).kind == "free"
        assert (await beside.views.jobs(TENANT)).data[0].job_id == made.job_id
        assert beside.database(TENANT) is not system.database
        await beside.cancel(TENANT, made.id)
        for database in (*beside.databases(), beside.database(TENANT)):
            async with database.connection() as connection:
                assert await connection.fetchval("show statement_timeout") == "1s"
        blocker = await connect(system.database.dsn)
        try:
            async with blocker.transaction():
                await blocker.execute("lock table millpond.accounts in access exclusive mode")
                with pytest.raises(OverdueError):
                    await beside.balance(TENANT, "ann")
        finally:
            await blocker.close()
        assert await beside.balance(TENANT, "ann"), "that it was slow once does not mean that it is gone"
    finally:
        await beside.close()
    assert (await system.engine.read(TENANT, made.id)).outcome == "canceled"
