"""A primary that was demoted: the database is unavailable until it is promoted, and no connection to it is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.errors import UnavailableError
from millpond.store.db import Database, connect
from millpond.store.embedded import open_embedded
from millpond.store.queries import NamedQuery
from tests.acceptance.processes import until
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, TENANT
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millpond.store.embedded import EmbeddedPostgres

ANY = "&target_session_attrs=any"
PID = NamedQuery("test.pid", "one", "select pg_backend_pid() as pid")


class Primary:
    """A server that can be demoted to a standby that nobody replicates to, and promoted again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server: EmbeddedPostgres = open_embedded(folder)

    @property
    def dsn(self) -> str:
        return self.server.dsn

    def demote(self) -> None:
        self.server.stop()
        (self._folder / "postgres/standby.signal").touch()
        self.server = open_embedded(self._folder)

    async def promote(self) -> None:
        connection = await connect(self.dsn + ANY)
        assert await connection.fetchval("select pg_promote()")
        await connection.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Primary]:
    made = Primary(tmp_path / "data")
    yield made
    made.server.stop()


async def database(site: Site) -> str:
    """What /readyz says of the database."""
    answer = await site.get("/readyz", key=None)
    state: str = answer.json()["checks"]["database"]
    assert (answer.status_code == 200) == (state == "ok")
    return state


@pytest.mark.parametrize("attributes", ["", ANY], ids=["a primary is required", "any server is accepted"])
async def test_a_demoted_primary_is_unavailable_until_it_is_promoted(
    anyio_backend: str, primary: Primary, attributes: str
) -> None:
    engine = await Engine.open(primary.dsn + attributes, app)
    await engine.grant(TENANT, ACCOUNT, 100)
    async with running_site(engine) as site:
        await site.submitted()
        await asyncio.to_thread(primary.demote)

        async def is_read_only() -> bool:
            return await database(site) == "read-only"

        async def is_ready() -> bool:
            return await database(site) == "ok"

        await until(is_read_only)
        refused = await site.post("/v1/jobs", {"kind": "free"})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["Retry-After"] == "1"
        assert "standby" not in refused.text
        if attributes:
            assert await backend(engine) != await backend_after_a_write(engine)
        else:
            assert (await site.get("/v1/wallet")).status_code == 503
        await primary.promote()
        await until(is_ready)
        await site.submitted()
    await engine.close()


async def backend(engine: Engine) -> Any:
    return (await engine.db.run(PID))["pid"]


async def backend_after_a_write(engine: Engine) -> Any:
    """The backend that serves the next statement after one that the standby refused."""
    with pytest.raises(UnavailableError) as caught:
        await engine.db.run(NamedQuery("test.write", "exec", "delete from millpond.queues"))
    assert caught.value.state == "read-only"
    return await backend(engine)


async def test_a_commit_that_no_standby_confirms_fails_in_time_and_reads_do_not(
    anyio_backend: str, primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("millpond.api.app", "millpond.engine.jobs.jobs"):
        monkeypatch.setattr(f"{module}.PATIENCE", 3.0)
    engine = await Engine.open(primary.dsn, app)
    await engine.grant(TENANT, ACCOUNT, 100)
    async with running_site(engine) as site:
        job_id = await site.submitted()
        connection = await connect(primary.dsn)
        await connection.execute("alter system set synchronous_standby_names = 'nobody'")
        await connection.execute("select pg_reload_conf()")
        async with asyncio.timeout(30):
            refused = await site.post("/v1/jobs", {"kind": "free"})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["Retry-After"] == "1"
        assert (await site.get(f"/v1/jobs/{job_id}")).status_code == 200

        async def is_over() -> bool:
            return not await connection.fetchval("select count(*) from pg_stat_activity where wait_event = 'SyncRep'")

        await until(is_over)
        await connection.execute("alter system reset synchronous_standby_names")
        await connection.execute("select pg_reload_conf()")
        await connection.close()
    await engine.close()


async def test_who_only_listens_notices_that_the_server_became_read_only(
    anyio_backend: str, primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.store.db._LISTENING_CHECK", 0.1)
    db = await Database.open(primary.dsn, size=1)
    async with db.listen("somewhere", lambda _: None) as ended, asyncio.timeout(PATIENCE):
        async with db.connection() as connection:
            await connection.execute("alter system set default_transaction_read_only = on")
            await connection.execute("select pg_reload_conf()")
        await ended.wait()
        with pytest.raises(UnavailableError):  # its connection was closed, and there is no other host
            await db.run(PID)
    await db.close()
