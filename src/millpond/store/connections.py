"""Connections: what every connection to PostgreSQL sets, and the check of what it then is.

The defaults of the server, the database and the role decide how a session begins, and a pooler may drop what the client
asks for. Our plans and our SQL depend on these settings, and the isolation of tenants on the role. So each new
connection sets all of them by a statement, and reads what it is.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg import exceptions as pg

from millpond.errors import SettingsError, StoreError, UnavailableError
from millpond.store import hosts
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncpg import Record as Row

    Connection = asyncpg.Connection[Row]

SQL: Final = queries("millpond.store", "connections")

CLIENT_ROLE: Final = "millpond_client"

_STARTUP: Final = {
    "application_name": "millpond",
    "TimeZone": "UTC",
    # A short default of these could end the session before its first statement.
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}
"""Sent with the request for a connection. A pooler may refuse it or drop it."""

_MEANING: Final = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "array_nulls": "on",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_min_messages": "notice",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "exit_on_error": "off",
    "extra_float_digits": "1",
    "gin_fuzzy_search_limit": "0",
    "plpgsql.extra_errors": "none",
    "plpgsql.extra_warnings": "none",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "search_path": "",  # every statement names the schema
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
}
"""Settings on which the meaning of our SQL depends."""

_LIMITS: Final = {
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "0",
    "transaction_timeout": "0",
}

_PLANS: Final = {
    "constraint_exclusion": "partition",
    "cpu_index_tuple_cost": "0.005",
    "cpu_operator_cost": "0.0025",
    "cpu_tuple_cost": "0.01",
    "cursor_tuple_fraction": "0.1",
    "debug_parallel_query": "off",
    "force_parallel_mode": "off",
    "from_collapse_limit": "8",
    "geqo": "on",
    "geqo_threshold": "12",
    "jit": "off",  # compiling a statement takes up to a hundred times as long as running it
    "join_collapse_limit": "8",
    "min_parallel_index_scan_size": "512kB",
    "min_parallel_table_scan_size": "8MB",
    "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1",
    "plan_cache_mode": "auto",
    "random_page_cost": "1.1",
    "seq_page_cost": "1",
}
"""Settings on which our plans depend.

Durability is for the administrator to choose, and so is what describes the machine: memory, effective_cache_size and
max_parallel_workers_per_gather.
"""

_PROBE_ROUNDS: Final = 3
_PROBE_TIMEOUT: Final = 2.0
_CHECK_AGAIN: Final = 60.0
_UNSUPPORTED: Final = "unsupported startup parameter"
_LOST_STATEMENT: Final = (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError)
"""A prepared statement was sought in a session other than its own."""


@dataclass(slots=True, eq=False)
class Connector:
    """Opens connections that have these settings, and this role if one is given.

    ``limits`` overrides the timeouts. The first connection of the process through a pooler checks the pooler's mode.
    """

    role: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict[str, str])

    async def connect(self, *arguments: Any, **options: Any) -> hosts.DatabaseConnection:
        """Connect like asyncpg.connect, whose arguments it takes. A pool calls it for each of its connections."""
        known = hosts.hosts(*arguments)
        connection = await self._connect(known, options)
        try:
            async with asyncio.timeout(known.timeout):
                connection.pid = await connection.fetchval(SQL["pid"].text)
            # A pooler tells its clients a pid of its own.
            if connection.pid != connection.get_server_pid() and time.monotonic() >= known.check_mode_at:
                is_certain = await _has_own_session(connection, known, options)
                known.check_mode_at = math.inf if is_certain else time.monotonic() + _CHECK_AGAIN
            async with asyncio.timeout(known.timeout):
                await self._prepare(connection)
        except _LOST_STATEMENT as error:
            connection.terminate()
            raise _transaction_mode() from error
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _connect(self, known: hosts.Hosts, options: Any) -> hosts.DatabaseConnection:
        if known.sends_settings:
            try:
                return await known.connect(**options, server_settings=self._startup())
            except (pg.PostgresError, UnavailableError) as error:
                if _UNSUPPORTED not in str(error):
                    raise
                known.sends_settings = False  # a pooler that must be told to ignore them; the statement sets them all
        return await known.connect(**options)

    def _startup(self) -> dict[str, str]:
        """The role is among them, so that on a direct connection no reset can change it."""
        sent = {name: self.limits.get(name, value) for name, value in _STARTUP.items()}
        return sent if self.role is None else sent | {"role": self.role}

    async def _prepare(self, connection: Connection) -> None:
        settings = _STARTUP | _MEANING | _LIMITS | _PLANS | dict(self.limits)
        settings |= {} if self.role is None else {"role": self.role}
        await connection.execute(SQL["apply"].text, list(settings), list(settings.values()))
        await self._check(connection)

    async def _check(self, connection: Connection) -> None:
        found: Any = await connection.fetchrow(SQL["observe"].text)
        if found["role"] == CLIENT_ROLE != self.role:  # a pooler that resets nothing left it to us
            await connection.execute(SQL["shed_role"].text)
            found = await connection.fetchrow(SQL["observe"].text)
        if self.role not in (None, found["role"]):
            raise StoreError(f"The session has the role {found['role']}, and not {self.role}.")
        if found["replication"] != "origin":
            raise SettingsError(
                f"session_replication_role is {found['replication']}, so the database does not run our triggers.",
                field="database_url",
                hint="Remove this setting from the server, the database and the role (`alter role … reset …`).",
            )


async def is_writable(connection: Connection, seconds: float) -> bool:
    """Whether the server accepts writes."""
    return bool(await connection.fetchval(SQL["writable"].text, timeout=seconds))


async def _has_own_session(connection: Connection, known: hosts.Hosts, options: Any) -> bool:
    """Whether it is certain that a pooler gives the session of a connection to no other, as it does in session mode.

    Raises an error if it gives it to another one. If all sessions are in use, nothing is known.
    """
    other = None
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            other = await known.connect(**options)
            for _ in range(_PROBE_ROUNDS):
                mine, theirs, again = [await each.fetchval(SQL["pid"].text) for each in (connection, other, connection)]
                if mine == theirs or mine != again:
                    raise _transaction_mode()
    except (TimeoutError, UnavailableError):
        return False
    except pg.PostgresError as error:
        if isinstance(error, _LOST_STATEMENT):
            raise
        return False
    finally:
        if other is not None:
            other.terminate()
    return True


def _transaction_mode() -> SettingsError:
    return SettingsError(
        "The database is behind a connection pooler in transaction mode, which gives each transaction another session.",
        field="database_url",
        hint="Set the pooler to session mode (PgBouncer: pool_mode = session), or connect to PostgreSQL directly.",
    )
