"""A connection that belongs to the caller: asked one thing in the middle of his transaction, and left as it was.

Drivers are recognised by the names of their classes; none is imported. What is asked and what is answered is one
text each: so it does not matter how the caller has taught his driver to read and write JSON, times or ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from millpond.errors import InvalidError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from millpond.store.queries import Query

_IDLE: Final = 0  # what libpq calls a connection that is in no transaction
_MISSING: Final = ("3F000", "42883", "42P01")
_FORBIDDEN: Final = "42501"
_NUMBERED: Final = "numeric_dollar"


@dataclass(slots=True)
class Borrowed:
    """Somebody's connection or session, in a transaction of his."""

    tx: Any
    is_async: ClassVar[bool] = True

    def is_open(self) -> bool:
        """Whether its transaction is still under way, as far as the driver knows without asking the server."""
        raise NotImplementedError

    def ask(self, text: str, argument: str) -> Any:
        """Run a query of one argument and one answer; something to await, where the driver is asynchronous."""
        raise NotImplementedError

    async def fetch(self, query: Query, argument: str) -> str:
        """The answer; a driver that blocks does so in a thread of its own."""
        self._check()
        with _explained():
            if self.is_async:
                return await self.ask(query.text, argument)
            return await asyncio.to_thread(self.ask, query.text, argument)

    def fetch_now(self, query: Query, argument: str) -> str:
        """The answer, for those who do not await."""
        if self.is_async:
            raise InvalidError("It is asynchronous.", field="tx", hint="Await engine.submit(…, tx=…) instead.")
        self._check()
        with _explained():
            return self.ask(query.text, argument)

    def has_ended(self) -> bool:
        try:
            return not self.is_open()
        except Exception:  # noqa: BLE001 - a connection that was given back does not answer any more
            return True

    def _check(self) -> None:
        if not self.is_open():
            raise _alone()


class _Asyncpg(Borrowed):
    def is_open(self) -> bool:
        return self.tx.is_in_transaction()

    def ask(self, text: str, argument: str) -> Any:
        return self.tx.fetchval(text, argument)


class _Psycopg(Borrowed):
    is_async = False

    def is_open(self) -> bool:
        """Without autocommit the first statement begins a transaction."""
        return not self.tx.autocommit or self.tx.info.transaction_status != _IDLE

    def has_ended(self) -> bool:
        return self.tx.closed or self.tx.info.transaction_status == _IDLE

    def ask(self, text: str, argument: str) -> Any:
        with self._cursor("Cursor") as cursor:
            return cursor.execute(_formatted(text), (argument,)).fetchone()[0]

    def _cursor(self, name: str) -> Any:
        """A plain one: the connection's own may make other rows, or want other placeholders."""
        return getattr(import_module("psycopg"), name)(self.tx, row_factory=import_module("psycopg.rows").tuple_row)


class _AsyncPsycopg(_Psycopg):
    is_async = True

    async def ask(self, text: str, argument: str) -> Any:
        async with self._cursor("AsyncCursor") as cursor:
            await cursor.execute(_formatted(text), (argument,))
            return (await cursor.fetchone())[0]


class _Alchemy(Borrowed):
    is_async = False

    def is_open(self) -> bool:
        """It begins a transaction by itself; that it does not is found out on its connection."""
        return True

    def has_ended(self) -> bool:
        return not self.tx.in_transaction()

    def ask(self, text: str, argument: str) -> Any:
        return _ask_alchemy(self.tx, text, argument)


class _AsyncAlchemy(_Alchemy):
    is_async = True

    def ask(self, text: str, argument: str) -> Any:
        return self.tx.run_sync(_ask_alchemy, text, argument)


class _DbApi(Borrowed):
    """Whatever else has cursors: psycopg2, pg8000, or the connection of Django."""

    is_async = False

    def is_open(self) -> bool:
        return bool(getattr(self.tx, "in_atomic_block", not getattr(self.tx, "autocommit", False)))

    def ask(self, text: str, argument: str) -> Any:
        with contextlib.closing(self.tx.cursor()) as cursor:
            cursor.execute(_formatted(text), (argument,))
            row: Any = cursor.fetchone()
            return next(iter(cast("Mapping[str, Any]", row).values())) if isinstance(row, dict) else row[0]


_DRIVERS: Final[Mapping[str, type[Borrowed]]] = {
    "asyncpg.Connection": _Asyncpg,
    "asyncpg.PoolConnectionProxy": _Asyncpg,
    "psycopg.Connection": _Psycopg,
    "psycopg.AsyncConnection": _AsyncPsycopg,
    "sqlalchemy.Connection": _Alchemy,
    "sqlalchemy.Session": _Alchemy,
    "sqlalchemy.scoped_session": _Alchemy,
    "sqlalchemy.AsyncConnection": _AsyncAlchemy,
    "sqlalchemy.AsyncSession": _AsyncAlchemy,
}
_OWNERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "asyncpg.Transaction": lambda tx: tx._connection,  # noqa: SLF001 - it has no other name there
    "psycopg.Transaction": lambda tx: tx.connection,
    "psycopg.AsyncTransaction": lambda tx: tx.connection,
}
"""Transactions, and how to come to the connection they are on."""


def borrow(tx: Any) -> Borrowed:
    """The caller's connection, session or transaction as something that can be asked."""
    if isinstance(tx, Borrowed):
        return tx
    names = _names(tx)
    for name in names & _OWNERS.keys():
        return borrow(_OWNERS[name](tx))
    for name in names & _DRIVERS.keys():
        return _DRIVERS[name](tx)
    if callable(getattr(tx, "cursor", None)) and not any(map(inspect.iscoroutinefunction, (tx.cursor, tx.commit))):
        return _DbApi(tx)
    raise InvalidError(
        f"A {type(tx).__name__} is not a connection that can be used.",
        field="tx",
        hint="Give a connection or session of asyncpg, psycopg or SQLAlchemy, or any connection of DB-API 2.",
    )


def _names(tx: Any) -> set[str]:
    return {f"{made.__module__.partition('.')[0]}.{made.__name__}" for made in type(tx).__mro__}


def _ask_alchemy(owner: Any, text: str, argument: str) -> Any:
    connection: Any = owner.connection() if hasattr(owner, "get_bind") else owner  # a session has one
    if connection.dialect.name != "postgresql":
        raise InvalidError(f"It is connected to {connection.dialect.name}, not to PostgreSQL.", field="tx")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise _alone()
    written = text if connection.dialect.paramstyle == _NUMBERED else _formatted(text)
    return connection.exec_driver_sql(written, (argument,)).scalar_one()


def _alone() -> InvalidError:
    return InvalidError(
        "The connection is in no transaction: the job would be committed at once, and alone.",
        field="tx",
        hint="Begin a transaction first; do not use autocommit.",
    )


def _formatted(text: str) -> str:
    return text.replace("$1", "%s")


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """The driver's errors are the caller's own; only what the connection itself lacks is told in our words."""
    try:
        yield
    except Exception as error:
        state = _state(error)
        if state in _MISSING:
            raise StoreError(
                "The connection leads to a database that has no Millpond in it, or another version's.",
                hint="Use a connection to the engine's own database; `millpond db status` looks at it.",
            ) from error
        if state == _FORBIDDEN:
            raise StoreError(
                "The connection's role may not use Millpond's tables.",
                hint="Connect as the role that owns the schema millpond, or grant that role to yours.",
            ) from error
        raise


def _state(error: BaseException | None) -> str | None:
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state:
            return str(state)
        error = getattr(error, "orig", None) or error.__cause__
    return None
