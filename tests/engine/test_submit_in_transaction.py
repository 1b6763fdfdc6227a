"""Submit in the caller's transaction: his order, the hold and the job are there together, or none of them is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from msgspec.structs import replace
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from millpond import ids
from millpond.engine.engine import BACK_TOPIC, Engine
from millpond.engine.jobs.transactions import submit_in
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    StoreError,
    TooManyActiveJobsError,
    UnknownKindError,
)
from millpond.services.notifier import Notifier
from tests.checks import until
from tests.factories import ACCOUNT, HOUR, OWNER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from millpond.store.db import Database
    from tests.databases import DatabaseServer
    from tests.factories import Factory

ROWS: Any = dict_row
ORDER = "insert into public.orders (name) values ('a hat')"


# Callers: each driver in the way its users use it


@dataclass(slots=True)
class Caller:
    """Somebody with a transaction under way: what he passes on, and his hand on it."""

    tx: Any
    write: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]

    async def order(self) -> None:
        await done(self.write(ORDER))


def written(execute: Callable[[Any], Any], text: Any) -> None:
    """Its cursor may look like something to await, and is not."""
    execute(text)


async def done(made: Any) -> Any:
    return await made if hasattr(made, "__await__") else made


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    """With a codec of its own for JSON, as many pools have."""

    async def teach(connection: Any) -> None:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, encoder=repr, decoder=repr, schema="pg_catalog")

    async with asyncpg.create_pool(dsn, init=teach, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def by_asyncpg_transaction(dsn: str) -> AsyncIterator[Caller]:
    async with by_asyncpg(dsn) as caller:
        transaction = caller.tx.transaction()
        async with transaction:
            yield replace_tx(caller, transaction)


def replace_tx(caller: Caller, tx: Any) -> Caller:
    return Caller(tx, caller.write, caller.commit, caller.rollback)


@asynccontextmanager
async def by_psycopg(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn) as connection:
        yield Caller(connection, partial(written, connection.execute), *ways_out(connection))


@asynccontextmanager
async def by_psycopg_with_odd_rows(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn, row_factory=ROWS, cursor_factory=psycopg.RawCursor) as connection:
        yield Caller(connection, partial(written, connection.execute), *ways_out(connection))


@asynccontextmanager
async def by_async_psycopg(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        execute: Any = connection.execute
        yield Caller(connection, execute, *ways_out(connection))


@asynccontextmanager
async def by_alchemy_connection(dsn: str) -> AsyncIterator[Caller]:
    with alchemy(dsn) as engine, engine.connect() as connection:
        yield Caller(connection, partial(written, connection.exec_driver_sql), *ways_out(connection))


@asynccontextmanager
async def by_alchemy_session(dsn: str) -> AsyncIterator[Caller]:
    with alchemy(dsn) as engine, Session(engine) as session:
        yield Caller(session, lambda text: written(session.execute, sqlalchemy.text(text)), *ways_out(session))


@asynccontextmanager
async def by_raw_connection(dsn: str) -> AsyncIterator[Caller]:
    """Any connection of DB-API 2; this one is handed out by SQLAlchemy's pool."""
    with alchemy(dsn) as engine:
        connection = engine.raw_connection()
        yield Caller(connection, partial(written, connection.cursor().execute), *ways_out(connection))
        connection.close()


@asynccontextmanager
async def by_async_alchemy_connection(dsn: str, driver: str = "asyncpg") -> AsyncIterator[Caller]:
    engine = create_async_engine(url(dsn, driver), poolclass=NullPool)
    async with AsyncConnection(engine) as connection:
        yield Caller(connection, connection.exec_driver_sql, *ways_out(connection))
    await engine.dispose()


