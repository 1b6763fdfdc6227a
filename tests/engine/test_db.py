"""Access to PostgreSQL: what is tried again, and its errors in our own words."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from millpond.errors import BusyError, InvalidError, OverdueError, StoreError, TransitionDeniedError, UnavailableError
from millpond.store.db import Database, DuplicateError, connect
from millpond.store.queries import NamedQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.store.queries import Shape
    from tests.databases import DatabaseServer

FLAKY = """
create sequence public.calls;
create function public.flaky(failures integer, state text) returns bigint language plpgsql as $$
begin
    if nextval('public.calls') <= failures then
        raise exception 'again, please' using errcode = state;
    end if;
    return currval('public.calls');
end $$
"""


def query(text: str, shape: Shape = "one") -> NamedQuery:
    return NamedQuery("test.query", shape, text)


@pytest.fixture
async def flaky(db: Database) -> NamedQuery:
    """Fails as often as it is told, with the state it is told."""
    async with db.transaction() as tx:
        await tx.execute(FLAKY)
    return query("select public.flaky($1, $2) as calls")


@pytest.mark.parametrize("state", ["40P01", "40001"], ids=["deadlock", "serialization"])
async def test_what_the_database_wants_again_is_run_again(db: Database, flaky: NamedQuery, state: str) -> None:
    assert (await db.run(flaky, 3, state))["calls"] == 4


async def test_not_for_ever(db: Database, flaky: NamedQuery) -> None:
    with pytest.raises(StoreError, match="again, please") as caught:
        await db.run(flaky, 1_000, "40P01")
    assert caught.value.retryable, "a worker reports again"
    assert (await db.run(query("select last_value from public.calls")))["last_value"] == 5


WORDS: dict[str, tuple[str, tuple[Any, ...], type[Exception]]] = {
    "a denied move": ("select public.flaky(1, 'PS001')", (), TransitionDeniedError),
    "a server that goes down": ("select public.flaky(1, '57P01')", (), UnavailableError),
    "a lost connection": ("select public.flaky(1, '08006')", (), UnavailableError),
    "a full disk": ("select public.flaky(1, '53100')", (), UnavailableError),
    "no memory": ("select public.flaky(1, '53200')", (), UnavailableError),
    "too many connections": ("select public.flaky(1, '53300')", (), UnavailableError),
    "a server that starts": ("select public.flaky(1, '57P03')", (), UnavailableError),
    "a file that cannot be read": ("select public.flaky(1, '58030')", (), UnavailableError),
    "a read-only server": ("select public.flaky(1, '25006')", (), UnavailableError),
    "a statement that was canceled": ("select public.flaky(1, '57014')", (), OverdueError),
    "a row that is held too long": ("select public.flaky(1, '55P03')", (), BusyError),
    "a NUL": ("select $1::text", ("\x00",), InvalidError),
    "half a surrogate pair": ("select $1::text", ("\ud800",), InvalidError),
    "another type": ("select $1::integer", ("seven",), InvalidError),
    "a number that does not fit": ("select $1::integer", (2**40,), InvalidError),
    "a row that is there": ("insert into millpond.queues select queue from millpond.queues", (), DuplicateError),
}


@pytest.mark.parametrize(("text", "arguments", "error"), WORDS.values(), ids=WORDS)
async def test_errors_are_reported_in_our_own_words(
    db: Database, flaky: NamedQuery, text: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await db.run(query(text, "exec"), *arguments)
    assert type(caught.value) is error


async def test_shapes_promise_how_many_rows_there_are(db: Database) -> None:
    assert await db.run(query("select 1 where false", "maybe")) is None
    assert [row["n"] for row in await db.run(query("select n from generate_series(1, 3) n", "many"))] == [1, 2, 3]
    with pytest.raises(StoreError, match=r"test\.query returned no row"):
        await db.run(query("select 1 where false"))


async def test_a_database_that_is_not_there_is_unavailable(server: DatabaseServer) -> None:
    for call in (Database.open, connect):
        with pytest.raises(UnavailableError):
            await call("postgresql://nobody@127.0.0.1:1/nothing")


async def test_the_session_speaks_utc_and_does_not_idle_in_a_transaction(db: Database) -> None:
    settings = query(
        "select current_setting('timezone') as zone, current_setting('idle_in_transaction_session_timeout') as idle"
    )
    row = await db.run(settings)
    assert (row["zone"], row["idle"]) == ("UTC", "1min")


@pytest.fixture
async def narrow(dsn: str) -> AsyncIterator[Database]:
    """A database with one connection, so that the next to ask gets the one that was interrupted."""
    opened = await Database.open(dsn, size=1)
    yield opened
    await opened.close()


async def _by_run(db: Database, text: str, argument: object) -> None:
    await db.run(query(text), argument)


async def _by_transaction(db: Database, text: str, argument: object) -> None:
    async with db.transaction() as tx:
        await tx.fetchrow(text, argument)


async def _by_snapshot(db: Database, text: str, argument: object) -> None:
    async with db.snapshot() as tx:
        await tx.fetchrow(text, argument)


async def _by_connection(db: Database, text: str, argument: object) -> None:
    async with db.connection() as connection:
        await connection.fetchrow(text, argument)


async def _by_connection_that_goes_on(db: Database, text: str, argument: object) -> None:
    async with db.connection() as connection:
        with contextlib.suppress(Exception):
            await connection.fetchrow(text, argument)


WAYS = (_by_run, _by_transaction, _by_snapshot, _by_connection, _by_connection_that_goes_on)
Way = Callable[[Database, str, object], Coroutine[Any, Any, None]]


class CutShort:
    """Reads the server's answers for the driver, and cancels a task as soon as the driver has heard the nth."""

    def __init__(self, db: Database, nth: int) -> None:
        self.left = nth
        self.task: asyncio.Task[None] | None = None
        (connection,) = (holder._con for holder in db.pool._holders)
        self.transport = connection._transport
        self.driver = self.transport.get_protocol()

    def data_received(self, data: bytes) -> None:
        self.driver.data_received(data)
        self.left -= 1
        if self.task is not None and not self.left:
            self.task.cancel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    async def ran(self, statement: Coroutine[Any, Any, None]) -> bool:
        """Whether the statement ran to its end, because the server gave fewer answers."""
        self.task = asyncio.create_task(statement)
        self.transport.set_protocol(self)
        (ended,) = await asyncio.gather(self.task, return_exceptions=True)
        self.transport.set_protocol(self.driver)
        assert ended is None or isinstance(ended, asyncio.CancelledError)
        return ended is None


