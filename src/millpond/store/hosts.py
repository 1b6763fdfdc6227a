"""The hosts of a database URL: how a connection to one is made, and how one that gets no answer is noticed.

The driver has one timeout for all hosts of a URL, so that one that hangs would use up the time of the others. It also
waits for a statement as long as the connection is open, whether the server is slow, does not respond at all or has
forgotten the connection. The watchdog tells these apart: it asks the server, over a new connection, what the session is
doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

import asyncpg
from asyncpg import exceptions as pg

from millpond.errors import SettingsError, UnavailableError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record as Row
    from asyncpg.pool import PoolConnectionProxy

    from millpond.store.queries import NamedQuery

    _DriverConnection = asyncpg.Connection[Row]
else:
    _DriverConnection = asyncpg.Connection

SQL: Final = queries("millpond.store", "hosts")

CONNECT_TIMEOUT: Final = 4.0
"""How many seconds to wait for each host, unless the URL has a ``connect_timeout``."""
SUSPECT_AFTER: Final = 2.0
"""After so many seconds without a response, and again after each look, the watchdog looks at the session."""
LOST: Final = (
    pg.PostgresConnectionError,
    pg.InterfaceError,
    pg.InternalClientError,  # raised at some moments when a server dies
    ConnectionError,
    OSError,
    TimeoutError,
)
READ_ONLY: Final = "25006"
_STATES: Final = {
    READ_ONLY: "read-only",
    "25P03": "not reachable",  # the connection was idle in a transaction for too long: the server has closed it
    "53100": "disk full",
    "57P03": "starting or stopping",
    "08": "not reachable",
    "53": "out of resources",
    "57": "stopping",
    "58": "not reachable",
}
"""The SQLSTATEs and classes of a database that cannot serve now, and the state in which it is."""
_CLOSE_TIMEOUT: Final = 2.0
_PAUSE: Final = 1.0  # seconds without another attempt after all hosts together took longer than that to fail
_STAGGER: Final = 1.0  # seconds after which the next host is tried too
_SILENT: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN})
_HANGS: Final = "The server hangs."
_EXPEDITED: Final = 1.0  # seconds for which a process that stops waits for a response
_GONE: Final = datetime.min.replace(tzinfo=UTC)


class DatabaseConnection(_DriverConnection):
    """A connection that knows where it leads, and that closes soon even if the server hangs."""

    __slots__ = ("pid", "url")

    pid: int | None
    """The server's process, once it is known. Behind a pooler, the driver has another number for it."""
    url: str
    """The URL with only the host of this connection."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's signature
        with contextlib.suppress(*LOST):
            await super().close(timeout=min(timeout or _CLOSE_TIMEOUT, _CLOSE_TIMEOUT))


class Hosts:
    """The hosts of a database URL, in the order in which they are tried: the one that failed last is the last."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._urls: list[str] = []
        self.timeout: float | None = CONNECT_TIMEOUT
        """How many seconds each host has."""
        self.generation = 0
        """Raised when connections are no longer good: every pool then closes those that it has made before."""
        self._failed_until = 0.0
        self._failure: BaseException = TimeoutError()
        self._looks: dict[str, asyncio.Task[Mapping[int, datetime | None] | None]] = {}
        self._canceling: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[DatabaseConnection]] = set()
        self.watches: set[Watch] = set()
        """The connections that are in use."""
        self.answered_at = 0.0
        """When a statement was last answered."""
        self.sends_settings = True
        """Whether settings are sent with the request for a connection; a pooler may refuse them."""
        self.check_mode_at = 0.0
        """When to check next whether each connection has a session of its own."""

    async def connect(self, **options: Any) -> DatabaseConnection:
        """Connect to the first host that accepts writes, or as the URL's ``target_session_attrs`` requires."""
        began = time.monotonic()
        if self.is_silent:
            raise unavailable(self._failure)
        if not self._urls:
            self._urls, self.timeout = split(self._dsn)
        if not _names_attributes(self._dsn):
            options["target_session_attrs"] = "read-write"
        options["timeout"] = self.timeout
        options.pop("connection_class", None)  # a pool names it too
        connection = await self._connect_to_any(options)
        if connection is None:
            if time.monotonic() - began > _PAUSE:  # those that wait for a connection now would wait as long, one by one
                self._failed_until = time.monotonic() + _PAUSE
            raise unavailable(self._failure)
        return connection

    async def _connect_to_any(self, options: dict[str, Any]) -> DatabaseConnection | None:
        """Try the hosts in their order, each beside those that have not responded yet."""
        left, tried = list(self._urls), dict[asyncio.Task[DatabaseConnection], str]()
        try:
            while left or tried:
                if left:
                    url = left.pop(0)
                    task = asyncio.create_task(_connect(url, options))
                    tried[task] = url
                    self._connecting.add(task)
                    task.add_done_callback(self._connecting.discard)
                patience = _STAGGER if left else None
                for task in (await asyncio.wait(tried, timeout=patience, return_when=asyncio.FIRST_COMPLETED))[0]:
                    url = tried.pop(task)
                    error = TimeoutError(_HANGS) if task.cancelled() else task.exception()
                    if error is None:
                        return task.result()
                    if not is_unavailable(error):
                        raise error
                    self._failure = error
                    self.put_last(url)
        finally:
            for task, url in tried.items():  # silent until now, or not needed any more
                self.put_last(url)
                task.cancel()
                task.add_done_callback(_end_unneeded)
        return None

    def put_last(self, url: str) -> None:
        """Try the other hosts first from now on."""
        if url in self._urls:
            self._urls.remove(url)
            self._urls.append(url)

    def abandon(self, url: str, generation: int) -> None:
        """Close all connections of a generation, because a host hangs, has lost one of them or has become read-only."""
        if generation == self.generation:
            self.generation += 1
            self.put_last(url)

    @property
    def is_silent(self) -> bool:
        """Whether nothing can be reached at the moment."""
        return time.monotonic() < self._failed_until

    async def expedite(self) -> None:
        """While the server does not respond, let everything fail at once instead of waiting, until this is canceled."""
        while self._urls:
            began = time.monotonic()
            try:
                async with asyncio.timeout(_EXPEDITED):
                    await self.sessions(self._urls[0])
            except TimeoutError:
                if self.answered_at < began:
                    self._failure, self._failed_until = TimeoutError(_HANGS), time.monotonic() + 2 * _EXPEDITED
                    self.generation += 1
                    for task in self._connecting:
                        task.cancel()
                    for watch in tuple(self.watches):
                        watch.lose(_HANGS)
            await asyncio.sleep(_EXPEDITED / 2)

    def hang(self, url: str) -> None:
        """A host does not respond: try the others first, or nothing for a moment if there is no other."""
        self.put_last(url)
        if len(self._urls) == 1:
            self._failure, self._failed_until = TimeoutError(_HANGS), time.monotonic() + _PAUSE

    async def sessions(self, url: str) -> Mapping[int, datetime | None] | None:
        """The sessions of a host, by pid, each with the time since which it is idle: none if it is busy.

        They are asked for once for all that wait for the host. None if it responds otherwise, such as by an error;
        raises TimeoutError if it does not respond.
        """
        look = self._looks.get(url)
        if look is None:
            look = self._looks[url] = asyncio.create_task(self._sessions(url))
            look.add_done_callback(lambda look: (self._looks.pop(url), look.cancelled() or look.exception()))
        return await asyncio.shield(look)

    async def _sessions(self, url: str) -> Mapping[int, datetime | None] | None:
        try:
            return {row["pid"]: row["idle_since"] for row in await self._ask(url, SQL["sessions"])}
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno in _SILENT:
                raise TimeoutError from error
        except Exception:  # noqa: BLE001 - any other error is a response
            return None
        return None

    def cancel(self, url: str, pid: int) -> None:
        """Ask a host to cancel the statement of a session whose connection was ended."""

        async def cancel() -> None:
            with contextlib.suppress(*LOST, pg.PostgresError):
                await self._ask(url, SQL["cancel"], pid)

        task = asyncio.create_task(cancel())
        self._canceling.add(task)
        task.add_done_callback(self._canceling.discard)

    async def _ask(self, url: str, query: NamedQuery, *arguments: Any) -> list[Row]:
        """Run a query over a connection of its own."""
        async with asyncio.timeout(self.timeout and max(self.timeout, CONNECT_TIMEOUT)):
            connection = await _connect(url, {"timeout": None})
            try:
                return await connection.fetch(query.text, *arguments)
            finally:
                connection.terminate()


