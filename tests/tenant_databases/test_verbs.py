"""Every verb, for a tenant in another database: the same rows as in one, each in its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond.engine.engine import Engine
from millpond.outbound import Outbound
from millpond.store.db import Database
from tests.checks import Snapshot, until
from tests.clocks import Clock
from tests.factories import Factory
from tests.faults.dumps import story, wipe
from tests.faults.verbs import VERBS, Verb
from tests.post import LOOPBACK, VAULT
from tests.product import app
from tests.tenant_databases.conftest import CENTRAL, TENANTS, SystemUnderTest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

REMOTE_FLAG = re.compile(r",[tf](,[^,]*)?\)$")
"""Whether a dispatch, before its limits, or a lease is of another database."""


@pytest.fixture(scope="module")
async def alone(server: DatabaseServer, template: str) -> AsyncIterator[Factory]:
    """The same product on one database."""
    async with server.database(template) as dsn:
        db = await Database.open(dsn, size=4)
        yield Factory(Engine(db, app, vault=VAULT, outbound=Outbound(LOOPBACK)), Clock(db))
        await db.close()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_a_verb_writes_to_two_databases_what_it_writes_to_one(
    system: SystemUnderTest, alone: Factory, verb: Verb
) -> None:
    await wipe(alone.engine.db)
    await alone.clock.advance(-alone.clock.offset)
    answered = await verb.act(alone.engine, await verb.arrange(alone))
    await system.clear()
    answered_remotely = await verb.act(system.engine, await verb.arrange(system.make))
    assert type(answered_remotely) is type(answered)
    await until(lambda: owes_nothing(system))
    assert await system.engine.verify() == []
    one = await story(alone.engine.db, in_order=verb.is_atomic)
    database = await story(system.database, in_order=verb.is_atomic)
    queue = await story(
        system.engine.db, in_order=False
    )  # which knows fewer jobs by name, and so numbers them otherwise
    for table in TENANTS:
        assert database.get(table, []) == one.get(table, []), table
        assert queue.get(table, []) == [], f"{table} of a tenant in central"
    one = await story(alone.engine.db, in_order=False)
    for table in CENTRAL:
        assert remote(queue, table) == remote(one, table), table
        assert database.get(table, []) == [], f"{table} of central in a tenant's home"


def remote(expected: Snapshot, table: str) -> list[str]:
    return [REMOTE_FLAG.sub(r"\1)", row) for row in expected.get(table, [])]


async def owes_nothing(system: SystemUnderTest) -> bool:
    async with system.database.transaction() as tx:
        return await tx.fetchval("select count(*) = 0 from millpond.owed")
