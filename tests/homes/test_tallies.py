"""Tallies are written where jobs move: what is counted over two databases is what there is in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.engine.engine import Engine
from millpond.engine.leases import End
from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from millpond.services.tallier import tallier
from millpond.store.db import Database
from millpond.store.moving import move_out
from tests.clocks import Clock
from tests.engine.test_tallies import counted, truth, unfolded
from tests.factories import ERROR, HOUR, MINUTE, STRANGER, TENANT, Factory, attempt
from tests.homes.conftest import opened
from tests.product import app

if TYPE_CHECKING:
    from tests.databases import Server
    from tests.homes.conftest import Town


async def test_what_is_counted_over_two_databases_is_what_there_is_in_both(town: Town) -> None:
    await town.clear()
    make, engine = town.make, town.engine
    for tenant in (TENANT, STRANGER):
        await make.engine.give_back(attempt(await make.leased("priced", tenant=tenant)))
        (lease,) = await make.claimed("priced")
        await engine.finish(End(lease, "failed", error=ERROR))
        lease = await make.leased("studio", tenant=tenant)
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
        for tenant, db in ((TENANT, town.home), (STRANGER, engine.db)):
            assert await counted(engine, tenant) == await truth(db)
        both = {row[:3]: row[3:] for row in await truth(town.home)}
        for *key, n, held in await truth(engine.db):
            others, kept = both.get(tuple(key), (0, 0))
            both[tuple(key)] = n + others, held + kept
        assert {row[:3]: row[3:] for row in await counted(engine)} == both
        found = {(one.kind, one.code): one for one in (await engine.tallies.failures("24h")).data}
        boom = found["priced", "boom"]
        assert (boom.count, boom.tenants, sum(boom.counts)) == (2, 2, 2)
        assert (found["brief", "expired"].count, found["filmed", "expired"].tenants) == (2, 2)
        flow = (await engine.tallies.flows("24h")).total
        assert (flow.submitted, flow.canceled, flow.retried) == (11, 2, 6)
        await tallier(engine).run_once()
        assert [await unfolded(db) for db in engine.all_homes()] == [0, 0]
    assert await engine.verify() == []


async def test_failures_of_a_tenant_that_moves_are_told_where_it_lives(server: Server, template: str) -> None:
    async with server.database(template) as central, server.database(template) as home:
        db = await Database.open(central, size=4)
        make = Factory(Engine(db, app), Clock(db))
        for tenant in (TENANT, TENANT, STRANGER):
            await make.finish(await make.leased("priced", tenant=tenant), "failed")
        await tallier(make.engine).run_once()
        await make.ended("priced", "failed")
        before = [await _failures(make.engine, tenant) for tenant in (None, TENANT, STRANGER)]
        await db.close()
        await move_out(central, TENANT, home)
        async with opened(central, home) as engine:
            for _ in range(2):
                assert [await _failures(engine, tenant) for tenant in (None, TENANT, STRANGER)] == before
                await tallier(engine).run_once()
            assert before[0] == [("priced", "boom", 4, 2, 20)]


async def _failures(engine: Engine, tenant: str | None) -> list[tuple[object, ...]]:
    found = await engine.tallies.failures("24h", tenant=tenant)
    return [(one.kind, one.code, sum(one.counts), one.tenants, one.released) for one in found.data]
