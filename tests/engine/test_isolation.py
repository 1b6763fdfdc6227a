"""Isolation: two walls stand between tenants, and each of them holds alone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from asyncpg import InsufficientPrivilegeError

from millpond.engine.engine import Engine
from millpond.engine.reads.views import SQL
from millpond.errors import NotFoundError
from millpond.store import partitions, queries
from millpond.store.db import CLIENT_ROLE, Database
from millpond.store.doctor import examine
from millpond.store.embedded import open_embedded
from millpond.store.migrate import migrate
from millpond.store.queries import NamedQuery
from millpond.work import Chunk
from tests.databases import DatabaseServer, plain_user
from tests.factories import ACCOUNT, STRANGER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.store.doctor import CheckResult
    from tests.factories import Factory

WALLED = ("accounts", "artifacts", "chunks", "entries", "events", "idempotency", "jobs")
WHO: NamedQuery = NamedQuery("test.who", "one", "select current_user::text as name")
MANY = 10
LAST = UUID(int=2**128 - 1)


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Database]:
    """The role that reads for clients, in the hands of somebody who writes SQL."""
    opened = await Database.open(dsn, size=1, role=CLIENT_ROLE)
    yield opened
    await opened.close()


@pytest.fixture
async def two(engine: Engine, make: Factory) -> dict[str, UUID]:
    """Two tenants, each with something in every table."""
    made: dict[str, UUID] = {}
    for tenant in (TENANT, STRANGER):
        await make.credits(100, tenant=tenant)
        submitted = await engine.submit("priced", tenant=tenant, account=ACCOUNT, idempotency_key="k")
        made[tenant] = submitted.job_id
        await engine.artifacts.save(tenant, ACCOUNT, name="x", content_type="text/plain", data=b"x")
    await engine.emit(*([Chunk(lease, 1, "x")] for lease in await make.claimed("priced", want=2)))
    return made


async def seen(client: Database, table: str, *callers: str) -> set[str]:
    """Whose rows a query without any condition gives, when these callers are named."""
    async with client.transaction() as tx:
        await tx.execute("select set_config('millpond.callers', $1, true)", ",".join(callers))
        return {row[0] for row in await tx.fetch(f"select tenant from millpond.{table}")}


# The second wall alone


@pytest.mark.parametrize("table", WALLED)
async def test_a_query_without_any_condition_gives_the_callers_rows(
    client: Database, two: dict[str, UUID], table: str
) -> None:
    assert await seen(client, table, TENANT) == {TENANT}
    assert await seen(client, table, STRANGER) == {STRANGER}
    assert await seen(client, table, TENANT, STRANGER) == {TENANT, STRANGER}
    for nobody in ("", "null", "%", "ac", "acme%", "acme ", "*", "{acme,globex}"):
        assert await seen(client, table, nobody) == set()


@pytest.mark.parametrize("table", WALLED)
async def test_who_names_nobody_sees_nothing(client: Database, two: dict[str, UUID], table: str) -> None:
    async with client.transaction() as tx:
        assert await tx.fetchval(f"select count(*) from millpond.{table}") == 0


async def test_no_condition_leads_round_the_wall(client: Database, two: dict[str, UUID]) -> None:
    async with client.transaction() as tx:
        await tx.execute("select set_config('millpond.callers', $1, true)", TENANT)
        for condition in ("true", "tenant = 'globex'", "tenant <> 'acme' or true", "id = $1 or true"):
            arguments = (two[STRANGER],) if "$1" in condition else ()
            found = await tx.fetch(f"select tenant from millpond.jobs where {condition}", *arguments)
            assert {row["tenant"] for row in found} <= {TENANT}


async def test_a_function_that_forgets_its_condition_gives_the_callers_rows(
    db: Database, engine: Engine, two: dict[str, UUID]
) -> None:
    """Each view without its `where tenant = …`, as if somebody had lost it."""
    await lose_first_wall(db)
    foreign = two[STRANGER]
    assert await db.read(SQL["jobs"], [TENANT], [foreign]) == []
    page = await db.read(SQL["page"], TENANT, None, LAST, None, None, None, MANY, MANY, None, None)
    assert [row["tenant"] for row in page] == [TENANT]
    assert await db.read(SQL["events"], TENANT, None, foreign, 0, None, MANY) == []
    assert {row["job_id"] for row in await db.read(SQL["entries"], TENANT, ACCOUNT, 2**62, MANY)} == {None, two[TENANT]}
    # What the engine itself reads by is not walled: it would have given everything.
    assert len(await db.run(SQL["jobs"], [TENANT], [foreign])) == 1
    assert len(await db.run(SQL["entries"], TENANT, ACCOUNT, 2**62, MANY)) == 4


async def lose_first_wall(db: Database) -> None:
    lost = 0
    for definition in queries.functions("millpond.engine.reads", "views").values():
        text = definition
        for condition in (
            "(tenants is null or j.tenant = any(tenants))",
            "(view_events.tenant is null or j.tenant = view_events.tenant)",
            "j.tenant = view_page.tenant",
            "e.tenant = view_entries.tenant",
            "e.tenant = j.tenant",
        ):
            lost += text.count(condition)
            text = text.replace(condition, "true")
        async with db.transaction() as tx:
            await tx.execute(text)
    assert lost == 7


# What the role may do


@pytest.mark.parametrize("table", WALLED)
@pytest.mark.parametrize(
    "statement",
    [
        "update millpond.{} set tenant = tenant",
        "delete from millpond.{}",
        "truncate millpond.{}",
        "insert into millpond.{} select * from millpond.{}",
        "select tenant from millpond.{} for update",
        "alter table millpond.{} disable row level security",
        "drop policy client on millpond.{}",
    ],
)
async def test_the_role_writes_nothing(client: Database, two: dict[str, UUID], table: str, statement: str) -> None:
    async with client.transaction() as tx:
        await tx.execute("select set_config('millpond.callers', $1, true)", TENANT)
        with pytest.raises(InsufficientPrivilegeError):
            await tx.execute(statement.format(table, table))


async def test_the_role_reads_no_other_table(client: Database, db: Database) -> None:
    async with db.transaction() as tx:
        tables = await tx.fetch(
            "select relname from pg_class"
            " where relnamespace = 'millpond'::regnamespace and relkind in ('r', 'p') and not relrowsecurity"
        )
    others = {row["relname"] for row in tables}
    assert others.isdisjoint(WALLED)
    assert others >= {"keys", "secrets", "audit", "tenants", "dispatches", "leases", "jobs_default", "events_default"}
    for table in others:  # the partitions are among them
        with pytest.raises(InsufficientPrivilegeError):
            async with client.transaction() as tx:
                await tx.fetch(f"select from millpond.{table} limit 1")


async def test_a_partition_made_later_has_the_same_wall(
    client: Database, db: Database, engine: Engine, two: dict[str, UUID]
) -> None:
    async with db.transaction() as tx:
        before = {row[0] for row in await tx.fetch("select relname from pg_class where relispartition")}
    assert await partitions.ensure(db, 9) > 0
    async with db.transaction() as tx:
        made = {row[0] for row in await tx.fetch("select relname from pg_class where relispartition and relkind = 'r'")}
    for table in made - before:
        with pytest.raises(InsufficientPrivilegeError):
            async with client.transaction() as tx:
                await tx.fetch(f"select from millpond.{table}")


# The first wall alone


@asynccontextmanager
async def unwalled(dsn: str) -> AsyncIterator[Engine]:
    """An engine that reads for clients by a role that sees everything."""
    opened = await Database.open(dsn, size=2)
    opened._reader = await Database.open(dsn, size=2)
    try:
        yield Engine(opened, app)
    finally:
        await opened.close()


async def test_without_row_level_security_strangers_still_see_nothing(dsn: str, two: dict[str, UUID]) -> None:
    async with unwalled(dsn) as engine:
        assert (await engine.db.read(WHO))["name"] != CLIENT_ROLE
        assert await engine.db.read(SQL["jobs"], [TENANT], [two[STRANGER]]) == []
        await look_around(engine, two)


async def test_with_both_walls_strangers_see_nothing(engine: Engine, db: Database, two: dict[str, UUID]) -> None:
    assert (await db.read(WHO))["name"] == CLIENT_ROLE
    await look_around(engine, two)


async def look_around(engine: Engine, two: dict[str, UUID]) -> None:
    """Each tenant sees all of its own and nothing of the other's, by every view."""
    for tenant, other in ((TENANT, STRANGER), (STRANGER, TENANT)):
        own, foreign = two[tenant], two[other]
        assert (await engine.views.job(tenant, ACCOUNT, own)).tenant == tenant
        assert [view.job_id for view in (await engine.views.jobs(tenant)).data] == [own]
        assert [view.job_id for view in (await engine.views.jobs(tenant, ACCOUNT)).data] == [own]
        assert (await engine.views.wallet(tenant, ACCOUNT)).held == 5
        assert {entry.job_id for entry in (await engine.views.entries(tenant, ACCOUNT)).data} == {None, own}
        assert (await engine.views.events(tenant, ACCOUNT, own)).data
        reads = (engine.views.job, engine.views.events, engine.views.logs)
        answers = await asyncio.gather(
            *(read(tenant, whose, foreign) for read in reads for whose in (ACCOUNT, None)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {NotFoundError}


# What is named is named for one call


async def test_the_callers_of_one_call_are_forgotten_before_the_next(
    engine: Engine, db: Database, two: dict[str, UUID]
) -> None:
    named = NamedQuery("test.named", "one", "select coalesce(current_setting('millpond.callers', true), '') as callers")
    for call in (
        engine.views.job(TENANT, ACCOUNT, two[TENANT]),
        engine.views.jobs(TENANT),
        engine.views.events(TENANT, ACCOUNT, two[TENANT]),
        engine.views.wallet(TENANT, ACCOUNT),
        engine.views.entries(TENANT, ACCOUNT),
    ):
        await call
        assert (await db.read(named))["callers"] == ""
        assert await db.read(NamedQuery("test.jobs", "many", "select id from millpond.jobs")) == []


async def test_the_engine_itself_works_as_the_owner(db: Database, two: dict[str, UUID]) -> None:
    await db.read(WHO)
    assert (await db.run(WHO))["name"] != CLIENT_ROLE
    async with db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.jobs") == 2


async def test_a_connection_for_clients_cannot_shed_its_role_by_a_reset(client: Database) -> None:
    async with client.transaction() as tx:
        for statement in ("reset role", "reset all", "set session authorization default"):
            await tx.execute(statement)
            assert await tx.fetchval("select current_user::text") == CLIENT_ROLE


# Where the role cannot be had


def wall(findings: list[CheckResult]) -> CheckResult:
    return next(finding for finding in findings if finding.name == "isolation")


async def test_without_the_role_reads_have_the_first_wall_and_the_doctor_reports(
    server: DatabaseServer, template: str
) -> None:
    async with plain_user(server) as dsn:
        engine = await Engine.open(dsn, app, pool_size=2)
        try:
            made = {}
            for tenant in (TENANT, STRANGER):
                await engine.grant(tenant, ACCOUNT, 10)
                made[tenant] = (await engine.submit("priced", tenant=tenant, account=ACCOUNT)).job_id
            assert (await engine.db.read(WHO))["name"].startswith("millpond_plain_")
            await look_around(engine, made)
            finding = wall(await examine(engine.db))
            assert not finding.is_well
            assert f"grant {CLIENT_ROLE} to" in finding.detail
        finally:
            await engine.close()


async def test_who_may_make_no_role_on_a_new_server_gets_a_schema_without_the_wall(tmp_path: Path) -> None:
    """And the wall, once an administrator has made the role."""
    with open_embedded(tmp_path) as own:
        server = DatabaseServer(own.dsn)
        async with plain_user(server) as dsn:
            await migrate(dsn)
            db = await Database.open(dsn, size=1)
            finding = wall(await examine(db))
            assert f"create role {CLIENT_ROLE} nologin; grant" in finding.detail
            await server.order(f"create role {CLIENT_ROLE} nologin")
            await server.order(f"grant {CLIENT_ROLE} to {urlsplit(dsn).username}")
            async with db.transaction() as tx:
                await tx.execute("select millpond.raise_wall()")
            assert wall(await examine(db)).is_well
            assert (await db.read(WHO))["name"] == CLIENT_ROLE
            await db.close()


async def test_who_may_make_roles_gets_the_wall_without_being_a_superuser(tmp_path: Path) -> None:
    with open_embedded(tmp_path) as own:
        server = DatabaseServer(own.dsn)
        async with plain_user(server) as dsn:
            await server.order(f"alter role {urlsplit(dsn).username} createrole")
            await migrate(dsn)
            db = await Database.open(dsn, size=1)
            assert wall(await examine(db)).is_well
            assert (await db.read(WHO))["name"] == CLIENT_ROLE
            await db.close()


async def test_when_somebody_grants_the_role_it_is_taken_and_the_doctor_is_content(
    server: DatabaseServer, template: str
) -> None:
    async with plain_user(server) as dsn:
        await migrate(dsn)
        user = urlsplit(dsn).username
        await server.order(f"grant {CLIENT_ROLE} to {user}")
        db = await Database.open(dsn, size=2)
        try:
            assert (await db.read(WHO))["name"] == CLIENT_ROLE
            assert wall(await examine(db)).is_well
        finally:
            await db.close()


async def test_a_process_whose_readers_have_another_role_is_to_be_restarted(
    server: DatabaseServer, template: str
) -> None:
    """It has read before the grant, and keeps the connections that it has."""
    async with plain_user(server) as dsn:
        await migrate(dsn)
        user = urlsplit(dsn).username
        running = await Database.open(dsn, size=2)
        try:
            await running.read(WHO)
            await server.order(f"grant {CLIENT_ROLE} to {user}")
            finding = wall(await examine(running))
            assert not finding.is_well
            assert f"does not restrict the reads of clients, which have the role {user}" in finding.detail
            assert "restart Millpond" in finding.detail
        finally:
            await running.close()
        restarted = await Database.open(dsn, size=2)
        try:
            assert wall(await examine(restarted)).is_well
        finally:
            await restarted.close()


async def test_the_doctor_finds_a_wall_that_was_taken_down_and_says_how_to_raise_it(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.execute("alter table millpond.jobs disable row level security")
    finding = wall(await examine(db))
    assert (finding.is_well, "select millpond.raise_wall()" in finding.detail) == (False, True)
    async with db.transaction() as tx:
        await tx.execute("select millpond.raise_wall()")
    assert wall(await examine(db)).is_well


async def test_many_databases_of_a_server_may_raise_their_walls_at_once(server: DatabaseServer) -> None:
    names = [await server.create() for _ in range(3)]
    try:
        await asyncio.gather(*(migrate(server.named(name)) for name in names))
        for name in names:
            db = await Database.open(server.named(name), size=1)
            assert wall(await examine(db)).is_well
            await db.close()
    finally:
        for name in names:
            await server.drop(name)
