"""The only door to PostgreSQL: a pool, transactions, named queries, and errors in our own words."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import asyncpg
from asyncpg import exceptions as pg
from asyncpg.pgproto import pgproto
from uuid_utils import uuid7

from millpond.errors import (
    BusyError,
    InvalidError,
    MoveDeniedError,
    OverdueError,
    StoreError,
    UnavailableError,
    UnknownKindError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import timedelta
    from typing import Self
    from uuid import UUID

    from asyncpg import Record as Row
    from asyncpg.pool import PoolConnectionProxy

    from millpond.store.queries import Query

    Connection = asyncpg.Connection[Row] | PoolConnectionProxy[Row]

MOVE_DENIED: Final = "PS001"
APPEND_ONLY: Final = "PS002"
NOT_ACCEPTED: Final = "PS003"
UNKNOWN_KIND: Final = "PS004"
NO_ROOM: Final = "PS005"
CLIENT_ROLE: Final = "millpond_client"

_SESSION: Final = {
    "application_name": "millpond",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}
# A batch waits for a row that somebody else's transaction holds, and everybody in it does; so it does not wait long.
_PATIENCE: Final = {"lock_timeout": "2s"}
_LOST: Final = (
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.TooManyConnectionsError,
    pg.InterfaceError,
    pg.InternalClientError,  # raised when a server dies at an awkward moment
    ConnectionError,
    OSError,
    TimeoutError,
)
_UNFIT: Final = (
    pg.CharacterNotInRepertoireError,
    pg.UntranslatableCharacterError,
    pg.InvalidRowCountInLimitClauseError,
)
_AGAIN: Final = (pg.DeadlockDetectedError, pg.SerializationError)
_NO_ROLE: Final = (pg.InvalidParameterValueError, pg.InsufficientPrivilegeError)
_TRIES: Final = 5
_READY_SHARE: Final = 4  # one connection in so many may stay out of the pool
_READER_SHARE: Final = 2  # one connection for clients' reads to so many others
_COMMAND_TIMEOUT: Final = 60.0
_SETTLE_TIMEOUT: Final = 5.0
_VOUCHED: Final = ContextVar("_VOUCHED", default=False)  # that a connection goes back with nothing left open


class Door(Protocol):
    """Where the statement of a verb is run: a database, or two that stand for one (see engine/split.py)."""

    async def run(self, query: Query, *arguments: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Pool:
    """How many connections there are, how many of them do nothing, and how many there may be."""

    name: str
    size: int
    idle: int
    most: int


@dataclass(slots=True, eq=False)
class Database:
    """A pool of connections to one PostgreSQL.

    Taking a connection from the pool and giving it back costs about as much Python as a short statement. So a
    few of them stay out, ready for the next statement that asks.
    """

    dsn: str
    pool: asyncpg.Pool[Row]
    cut: timedelta | None = field(default=None, init=False)
    """After how long the server cuts a statement; none: it does not."""
    _ready: list[PoolConnectionProxy[Row]] = field(default_factory=list["PoolConnectionProxy[Row]"], init=False)
    _reader: Database | None = field(default=None, init=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        size: int = 10,
        role: str | None = None,
        patience: float | None = None,
        cut: timedelta | None = None,
    ) -> Self:
        """Connect; as another role, if one is given, which the server is told as the connection is made.

        A session that took a role by a statement would keep it for whoever a pooler gives that session next.
        With ``patience``, in seconds, it connects only when it must, and waits for no answer longer than that.
        With ``cut`` the server ends each statement that takes longer.
        """
        with translated():
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1 if patience is None else 0,
                max_size=size,
                timeout=patience or _COMMAND_TIMEOUT,
                command_timeout=patience or _COMMAND_TIMEOUT,
                server_settings=_SESSION | _PATIENCE | _asked(role, cut),
                reset=_settle,
                # JSON stays text on its way in and out: it is encoded once, by msgspec, at the edge.
            )
        made = cls(dsn, pool)
        made.cut = cut
        return made

    async def close(self) -> None:
        """Wait briefly for what is under way, then cut."""
        if self._reader is not None:
            await self._reader.close()
        try:
            async with asyncio.timeout(5):
                while self._ready:
                    await self.pool.release(self._ready.pop())
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()

    async def run(self, query: Query, *arguments: Any) -> Any:
        """One statement in a transaction of its own; tried again where the database says to."""
        for left in reversed(range(_TRIES)):
            try:
                with translated():
                    return await self._fetch(query, *arguments)
            except AgainError as again:
                if not left:
                    raise StoreError(str(again)) from again
            except pg.UniqueViolationError as error:
                raise DuplicateError(str(error)) from error
        raise AssertionError

    async def read(self, query: Query, *arguments: Any) -> Any:
        """One statement for a client, by the role that row-level security holds to the tenants it names."""
        reader = self._reader or await self._open_reader()
        return await reader.run(query, *arguments)

    async def _open_reader(self) -> Database:
        async with self._opening:
            if self._reader is None:
                size = max(2, self.pool.get_max_size() // _READER_SHARE)
                try:
                    self._reader = await Database.open(self.dsn, size=size, role=CLIENT_ROLE, cut=self.cut)
                except _NO_ROLE:  # The doctor tells. The first wall, in the statements themselves, stands.
                    self._reader = await Database.open(self.dsn, size=size, cut=self.cut)
        return self._reader

    async def _fetch(self, query: Query, *arguments: Any) -> Any:
        connection = await self._take()
        try:
            found = await fetch(connection, query, *arguments)
        except BaseException:
            await self.pool.release(connection)  # which looks after one that is broken, or still at work
            raise
        if len(self._ready) < self.pool.get_max_size() // _READY_SHARE:
            self._ready.append(connection)
        else:
            await self._release(connection)
        return found

    async def _release(self, connection: PoolConnectionProxy[Row]) -> None:
        """Return a connection whose last statement ran to its end: that costs no round trip."""
        vouched = _VOUCHED.set(True)
        try:
            await self.pool.release(connection)
        finally:
            _VOUCHED.reset(vouched)

    def pools(self, name: str) -> list[Pool]:
        """The connections under this name, and after them those for clients' reads."""
        idle = self.pool.get_idle_size() + len(self._ready)
        own = Pool(name, self.pool.get_size(), idle, self.pool.get_max_size())
        return [own, *([] if self._reader is None else self._reader.pools(f"{name}, reads for clients"))]

    async def _take(self) -> PoolConnectionProxy[Row]:
        while self._ready:
            connection = self._ready.pop()
            if _is_open(connection):
                return connection
            await self.pool.release(connection)
        return await self.pool.acquire()

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncGenerator[Connection]:
        with translated():
            connection = await self.pool.acquire()
            try:
                async with connection.transaction(**options):
                    yield connection
            except BaseException:
                await self.pool.release(connection)
                raise
            await self._release(connection)

    def snapshot(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """A read-only transaction in which everything is seen as of one moment."""
        return self.transaction(isolation="repeatable_read", readonly=True)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection in no transaction yet."""
        with translated():
            async with self.pool.acquire() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def listen(self, channel: str, heard: Callable[[str], None]) -> AsyncGenerator[asyncio.Event]:
        """A connection of its own that calls ``heard`` for every notification; the event tells its end."""
        ended = asyncio.Event()
        connection = await connect(self.dsn)
        try:
            connection.add_termination_listener(lambda _: ended.set())
            with translated():
                await connection.add_listener(channel, lambda _connection, _pid, _channel, payload: heard(str(payload)))
            yield ended
        finally:
            await _leave(connection)


def new_id() -> UUID:
    """A new id for a row, of the driver's own kind of UUID: that is made and sent in a tenth of the time."""
    return pgproto.UUID(uuid7().bytes)


async def connect(dsn: str) -> asyncpg.Connection[Row]:
    """One connection outside any pool, for migration and checks."""
    with translated():
        return await asyncpg.connect(dsn, server_settings=_SESSION)


async def fetch(connection: Connection, query: Query, *arguments: Any) -> Any:
    """Run a named query on a connection and give what its shape promises."""
    match query.shape:
        case "exec":
            return await connection.execute(query.text, *arguments)
        case "many":
            return await connection.fetch(query.text, *arguments)
        case "maybe":
            return await connection.fetchrow(query.text, *arguments)
        case "one":
            row = await connection.fetchrow(query.text, *arguments)
            if row is None:
                raise StoreError(f"{query.name} gave no row.")
            return row


@contextlib.contextmanager
def translated() -> Any:
    """The driver's errors in our own words."""
    try:
        yield
    except _AGAIN as error:
        raise AgainError(str(error)) from error
    except pg.LockNotAvailableError as error:
        raise BusyError from error
    except pg.QueryCanceledError as error:
        raise OverdueError from error
    except pg.PostgresError as error:
        if error.sqlstate in _OURS:
            raise _OURS[error.sqlstate](error) from error
        if isinstance(error, _LOST):
            raise _away(error) from error
        if isinstance(error, _UNFIT) or type(error) is pg.DataError:  # the latter by the driver, before it sends
            raise InvalidError(f"The database cannot take it: {error}") from error
        raise
    except _LOST as error:
        raise _away(error) from error


def _asked(role: str | None, cut: timedelta | None) -> dict[str, str]:
    """What the server is told of a session beside what holds for all."""
    asked = {} if role is None else {"role": role}
    return asked if cut is None else asked | {"statement_timeout": f"{cut.total_seconds() * 1000:.0f}ms"}


def _away(error: BaseException) -> UnavailableError:
    """The driver speaks of its own calls: that is for the log, and for nobody who is told the error."""
    away = UnavailableError()
    away.reason = f"{type(error).__name__}: {error}"
    return away


class DuplicateError(StoreError):
    """What was to be written is there already."""

    code = "duplicate"


class NotAcceptedError(StoreError):
    """The statement found that it cannot do what it was asked to as things are, and did nothing."""


class NoRoomError(StoreError):
    """There are jobs, but none of the workers that ask may have one more."""


class AgainError(StoreError):
    """The database asks for the transaction to be run again."""

    retryable = True


def _unknown_kind(_: object) -> UnknownKindError:
    return UnknownKindError(field="kind", hint="An app's kinds are made known by Engine.open.")


_OURS: Final[dict[Any, Callable[[pg.PostgresError], Exception]]] = {
    NOT_ACCEPTED: lambda error: NotAcceptedError(str(error)),
    NO_ROOM: lambda _: NoRoomError(),
    UNKNOWN_KIND: _unknown_kind,
    MOVE_DENIED: lambda error: MoveDeniedError(str(error)),
}
"""What our own functions raise, by its code."""


def _is_open(connection: PoolConnectionProxy[Row]) -> bool:
    """Whether a connection can be used; one that the server has closed is the pool's again, and says nothing more."""
    try:
        return not connection.is_closed()
    except pg.InterfaceError:
        return False


async def _settle(connection: asyncpg.Connection[Row]) -> None:
    """End what an interrupted statement left open, unless whoever returns the connection vouches for it.

    The driver has a new statement parsed and waits for the answer without ending the exchange (Flush, not Sync). If
    the task is cancelled just then, or an argument cannot be encoded, the statement is never executed, and the server
    stays in a transaction of which the driver knows nothing: it keeps its locks, its ``now()`` stands still, and the
    next statement on this connection is part of it. Any simple query ends it. Nothing else of a session is reset.
    """
    if not _VOUCHED.get():
        await connection.execute("select", timeout=_SETTLE_TIMEOUT)


async def _leave(connection: asyncpg.Connection[Row]) -> None:
    with contextlib.suppress(*_LOST, pg.PostgresError):
        await connection.close(timeout=2)
