"""Partitions: history by week, created in advance and dropped by age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from millpond.store import partitions
from tests.checks import unchanged
from tests.factories import OWNER, TENANT

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

WEEK = timedelta(weeks=1)


async def parts(db: Database, table: str) -> list[str]:
    async with db.transaction() as tx:
        found = await tx.fetch(
            "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
            " where i.inhparent = ('millpond.' || $1)::regclass and c.relname ~ '\\d{8}$' order by 1",
            table,
        )
    return [row[0] for row in found]


def born_at(instant: datetime) -> UUID:
    """An id as it would be made then."""
    return UUID(int=(int(instant.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | 1)


async def test_this_week_and_the_coming_ones_are_there(db: Database, make: Factory) -> None:
    jobs, events = await parts(db, "jobs"), await parts(db, "events")
    assert len(jobs) == len(events) == 5
    await make.submitted()
    assert not await partitions.has_strays(db)


async def test_weeks_are_made_ahead_as_time_goes_on(db: Database, make: Factory) -> None:
    assert await partitions.ensure(db, 5) == 0
    await make.clock.advance(2 * WEEK)
    assert await partitions.ensure(db, 5) == 4
    assert await partitions.ensure(db, 5) == 0


async def test_a_job_outside_the_weeks_is_not_lost(db: Database, engine: Engine, make: Factory) -> None:
    submitted = await engine.submit("free", **OWNER, job_id=born_at(datetime.now(UTC) + 40 * WEEK))
    assert await partitions.has_strays(db)
    assert (await make.read(submitted.job_id)).state == "queued"


async def test_old_weeks_go_with_their_keys_and_young_ones_stay(db: Database, engine: Engine, make: Factory) -> None:
    await engine.submit("free", **OWNER, idempotency_key="k")
    await make.serve("free")
    assert await partitions.drop(db, 3 * WEEK) == []
    await make.clock.advance(5 * WEEK)
    dropped = await partitions.drop(db, 3 * WEEK)
    assert len(dropped) >= 1
    assert [name.rpartition("_")[0] for name in dropped] == ["millpond.jobs"] * len(dropped)
    assert len(await parts(db, "events")) == len(await parts(db, "jobs")) == 5 - len(dropped)
    assert await engine.list_jobs(TENANT, OWNER["account"]) == []
    assert not (
        await engine.submit("free", **OWNER, idempotency_key="k", job_id=born_at(await make.clock.now()))
    ).is_replay


async def test_a_week_with_a_living_job_is_kept(db: Database, make: Factory) -> None:
    submitted = await make.submitted()
    await make.clock.advance(5 * WEEK)
    dropped = await partitions.drop(db, 3 * WEEK)
    assert (await make.read(submitted.job_id)).state == "queued"
    async with unchanged(db):
        assert await partitions.drop(db, 3 * WEEK) == []
    assert len(dropped) <= 1


@pytest.mark.unsound
async def test_the_ledger_outlives_the_jobs(db: Database, engine: Engine, make: Factory) -> None:
    await make.finish(await make.leased("priced"))
    await make.clock.advance(9 * WEEK)
    await partitions.drop(db, WEEK)
    assert [entry.type for entry in await engine.entries(TENANT, OWNER["account"])] == ["capture", "hold", "grant"]
    assert (await engine.balance(TENANT, OWNER["account"])).available == 0