async def _connect(url: str, options: dict[str, Any]) -> DatabaseConnection:
    connection = await asyncpg.connect(url, connection_class=DatabaseConnection, **options)
    connection.url, connection.pid = url, None
    return connection


def _end_unneeded(task: asyncio.Task[DatabaseConnection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


class Watch:
    """Watches a connection in use until ``end`` is called, and ends the connection if it waits in vain.

    With ``is_statement``, the caller does nothing but wait for a statement, so that the session must not be idle.
    """

    __slots__ = (
        "_connection",
        "_deadline",
        "_hosts",
        "_is_statement",
        "_task",
        "_timer",
        "failure",
        "generation",
        "is_lost",
    )

    def __init__(
        self, hosts: Hosts, connection: PoolConnectionProxy[Row], deadline: float | None, *, is_statement: bool
    ) -> None:
        self._hosts = hosts
        self._connection = connection
        self._deadline = deadline
        self._is_statement = is_statement
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(SUSPECT_AFTER, self._start)
        self.generation = hosts.generation
        self.failure: TimeoutError | None = None
        """Why the connection was ended, if it was."""
        self.is_lost = False
        """Whether it was ended because its server hangs or its session is lost, as probably are those of others."""
        hosts.watches.add(self)

    def end(self) -> None:
        self._hosts.watches.discard(self)
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        url: str | None = getattr(self._connection, "url", None)  # a connection that is lost has none
        if url is not None:
            self._task = asyncio.create_task(self._check(url, getattr(self._connection, "pid", None)))

    def lose(self, reason: str, *, is_lost: bool = True) -> None:
        """End the connection."""
        self.failure, self.is_lost = TimeoutError(reason), is_lost
        with contextlib.suppress(*LOST):  # lost meanwhile
            self._connection.terminate()

    async def _check(self, url: str, pid: int | None) -> None:
        try:
            async with asyncio.timeout_at(self._deadline):
                reason = await self._loss(url, pid)
        except TimeoutError:
            self.lose("The database did not respond in time.", is_lost=False)
            if pid is not None:
                self._hosts.cancel(url, pid)
        else:
            self.lose(reason)

    async def _loss(self, url: str, pid: int | None) -> str:
        """Wait until there will be no answer, and return the reason.

        A session that is idle while its answer is awaited has sent it already, or has not received the statement. Two
        looks must agree: the answer, or a large statement, may be on its way.
        """
        idle_before: datetime | None = None
        while True:
            began = time.monotonic()
            try:
                sessions = await self._hosts.sessions(url)
            except TimeoutError:
                if self._hosts.answered_at < began:  # otherwise the server only accepts no more connections
                    self._hosts.hang(url)
                    return _HANGS
            else:
                idle_since = None if sessions is None or pid is None else sessions.get(pid, _GONE)
                is_waiting = idle_since is not None and idle_since == idle_before
                if is_waiting and (self._is_statement or idle_since == _GONE):
                    return "The server has no such session, or the session is idle."
                idle_before = idle_since
            await asyncio.sleep(SUSPECT_AFTER)


@lru_cache(maxsize=256)
def hosts(dsn: str) -> Hosts:
    """The hosts of a URL; all connections of the process share what is known of them."""
    return Hosts(dsn)


async def connect(dsn: str | None = None, **options: Any) -> DatabaseConnection:
    """Connect to a host of a URL, with options of the driver."""
    return await hosts(dsn or "").connect(**options)


def is_unavailable(error: BaseException) -> bool:
    """Whether the database cannot serve now: it cannot be reached, is stopping, read-only or out of resources."""
    return isinstance(error, LOST) or _state(error) is not None


def unavailable(error: BaseException) -> UnavailableError:
    """The driver's message is about its own calls: it goes to the log, and not to clients."""
    made = UnavailableError()
    # A ValueError quotes what it cannot parse of the URL, which may be part of the password.
    made.reason = type(error).__name__ + ("" if isinstance(error, ValueError) else f": {error}")
    made.state = "read-only" if isinstance(error, pg.TargetServerAttributeNotMatched) else _state(error) or made.state
    # The driver raises this before it sends anything, on a connection that the server has ended and not closed yet.
    made.is_unsent = isinstance(error, pg.InternalClientError) and "cannot switch to state" in str(error)
    return made


def _state(error: BaseException) -> str | None:
    code: str = getattr(error, "sqlstate", None) or ""
    return _STATES.get(code) or _STATES.get(code[:2])


# URLs


def split(dsn: str) -> tuple[list[str], float | None]:
    """A URL for each host of a URL, without ``connect_timeout``, which the driver does not know; and that timeout."""
    parts = urlsplit(dsn)
    pieces = [piece for piece in parts.query.split("&") if piece]
    names = dict(parse_qsl(parts.query, keep_blank_values=True))
    pieces = [piece for piece in pieces if not piece.startswith("connect_timeout=")]
    login, at, listed = parts.netloc.partition("@") if "@" in parts.netloc else ("", "", parts.netloc)
    if listed:
        urls = [_url(parts._replace(netloc=f"{login}{at}{host}"), pieces) for host in listed.split(",")]
    else:
        urls = [_url(parts, [*_without(pieces, "host", "port"), *own]) for own in _listed_in_query(names)] or [
            _url(parts, pieces)
        ]
    return urls, _seconds(names.get("connect_timeout"))


def _listed_in_query(names: dict[str, str]) -> list[list[str]]:
    """The parameters of each host that the query names; one port may serve all of them."""
    if not names.get("host"):
        return []
    listed = names["host"].split(",")
    ports = names["port"].split(",") if names.get("port") else []
    if len(ports) == 1:
        ports *= len(listed)
    if ports and len(ports) != len(listed):
        raise SettingsError("The database URL has another number of ports than of hosts.", field="database_url")
    own = [[f"host={quote(host, safe='')}"] for host in listed]
    return [[*host, f"port={port}"] for host, port in zip(own, ports, strict=True)] if ports else own


def _without(pieces: Sequence[str], *names: str) -> list[str]:
    return [piece for piece in pieces if piece.partition("=")[0] not in names]


def _url(parts: SplitResult, pieces: Sequence[str]) -> str:
    return parts._replace(query="&".join(pieces)).geturl()


def _seconds(text: str | None) -> float | None:
    """The timeout, as in libpq: whole seconds, at least 2; without limit if it is 0 or negative."""
    if not text:
        return CONNECT_TIMEOUT
    try:
        seconds = int(text)
    except ValueError:
        raise SettingsError(
            "connect_timeout must be a whole number of seconds.", field="database_url", hint="0 means without limit."
        ) from None
    return max(float(seconds), 2.0) if seconds > 0 else None


def _names_attributes(dsn: str) -> bool:
    return "target_session_attrs" in dict(parse_qsl(urlsplit(dsn).query)) or "PGTARGETSESSIONATTRS" in os.environ
