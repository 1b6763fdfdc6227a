"""The hosts of a database URL: each is tried within a time of its own, and connections to one that hangs are ended.

The driver has one timeout for all hosts of a URL, so that one that hangs would use up the time of the others. It also
waits for a statement as long as the connection is open, whether the server is slow or does not respond at all. The
watchdog tells the two apart: a server that hangs does not accept a new connection either.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

import asyncpg
from asyncpg import exceptions as pg

from millpond.errors import SettingsError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record as Row
    from asyncpg.pool import PoolConnectionProxy

    _DriverConnection = asyncpg.Connection[Row]
else:
    _DriverConnection = asyncpg.Connection

CONNECT_TIMEOUT: Final = 4.0
"""How many seconds to wait for each host, unless the URL has a ``connect_timeout``."""
SUSPECT_AFTER: Final = 2.0
"""After so many seconds without a response, the watchdog checks whether the server accepts connections."""
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
_SILENT: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN})


class DatabaseConnection(_DriverConnection):
    """A connection that knows which host it leads to, and that closes soon even if the server hangs."""

    __slots__ = ("url",)

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
        self._timeout: float | None = CONNECT_TIMEOUT
        self._failed_until = 0.0
        self._failure: BaseException = TimeoutError()

    async def connect(self, **options: Any) -> DatabaseConnection:
        """Connect to the first host that accepts writes, or as the URL's ``target_session_attrs`` requires."""
        began = time.monotonic()
        if began < self._failed_until:
            raise unavailable(self._failure)
        if not self._urls:
            self._urls, self._timeout = split(self._dsn)
        if not _names_attributes(self._dsn):
            options["target_session_attrs"] = "read-write"
        options |= {"connection_class": DatabaseConnection, "timeout": self._timeout}
        for url in tuple(self._urls):
            try:
                connection = cast("DatabaseConnection", await asyncpg.connect(url, **options))
            except Exception as error:
                if not is_unavailable(error):
                    raise
                self._failure = error
                self.put_last(url)
            else:
                connection.url = url
                return connection
        if time.monotonic() - began > _PAUSE:  # those that wait for a connection now would wait as long, one by one
            self._failed_until = time.monotonic() + _PAUSE
        raise unavailable(self._failure)

    def put_last(self, url: str) -> None:
        """Try the other hosts first from now on."""
        if url in self._urls:
            self._urls.remove(url)
            self._urls.append(url)

    async def responds(self, url: str) -> bool:
        """Whether a host responds to a new connection in any way, and be it by an error."""
        try:
            connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT, connection_class=DatabaseConnection)
        except TimeoutError:
            self.put_last(url)
            if len(self._urls) == 1:
                self._failure, self._failed_until = TimeoutError("The server hangs."), time.monotonic() + _PAUSE
            return False
        except OSError as error:
            return error.errno not in _SILENT
        except Exception:  # noqa: BLE001 - any other error is a response
            return True
        await connection.close()
        return True


class Watchdog:
    """Ends connections of a pool that wait for a server that hangs."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._checks: dict[str, asyncio.Task[bool]] = {}

    def watch(self, connection: PoolConnectionProxy[Row]) -> Watch:
        """Watch a connection in use."""
        return Watch(self, connection)

    async def responds(self, url: str) -> bool:
        """Check a host, once for all connections that wait for it."""
        check = self._checks.get(url)
        if check is None:
            check = self._checks[url] = asyncio.create_task(self._hosts.responds(url))
            check.add_done_callback(lambda _: self._checks.pop(url, None))
        return await asyncio.shield(check)


class Watch:
    """Watches a connection until ``end`` is called."""

    __slots__ = ("_connection", "_dog", "_task", "_timer", "found_hung")

    def __init__(self, dog: Watchdog, connection: PoolConnectionProxy[Row]) -> None:
        self._dog = dog
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(SUSPECT_AFTER, self._start)
        self.found_hung = False
        """Whether the connection was ended, because its server hangs."""

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        url: str | None = getattr(self._connection, "url", None)  # a connection that is lost has none
        if url is not None:
            self._task = asyncio.create_task(self._check(url))

    async def _check(self, url: str) -> None:
        if await self._dog.responds(url):
            self._timer = asyncio.get_running_loop().call_later(SUSPECT_AFTER, self._start)
            return
        self.found_hung = True
        with contextlib.suppress(*LOST):  # lost meanwhile
            self._connection.terminate()


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
