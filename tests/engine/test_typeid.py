"""An id is the same text whether Python or SQL writes it, and those of SQL are in the order in which they were made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from millpond import ids
from millpond.store.db import Database

EDGES = [UUID(int=0), UUID(int=2**128 - 1), *(UUID(int=1 << bit) for bit in range(128))]


async def test_sql_writes_an_id_as_python_does(db: Database) -> None:
    given = [*EDGES, *(ids.new() for _ in range(50))]
    async with db.transaction() as tx:
        rows = await tx.fetch("select millpond.typeid('job', id) as text from unnest($1::uuid[]) as id", given)
    assert [row["text"] for row in rows] == [ids.text("job", each) for each in given]


async def test_ids_of_one_microsecond_are_in_the_order_in_which_they_were_made(db: Database) -> None:
    async with db.transaction() as tx:
        function = await tx.fetchval("select pg_get_functiondef('millpond.uuid7'::regproc)")
        await tx.execute(function.replace("clock_timestamp()", "timestamptz '2026-05-04 03:02:01.000007+00'"))
        rows = await tx.fetch("select millpond.uuid7() as id from generate_series(1, 5000)")
    made = [UUID(str(row["id"])) for row in rows]
    assert {each.int >> 64 for each in made} == {made[0].int >> 64}
    assert made == sorted(made)
    assert {(each.version, each.variant) for each in made} == {(7, RFC_4122)}


async def test_ids_of_several_sessions_are_in_the_order_in_which_they_were_made(db: Database) -> None:
    async with db.transaction() as one, db.transaction() as other:
        made = [await tx.fetchval("select millpond.uuid7()") for _ in range(100) for tx in (one, other)]
    assert made == sorted(made)


async def test_what_begins_at_a_time_begins_with_the_first_id_of_its_millisecond(db: Database) -> None:
    start = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    times = [start + timedelta(microseconds=n) for n in (0, 1, 499, 500, 501, 999)]
    made = "select millpond.first_id(at) as first, millpond.id_at(at, $2) as id from unnest($1::timestamptz[]) as at"
    async with db.transaction() as tx:
        rows = await tx.fetch(made, times, "8" + 15 * "0")
    assert [row["first"] for row in rows] == [ids.first(start)] * len(times)
    assert [row["id"] for row in rows] == sorted({row["id"] for row in rows})
    assert {ids.born(UUID(str(row["id"]))) for row in rows} == {start}
