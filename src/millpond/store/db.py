"""The only access to PostgreSQL: a pool, transactions, named queries, and the translation of errors."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import asyncpg
from asyncpg import exceptions as pg
from asyncpg.pgproto import pgproto
from uuid_utils import uuid7

from millpond.errors import (
    BusyError,
    InvalidError,
    OverdueError,
    StoreError,
    TransitionDeniedError,
    UnavailableError,
    UnknownKindError,
)
from millpond.store.connections import CLIENT_ROLE, Connector, is_writable
from millpond.store.hosts import LOST, DatabaseConnection, Hosts, Watch, hosts, is_unavailable, unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from datetime import timedelta
    from typing import Self
    from uuid import UUID

    from asyncpg import Record as Row
    from asyncpg.pool import PoolConnectionProxy

    from millpond.store.queries import NamedQuery

    Connection = asyncpg.Connection[Row] | PoolConnectionProxy[Row]

Made = TypeVar("Made")

TRANSITION_DENIED: Final = "PS001"
APPEND_ONLY: Final = "PS002"
NOT_ACCEPTED: Final = "PS003"
UNKNOWN_KIND: Final = "PS004"
NO_ROOM: Final = "PS005"
# If one row of a batch is locked by another transaction, all calls in the batch wait; so the timeout is short.
_LOCK_TIMEOUT: Final = {"lock_timeout": "2s"}
_UNFIT: Final = (
    pg.CharacterNotInRepertoireError,
    pg.UntranslatableCharacterError,
    pg.InvalidRowCountInLimitClauseError,
)
_AGAIN: Final = (pg.DeadlockDetectedError, pg.SerializationError)
_NO_ROLE: Final = (pg.InvalidParameterValueError, pg.InsufficientPrivilegeError)
_TRIES: Final = 5
_READY_SHARE: Final = 4  # one of so many connections may stay outside of the pool
_READER_SHARE: Final = 2  # one connection for clients' reads per so many others
_COMMAND_TIMEOUT: Final = 60.0
PATIENCE: Final = 8.0
"""How many seconds a request waits for a database: longer than it takes to notice that a server hangs."""
_SETTLE_TIMEOUT: Final = 5.0
_RELEASE_TIMEOUT: Final = 1.0  # a caller that was interrupted waits no longer for the server to notice
_LISTENING_CHECK: Final = 5.0  # how often, and how long, to check a connection on which nothing is sent
_DISK_FULL_FOR: Final = 5.0  # seconds for which a full disk is reported after the last statement that met it
_PATIENCE: Final = ContextVar[float | None]("_PATIENCE", default=None)
_IS_CLEAN: Final = ContextVar("_IS_CLEAN", default=False)  # whether the released connection has nothing left open


class Executor(Protocol):
    """Runs the statement of a verb: one database, or two that act as one (see tenant_databases/remote.py)."""

    async def run(self, query: NamedQuery, *arguments: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Pool:
    """The number of connections, of idle ones among them, and the limit."""

    name: str
    size: int
    idle: int
    limit: int


@dataclass(slots=True, eq=False)
class Database:
    """A pool of connections to one PostgreSQL.

    Acquiring a connection from the pool and releasing it takes about as much time in Python as a short statement. So
    a few connections stay outside of the pool, ready for the next statement.
    """

    dsn: str
    pool: asyncpg.Pool[Row]
    cut: timedelta | None = field(default=None, init=False)
    """The statement timeout of the server, if there is one."""
    repair: str | None = field(default=None, init=False)
    """What is being done about a database that is not available, for everybody; set by whoever restarts the server."""
    _ready: list[PoolConnectionProxy[Row]] = field(default_factory=list["PoolConnectionProxy[Row]"], init=False)
    _reader: Database | None = field(default=None, init=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _hosts: Hosts = field(init=False)
    _generation: int = field(default=0, init=False)
    _releasing: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)
    _disk_full_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._hosts = hosts(self.dsn)
        self._generation = self._hosts.generation

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
        """Connect, as another role if one is given.

        With ``patience``, in seconds, connections are only made when needed, and that is the timeout of each statement.
        With ``cut``, the server cancels statements that take longer.
        """
        with translated():
            pool = await asyncpg.create_pool(
                dsn,
                connection_class=DatabaseConnection,
                min_size=0,  # the driver would restore connections by itself, with pauses of up to a minute
                max_size=size,
                command_timeout=patience or _COMMAND_TIMEOUT,
                connect=Connector(role, _LOCK_TIMEOUT | _statement_timeout(cut)).connect,
                reset=_settle,
                # JSON is sent and received as text: msgspec encodes it once, at the edge.
            )
            if patience is None:
                await pool.release(await pool.acquire())
        made = cls(dsn, pool)
        made.cut = cut
        return made

    async def close(self) -> None:
        """Wait briefly for running statements, then close all connections."""
        if self._reader is not None:
            await self._reader.close()
        if self._hosts.is_silent:
            self.pool.terminate()
            return
        try:
            async with asyncio.timeout(5):
                while self._ready:
                    await self.pool.release(self._ready.pop())
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()

    async def expedite(self) -> None:
        """Fail calls at once while the server does not respond, until this is canceled; for a process that stops."""
        await self._hosts.expedite()

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        """Run a statement in a transaction of its own; retried after a deadlock or a serialization failure."""
        for left in reversed(range(_TRIES)):
            try:
                with translated():
                    return await self._fetch(query, *arguments)
            except AgainError:
                if not left:
                    raise
            except UnavailableError as error:
                if not (left and error.is_unsent):
                    raise
            except pg.UniqueViolationError as error:
                raise DuplicateError(str(error)) from error
        raise AssertionError

    async def read(self, query: NamedQuery, *arguments: Any) -> Any:
        """Run a statement for a client, as the role that row-level security restricts to the tenants that it names."""
        with patience(PATIENCE):
            reader = self._reader or await self._open_reader()
            return await reader.run(query, *arguments)

    async def _open_reader(self) -> Database:
        async with self._opening:
            if self._reader is None:
                size = max(2, self.pool.get_max_size() // _READER_SHARE)
                try:
                    self._reader = await Database.open(self.dsn, size=size, role=CLIENT_ROLE, cut=self.cut)
                except _NO_ROLE:  # `millpond doctor` reports it. The statements themselves still filter by tenant.
                    self._reader = await Database.open(self.dsn, size=size, cut=self.cut)
        return self._reader

    async def _fetch(self, query: NamedQuery, *arguments: Any) -> Any:
        deadline = _deadline()
        connection = await self._take(deadline)
        watch = Watch(self._hosts, connection, deadline, is_statement=True)
        try:
            found = await fetch(connection, query, *arguments)
        except BaseException as error:
            await self._release_after(error, connection, watch)
            raise
        finally:
            watch.end()
        self._hosts.answered_at = time.monotonic()
        is_good = watch.generation == self._hosts.generation
        if is_good and len(self._ready) < self.pool.get_max_size() // _READY_SHARE:
            self._ready.append(connection)
        else:
            await self._release(connection)
        return found

    async def _release(self, connection: PoolConnectionProxy[Row]) -> None:
        """Release a connection whose last statement completed: this needs no round trip."""
        token = _IS_CLEAN.set(True)
        try:
            await self.pool.release(connection)
        finally:
            _IS_CLEAN.reset(token)

    async def _release_after(self, error: BaseException, connection: PoolConnectionProxy[Row], watch: Watch) -> None:
        """Release a connection on which an error was raised; the pool handles those that are broken or busy.

        An error of another database, whose call was made meanwhile, is translated already, and says nothing here.
        If its server hangs or is read-only, it is closed, and so are those of all pools: they lead to the same server.
        """
        found = unavailable(error) if is_unavailable(error) else UnavailableError()
        if found.state == "disk full":
            self._disk_full_until = time.monotonic() + _DISK_FULL_FOR
        if watch.is_lost or found.state == "read-only":
            self._hosts.abandon(getattr(connection, "url", ""), watch.generation)
            with contextlib.suppress(*LOST):  # ended already
                connection.terminate()
        releasing = asyncio.create_task(self._release_broken(connection))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)
        await asyncio.wait([releasing], timeout=_RELEASE_TIMEOUT)
        if watch.failure is not None and isinstance(error, LOST):
            raise watch.failure from error

    async def _release_broken(self, connection: PoolConnectionProxy[Row]) -> None:
        with contextlib.suppress(*LOST, pg.PostgresError):
            await self.pool.release(connection, timeout=_SETTLE_TIMEOUT)

    @property
    def is_disk_full(self) -> bool:
        """Whether a statement has just failed because the server's disk is full."""
        return time.monotonic() < self._disk_full_until or (self._reader is not None and self._reader.is_disk_full)

    def pools(self, name: str) -> list[Pool]:
        """The pool under this name, followed by the pool for clients' reads."""
        idle = self.pool.get_idle_size() + len(self._ready)
        own = Pool(name, self.pool.get_size(), idle, self.pool.get_max_size())
        return [own, *([] if self._reader is None else self._reader.pools(f"{name}, reads for clients"))]

    async def _take(self, deadline: float | None) -> PoolConnectionProxy[Row]:
        while self._ready and self._generation == self._hosts.generation:
            connection = self._ready.pop()
            if _is_open(connection):
                return connection
            await self.pool.release(connection)
        return await self._acquire(deadline)

    async def _acquire(self, deadline: float | None) -> PoolConnectionProxy[Row]:
        if self._generation != self._hosts.generation:
            self._generation = self._hosts.generation
            await self.pool.expire_connections()
            while self._ready:
                with contextlib.suppress(*LOST):  # ended already
                    self._ready.pop().terminate()
        async with asyncio.timeout_at(deadline):
            return await self.pool.acquire()

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncGenerator[Connection]:
        async with self._acquired(is_clean_after=True) as connection, connection.transaction(**options):
            yield connection

    async def transact(self, work: Callable[[Connection], Awaitable[Made]]) -> Made:
        """Run ``work`` in a transaction, and again after a deadlock or a serialization failure."""
        for left in reversed(range(_TRIES)):
            try:
                async with self.transaction() as tx:
                    return await work(tx)
            except AgainError:
                if not left:
                    raise
        raise AssertionError

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Connection]:
        """A read-only transaction in which all statements see the same snapshot; it may take as long as it needs."""
        with patience(None):
            async with self.transaction(isolation="repeatable_read", readonly=True) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection without a transaction."""
        async with self._acquired() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def _acquired(self, *, is_clean_after: bool = False) -> AsyncGenerator[PoolConnectionProxy[Row]]:
        with translated():
            deadline = _deadline()
            connection = await self._acquire(deadline)
            watch = Watch(self._hosts, connection, deadline, is_statement=False)
            try:
                yield connection
            except BaseException as error:
                await self._release_after(error, connection, watch)
                raise
            finally:
                watch.end()
            self._hosts.answered_at = time.monotonic()
            await (self._release if is_clean_after else self.pool.release)(connection)

    @contextlib.asynccontextmanager
    async def listen(self, channel: str, heard: Callable[[str], None]) -> AsyncGenerator[asyncio.Event]:
        """Listen on a separate connection, and call ``heard`` for every notification. The event is set when it ends."""
        ended, generation = asyncio.Event(), self._hosts.generation
        connection = await connect(self.dsn)
        checking = None
        try:
            connection.add_termination_listener(lambda _: ended.set())
            with translated():
                async with asyncio.timeout(_LISTENING_CHECK):
                    await connection.add_listener(channel, lambda _connection, _pid, _channel, text: heard(str(text)))
            checking = asyncio.create_task(_check_while_listening(connection, self._hosts, generation))
            yield ended
        finally:
            if checking is not None:
                checking.cancel()
            connection.terminate()


def new_id() -> UUID:
    """A new id for a row, in the driver's own UUID class, which takes a tenth of the time to create and send."""
    return pgproto.UUID(uuid7().bytes)


