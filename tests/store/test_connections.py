"""Connections: what the server, the database or the role set by default does not reach our plans and our SQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from millpond.engine.engine import Engine
from millpond.engine.tenant_databases.databases import RemoteDatabase
from millpond.engine.verify import verify
from millpond.errors import SettingsError
from millpond.services.notifier import CHANNEL
from millpond.store import migrate
from millpond.store.db import Database, connect
from millpond.store.doctor import examine
from millpond.store.queries import NamedQuery
from tests.factories import ACCOUNT, TENANT
from tests.hostile import CALLERS, HARMLESS, HOSTILE, statements
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

# What a session has of the settings that matter, and what the server has built in.
FOUND = NamedQuery(
    "test.found",
    "many",
    "select name, setting, boot_val from pg_settings where name = any("
    "select lower(n) from unnest($1::text[]) n union select n from unnest($1::text[]) n)",
)
LIMITS = ("idle_in_transaction_session_timeout", "lock_timeout")
OURS = {"TimeZone": "UTC", "search_path": "", "jit": "off", "random_page_cost": "1.1", "extra_float_digits": "1"}


async def spoil(server: DatabaseServer, dsn: str) -> None:
    name = dsn.rpartition("/")[2].partition("?")[0]
    for statement in statements(f"database {name}"):
        await server.order(statement)


@pytest.fixture
async def hostile(server: DatabaseServer, new_dsn: str) -> str:
    """The DSN of a database that gives its sessions everything that could spoil us."""
    await spoil(server, new_dsn)
    return new_dsn


def check(found: list[Any], *but: str) -> None:
    names = set(HOSTILE).difference(HARMLESS, but)
    spoiled = {
        row["name"]: row["setting"]
        for row in found
        if row["name"] in names and row["setting"] != OURS.get(row["name"], row["boot_val"])
    }
    assert spoiled == {}
    assert {row["name"] for row in found} >= {name for name in names if "." not in name}


async def _check_plain(dsn: str) -> None:
    limits = {"statement_timeout": "0", "idle_session_timeout": "0"}
    plain = await asyncpg.connect(dsn, server_settings=limits)
    try:
        check(await plain.fetch(FOUND.text, list(HOSTILE)))
    finally:
        await plain.close()


async def test_every_kind_of_connection_sets_what_our_plans_and_our_sql_need(hostile: str) -> None:
    names = list(HOSTILE)
    with pytest.raises(AssertionError):  # what is checked is not there by itself
        await _check_plain(hostile)
    opened = [await Database.open(hostile, size=2), await RemoteDatabase.open(hostile, size=1, patience=10)]
    try:
        for db in opened:
            check(await db.run(FOUND, names), *LIMITS)
            check(await db.read(FOUND, names), *LIMITS)
            async with db.transaction() as tx:
                check(await tx.fetch(FOUND.text, names), *LIMITS)
                shown = [await tx.fetchval(f"show {name}") for name in (*LIMITS, "transaction_isolation")]
                assert shown == ["1min", "2s", "read committed"]
    finally:
        for db in opened:
            await db.close()
    alone = await connect(hostile)  # migrates, listens and checks
    try:
        check(await alone.fetch(FOUND.text, names), "idle_in_transaction_session_timeout")
        assert await alone.fetchval("show plpgsql.extra_errors") == "none"
    finally:
        await alone.close()


async def test_an_engine_works_as_ever_on_a_database_with_hostile_settings(
    server: DatabaseServer, empty_dsn: str
) -> None:
    await spoil(server, empty_dsn)
    engine = await Engine.open(empty_dsn, app, pool_size=2)
    try:
        assert (await migrate.status(empty_dsn)).is_current
        await engine.grant(TENANT, ACCOUNT, 10)
        job = await engine.submit("priced", {}, tenant=TENANT, account=ACCOUNT, idempotency_key="k")
        assert (await engine.views.job(TENANT, ACCOUNT, job.job_id)).input == "{}"
        heard: list[str] = []
        async with engine.db.listen(CHANNEL, heard.append) as ended:
            assert not ended.is_set()
        await engine.cancel(TENANT, job.job_id)
        assert [finding.name for finding in await examine(engine.db) if not finding.is_well] == []
        assert await verify(engine.db) == []
    finally:
        await engine.close()


async def test_what_fails_to_run_triggers_is_refused(server: DatabaseServer, new_dsn: str) -> None:
    """The guards are triggers, and only a superuser could put this setting right."""
    name = new_dsn.rpartition("/")[2].partition("?")[0]
    await server.order(f"alter database {name} set session_replication_role = replica")
    with pytest.raises(SettingsError, match="session_replication_role is replica"):
        await Database.open(new_dsn, size=1)


# The caller's transactions


@pytest.fixture
async def callers(engine: Engine, dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of the caller, with settings that spoil all that they reach."""
    await engine.grant(TENANT, ACCOUNT, 100)
    connection = await asyncpg.connect(dsn)
    for name, value in HOSTILE.items():
        if name not in CALLERS:
            await connection.execute("select set_config($1, $2, false)", name, value)
    yield connection
    await connection.close()


async def test_a_job_is_submitted_in_a_transaction_of_the_caller_whatever_its_session_sets(
    engine: Engine, callers: asyncpg.Connection[Any]
) -> None:
    run_at = "2031-02-03T04:05:06+00:00"
    async with callers.transaction():
        python = await engine.submit("priced", {}, tenant=TENANT, account=ACCOUNT, tx=callers)
        sql = await callers.fetchrow(
            "select * from millpond.submit('priced', $1::text::jsonb, $2, $3, idempotency_key => $4,"
            " run_at => $5::text::timestamptz, expires_in => interval '90 minutes', tags => '{\"team\": \"ads\"}')",
            json.dumps({}),
            TENANT,
            ACCOUNT,
            uuid4().hex,
            run_at,
        )
        assert sql is not None
    for job_id in (python.job_id, sql["job_id"]):
        assert (await engine.views.job(TENANT, ACCOUNT, job_id)).input == "{}"
    assert sql["expires_at"].isoformat() == "2031-02-03T05:35:06+00:00"


async def test_what_a_caller_calls_sets_what_its_plans_need(db: Database) -> None:
    """The settings of the session would apply to a caller's own statements as well."""
    found = await db.run(
        NamedQuery(
            "test.set", "many", "select proconfig from pg_proc where proname in ('submit', 'admit') and prolang > 14"
        )
    )
    assert len(found) == 2
    for (settings,) in found:
        assert {"jit=off", "plan_cache_mode=auto", "search_path=pg_catalog, pg_temp"} <= set(settings)


async def test_a_caller_in_sql_is_refused_with_the_same_words_whatever_the_session_sets(
    callers: asyncpg.Connection[Any],
) -> None:
    with pytest.raises(asyncpg.PostgresError, match="one line of text without control characters"):
        await callers.fetchrow(
            "select * from millpond.submit('priced', '{}', $1, $2, tags => $3::text::jsonb)",
            TENANT,
            ACCOUNT,
            json.dumps({"team": "a\nb"}),
        )
