"""The door to PostgreSQL: what is tried again, and its errors in our own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import BusyError, InvalidError, MoveDeniedError, StoreError, UnavailableError
from penstock.store.db import Database, DuplicateError, connect
from penstock.store.queries import Query

if TYPE_CHECKING:
    from penstock.store.queries import Shape
    from tests.databases import Server

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


def query(text: str, shape: Shape = "one") -> Query:
    return Query("test.query", shape, text)


@pytest.fixture
async def flaky(db: Database) -> Query:
    """Fails as often as it is told, with the state it is told."""
    async with db.transaction() as tx:
        await tx.execute(FLAKY)
    return query("select public.flaky($1, $2) as calls")


@pytest.mark.parametrize("state", ["40P01", "40001"], ids=["deadlock", "serialization"])
async def test_what_the_database_wants_again_is_run_again(db: Database, flaky: Query, state: str) -> None:
    assert (await db.run(flaky, 3, state))["calls"] == 4


async def test_not_for_ever(db: Database, flaky: Query) -> None:
    with pytest.raises(StoreError, match="again, please"):
        await db.run(flaky, 1_000, "40P01")
    assert (await db.run(query("select last_value from public.calls")))["last_value"] == 5


WORDS: dict[str, tuple[str, tuple[Any, ...], type[Exception]]] = {
    "a denied move": ("select public.flaky(1, 'PS001')", (), MoveDeniedError),
    "a server that goes down": ("select public.flaky(1, '57P01')", (), UnavailableError),
    "a lost connection": ("select public.flaky(1, '08006')", (), UnavailableError),
    "a row that is held too long": ("select public.flaky(1, '55P03')", (), BusyError),
    "a NUL": ("select $1::text", ("\x00",), InvalidError),
    "half a surrogate pair": ("select $1::text", ("\ud800",), InvalidError),
    "another type": ("select $1::integer", ("seven",), InvalidError),
    "a number that does not fit": ("select $1::integer", (2**40,), InvalidError),
    "a row that is there": ("insert into penstock.queues select queue from penstock.queues", (), DuplicateError),
}


@pytest.mark.parametrize(("text", "arguments", "error"), WORDS.values(), ids=WORDS)
async def test_errors_are_told_in_our_own_words(
    db: Database, flaky: Query, text: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await db.run(query(text, "exec"), *arguments)
    assert type(caught.value) is error


async def test_shapes_promise_how_many_rows_there_are(db: Database) -> None:
    assert await db.run(query("select 1 where false", "maybe")) is None
    assert [row["n"] for row in await db.run(query("select n from generate_series(1, 3) n", "many"))] == [1, 2, 3]
    with pytest.raises(StoreError, match=r"test\.query gave no row"):
        await db.run(query("select 1 where false"))


async def test_a_database_that_is_not_there_is_unavailable(server: Server) -> None:
    for call in (Database.open, connect):
        with pytest.raises(UnavailableError):
            await call("postgresql://nobody@127.0.0.1:1/nothing")


async def test_the_session_speaks_utc_and_does_not_idle_in_a_transaction(db: Database) -> None:
    settings = query(
        "select current_setting('timezone') as zone, current_setting('idle_in_transaction_session_timeout') as idle"
    )
    row = await db.run(settings)
    assert (row["zone"], row["idle"]) == ("UTC", "1min")
