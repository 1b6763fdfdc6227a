"""The hosts of a database URL: each has a time of its own, and a connection to one that hangs is ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from millpond.errors import SettingsError, UnavailableError
from millpond.store import hosts as hosts_module
from millpond.store.db import Database, connect, patience
from millpond.store.hosts import split
from millpond.store.queries import NamedQuery
from tests.store.freezer import Freezer, freezer_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SLOW = 60.0
"""What no call may take: more than the watchdog needs on a busy machine, and less than the timeouts of the driver."""

SPLIT: dict[str, tuple[str, list[str], float | None]] = {
    "one host": ("postgresql://u:p@a:1/db", ["postgresql://u:p@a:1/db"], 4.0),
    "two hosts": (
        "postgresql://u:p@a:1,b:2/db?sslmode=require&connect_timeout=7",
        ["postgresql://u:p@a:1/db?sslmode=require", "postgresql://u:p@b:2/db?sslmode=require"],
        7.0,
    ),
    "an IPv6 address": ("postgres://[::1]:1,b/db", ["postgres://[::1]:1/db", "postgres://b/db"], 4.0),
    "hosts in the query": (
        "postgresql://u@/db?host=/run/x,b&port=1,2&sslmode=disable",
        [
            "postgresql://u@/db?sslmode=disable&host=%2Frun%2Fx&port=1",
            "postgresql://u@/db?sslmode=disable&host=b&port=2",
        ],
        4.0,
    ),
    "one port for all": (
        "postgresql:///db?host=a,b&port=5",
        ["postgresql:/db?host=a&port=5", "postgresql:/db?host=b&port=5"],
        4.0,
    ),
    "no host": ("postgresql:///db", ["postgresql:/db"], 4.0),
    "without limit": ("postgresql://a/db?connect_timeout=0", ["postgresql://a/db"], None),
    "the shortest": ("postgresql://a/db?connect_timeout=1", ["postgresql://a/db"], 2.0),
}


@pytest.mark.parametrize(("dsn", "urls", "seconds"), SPLIT.values(), ids=SPLIT)
def test_a_url_is_split_into_one_for_each_host(dsn: str, urls: list[str], seconds: float | None) -> None:
    assert split(dsn) == (urls, seconds)


@pytest.mark.parametrize(
    "dsn", ["postgresql://a/db?connect_timeout=soon", "postgresql:///db?host=a,b,c&port=1,2"], ids=["timeout", "ports"]
)
def test_a_url_that_cannot_be_read_is_an_error_of_the_settings(dsn: str) -> None:
    with pytest.raises(SettingsError) as caught:
        split(dsn)
    assert caught.value.field == "database_url"


@pytest.fixture
async def frozen(dsn: str, tmp_path: Path, short_timeouts: None) -> AsyncIterator[tuple[Freezer, str]]:
    async with freezer_of(dsn, tmp_path / "s") as made:
        yield made


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter patience: what counts is which time ends a wait, and not how long it is."""
    monkeypatch.setattr(hosts_module, "SUSPECT_AFTER", 0.2)
    monkeypatch.setattr(hosts_module, "CONNECT_TIMEOUT", 2.0)


def both(first: str, second: str) -> str:
    """The URL of two servers with the same database."""
    queries = [parse_qs(urlsplit(dsn).query) for dsn in (first, second)]
    listed = {name: ",".join(query[name][0] for query in queries) for name in ("host", "port")}
    query = "&".join(f"{name}={quote(value, safe=',')}" for name, value in listed.items())
    return urlsplit(first)._replace(query=query).geturl()


def query(text: str, **options: Any) -> NamedQuery:
    return NamedQuery("test.query", options.get("shape", "one"), text)


async def test_a_first_host_that_hangs_leaves_the_second_its_time(frozen: tuple[Freezer, str], dsn: str) -> None:
    freezer, url = frozen
    freezer.freeze()
    async with asyncio.timeout(PATIENCE):
        db = await Database.open(both(url, dsn) + "&connect_timeout=2", size=3)
    assert (await db.run(query("select 1 as one")))["one"] == 1
    waited_for = freezer.accepted
    async with db.transaction(), db.transaction():  # the pool opens more: the host that failed is now tried last
        assert freezer.accepted == waited_for
    await db.close()


