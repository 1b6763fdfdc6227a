"""Streams: what is new about watched jobs. One statement for each database serves the watches of many tenants.

A watch names its job and tenant; one without a tenant may see all jobs. Each result is the index of a watch and a row.
The stream of a job has its events and, between them, the chunks of text that it emits.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.store.db import Database, Row
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.reads", "streams")

_Watch: TypeAlias = "tuple[UUID, str | None]"
_KnownWatch: TypeAlias = "tuple[UUID, str | None, int]"
_SeenWatch: TypeAlias = "tuple[UUID, str | None, Position, bool]"


class Position(NamedTuple):
    """A place in the stream of a job: the number of an event and, of a chunk after it, the number of the chunk."""

    seq: int
    number: int = 0

    def __str__(self) -> str:
        return f"{self.seq}.{self.number}" if self.number else str(self.seq)


async def changed(databases: TenantDatabases, watches: Sequence[_KnownWatch]) -> list[tuple[int, Row]]:
    """The jobs whose number of events is not the seen one; the columns of a job that does not exist are null.

    Jobs whose database cannot be reached are left out.
    """
    changes = await _gather(databases, SQL["look"], watches)
    # A watch without a tenant asks every database: its job does not exist only if it is in none of them.
    absent = Counter(n for n, row in changes if row["events"] is None)
    missing = {n for n, times in absent.items() if times == len(databases.holding(watches[n][1]))}
    return [(n, row) for n, row in changes if row["events"] is not None or n in missing]


async def ended(databases: TenantDatabases, watches: Sequence[_Watch]) -> list[tuple[int, Row]]:
    """The jobs that have ended, with their output. Jobs whose database cannot be reached are left out."""
    return await _gather(databases, SQL["ended"], watches)


async def after(databases: TenantDatabases, watches: Sequence[_SeenWatch], limit: int) -> list[tuple[int, Row]]:
    """The first events of each job after the seen position, and the chunks if the watch wants them, in order.

    A watch has its position, and whether it wants chunks.
    """
    columns = [(job_id, tenant, *seen, with_chunks) for job_id, tenant, seen, with_chunks in watches]
    return await _gather(databases, SQL["after"], columns, limit, is_whole=True)


async def _gather(
    databases: TenantDatabases,
    query: NamedQuery,
    watches: Sequence[tuple[Any, ...]],
    *arguments: int,
    is_whole: bool = False,
) -> list[tuple[int, Row]]:
    async def read(db: Database) -> list[tuple[int, Row]]:
        own = [n for n, (_, tenant, *_) in enumerate(watches) if databases.may_hold(db, tenant)]
        if not own:
            return []
        columns = map(list, zip(*(watches[n] for n in own), strict=True))
        return [(own[row["n"] - 1], row) for row in await db.run(query, *columns, *arguments)]

    return [found for page in await databases.each(read, is_whole=is_whole) for found in page]
