"""Counters are written where jobs move: what is counted over two databases is what there is in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.engine.engine import Engine
from millpond.engine.queue.leases import End
from millpond.services.counter import counter
from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from millpond.store.db import Database
from millpond.store.moving import move_out
from tests.clocks import Clock
from tests.engine.test_counters import counted, truth, unmerged
from tests.factories import ERROR, HOUR, MINUTE, STRANGER, TENANT, Factory, attempt
from tests.product import app
from tests.tenant_databases.conftest import opened

if TYPE_CHECKING:
    from tests.databases import DatabaseServer
    from tests.tenant_databases.conftest import SystemUnderTest


async def test_what_is_counted_over_two_databases_is_what_there_is_in_both(system: SystemUnderTest) -> None:
    await system.clear()
    make, engine = system.make, system.engine
    for tenant in (TENANT, STRANGER):
        await make.engine.give_back(attempt(await make.leased("priced", tenant=tenant)))
        (lease,) = await make.claimed("priced")
        await engine.finish(End(lease, "failed", error=ERROR))
        lease = await make.leased("restartable", tenant=tenant)
        await engine.finish(End(lease, "failed", error=ERROR))
        await make.credits(3, tenant=tenant)
        await engine.retry(tenant, lease.job_id)
        await engine.cancel(tenant, lease.job_id)
        await make.submitted("brief", tenant=tenant)
        await engine.park(await make.leased("filmed", tenant=tenant))
        await make.leased("staged", tenant=tenant)
    await make.clock.advance(2 * MINUTE)
    await reaper(engine).run_once()
    await make.clock.advance(2 * HOUR)
    await expirer(engine).run_once()
    await make.submitted("free")
    for _ in range(2):
        for tenant, db in ((TENANT, system.database), (STRANGER, engine.db)):
            assert await counted(engine, tenant) == await truth(db)
        both = {row[:3]: row[3:] for row in await truth(system.database)}
        for *key, n, held in await truth(engine.db):
            others, kept = both.get(tuple(key), (0, 0))
            both[tuple(key)] = n + others, held + kept
        assert {row[:3]: row[3:] for row in await counted(engine)} == both
        found = {(one.kind, one.code): one for one in (await engine.counters.failures("24h")).data}
        boom = found["priced", "boom"]
        assert (boom.count, boom.tenants, sum(boom.counts)) == (2, 2, 2)
        assert (found["brief", "expired"].count, found["filmed", "expired"].tenants) == (2, 2)
        flow = (await engine.counters.flows("24h")).total
        assert (flow.submitted, flow.canceled, flow.retried) == (11, 2, 6)
        await counter(engine).run_once()
        assert [await unmerged(db) for db in engine.databases()] == [0, 0]
    assert await engine.verify() == []


async def test_failures_of_a_tenant_that_moves_are_reported_where_it_lives(
    server: DatabaseServer, template: str
) -> None:
    async with server.database(template) as central, server.database(template) as database:
        db = await Database.open(central, size=4)
        make = Factory(Engine(db, app), Clock(db))
        for tenant in (TENANT, TENANT, STRANGER):
            await make.finish(await make.leased("priced", tenant=tenant), "failed")
        await counter(make.engine).run_once()
        await make.ended("priced", "failed")
        before = [await _failures(make.engine, tenant) for tenant in (None, TENANT, STRANGER)]
        await db.close()
        await move_out(central, TENANT, database)
        async with opened(central, database) as engine:
            for _ in range(2):
                assert [await _failures(engine, tenant) for tenant in (None, TENANT, STRANGER)] == before
                await counter(engine).run_once()
            assert before[0] == [("priced", "boom", 4, 2, 20)]


async def _failures(engine: Engine, tenant: str | None) -> list[tuple[object, ...]]:
    found = await engine.counters.failures("24h", tenant=tenant)
    return [(one.kind, one.code, sum(one.counts), one.tenants, one.released) for one in found.data]