async def _in_transactions(db: Database, onlooker: Database) -> list[str]:
    """What the sessions did that are in a transaction, seen from outside; afterwards a snapshot must be had."""
    text = """
        select query from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and xact_start is not null"""
    found = await onlooker.run(query(f"{text} and pid <> pg_backend_pid()", "many"))
    async with db.snapshot() as tx:
        await tx.fetchval("select 1")
    return [row["query"] for row in found]


@pytest.mark.parametrize(("way", "answers"), tuple(zip(WAYS, (2, 4, 4, 3, 3), strict=True)))
async def test_no_connection_comes_back_in_a_transaction_from_a_task_that_was_cancelled(
    narrow: Database, db: Database, way: Way, answers: int
) -> None:
    """Also not if it is cancelled after the server has parsed a statement, and before it is told to execute it.

    What is known to have ended costs no further answer; a connection that a caller had for itself costs one.
    """
    for nth in itertools.count(1):
        new = f"select $1::integer as n, count(*) from millpond.jobs limit {nth}"  # so it is parsed
        ran = await CutShort(narrow, nth).ran(way(narrow, new, 7))
        assert await _in_transactions(narrow, db) == []
        if ran:
            break
    assert nth == answers + 1


@pytest.mark.parametrize("way", WAYS)
async def test_no_connection_comes_back_in_a_transaction_for_an_argument_that_cannot_be_sent(
    narrow: Database, db: Database, way: Way
) -> None:
    with contextlib.suppress(InvalidError):
        await way(narrow, "select $1::integer as n, count(*) from millpond.jobs", "seven")
    assert await _in_transactions(narrow, db) == []


@pytest.fixture
async def wide(dsn: str) -> AsyncIterator[Database]:
    """A database with enough connections that some stay out of the pool, ready for the next to ask."""
    opened = await Database.open(dsn, size=16)
    yield opened
    await opened.close()


async def test_a_connection_that_the_server_has_closed_is_not_used_again(wide: Database, db: Database) -> None:
    """Nobody is told that the database is away because it was restarted while nobody asked it anything."""
    for run in (wide.run, wide.read):
        (before,) = await run(query("select pg_backend_pid()"))
        await db.run(query("select pg_terminate_backend($1, 60000)"), before)
        (after,) = await run(query("select pg_backend_pid()"))
        assert after != before


async def test_a_statement_moves_from_a_connection_that_the_server_has_ended_and_not_closed_yet(
    dsn: str, db: Database, tmp_path: Path
) -> None:
    """The server's last message arrives before the end of the connection; what is sent in between is not sent."""
    (folder,) = parse_qs(urlsplit(dsn).query)["host"]
    has_ended = asyncio.Event()

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)
        has_ended.set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(pass_on(from_server, writer), pass_on(reader, to_server))
        for end in (writer, to_server):
            end.close()

    async with await asyncio.start_unix_server(connect, tmp_path / ".s.PGSQL.5432"):
        behind = await Database.open(dsn.replace(quote(folder, safe=""), quote(str(tmp_path), safe="")), size=8)
        try:
            pid = query("select pg_backend_pid()")
            (before,) = await behind.run(pid)
            await db.run(query("select pg_terminate_backend($1, 60000)"), before)
            await has_ended.wait()
            for _ in range(5):
                await asyncio.sleep(0)  # for the client to read what the server has sent last
            (after,) = await behind.run(pid)
            assert after != before
        finally:
            await behind.close()
