"""Migrations: numbered, forward only, under one lock; and the functions beside them."""

from __future__ import annotations

import asyncio
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from millpond.errors import MigrationError
from millpond.store import migrate as migrating
from millpond.store import queries
from millpond.store.db import connect
from millpond.store.migrate import Migration, migrate, migrations, status
from tests.migrations.schema import describe, functions
from tests.tidy.sources import QUERIES, called

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SCHEMA = Path(__file__).with_name("schema.sql")
FUNCTIONS = Path(__file__).with_name("functions.txt")

Ask: TypeAlias = "Callable[..., Awaitable[Any]]"


@pytest.fixture
def ask(empty_dsn: str) -> Ask:
    """One value from the test's database."""

    async def value(statement: str, *arguments: Any) -> Any:
        connection = await connect(empty_dsn)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    return value


def known(monkeypatch: pytest.MonkeyPatch, *more: Migration) -> None:
    """Let this version know of further migrations."""
    monkeypatch.setattr(migrating, "migrations", lambda: (*migrations(), *more))


# Files


def test_every_file_is_named_by_number_and_purpose_without_a_gap() -> None:
    names = sorted(
        file.name for file in files("millpond.store").joinpath("migrations").iterdir() if "__" not in file.name
    )
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert [migration.number for migration in migrations()] == list(range(1, len(names) + 1))


@pytest.mark.parametrize("migration", migrations(), ids=lambda migration: f"{migration.number:04}_{migration.name}")
def test_every_file_says_why_what_it_locks_and_whether_it_breaks(migration: Migration) -> None:
    why, locks, breaking, *_ = migration.text.splitlines()
    assert why.startswith("-- Why: ")
    assert locks.startswith("-- Locks: ")
    assert re.fullmatch(r"-- breaking: (yes|no)", breaking)
    assert isinstance(migration.is_breaking, bool)


def test_a_file_that_does_not_say_whether_it_breaks_is_a_mistake() -> None:
    with pytest.raises(MigrationError, match="0007 does not state whether it is breaking"):
        _ = Migration(7, "odd", "select 1").is_breaking


def test_migrations_hold_no_functions_that_live_in_a_nouns_file() -> None:
    owned = {name for package, noun in queries.SOURCES for name in queries.functions(package, noun)}
    for migration in migrations():
        created = set(re.findall(r"create (?:or replace )?function millpond\.(\w+)", migration.text))
        assert not created & owned


# Schema


async def test_the_schema_is_the_one_in_the_snapshot(empty_dsn: str) -> None:
    """A change of the schema is seen in review; `make schema` rewrites the file."""
    await migrate(empty_dsn)
    connection = await connect(empty_dsn)
    try:
        found = await describe(connection)
    finally:
        await connection.close()
    if os.environ.get("UPDATE_SCHEMA"):
        SCHEMA.write_text(found)
    assert found == SCHEMA.read_text()


async def test_functions_can_be_called_as_the_version_before_calls_them(empty_dsn: str) -> None:
    """While a fleet is upgraded, processes of two versions call them. `make schema` rewrites the list: who takes a
    line away from it says that the version before must be stopped first. More arguments come last, with defaults.
    """
    await migrate(empty_dsn)
    connection = await connect(empty_dsn)
    try:
        found = await functions(connection)
    finally:
        await connection.close()
    queried = {name for query in QUERIES for name in called(query.code)}
    present = [f"{name}({', '.join(types)})" for name, types, _ in found if name in queried]
    if os.environ.get("UPDATE_SCHEMA"):
        FUNCTIONS.write_text("".join(f"{line}\n" for line in present))
    listed = FUNCTIONS.read_text().splitlines()
    good = {
        f"{name}({', '.join(types[: len(types) - left])})" for name, types, spare in found for left in range(spare + 1)
    }
    assert [line for line in listed if line not in good] == []
    assert {line.split("(")[0] for line in present} <= {line.split("(")[0] for line in listed}


