"""Makes the n-th statement of a verb fail, inside the database.

A trigger before every writing statement on every table counts by a sequence, which no rollback sets back, and
raises when the count is there. A deferred trigger counts once more while the transaction commits, so the last
failure of a verb is that of its COMMIT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millpond.store.db import Database

DATA_CORRUPTED: Final = "XX001"
SERIALIZATION_FAILURE: Final = "40001"
SHUTDOWN: Final = "57P01"

_NEVER: Final = 0
_INSTALL: Final = """
create schema faults;
create sequence faults.count;
create table faults.plan (first bigint not null, last bigint not null, code text not null);
insert into faults.plan values (0, 0, 'XX001');

create function faults.count_one() returns void language plpgsql as $$
declare
    plan faults.plan;
    number bigint := nextval('faults.count');  -- once: BETWEEN would take it twice
begin
    select * into plan from faults.plan;
    if number between plan.first and plan.last then
        raise exception 'a fault' using errcode = plan.code;
    end if;
end $$;

create function faults.strike() returns trigger language plpgsql as $$
begin
    perform faults.count_one();
    return null;
end $$;

create function faults.strike_at_commit() returns trigger language plpgsql as $$
begin
    if current_setting('faults.committing', true) is distinct from pg_current_xact_id()::text then
        perform set_config('faults.committing', pg_current_xact_id()::text, true);
        perform faults.count_one();
    end if;
    return null;
end $$;

do $$
declare
    name text;
begin
    for name in
        select c.relname from pg_class c
        where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    loop
        execute format(
            'create trigger strike before insert or update or delete on millpond.%I'
            ' for each statement execute function faults.strike()', name);
        execute format(
            'create constraint trigger strike_at_commit after insert or update or delete on millpond.%I'
            ' deferrable initially deferred for each row execute function faults.strike_at_commit()', name);
    end loop;
end $$;
"""


class StatementFaults:
    """Faults to come, counted from the moment they are planned."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def install(self) -> None:
        async with self._db.transaction() as tx:
            await tx.execute(_INSTALL)

    async def plan(self, number: int, code: str, *, lasting: bool = False) -> None:
        """Let the n-th statement from now on fail, or every one from the n-th on."""
        async with self._db.transaction() as tx:
            await tx.execute("alter sequence faults.count restart")
            await tx.execute(
                "update faults.plan set first = $1, last = $2, code = $3", number, 2**60 if lasting else number, code
            )

    async def stop(self) -> int:
        """No more faults; tells how many statements there were."""
        async with self._db.transaction() as tx:
            await tx.execute("update faults.plan set first = $1, last = $1", _NEVER)
            return await tx.fetchval("select case when is_called then last_value else 0 end from faults.count")
