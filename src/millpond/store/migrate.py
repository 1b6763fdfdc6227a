"""Brings the schema up to date: numbered migrations, forward only, under one lock; then the functions.

Functions are not migrated, but re-applied from their ``.sql`` files whenever they have changed. So the diff of such a
file shows what has changed in a function.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from asyncpg import exceptions as pg

from millpond.errors import MigrationError
from millpond.store import queries
from millpond.store.db import connect, translated

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from asyncpg import Connection, Record

SERVER_VERSION_MIN: Final = 150_000
WEEKS_AHEAD: Final = 5
LOCK: Final = 0x70656E73  # "pens"

_LOCK_TRIES: Final = 30
_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_BREAKING: Final = re.compile(r"^-- breaking: (yes|no)$", re.MULTILINE)
_TABLE: Final = """
create schema if not exists millpond;
create table if not exists millpond.migrations (
    number integer primary key,
    name text not null,
    is_breaking boolean not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table millpond.migrations is 'database: both. The applied migrations; number 0 stands for the functions.';
"""
_DROP_FUNCTIONS: Final = """
do $$
declare
    old regprocedure;
begin
    for old in
        select p.oid from pg_proc p
        where p.pronamespace = 'millpond'::regnamespace and p.prorettype <> 'trigger'::regtype
    loop
        execute format('drop routine %s', old);
    end loop;
end $$;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered change of the schema, read from its file."""

    number: int
    name: str
    text: str

    @property
    def is_breaking(self) -> bool:
        found = _BREAKING.search(self.text)
        if found is None:
            raise MigrationError(f"Migration {self.number:04} does not state whether it is breaking.")
        return found[1] == "yes"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The migrations of a database, compared with those of this version."""

    applied: tuple[int, ...]
    pending: tuple[int, ...]
    unknown: tuple[int, ...]
    functions_current: bool
    is_read_only: bool = False
    """Whether the server accepts no writes."""

    @property
    def is_current(self) -> bool:
        return not self.pending and self.functions_current


def migrations() -> tuple[Migration, ...]:
    """The migrations of this version, in order."""
    return read(files("millpond.store").joinpath("migrations"))


def read(folder: Traversable) -> tuple[Migration, ...]:
    """The migrations of a folder, in order."""
    found: list[Migration] = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        name = _FILE.fullmatch(file.name)
        if name:
            found.append(Migration(int(name[1]), name[2], file.read_text("utf-8")))
    return tuple(found)


async def migrate(dsn: str) -> tuple[int, ...]:
    """Apply the pending migrations, and return their numbers. Safe to run from many processes at once."""
    connection = await connect(dsn)
    try:
        with translated():
            await connection.execute(f"select pg_advisory_lock({LOCK})")
            return await _migrate(connection)
    finally:
        await connection.close()


async def status(dsn: str) -> SchemaStatus:
    connection = await connect(dsn)
    try:
        with translated():
            return await _status(connection)
    finally:
        await connection.close()


async def _migrate(connection: Connection[Record]) -> tuple[int, ...]:
    await _check_server(connection)
    await connection.execute(_TABLE)
    before = await _status(connection)
    await _check_future(connection, before)
    if before.is_current or (before.unknown and not before.pending):  # a later version's functions are kept
        return ()
    if not before.functions_current:
        await _apply_functions(connection, "guards")
    for migration in migrations():
        if migration.number in before.pending:
            await _apply(connection, migration)
    await _replace_functions(connection)
    await connection.execute(f"select millpond.ensure_partitions({WEEKS_AHEAD})")
    return before.pending


async def _status(connection: Connection[Record]) -> SchemaStatus:
    exists = await connection.fetchval("select to_regclass('millpond.migrations') is not null")
    rows = await connection.fetch("select number, checksum from millpond.migrations") if exists else []
    applied = {int(row["number"]): str(row["checksum"]) for row in rows}
    known = {migration.number for migration in migrations()}
    read_only = await connection.fetchval("select current_setting('transaction_read_only')::boolean")
    return SchemaStatus(
        applied=tuple(sorted(applied.keys() & known)),
        pending=tuple(sorted(known - applied.keys())),
        unknown=tuple(sorted(applied.keys() - known - {0})),
        functions_current=applied.get(0) == _functions_checksum(),
        is_read_only=bool(read_only),
    )


async def _apply(connection: Connection[Record], migration: Migration) -> None:
    """Apply one migration in one transaction, which waits at most two seconds for a lock."""
    for left in reversed(range(_LOCK_TRIES)):
        try:
            async with connection.transaction():
                await connection.execute("set local lock_timeout = '2s'")
                await connection.execute(migration.text)
                await _record(
                    connection,
                    migration.number,
                    migration.name,
                    migration.checksum,
                    is_breaking=migration.is_breaking,
                )
            return
        except pg.LockNotAvailableError as error:
            if not left:
                raise MigrationError(f"Migration {migration.number:04} could not acquire its locks.") from error
            await asyncio.sleep(1)


async def _replace_functions(connection: Connection[Record]) -> None:
    async with connection.transaction():
        await connection.execute(_DROP_FUNCTIONS)
        await _apply_functions(connection, *(noun for _, noun in queries.SOURCES))
        await connection.execute("select millpond.compile_guard()")
        # For statements of the older version that still run.
        await connection.execute("select millpond.order_recount(interval '1 minute')")
        await _record(connection, 0, "functions", _functions_checksum())


async def _apply_functions(connection: Connection[Record], *nouns: str) -> None:
    for package, noun in queries.SOURCES:
        if noun in nouns:
            for definition in queries.functions(package, noun).values():
                await connection.execute(definition)


async def _record(
    connection: Connection[Record], number: int, name: str, checksum: str, *, is_breaking: bool = False
) -> None:
    await connection.execute(
        "insert into millpond.migrations (number, name, is_breaking, checksum) values ($1, $2, $3, $4)"
        " on conflict (number) do update set checksum = excluded.checksum, applied_at = clock_timestamp()",
        number,
        name,
        is_breaking,
        checksum,
    )


async def _check_server(connection: Connection[Record]) -> None:
    version = int(await connection.fetchval("show server_version_num"))
    if version < SERVER_VERSION_MIN:
        raise MigrationError(
            f"The server is PostgreSQL {version // 10_000}.", hint="Millpond requires PostgreSQL 15 or later."
        )


async def _check_future(connection: Connection[Record], found: SchemaStatus) -> None:
    """Old code must not touch a schema that a newer version has changed in a breaking way."""
    breaking = await connection.fetchval(
        "select max(number) from millpond.migrations where is_breaking and number = any($1::int[])",
        list(found.unknown),
    )
    if breaking is not None:
        raise MigrationError(
            f"The database has migration {breaking:04}, which is incompatible with this version.",
            hint="Run the version of Millpond that migrated it, or a later one.",
        )


def _functions_checksum() -> str:
    text = "".join(
        definition for package, noun in queries.SOURCES for definition in queries.functions(package, noun).values()
    )
    return hashlib.sha256(text.encode()).hexdigest()