async def test_every_table_says_what_it_is_for(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    silent = await ask(
        "select array_agg(c.relname order by 1) from pg_class c where c.relnamespace = 'millpond'::regnamespace"
        " and c.relkind in ('r', 'p') and c.relname !~ '_\\d{8}$' and obj_description(c.oid) is null"
    )
    assert silent is None


# Running them


async def test_a_new_database_is_brought_up_to_date(empty_dsn: str) -> None:
    before = await status(empty_dsn)
    assert (before.applied, before.is_current) == ((), False)
    assert await migrate(empty_dsn) == before.pending
    after = await status(empty_dsn)
    assert (after.applied, after.pending, after.unknown) == (before.pending, (), ())
    assert after.is_current


async def test_to_migrate_again_does_nothing(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    snapshot = "select string_agg(m::text, ',' order by number) from millpond.migrations m"
    before = await ask(snapshot)
    assert await migrate(empty_dsn) == ()
    assert await ask(snapshot) == before


async def test_many_processes_may_migrate_at_once(empty_dsn: str) -> None:
    """One of them does it; the others wait and find it done."""
    done = await asyncio.gather(*(migrate(empty_dsn) for _ in range(8)))
    assert sorted(map(len, done)) == [0] * 7 + [len(migrations())]
    assert (await status(empty_dsn)).is_current


async def test_only_what_is_missing_is_applied(empty_dsn: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate(empty_dsn)
    known(monkeypatch, Migration(9001, "more", "-- breaking: no\ncreate table millpond.more ();"))
    assert await migrate(empty_dsn) == (9001,)
    assert await ask("select to_regclass('millpond.more') is not null")


async def test_a_migration_that_fails_leaves_nothing_behind(
    empty_dsn: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_dsn)
    known(monkeypatch, Migration(9001, "bad", "-- breaking: no\ncreate table millpond.more (); select 1 / 0;"))
    with pytest.raises(Exception, match="division by zero"):
        await migrate(empty_dsn)
    assert not await ask("select to_regclass('millpond.more') is not null")
    assert (await status(empty_dsn)).pending == (9001,)


async def test_a_breaking_migration_of_a_newer_version_stops_this_one(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    await ask("insert into millpond.migrations values (9001, 'later', true, '')")
    with pytest.raises(MigrationError, match="has migration 9001") as caught:
        await migrate(empty_dsn)
    assert "a later one" in str(caught.value)
    assert (await status(empty_dsn)).unknown == (9001,)


async def test_a_harmless_migration_of_a_newer_version_is_no_hindrance(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    await ask("insert into millpond.migrations values (9001, 'later', false, '')")
    assert await migrate(empty_dsn) == ()


async def test_functions_of_a_newer_version_are_left_alone(empty_dsn: str, ask: Ask) -> None:
    """During a deployment an old process may start late: it must not take the new ones' functions away."""
    await migrate(empty_dsn)
    await ask("insert into millpond.migrations values (9001, 'later', false, '')")
    await ask("update millpond.migrations set checksum = 'of the newer version' where number = 0")
    await ask("create function millpond.of_the_newer_version() returns int language sql as 'select 1'")
    assert await migrate(empty_dsn) == ()
    assert await ask("select millpond.of_the_newer_version()") == 1


async def test_changed_functions_are_applied_again(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    await ask(
        "create or replace function millpond.clock() returns timestamptz language sql as 'select null::timestamptz'"
    )
    await ask("create function millpond.of_an_older_version() returns int language sql as 'select 1'")
    await ask("update millpond.migrations set checksum = 'of an older version' where number = 0")
    assert not (await status(empty_dsn)).is_current
    assert await migrate(empty_dsn) == ()
    assert await ask("select millpond.clock() is not null")
    assert await ask("select to_regproc('millpond.of_an_older_version') is null")


async def test_a_changed_guard_is_compiled_again(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    stale = (
        "create or replace function millpond.guard_transition() returns trigger "
        "language plpgsql as 'begin return new; end'"
    )
    await ask(stale)
    await ask("update millpond.migrations set checksum = 'of an older version' where number = 0")
    await migrate(empty_dsn)
    assert "transition denied" in await ask(
        "select prosrc from pg_proc where oid = 'millpond.guard_transition'::regproc"
    )


async def test_an_old_server_is_refused(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "SERVER_VERSION_MIN", 990_000)
    with pytest.raises(MigrationError, match="The server is PostgreSQL"):
        await migrate(empty_dsn)


async def test_partitions_are_there_from_the_start(empty_dsn: str, ask: Ask) -> None:
    await migrate(empty_dsn)
    count = "select count(*) from pg_inherits where inhparent = 'millpond.jobs'::regclass"
    assert await ask(count) == migrating.WEEKS_AHEAD + 1
