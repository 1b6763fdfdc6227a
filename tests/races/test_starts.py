"""Many processes that start at once: each migrates and registers, and none stands in another's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.lifecycle import lifecycle
from millpond.store.db import Database, fetch
from tests.factories import OWNER
from tests.lifecycles import LIFECYCLES
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.factories import Factory

WAITING = """
select l.virtualtransaction from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
where l.locktype = 'advisory' and not l.granted
"""


async def test_engines_may_be_opened_together_on_an_empty_database(empty_dsn: str) -> None:
    engines = await asyncio.gather(*(Engine.open(empty_dsn, app, lifecycles=LIFECYCLES, pool_size=2) for _ in range(6)))
    found = await asyncio.gather(*(engine.submit("free", **OWNER) for engine in engines))
    assert len({answer.job_id for answer in found}) == 6
    for engine in engines:
        await engine.close()


async def test_registers_of_different_lifecycles_all_count(db: Database, dsn: str) -> None:
    """Each replaces the guard; the last one must not forget what the others have drawn."""
    made = [
        lifecycle(f"own_{n}", f"* -> new submitted\n new -> done_{n} succeeded expired failed", ends=f"done_{n}=failed")
        for n in range(8)
    ]
    databases = [await Database.open(dsn, size=1) for _ in made]
    await asyncio.gather(*(registry.register(one, (), [drawn]) for one, drawn in zip(databases, made, strict=True)))
    async with db.transaction() as tx:
        guard = await tx.fetchval("select prosrc from pg_proc where oid = 'millpond.guard_transition'::regproc")
    for number in range(8):
        assert f"done_{number}" in guard
    for one in databases:
        await one.close()


async def test_a_register_disturbs_no_one_at_work(make: Factory, dsn: str) -> None:
    """The guard is replaced while jobs move: no move is denied or forgotten for it."""
    other = await Database.open(dsn, size=1)

    async def register() -> None:
        for n in range(10):
            made = lifecycle("own", f"* -> new submitted\n new -> done_{n} expired failed", ends=f"done_{n}=failed")
            await registry.register(other, (), [made, *LIFECYCLES])

    async def work() -> None:
        for _ in range(30):
            await make.finish(await make.leased("restartable"), "failed")

    await asyncio.gather(register(), work())
    await other.close()


async def test_a_register_waits_for_another_longer_than_a_statement_does(db: Database, dsn: str) -> None:
    """A process that starts among many must not end because its turn comes late."""
    other = await Database.open(dsn, size=1)
    async with db.transaction() as tx:
        await fetch(tx, registry.SQL["lock"])
        registering = asyncio.create_task(registry.register(other, app.kinds.values()))
        waits = set[str]()
        async with asyncio.timeout(PATIENCE):
            while len(waits) < 2:
                waits.update(row["virtualtransaction"] for row in await tx.fetch(WAITING))
                await asyncio.sleep(0.05)
    await registering
    await other.close()
