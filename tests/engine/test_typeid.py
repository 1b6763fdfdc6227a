"""An id is the same text whether Python or SQL writes it."""

from __future__ import annotations

from uuid import UUID

from penstock import ids
from penstock.store.db import Database

EDGES = [UUID(int=0), UUID(int=2**128 - 1), *(UUID(int=1 << bit) for bit in range(128))]


async def test_sql_writes_an_id_as_python_does(db: Database) -> None:
    given = [*EDGES, *(ids.new() for _ in range(50))]
    async with db.transaction() as tx:
        rows = await tx.fetch("select penstock.typeid('job', id) as text from unnest($1::uuid[]) as id", given)
    assert [row["text"] for row in rows] == [ids.text("job", each) for each in given]