async def connect(dsn: str) -> DatabaseConnection:
    """One connection outside any pool, for migration and checks."""
    with translated():
        return await Connector().connect(dsn)


async def fetch(connection: Connection, query: NamedQuery, *arguments: Any) -> Any:
    """Run a named query on a connection, and return the rows that its shape declares."""
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
                raise StoreError(f"{query.name} returned no row.")
            return row


@contextlib.contextmanager
def patience(seconds: float | None) -> Generator[None]:
    """Limit how long each call to a database may take here; None stands for the driver's limit of each statement.

    The connection of a call that takes longer is closed, and its statement is canceled.
    """
    token = _PATIENCE.set(seconds)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def _deadline() -> float | None:
    seconds = _PATIENCE.get()
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


@contextlib.contextmanager
def translated() -> Any:
    """Translate the errors of the driver."""
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
        if is_unavailable(error):
            raise unavailable(error) from error
        if isinstance(error, _UNFIT) or type(error) is pg.DataError:  # the latter: raised before the driver sends
            raise InvalidError(f"The database rejected the data: {error}") from error
        raise
    except LOST as error:
        raise unavailable(error) from error


def _statement_timeout(cut: timedelta | None) -> dict[str, str]:
    return {} if cut is None else {"statement_timeout": f"{cut.total_seconds() * 1000:.0f}ms"}


