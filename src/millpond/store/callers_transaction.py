"""Runs a query on a connection of the caller, in the caller's transaction.

Drivers are recognised by the names of their classes; none is imported. A query has one text as its argument and one
text as its result, so the codecs that the caller has set for JSON, times or ids do not matter.
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

    from millpond.store.queries import NamedQuery

_IDLE: Final = 0  # libpq's status of a connection without a transaction
_MISSING: Final = ("3F000", "42883", "42P01")
_FORBIDDEN: Final = "42501"
_NUMBERED: Final = "numeric_dollar"


@dataclass(slots=True)
class CallersTransaction:
    """A connection or session of the caller, in the caller's transaction."""

    tx: Any
    is_async: ClassVar[bool] = True

    def is_open(self) -> bool:
        """Whether the transaction is open, as far as the driver knows without a query."""
        raise NotImplementedError

    def ask(self, text: str, argument: str) -> Any:
        """Run a query with one argument and return its one value; an awaitable if the driver is asynchronous."""
        raise NotImplementedError

    async def fetch(self, query: NamedQuery, argument: str) -> str:
        """Run a query. A blocking driver runs it in a thread."""
        self._check()
        with _translated():
            if self.is_async:
                return await self.ask(query.text, argument)
            return await asyncio.to_thread(self.ask, query.text, argument)

    def fetch_now(self, query: NamedQuery, argument: str) -> str:
        """Run a query without asyncio."""
        if self.is_async:
            raise InvalidError(
                "The connection is asynchronous.", field="tx", hint="Use await engine.submit(…, tx=…) instead."
            )
        self._check()
        with _translated():
            return self.ask(query.text, argument)

    def has_ended(self) -> bool:
        try:
            return not self.is_open()
        except Exception:  # noqa: BLE001 - a connection that was returned to its pool raises an error
            return True

    def _check(self) -> None:
        if not self.is_open():
            raise _no_transaction()


class _Asyncpg(CallersTransaction):
    def is_open(self) -> bool:
        return self.tx.is_in_transaction()

    def ask(self, text: str, argument: str) -> Any:
        return self.tx.fetchval(text, argument)


class _Psycopg(CallersTransaction):
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
        """A plain cursor: the connection's own class may return other rows, or expect other placeholders."""
        return getattr(import_module("psycopg"), name)(self.tx, row_factory=import_module("psycopg.rows").tuple_row)


class _AsyncPsycopg(_Psycopg):
    is_async = True

    async def ask(self, text: str, argument: str) -> Any:
        async with self._cursor("AsyncCursor") as cursor:
            await cursor.execute(_formatted(text), (argument,))
            return (await cursor.fetchone())[0]


class _Alchemy(CallersTransaction):
    is_async = False

    def is_open(self) -> bool:
        """SQLAlchemy begins a transaction by itself. Autocommit is detected later, on the connection of the driver."""
        return True

    def has_ended(self) -> bool:
        return not self.tx.in_transaction()

    def ask(self, text: str, argument: str) -> Any:
        return _ask_alchemy(self.tx, text, argument)


class _AsyncAlchemy(_Alchemy):
    is_async = True

    def ask(self, text: str, argument: str) -> Any:
        return self.tx.run_sync(_ask_alchemy, text, argument)


class _DbApi(CallersTransaction):
    """Any other connection with cursors: of psycopg2, pg8000 or Django."""

    is_async = False

    def is_open(self) -> bool:
        return bool(getattr(self.tx, "in_atomic_block", not getattr(self.tx, "autocommit", False)))

    def ask(self, text: str, argument: str) -> Any:
        with contextlib.closing(self.tx.cursor()) as cursor:
            cursor.execute(_formatted(text), (argument,))
            row: Any = cursor.fetchone()
            return next(iter(cast("Mapping[str, Any]", row).values())) if isinstance(row, dict) else row[0]


_DRIVERS: Final[Mapping[str, type[CallersTransaction]]] = {
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
    "asyncpg.Transaction": lambda tx: tx._connection,  # noqa: SLF001 - asyncpg has no public name for it
    "psycopg.Transaction": lambda tx: tx.connection,
    "psycopg.AsyncTransaction": lambda tx: tx.connection,
}
"""The classes of transactions, and how to get their connection."""


def adopt(tx: Any) -> CallersTransaction:
    """Wrap a connection, session or transaction of the caller."""
    if isinstance(tx, CallersTransaction):
        return tx
    names = _names(tx)
    for name in names & _OWNERS.keys():
        return adopt(_OWNERS[name](tx))
    for name in names & _DRIVERS.keys():
        return _DRIVERS[name](tx)
    if callable(getattr(tx, "cursor", None)) and not any(map(inspect.iscoroutinefunction, (tx.cursor, tx.commit))):
        return _DbApi(tx)
    raise InvalidError(
        f"{type(tx).__name__} is not a supported connection.",
        field="tx",
        hint="Pass a connection or session of asyncpg, psycopg or SQLAlchemy, or any DB-API 2 connection.",
    )


def _names(tx: Any) -> set[str]:
    return {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(tx).__mro__}


def _ask_alchemy(owner: Any, text: str, argument: str) -> Any:
    connection: Any = owner.connection() if hasattr(owner, "get_bind") else owner  # get_bind: a session
    if connection.dialect.name != "postgresql":
        raise InvalidError(f"The connection is to {connection.dialect.name}, not to PostgreSQL.", field="tx")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise _no_transaction()
    written = text if connection.dialect.paramstyle == _NUMBERED else _formatted(text)
    return connection.exec_driver_sql(written, (argument,)).scalar_one()


def _no_transaction() -> InvalidError:
    return InvalidError(
        "The connection has no open transaction, so the job would be committed immediately and separately.",
        field="tx",
        hint="Begin a transaction first; do not use autocommit.",
    )


def _formatted(text: str) -> str:
    return text.replace("$1", "%s")


@contextlib.contextmanager
def _translated() -> Generator[None]:
    """Translate errors about a missing schema or privilege; leave all others to the caller."""
    try:
        yield
    except Exception as error:
        state = _state(error)
        if state in _MISSING:
            raise StoreError(
                "The database of the connection has no Millpond schema, or one of another version.",
                hint="Connect to the engine's database; check it with `millpond db migrate --check`.",
            ) from error
        if state == _FORBIDDEN:
            raise StoreError(
                "The role of the connection has no access to Millpond's tables.",
                hint="Connect as the owner of the schema millpond, or grant that role to yours.",
            ) from error
        raise


def _state(error: BaseException | None) -> str | None:
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state:
            return str(state)
        error = getattr(error, "orig", None) or error.__cause__
    return None
