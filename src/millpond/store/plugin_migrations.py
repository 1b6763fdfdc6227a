"""Plugin migrations: the numbered migrations of a product, with a table of those that were applied.

They are files like those of the core, and are applied after these, under the same lock. All databases get all tables;
the comment of a table states in which it is used.
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

_TABLE: Final = """
create table if not exists millpond.{plugin}_migrations (
    number integer primary key,
    name text not null,
    is_breaking boolean not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table millpond.{plugin}_migrations is 'database: both. The applied migrations.';
"""
_WRITE: Final = "insert into millpond.{plugin}_migrations (number, name, is_breaking, checksum) values ($1, $2, $3, $4)"


def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of a package, in order."""
    return core.read(files(package).joinpath("migrations"))


async def migrate(dsn: str, plugin: str, package: str) -> tuple[int, ...]:
    """Apply the pending migrations, and return their numbers. Safe to run from many processes at once."""
    connection = await connect(dsn)
    try:
        await connection.execute(f"select pg_advisory_lock({core.LOCK})")
        return await _migrate(connection, plugin, package)
    finally:
        await connection.close()


async def _migrate(connection: Connection, plugin: str, package: str) -> tuple[int, ...]:
    await connection.execute(_TABLE.format(plugin=plugin))
    rows = await connection.fetch(f"select number, is_breaking from millpond.{plugin}_migrations")  # noqa: S608 - not user input
    applied = {int(row["number"]): bool(row["is_breaking"]) for row in rows}
    known = migrations(package)
    for number in applied.keys() - {migration.number for migration in known}:
        if applied[number]:
            raise MigrationError(
                f"The database has migration {number:04} of {plugin}, which is incompatible with this version.",
                hint="Run the version of Millpond that migrated it, or a later one.",
            )
    pending = [migration for migration in known if migration.number not in applied]
    for migration in pending:
        await _apply(connection, plugin, migration)
    return tuple(migration.number for migration in pending)


async def _apply(connection: Connection, plugin: str, migration: Migration) -> None:
    checksum = hashlib.sha256(migration.text.encode()).hexdigest()
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '2s'")
        await connection.execute(migration.text)
        await connection.execute(
            _WRITE.format(plugin=plugin), migration.number, migration.name, migration.is_breaking, checksum
        )