class DuplicateError(StoreError):
    """The row already exists."""

    code = "duplicate"


class NotAcceptedError(StoreError):
    """The statement cannot be applied in the current state. It changed nothing."""


class NoRoomError(StoreError):
    """There are jobs, but none of the workers that ask for jobs may take another one."""


class AgainError(StoreError):
    """The transaction must be retried."""

    retryable = True


def _unknown_kind(_: object) -> UnknownKindError:
    return UnknownKindError(field="kind", hint="The kinds of an app are registered by Engine.open.")


_OURS: Final[dict[Any, Callable[[pg.PostgresError], Exception]]] = {
    NOT_ACCEPTED: lambda error: NotAcceptedError(str(error)),
    NO_ROOM: lambda _: NoRoomError(),
    UNKNOWN_KIND: _unknown_kind,
    TRANSITION_DENIED: lambda error: TransitionDeniedError(str(error)),
}
"""The errors that Millpond's SQL functions raise, by SQLSTATE."""


def _is_open(connection: PoolConnectionProxy[Row]) -> bool:
    """Whether a connection can be used. One that the server has closed is returned to the pool, and raises an error."""
    try:
        return not connection.is_closed()
    except pg.InterfaceError:
        return False


async def _settle(connection: asyncpg.Connection[Row]) -> None:
    """End a transaction that an interrupted statement may have left open, unless the connection is known to be clean.

    To prepare a new statement, the driver sends Flush, not Sync, so the server waits for more. If the task is then
    cancelled, or an argument cannot be encoded, the statement is never executed, and the server stays in a transaction
    that the driver does not know of: it keeps its locks, its ``now()`` does not advance, and the next statement on this
    connection is part of it. Any simple query ends it. Nothing else of a session is reset.
    """
    if not _IS_CLEAN.get():
        await connection.execute("select", timeout=_SETTLE_TIMEOUT)


async def _check_while_listening(connection: DatabaseConnection, known: Hosts, generation: int) -> None:
    """End a connection whose server hangs or has become read-only: nothing is sent on it that could fail."""
    with contextlib.suppress(*LOST, pg.PostgresError):
        was_writable = False
        while generation == known.generation:
            now_writable = await is_writable(connection, _LISTENING_CHECK)
            if was_writable and not now_writable:
                known.abandon(connection.url, generation)
            was_writable = now_writable
            await asyncio.sleep(_LISTENING_CHECK)
    connection.terminate()
