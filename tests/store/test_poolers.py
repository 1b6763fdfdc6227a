"""Poolers: a session is checked as it is. Session mode works with any settings; the other modes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.tenant_databases.databases import RemoteDatabase
from millpond.errors import SettingsError
from millpond.services.notifier import CHANNEL
from millpond.store.connections import CLIENT_ROLE, Connector
from millpond.store.db import Database, connect
from millpond.store.doctor import examine
from millpond.store.queries import NamedQuery
from tests.acceptance.processes import shell
from tests.api.sites import running_site
from tests.factories import ACCOUNT, TENANT
from tests.poolers import NO_PGBOUNCER, PGBOUNCER, running_pgbouncer
from tests.product import app

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason=NO_PGBOUNCER)

ALL = "extra_float_digits, idle_session_timeout, options, role, statement_timeout"
WHO = NamedQuery("test.who", "one", "select current_user::text as name, current_setting('jit') as jit")

SESSION: dict[str, dict[str, str]] = {
    "that accepts no settings": {},
    "that drops all settings": {"ignore_startup_parameters": ALL},
    "that resets nothing": {"ignore_startup_parameters": ALL, "server_reset_query": "", "default_pool_size": "4"},
}
OTHER: dict[str, dict[str, str]] = {
    "transaction": {"pool_mode": "transaction"},
    "transaction, settings dropped": {"pool_mode": "transaction", "ignore_startup_parameters": ALL},
    "transaction, in turns": {"pool_mode": "transaction", "server_round_robin": "1", "min_pool_size": "3"},
    "transaction, one session": {"pool_mode": "transaction", "default_pool_size": "1"},
    "statement": {"pool_mode": "statement"},
}


@pytest.mark.parametrize("settings", SESSION.values(), ids=SESSION)
async def test_session_mode_has_both_mechanisms_and_all_settings(new_dsn: str, settings: dict[str, str]) -> None:
    with running_pgbouncer(new_dsn, pool_mode="session", **settings) as dsn:
        for _ in range(2):  # the second one is given the sessions of the first
            engine = await Engine.open(dsn, app, pool_size=1)
            try:
                await engine.grant(TENANT, ACCOUNT, 10)
                job = await engine.submit("priced", {}, tenant=TENANT, account=ACCOUNT)
                assert (await engine.views.job(TENANT, ACCOUNT, job.job_id)).job_id == job.job_id
                assert tuple(await engine.db.read(WHO)) == (CLIENT_ROLE, "off")
                owner = await engine.db.run(WHO)
                assert (owner["name"] == CLIENT_ROLE, owner["jit"]) == (False, "off")
                assert [finding.detail for finding in await examine(engine.db) if not finding.is_well] == []
                async with engine.db.listen(CHANNEL, lambda _: None) as ended:
                    assert not ended.is_set()
            finally:
                await engine.close()


async def open_engine(dsn: str) -> Any:
    return await Engine.open(dsn, app)


async def open_database(dsn: str) -> Any:
    return await Database.open(dsn, size=1)


async def open_remote(dsn: str) -> Any:
    """Its connections are made when they are needed."""
    remote = await RemoteDatabase.open(dsn, size=1, patience=10)
    try:
        return await remote.run(WHO)
    finally:
        await remote.close()


@pytest.mark.parametrize("settings", OTHER.values(), ids=OTHER)
async def test_another_mode_is_refused_with_the_reason(new_dsn: str, settings: dict[str, str]) -> None:
    with running_pgbouncer(new_dsn, **settings) as dsn:
        for opening in (open_engine, open_database, open_remote, connect):
            with pytest.raises(SettingsError, match="pooler in transaction mode") as caught:
                await opening(dsn)
            assert "pool_mode = session" in str(caught.value.hint)


async def test_serve_and_doctor_say_why_they_refuse_a_pooler(tmp_path: Path, new_dsn: str) -> None:
    with running_pgbouncer(new_dsn, pool_mode="transaction") as dsn, shell(tmp_path, dsn) as sh:
        for words in (("serve", "--port", "0"), ("db", "migrate"), ("doctor",)):
            command = sh.run(*words)
            assert command.process.returncode != 0
            assert "pooler in transaction mode" in command.stdout + command.stderr
            assert "Traceback" not in command.stderr


async def test_a_role_that_the_pooler_kept_is_not_ours_to_use(new_dsn: str) -> None:
    """The first session of a pooler that resets nothing is left with the role for clients' reads."""
    with running_pgbouncer(
        new_dsn, pool_mode="session", server_reset_query="", default_pool_size="1", ignore_startup_parameters=ALL
    ) as dsn:
        reader = await Database.open(dsn, size=1, role=CLIENT_ROLE)
        assert (await reader.run(WHO))["name"] == CLIENT_ROLE
        await reader.close()
        own = await Database.open(dsn, size=1)
        assert (await own.run(WHO))["name"] != CLIENT_ROLE
        await own.close()


async def test_a_readiness_check_needs_one_session(new_dsn: str) -> None:
    """The third one: the pool has one, and the notifier."""
    with running_pgbouncer(new_dsn, pool_mode="session", default_pool_size="3") as dsn:
        engine = await Engine.open(dsn, app, pool_size=1)
        async with running_site(engine) as site:
            ready = await site.get("/readyz", key=None)
            assert ready.json()["checks"]["database"] == "ok"
        await engine.close()


async def test_a_pooler_whose_sessions_are_all_in_use_is_checked_again(
    new_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_pgbouncer(new_dsn, pool_mode="transaction") as dsn:
        connector = Connector()
        monkeypatch.setattr("millpond.store.connections._CHECK_AGAIN", 0.0)
        with monkeypatch.context() as busy:
            busy.setattr("millpond.store.connections._PROBE_TIMEOUT", 0.0)
            unknown = await connector.connect(dsn)
            await unknown.close()
        with pytest.raises(SettingsError, match="pooler in transaction mode"):
            await connector.connect(dsn)
