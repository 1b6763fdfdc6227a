"""Books: the numbered migrations of something that is not the core, a blueprint, each with a table of what was applied.

They stand in files as the core's do and are applied under the same lock, after it. All databases get all tables: which
of them a table is used in is said by its home.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from millpond.errors import MigrationError
from millpond.store import migrate as core
from millpond.store.db import connect

if TYPE_CHECKING:
    from millpond.store.db import Connection
    from millpond.store.migrate import Migration

_BOOK: Final = """
create table if not exists millpond.{book}_migrations (
    number integer primary key,
    name text not null,
    is_breaking boolean not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table millpond.{book}_migrations is 'home: both. What has been applied.';
"""
_WRITE: Final = "insert into millpond.{book}_migrations (number, name, is_breaking, checksum) values ($1, $2, $3, $4)"


def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations that a package has, in order."""
    return core.read(files(package).joinpath("migrations"))


async def migrate(dsn: str, book: str, package: str) -> tuple[int, ...]:
    """Apply what is missing; say which. Safe to run from many processes at once."""
    connection = await connect(dsn)
    try:
        await connection.execute(f"select pg_advisory_lock({core.LOCK})")
        return await _migrate(connection, book, package)
    finally:
        await connection.close()


async def _migrate(connection: Connection, book: str, package: str) -> tuple[int, ...]:
    await connection.execute(_BOOK.format(book=book))
    rows = await connection.fetch(f"select number, is_breaking from millpond.{book}_migrations")  # noqa: S608 - our own word
    applied = {int(row["number"]): bool(row["is_breaking"]) for row in rows}
    known = migrations(package)
    for number in applied.keys() - {migration.number for migration in known}:
        if applied[number]:
            raise MigrationError(
                f"The database has migration {number:04} of {book}, which this version cannot work with.",
                hint="Run the version of Millpond that migrated it, or a later one.",
            )
    pending = [migration for migration in known if migration.number not in applied]
    for migration in pending:
        await _apply(connection, book, migration)
    return tuple(migration.number for migration in pending)


async def _apply(connection: Connection, book: str, migration: Migration) -> None:
    checksum = hashlib.sha256(migration.text.encode()).hexdigest()
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '2s'")
        await connection.execute(migration.text)
        await connection.execute(
            _WRITE.format(book=book), migration.number, migration.name, migration.is_breaking, checksum
        )