async def test_the_connect_timeout_of_the_url_is_that_of_each_host(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    freezer.freeze()
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        await connect(both(url, url) + "&connect_timeout=3")
    assert 4 <= time.monotonic() - began < SLOW  # the second is tried a second after the first
    assert freezer.accepted == 2


async def test_several_hosts_that_hang_are_not_waited_for_one_after_another(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    freezer.freeze()
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        await connect(both(both(url, url), both(url, url)) + "&connect_timeout=6")
    assert time.monotonic() - began < 3 * 6
    assert freezer.accepted == 4


async def test_a_host_that_hangs_after_the_login_leaves_no_connection_waiting(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    db = await Database.open(url, size=2)
    async with db.transaction():
        freezer.greets_only = True
        async with asyncio.timeout(SLOW / 2):
            with pytest.raises(UnavailableError):
                await db.run(query("select 1 as one"))
    await db.close()


async def _by_run(db: Database) -> None:
    await db.run(query("select 1 as one"))


async def _by_read(db: Database) -> None:
    await db.read(query("select 1 as one"))


async def _by_transaction(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.fetchrow("select 1 as one")


async def _by_connection(db: Database) -> None:
    async with db.connection() as connection:
        await connection.fetchrow("select 1 as one")


@pytest.mark.parametrize("call", [_by_run, _by_read, _by_transaction, _by_connection])
async def test_a_call_on_an_open_connection_to_a_server_that_hangs_fails_soon(
    frozen: tuple[Freezer, str], call: Any
) -> None:
    """All at once, and more than there are connections: those that wait for one fail with the others."""
    freezer, url = frozen
    db = await Database.open(url, size=2)
    await call(db)
    freezer.freeze()
    async with asyncio.timeout(SLOW / 2):
        found = await asyncio.gather(*(call(db) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in found} == {UnavailableError}
    await db.close()


@pytest.mark.parametrize("call", [_by_run, _by_read, _by_transaction, _by_connection])
async def test_a_call_on_an_open_connection_that_was_forgotten_fails_in_time(
    frozen: tuple[Freezer, str], call: Any
) -> None:
    """Between here and the server, as after the move of an address: new connections are made as ever."""
    freezer, url = frozen
    db = await Database.open(url, size=2)
    await call(db)
    freezer.freeze_open()
    async with asyncio.timeout(SLOW / 2):
        with patience(5), pytest.raises(UnavailableError):
            await call(db)
        await call(db)
    await db.close()


async def test_a_statement_on_a_forgotten_connection_fails_soon_however_long_it_may_take(
    frozen: tuple[Freezer, str],
) -> None:
    freezer, url = frozen
    db = await Database.open(url, size=4)
    await asyncio.gather(*(db.run(query("select 1 as one from pg_sleep(0.1)")) for _ in range(4)))
    freezer.freeze_open()
    async with asyncio.timeout(SLOW / 2):
        with pytest.raises(UnavailableError):
            await db.run(query("select 1 as one"))
        await asyncio.gather(*(db.run(query("select 1 as one")) for _ in range(4)))  # the others were closed too
    await db.close()


async def test_a_call_fails_soon_if_the_server_hangs_behind_a_pooler_that_does_not(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    db = await Database.open(url, size=2)
    freezer.freeze_open()
    freezer.greets_only = True
    async with asyncio.timeout(SLOW / 2):
        with pytest.raises(UnavailableError, match="hangs"):
            await db.run(query("select 1 as one"))
    await db.close()


async def test_connections_to_a_host_that_hangs_are_replaced_by_ones_to_the_next(
    frozen: tuple[Freezer, str], dsn: str
) -> None:
    """Also those that were idle: the first call that fails is the only one."""
    freezer, url = frozen
    db = await Database.open(both(url, dsn), size=4)
    await asyncio.gather(*(db.run(query("select 1 as one from pg_sleep(0.1)")) for _ in range(4)))
    freezer.freeze()
    async with asyncio.timeout(SLOW / 2):
        with pytest.raises(UnavailableError):
            await db.run(query("select 1 as one"))
        found = await asyncio.gather(*(db.run(query("select 1 as one")) for _ in range(8)))
    assert len(found) == 8
    await db.close()


async def test_a_slow_statement_is_not_a_server_that_hangs(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    db = await Database.open(url, size=1)
    before = freezer.accepted
    assert (await db.run(query("select 1 as one from pg_sleep(1)")))["one"] == 1
    assert freezer.accepted > before  # it was checked
    await db.close()


async def test_a_slow_statement_is_left_alone_where_connecting_is_slow_too(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    db = await Database.open(url + "&connect_timeout=10", size=2)
    freezer.delay = 2.5
    assert (await db.run(query("select 1 as one from pg_sleep(4)")))["one"] == 1
    await db.close()


async def test_a_server_that_answers_others_does_not_hang(frozen: tuple[Freezer, str]) -> None:
    """It only accepts no more connections, as under many logins, or as a pooler that has no session left."""
    freezer, url = frozen
    db = await Database.open(url, size=4)
    async with db.transaction():
        await db.run(query("select 1 as one"))
    freezer.freeze_new()
    slow = asyncio.create_task(db.run(query("select 1 as one from pg_sleep(4)")))
    while not slow.done():
        await db.run(query("select 1 as one from pg_sleep(0.1)"))
    assert (await slow)["one"] == 1
    await db.close()


async def test_what_takes_too_long_is_canceled_and_ends_no_other_connection(frozen: tuple[Freezer, str]) -> None:
    _, url = frozen
    db = await Database.open(url, size=4)
    async with db.transaction() as other, asyncio.timeout(PATIENCE):
        with patience(1), pytest.raises(UnavailableError, match="in time"):
            await db.run(query("select 1 as one from pg_sleep(600)"))
        while (await db.run(query("select count(*) from pg_stat_activity where query like '%pg_sleep(600)'")))[0] > 1:
            await asyncio.sleep(0.1)
        assert await other.fetchval("select 1") == 1
    await db.close()


async def test_a_listener_notices_that_the_server_hangs(
    frozen: tuple[Freezer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.store.db._LISTENING_CHECK", 0.5)
    freezer, url = frozen
    db = await Database.open(url, size=1)
    async with db.listen("somewhere", lambda _: None) as ended:
        freezer.freeze()
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    await db.close()


async def _by_both(db: Database, other: Database, freezer: Freezer) -> None:
    async with db.transaction(), other.transaction() as tx:
        freezer.freeze()
        await tx.fetchrow("select 1 as one")


async def test_an_error_of_one_database_says_nothing_of_another(frozen: tuple[Freezer, str], db: Database) -> None:
    """A verb of a tenant with a database of its own holds connections to both."""
    freezer, url = frozen
    other = await Database.open(url, size=1)
    backend = (await db.run(query("select pg_backend_pid() as pid")))["pid"]
    with pytest.raises(UnavailableError):
        await _by_both(db, other, freezer)
    assert (await db.run(query("select pg_backend_pid() as pid")))["pid"] == backend
    await other.close()


READ_ONLY = "do $$ begin raise exception 'cannot execute UPDATE' using errcode = 'read_only_sql_transaction'; end $$"
PID = NamedQuery("test.pid", "one", "select pg_backend_pid() as pid")


async def test_a_server_that_became_read_only_is_left_by_everything(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reads for clients, by other pools such as the dashboard's, and by what listens."""
    monkeypatch.setattr("millpond.store.db._LISTENING_CHECK", 0.1)
    db, other = await Database.open(dsn, size=4), await Database.open(dsn, size=4)
    before = [(await call(PID))["pid"] for call in (db.run, db.read, other.run, other.read)]
    async with other.transaction() as busy, db.listen("somewhere", lambda _: None) as ended:
        with pytest.raises(UnavailableError):
            await db.run(query(READ_ONLY, shape="exec"))
        after = [(await call(PID))["pid"] for call in (db.run, db.read, other.run, other.read)]
        assert not set(before).intersection(after)
        assert await busy.fetchval("select 1") == 1
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    await db.close()
    await other.close()
