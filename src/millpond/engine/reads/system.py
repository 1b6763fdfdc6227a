"""System: the state of this process and its database: sizes, connections, slow statements, findings of the doctor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from millpond.store import doctor
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.engine.engine import Engine
    from millpond.store.db import Pool, Row
    from millpond.store.doctor import CheckResult

SQL: Final = queries("millpond.engine.reads", "system")

STARTED: Final = datetime.now(UTC)
"""When this process loaded its code, which is when it started."""
TABLES_MAX: Final = 20
SLOW_MAX: Final = 20
RUNNING_MAX: Final = 50
RUNNING_SECONDS: Final = 1.0
_QUERY_MAX: Final = 500
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'?|\$([A-Za-z_]\w*)?\$.*?(?:\$\1\$|\Z)", re.DOTALL)

_LOAD_IT: Final = (
    "The extension pg_stat_statements is required. Set shared_preload_libraries = 'pg_stat_statements' "
    "({where}), restart the server, and run: create extension pg_stat_statements."
)
_WHERE: Final = "for the embedded PostgreSQL in postgres.conf of the data directory"


@dataclass(frozen=True, slots=True)
class SystemView:
    """The data of the system page."""

    database: Row
    oldest_transaction_seconds: float | None
    pools: Sequence[Pool]
    tenant_databases: Sequence[tuple[list[str], bool]]
    tables: Sequence[Row]
    migrations: Sequence[Row]
    slow: Sequence[dict[str, Any]]
    slow_reason: str | None
    running: Sequence[dict[str, Any]]
    findings: Sequence[CheckResult]


async def look(engine: Engine) -> SystemView:
    """Read the state of the central database, and of this process's connections."""
    db = engine.db
    oldest = await db.run(doctor.SQL["oldest_snapshot"])
    slow = await db.run(SQL["slow"], SLOW_MAX)
    return SystemView(
        await db.run(SQL["database"]),
        None if oldest is None else round(oldest["seconds"], 3),
        [
            *db.pools("central"),
            *(
                pool
                for database in engine.tenant_databases.remote
                for pool in database.pools(f"of {', '.join(database.tenants)}")
            ),
        ],
        [(list(database.tenants), database.is_up) for database in engine.tenant_databases.remote],
        await db.run(SQL["tables"], TABLES_MAX),
        await db.run(SQL["migrations"]),
        [_shown(row) for row in slow],
        None if slow else _reason(await db.run(SQL["counting"])),
        [_shown(row) for row in await db.run(SQL["running"], RUNNING_SECONDS, RUNNING_MAX)],
        [await doctor.clock(db), *await doctor.examine(db)],
    )


def _reason(row: Row) -> str:
    """Why there are no statistics of slow statements."""
    if row["is_there"]:
        return "No statements were recorded yet, or pg_stat_statements was not loaded when the server started."
    if row["is_available"]:
        return _LOAD_IT.format(where=_WHERE)
    return "This PostgreSQL lacks the extension pg_stat_statements. Install the server's contrib package."


def _shown(row: Row) -> dict[str, Any]:
    """A row whose statement is safe to show: quoted text is removed, because it may be customer data."""
    return dict(row) | {"query": shown(row["query"])}


def shown(query: str) -> str:
    plain = " ".join(_QUOTED.sub("'…'", query).split())
    return plain if len(plain) <= _QUERY_MAX else plain[:_QUERY_MAX] + "…"
