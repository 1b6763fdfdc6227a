"""Databases that test after test finds as if they were new.

To copy a database, to connect to it, and to have its server plan every statement again, takes longer than most tests
do. So a database is kept, with its connections, and its rows are put back. One whose schema was changed, whose
connections are not all at rest, which has grown, or of whose test something is still under way, is dropped instead.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asyncpg import InterfaceError, PostgresError

from millpond.store.db import Database, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

_GROWTH: Final = 2 * 1024**2
"""In bytes: what was deleted is still there for the server to walk over."""
_SIZE: Final = 4

# The clock is a function that tests replace, and is put back. Any other change of the schema leaves a trace in one of
# these; each row of a catalog knows the transaction that wrote it.
_SCHEMA: Final = """
with ours as (select oid from pg_namespace where nspname !~ '^(pg_|information_schema$)')
select array[
    (select format('%s %s', count(*), max(xmin::text::bigint)) from pg_class where relnamespace in (table ours)),
    (select format('%s %s', count(*), sum(hashtext(prosrc))) from pg_proc
        where pronamespace in (table ours) and proname <> 'clock'),
    (select format('%s %s', count(*), max(xmin::text::bigint)) from pg_trigger),
    (select format('%s %s', count(*), max(xmin::text::bigint)) from pg_constraint),
    (select format('%s %s', count(*), max(xmin::text::bigint)) from pg_policy),
    (select count(*)::text from ours)
]
"""
_BYTES: Final = """
select sum(pg_relation_size(oid)) from pg_class
where relnamespace = 'millpond'::regnamespace and relkind = 'r'
"""
_CLOCK: Final = "select pg_get_functiondef('millpond.clock'::regproc)"
_OTHERS: Final = """
select count(*) as all, count(*) filter (where state <> 'idle') as busy
from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
_TABLES: Final = """
select c.relname as name,
    (select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
     where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '') as columns
from pg_class c
where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
"""
# One that sessions take in stock cannot be put back: they would go on with what they have, and then begin below it.
_SEQUENCES: Final = """
select format('millpond.%I', relname) as name from pg_class join pg_sequence on seqrelid = pg_class.oid
where relnamespace = 'millpond'::regnamespace and seqcache = 1
"""


@dataclass(slots=True, eq=False)
class Kept:
    """A database with its connections, and one beside them that remembers how everything was."""

    name: str
    db: Database
    keeper: Any
    schema: list[str]
    clock: str
    bytes: int

    async def is_as_new(self) -> bool:
        """Put everything back, where that can be done."""
        if not await self._is_at_rest() or await self.keeper.fetchval(_BYTES) > self.bytes + _GROWTH:
            return False
        if await self.keeper.fetchval(_CLOCK) != self.clock:
            await self.keeper.execute(self.clock)
        await self.keeper.execute("select pg_temp.put_back()")
        return await self.keeper.fetchval(_SCHEMA) == self.schema

    async def _is_at_rest(self) -> bool:
        if self.db.pool.is_closing():
            return False
        pools = self.db.pools("")
        others = await self.keeper.fetchrow(_OTHERS)
        return (
            others["all"] == sum(pool.size for pool in pools) == sum(pool.idle for pool in pools) and not others["busy"]
        )

    async def close(self) -> None:
        await self.db.close()
        await self.keeper.close()


@dataclass(slots=True)
class Recycling:
    """Those of one run of tests."""

    server: DatabaseServer
    template: str
    _kept: list[Kept] = field(default_factory=list[Kept])

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        kept = self._kept.pop() if self._kept else await self._make()
        before = _tasks()
        try:
            yield kept.db
        finally:
            if before >= _tasks() and await _is_as_new(kept):
                self._kept.append(kept)
            else:
                await self._drop(kept)

    async def close(self) -> None:
        while self._kept:
            await self._drop(self._kept.pop())

    async def _make(self) -> Kept:
        name = await self.server.create(self.template)
        dsn = self.server.named(name)
        keeper = await connect(dsn)
        await keeper.execute(await _function(keeper))
        schema, clock, size = [await keeper.fetchval(query) for query in (_SCHEMA, _CLOCK, _BYTES)]
        return Kept(name, await Database.open(dsn, size=_SIZE), keeper, schema, clock, size)

    async def _drop(self, kept: Kept) -> None:
        await kept.close()
        await self.server.drop(kept.name)


def _tasks() -> set[asyncio.Task[Any]]:
    """Those under way, but for the ones in which AnyIO runs fixtures and tests."""
    return {task for task in asyncio.all_tasks() if not _name(task).startswith("TestRunner.")}


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "")


async def _is_as_new(kept: Kept) -> bool:
    try:
        return await kept.is_as_new()
    except (PostgresError, InterfaceError, OSError):  # a test may have cut everybody off
        return False


async def _function(keeper: Any) -> str:
    """One that puts everything back, with its statements planned once; what was there lies in temporary tables."""
    steps: list[str] = []
    for name, columns in await keeper.fetch(_TABLES):
        table, kept = f'millpond."{name}"', f'pg_temp."{name}"'
        wipe = f"delete from {table};"
        if await keeper.fetchval(f"select exists (select from {table})"):
            await keeper.execute(f"create table {kept} as table {table}")
            refill = f"insert into {table} ({columns}) overriding system value select {columns} from {kept};"
            wipe = f"if ({_rows(table)}) is distinct from ({_rows(kept)}) then {wipe} {refill} end if;"
        steps.append(wipe)
    for (name,) in await keeper.fetch(_SEQUENCES):
        last, is_called = await keeper.fetchrow(f"select last_value, is_called from {name}")
        steps.append(f"perform setval('{name}', {last}, {str(is_called).lower()});")
    body = "\n".join(steps)
    return (
        "create function pg_temp.put_back() returns void language plpgsql set session_replication_role = replica"
        f" as $put_back$ begin\n{body}\nend $put_back$"
    )


def _rows(table: str) -> str:
    return f"select string_agg(t::text, ';' order by t::text) from {table} t"