@asynccontextmanager
async def by_async_alchemy_session(dsn: str, driver: str = "asyncpg") -> AsyncIterator[Caller]:
    engine = create_async_engine(url(dsn, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield Caller(session, lambda text: session.execute(sqlalchemy.text(text)), *ways_out(session))
    await engine.dispose()


def ways_out(made: Any) -> tuple[Any, Any]:
    return made.commit, made.rollback


@contextmanager
def alchemy(dsn: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    yield engine
    engine.dispose()


def url(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://").replace("postgres://", f"postgresql+{driver}://")


SYNC = {
    "psycopg": by_psycopg,
    "psycopg with odd rows": by_psycopg_with_odd_rows,
    "SQLAlchemy Connection": by_alchemy_connection,
    "SQLAlchemy Session": by_alchemy_session,
    "DB-API": by_raw_connection,
}
CALLERS = SYNC | {
    "asyncpg": by_asyncpg,
    "asyncpg pool": by_asyncpg_pool,
    "psycopg async": by_async_psycopg,
    "SQLAlchemy AsyncConnection": by_async_alchemy_connection,
    "SQLAlchemy AsyncSession": by_async_alchemy_session,
    "SQLAlchemy AsyncSession on psycopg": partial(by_async_alchemy_session, driver="psycopg"),
}

each_caller = pytest.mark.parametrize("begin", CALLERS.values(), ids=CALLERS)


@pytest.fixture(autouse=True)
async def orders(db: Database) -> AsyncIterator[None]:
    async with db.transaction() as tx:
        await tx.execute("create table public.orders (name text not null)")
    yield
    async with db.transaction() as tx:
        await tx.execute("drop table public.orders")


async def found(db: Database) -> tuple[int, int, int, int, int]:
    """How many orders, jobs, dispatches, keys and holds there are, for those who look from outside."""
    async with db.transaction() as tx:
        row: Any = await tx.fetchrow(
            "select (select count(*) from public.orders), (select count(*) from millpond.jobs),"
            " (select count(*) from millpond.dispatches), (select count(*) from millpond.idempotency),"
            " (select count(*) from millpond.entries where type = 'hold')"
        )
    return tuple(row)


NOTHING = (0, 0, 0, 0, 0)
ALL = (1, 1, 1, 1, 1)


# Together


@each_caller
async def test_order_hold_and_job_commit_together(
    dsn: str, db: Database, engine: Engine, make: Factory, begin: Any
) -> None:
    await make.credits(100)
    async with begin(dsn) as caller:
        await caller.order()
        submitted = await engine.submit("priced", {"product": "hät"}, **OWNER, idempotency_key="k", tx=caller.tx)
        assert await found(db) == NOTHING
        await done(caller.commit())
    assert await found(db) == ALL
    job = await make.read(submitted.job_id)
    assert (job.input, job.price, job.state, job.created_at) == ({"product": "hät"}, 5, "queued", submitted.created_at)
    assert (submitted.available, submitted.is_replay, submitted.expires_at) == (95, False, None)
    assert (await engine.balance(TENANT, ACCOUNT)).held == 5
    await make.serve("priced")


@each_caller
async def test_order_hold_and_job_roll_back_together(
    dsn: str, db: Database, engine: Engine, make: Factory, begin: Any
) -> None:
    await make.credits(100)
    async with begin(dsn) as caller:
        await caller.order()
        await engine.submit("priced", **OWNER, idempotency_key="k", tx=caller.tx)
        await done(caller.rollback())
    assert await found(db) == NOTHING
    assert (await engine.balance(TENANT, ACCOUNT)).available == 100


@each_caller
async def test_a_refusal_leaves_the_callers_transaction_as_it_was(
    dsn: str, db: Database, engine: Engine, make: Factory, begin: Any
) -> None:
    await make.credits(4)
    async with begin(dsn) as caller:
        with pytest.raises(InsufficientCreditsError) as caught:
            await engine.submit("priced", **OWNER, idempotency_key="k", tx=caller.tx)
        await caller.order()
        await done(caller.commit())
    assert caught.value.details == {"required": 5, "available": 4}
    assert await found(db) == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("begin", SYNC.values(), ids=SYNC)
async def test_code_that_does_not_await_has_a_function_of_its_own(
    dsn: str, db: Database, engine: Engine, make: Factory, begin: Any
) -> None:
    await make.credits(100)
    async with begin(dsn) as caller:
        await caller.order()
        submitted = submit_in(caller.tx, app, "metered", {"units": 7}, **OWNER, idempotency_key="k")
        await done(caller.commit())
    assert await found(db) == ALL
    assert (submitted.price, submitted.available) == (7, 93)


async def test_a_transaction_object_stands_for_its_connection(dsn: str, db: Database, engine: Engine) -> None:
    async with by_asyncpg_transaction(dsn) as caller:
        await engine.submit("free", **OWNER, tx=caller.tx)
    assert await found(db) == NOTHING
    with psycopg.connect(dsn, autocommit=True) as connection, connection.transaction() as transaction:
        submit_in(transaction, app, "free", **OWNER)
    assert (await found(db))[1] == 1


async def test_many_jobs_of_one_transaction_commit_together(dsn: str, engine: Engine, make: Factory) -> None:
    await make.credits(20)
    async with by_asyncpg(dsn) as caller:
        answers = [await engine.submit("priced", **OWNER, tx=caller.tx) for _ in range(3)]
        await caller.commit()
    assert [answer.available for answer in answers] == [15, 10, 5]
    assert (await engine.balance(TENANT, ACCOUNT)).active == 3


async def test_a_savepoint_takes_back_its_job_and_no_other(dsn: str, engine: Engine, make: Factory) -> None:
    await make.credits(20)
    async with by_asyncpg(dsn) as caller:
        kept = await engine.submit("priced", **OWNER, tx=caller.tx)
        savepoint = caller.tx.transaction()
        await savepoint.start()
        await engine.submit("priced", **OWNER, idempotency_key="k", tx=caller.tx)
        await savepoint.rollback()
        again = await engine.submit("priced", **OWNER, idempotency_key="k", tx=caller.tx)
        await caller.commit()
    assert not again.is_replay
    assert [job.job_id for job in await engine.list_jobs(TENANT, ACCOUNT)] == [again.job_id, kept.job_id]


@pytest.mark.parametrize("kind", ["free", "priced", "restartable", "brief", "fair", "drawn"])
@pytest.mark.parametrize("when", [None, HOUR])
async def test_the_answer_is_the_one_that_the_engine_gives(
    dsn: str, engine: Engine, make: Factory, kind: str, when: timedelta | None
) -> None:
    """All of it, but for the id, the time, and one thing: what is left after two jobs is less than after one."""
    given = {"width": 3} if kind == "drawn" else {}
    options: dict[str, Any] = {**OWNER, "run_at": when and datetime.now(UTC) + when, "priority": 3}
    await make.credits(20)
    plain = await engine.submit(kind, given, **options)
    async with by_asyncpg(dsn) as caller:
        own = await engine.submit(kind, given, **options, tx=caller.tx)
        await caller.commit()
    price = plain.price
    assert own == replace(
        plain,
        job_id=own.job_id,
        created_at=own.created_at,
        available=None if plain.available is None else plain.available - price,
        expires_at=plain.expires_at and own.expires_at,
    )
    one, other = await make.read(plain.job_id), await make.read(own.job_id)
    for name in ("state", "phase", "lifecycle", "queue", "priority", "run_at", "price", "input", "events"):
        assert getattr(one, name) == getattr(other, name), name
    assert other.expires_at == own.expires_at
    assert await make.types(plain.job_id) == await make.types(own.job_id)


# Wrong requests


async def test_python_checks_the_input_before_the_database_is_asked(dsn: str, db: Database, engine: Engine) -> None:
    async with by_asyncpg(dsn) as caller:
        for wrong, error in [
            (("nothing",), UnknownKindError),
            (("drawn", {"width": 0}), InputError),
            (("metered", {"units": "x"}), InputError),
        ]:
            with pytest.raises(error):
                await engine.submit(*wrong, **OWNER, tx=caller.tx)
        await caller.order()
        await caller.commit()
    assert await found(db) == (1, 0, 0, 0, 0)


async def test_a_cap_holds_in_a_callers_transaction_too(dsn: str, engine: Engine) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 1)
    async with by_asyncpg(dsn) as caller:
        await engine.submit("free", **OWNER, tx=caller.tx)
        with pytest.raises(TooManyActiveJobsError) as caught:
            await engine.submit("free", **OWNER, tx=caller.tx)
        await caller.commit()
    assert caught.value.details == {"active": 1}
    assert (await engine.balance(TENANT, ACCOUNT)).active == 1


async def test_an_account_nobody_knows_has_no_credits_and_is_not_opened(dsn: str, db: Database, engine: Engine) -> None:
    async with by_asyncpg(dsn) as caller:
        with pytest.raises(InsufficientCreditsError) as caught:
            await engine.submit("priced", **OWNER, tx=caller.tx)
        await caller.commit()
    assert caught.value.details == {"required": 5, "available": 0}
    async with db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.accounts") == 0


async def test_an_id_that_is_taken_is_refused(dsn: str, engine: Engine, make: Factory) -> None:
    taken = await make.submitted("free")
    async with by_asyncpg(dsn) as caller:
        with pytest.raises(ConflictError, match="with this id already exists"):
            await engine.submit("free", **OWNER, job_id=taken.job_id, tx=caller.tx)
        await caller.order()
        await caller.commit()


async def test_a_connection_in_no_transaction_is_refused(dsn: str, db: Database, engine: Engine) -> None:
    connection = await asyncpg.connect(dsn)
    with pytest.raises(InvalidError, match="no open transaction") as caught:
        await engine.submit("free", **OWNER, tx=connection)
    assert caught.value.field == "tx"
    await connection.close()
    with psycopg.connect(dsn, autocommit=True) as blocking, pytest.raises(InvalidError, match="no open transaction"):
        submit_in(blocking, app, "free", **OWNER)
    loose = sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with loose.connect() as own, pytest.raises(InvalidError, match="no open transaction"):
        submit_in(own, app, "free", **OWNER)
    assert await found(db) == NOTHING


@pytest.mark.parametrize("tx", ["postgresql://", 7, object()], ids=lambda tx: type(tx).__name__)
async def test_what_is_no_connection_is_refused(engine: Engine, tx: Any) -> None:
    with pytest.raises(InvalidError, match="not a supported connection") as caught:
        await engine.submit("free", **OWNER, tx=tx)
    assert "asyncpg, psycopg or SQLAlchemy" in str(caught.value)


async def test_another_database_than_postgresql_is_refused(engine: Engine) -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as connection, pytest.raises(InvalidError, match="sqlite"):
        await engine.submit("free", **OWNER, tx=connection)


async def test_an_asynchronous_connection_is_not_for_code_that_does_not_await(dsn: str) -> None:
    async with by_asyncpg(dsn) as caller:
        with pytest.raises(InvalidError, match="asynchronous"):
            submit_in(caller.tx, app, "free", **OWNER)


@pytest.mark.parametrize("begin", [by_asyncpg, by_psycopg, by_async_alchemy_session])
async def test_a_database_without_millpond_is_reported(empty_dsn: str, engine: Engine, begin: Any) -> None:
    async with begin(empty_dsn) as caller:
        with pytest.raises(StoreError, match="has no Millpond schema"):
            await engine.submit("free", **OWNER, tx=caller.tx)


async def test_a_role_that_may_not_is_reported(dsn: str, db: Database, engine: Engine) -> None:
    async with by_asyncpg(dsn) as caller:
        await caller.write("create role powerless_caller; set local role powerless_caller")
        with pytest.raises(StoreError, match="has no access"):
            await engine.submit("free", **OWNER, tx=caller.tx)
        await caller.rollback()


# Keys


@each_caller
async def test_a_key_is_replayed_across_all_ways_in(dsn: str, engine: Engine, make: Factory, begin: Any) -> None:
    await make.credits(20)
    first = await engine.submit("priced", {"product": "hat"}, **OWNER, idempotency_key="k")
    async with begin(dsn) as caller:
        repeat = await engine.submit("priced", {"product": "hat"}, **OWNER, idempotency_key="k", tx=caller.tx)
        await done(caller.commit())
    assert repeat == replace(first, is_replay=True)


async def test_a_key_of_the_same_transaction_is_replayed(dsn: str, db: Database, engine: Engine) -> None:
    async with by_asyncpg(dsn) as caller:
        first = await engine.submit("free", **OWNER, idempotency_key="k", tx=caller.tx)
        repeat = await engine.submit("free", **OWNER, idempotency_key="k", tx=caller.tx)
        await caller.commit()
    assert repeat == replace(first, is_replay=True)
    assert await engine.submit("free", **OWNER, idempotency_key="k") == repeat


async def test_a_key_with_another_request_is_a_conflict(dsn: str, engine: Engine) -> None:
    first = await engine.submit("free", {"a": 1}, **OWNER, idempotency_key="k")
    async with by_asyncpg(dsn) as caller:
        with pytest.raises(IdempotencyConflictError) as caught:
            await engine.submit("free", {"a": 2}, **OWNER, idempotency_key="k", tx=caller.tx)
        await caller.commit()
    assert caught.value.details == {"job_id": first.id}


@pytest.mark.parametrize("way", ["commit", "rollback"])
async def test_the_second_of_two_transactions_with_one_key_waits_for_the_first(
    dsn: str, db: Database, engine: Engine, way: str
) -> None:
    async with by_asyncpg(dsn) as one, by_psycopg(dsn) as other:
        first = await engine.submit("free", **OWNER, idempotency_key="k", tx=one.tx)
        waiting = asyncio.create_task(engine.submit("free", **OWNER, idempotency_key="k", tx=other.tx))
        await until(partial(is_blocked, db))
        assert not waiting.done()
        await getattr(one, way)()
        second = await waiting
        other.commit()
    assert second.is_replay == (way == "commit")
    assert (second.job_id == first.job_id) == (way == "commit")
    assert (await found(db))[1] == 1


async def is_blocked(db: Database) -> bool:
    async with db.transaction() as tx:
        return await tx.fetchval("select exists (select from pg_stat_activity where wait_event_type = 'Lock')")


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
async def test_a_strict_transaction_is_asked_to_run_again_and_then_replays(
    dsn: str, engine: Engine, level: Any
) -> None:
    """Its snapshot is older than the key: PostgreSQL refuses, and the caller does as he does with his own rows."""
    connection = await asyncpg.connect(dsn)

    async def attempt(*, first: bool) -> Any:
        async with connection.transaction(isolation=level):
            await connection.execute(ORDER)
            if first:
                await engine.submit("free", **OWNER, idempotency_key="k")
            return await engine.submit("free", **OWNER, idempotency_key="k", tx=connection)

    with pytest.raises(asyncpg.SerializationError):
        await attempt(first=True)
    assert (await attempt(first=False)).is_replay
    await connection.close()


async def test_a_crowd_of_transactions_spends_no_credit_twice(dsn: str, engine: Engine, make: Factory) -> None:
    await make.credits(25)

    async def buy(number: int) -> bool:
        async with by_asyncpg(dsn) as caller:
            try:
                await engine.submit("priced", **OWNER, idempotency_key=f"k{number}", tx=caller.tx)
            except InsufficientCreditsError:
                await caller.rollback()
                return False
            await caller.commit()
            return True

    bought = await asyncio.gather(*(buy(number) for number in range(12)))
    assert sum(bought) == 5
    assert (await engine.balance(TENANT, ACCOUNT)).available == 0


# Notifications


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, topics: frozenset[str]) -> None:
        self.heard += topics


@pytest.mark.parametrize("begin", [by_asyncpg, by_asyncpg_pool, by_async_psycopg, by_psycopg, by_async_alchemy_session])
async def test_it_notifies_when_the_transaction_is_over_and_not_before(
    dsn: str, engine: Engine, make: Factory, begin: Any
) -> None:
    notifier, ear = Notifier(engine), Ear()
    notifier.listen(ear)
    async with begin(dsn) as caller:
        await engine.submit("free", **OWNER, tx=caller.tx)
        await asyncio.sleep(0.05)  # on a busy machine it proves less, and passes
        assert ear.heard == []
        await done(caller.commit())
        await until(partial(has_notified, ear))
    assert ear.heard == [f"{BACK_TOPIC}free"]
    await make.serve("free")


async def has_notified(ear: Ear) -> bool:
    return bool(ear.heard)


async def test_an_engine_that_closes_waits_for_nobodys_transaction(dsn: str, db: Database) -> None:
    engine = await Engine.open(dsn, app, pool_size=1)
    Notifier(engine)
    async with by_asyncpg(dsn) as caller:
        await engine.submit("free", **OWNER, tx=caller.tx)
        await engine.close()
        await asyncio.sleep(0)
        assert not engine._watchers
        await caller.commit()
    assert (await found(db))[1] == 1


# SQL by hand


async def by_hand(db: Database, arguments: str = "", kind: str = "priced", given: str = "{}") -> Any:
    async with db.transaction() as tx:
        return await tx.fetchrow(f"select * from millpond.submit('{kind}', '{given}', 'acme', 'ann' {arguments})")


async def test_sql_by_hand_takes_a_job_in(db: Database, engine: Engine, make: Factory) -> None:
    await make.credits(20)
    row = await by_hand(db, ", idempotency_key => 'k', priority => 7, expires_in => '10 minutes'", given='{"size": 2}')
    job = await make.read(row["job_id"])
    assert (job.input, job.priority, job.price, job.state) == ({"size": 2}, 7, 5, "queued")
    assert row["id"] == ids.text("job", row["job_id"]) == job.id
    assert (row["state"], row["price"], row["available"], row["is_replay"]) == ("queued", 5, 15, False)
    assert row["expires_at"] == job.expires_at == job.created_at + timedelta(minutes=10)
    again = await engine.submit("priced", {"size": 2}, **OWNER, idempotency_key="k")
    assert (again.job_id, again.is_replay, again.available) == (row["job_id"], True, 15)
    assert (await by_hand(db, ", idempotency_key => 'k'", given='{"size": 2}'))["is_replay"]
    await make.serve("priced")


async def test_sql_by_hand_knows_what_the_kind_declares(db: Database, engine: Engine, make: Factory) -> None:
    """The same rows as through Python, for every kind with a fixed price."""
    await make.credits(1000)
    for name, kind in app.kinds.items():
        if isinstance(kind.price, int):
            row = await by_hand(db, kind=name, given='{"width": 1}' if name == "drawn" else "{}")
            given = {"width": 1} if name == "drawn" else {}
            one, other = (
                await make.read(row["job_id"]),
                await make.read((await engine.submit(name, given, **OWNER)).job_id),
            )
            for field in ("state", "phase", "lifecycle", "queue", "priority", "price", "events", "input"):
                assert getattr(one, field) == getattr(other, field), (name, field)
            assert (one.expires_at is None) == (other.expires_at is None)


async def test_sql_by_hand_may_wait_for_its_time(db: Database, make: Factory) -> None:
    await make.credits(20)
    row = await by_hand(db, ", run_at => millpond.clock() + interval '1 hour'", kind="restartable")
    assert row["state"] == "pending"
    assert (await make.read(row["job_id"])).phase == "waiting"


WRONG = {
    "a kind that is not there": ("", "nothing", "{}", "PS102", "kind"),
    "a price by input": ("", "metered", '{"units": 1}', "PS101", "kind"),
    "an input that is a list": ("", "free", "[]", "PS103", "input"),
    "an input of null": ("", "free", "null", "PS103", "input"),
    "a large input": ("", "free", f'{{"a": "{"x" * 262_144}"}}', "PS103", "input"),
    "a deep input": ("", "free", '{"a":' * 33 + "1" + "}" * 33, "PS103", "input"),
    "a deep list": ("", "free", '{"a":' + "[" * 32 + "]" * 32 + "}", "PS103", "input"),
    "a number without end": ("", "free", '{"a": 1e400}', "PS103", "input"),
    "a key with a space": (", idempotency_key => 'a b'", "free", "{}", "PS104", "idempotency_key"),
    "an empty key": (", idempotency_key => ''", "free", "{}", "PS104", "idempotency_key"),
    "a priority out of range": (", priority => 101", "free", "{}", "PS101", "priority"),
    "a time without end": (", run_at => 'infinity'", "free", "{}", "PS101", "run_at"),
    "a deadline that is over": (", expires_in => '-1 second'", "free", "{}", "PS101", "expires_in"),
    "a deadline of no time": (", expires_in => '0'", "free", "{}", "PS101", "expires_in"),
    "an account without credits": ("", "priced", "{}", "PS106", "account"),
}


@pytest.mark.parametrize(("arguments", "kind", "given", "state", "field"), WRONG.values(), ids=WRONG)
async def test_sql_by_hand_is_shown_what_is_wrong(
    db: Database, engine: Engine, arguments: str, kind: str, given: str, state: str, field: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await by_hand(db, arguments, kind, given)
    assert (caught.value.sqlstate, caught.value.column_name) == (state, field)
    assert caught.value.message.startswith(f"{field}: ")
    assert (caught.value.detail or "").startswith("Error code: ")
    assert caught.value.hint
    assert await found(db) == NOTHING


@pytest.mark.parametrize(
    "owner", ["null, 'ann'", "'acme', null", "'', 'ann'", "'acme', 'a b'", "'acme', repeat('x', 129)"]
)
async def test_sql_by_hand_checks_names(db: Database, engine: Engine, owner: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        async with db.transaction() as tx:
            await tx.execute(f"select millpond.submit('free', '{{}}', {owner})")
    assert caught.value.sqlstate == "PS101"


@pytest.mark.parametrize("given", ['{"a":' * 32 + "1" + "}" * 32, '{"a":' + "[" * 31 + "]" * 31 + "}", '{"a": -1e308}'])
async def test_what_python_takes_sql_takes_too(db: Database, engine: Engine, given: str) -> None:
    assert (await by_hand(db, kind="free", given=given))["state"] == "queued"


async def test_sql_by_hand_is_notified_of_a_conflict_and_a_cap(db: Database, engine: Engine) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 1)
    row = await by_hand(db, ", idempotency_key => 'k'", kind="free")
    with pytest.raises(asyncpg.PostgresError, match="a different request") as caught:
        await by_hand(db, ", idempotency_key => 'k'", kind="free", given='{"a": 1}')
    assert (caught.value.sqlstate, caught.value.hint) == ("PS105", f"It belongs to job {row['id']}.")
    with pytest.raises(asyncpg.PostgresError, match="1 active jobs") as caught:
        await by_hand(db, kind="free")
    assert caught.value.sqlstate == "PS107"


async def test_ids_are_written_in_sql_as_in_python(db: Database) -> None:
    async with db.transaction() as tx:
        for number in [ids.new() for _ in range(50)] + [ids.UUID(int=0), ids.UUID(int=2**128 - 1)]:
            assert await tx.fetchval("select millpond.typeid('job', $1)", number) == ids.text("job", number)


async def test_another_users_settings_of_his_session_do_not_matter(
    dsn: str, server: DatabaseServer, engine: Engine
) -> None:
    async with by_asyncpg(dsn) as caller:
        await caller.write(
            "set local timezone = 'Asia/Kolkata'; set local intervalstyle = 'sql_standard';"
            "set local datestyle = 'german'; set local search_path = 'pg_temp';"
            "set local bytea_output = 'escape'; set local extra_float_digits = -5"
        )
        at = datetime.now(UTC) + HOUR
        given = {"x": 0.1234567890123}
        submitted = await engine.submit("free", given, **OWNER, run_at=at, expires_in="90m", tx=caller.tx)
        await caller.commit()
    job = await engine.read(TENANT, submitted.job_id)
    assert (job.run_at, job.expires_at, job.input) == (at, at + timedelta(minutes=90), {"x": 0.1234567890123})
    assert submitted.expires_at == job.expires_at
    assert submitted.created_at == job.created_at
