"""System: this process and its database at one look. Sizes, connections, what is slow, what the doctor finds."""

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
    from millpond.store.doctor import Finding

SQL: Final = queries("millpond.engine", "system")

STARTED: Final = datetime.now(UTC)
"""When this process loaded its code, which is when it started."""
TABLES_MAX: Final = 20
SLOW_MAX: Final = 20
RUNNING_MAX: Final = 50
RUNNING_SECONDS: Final = 1.0
_QUERY_MAX: Final = 500
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'?|\$([A-Za-z_]\w*)?\$.*?(?:\$\1\$|\Z)", re.DOTALL)

_LOAD_IT: Final = (
    "Statements are counted by the extension pg_stat_statements. Set shared_preload_libraries ="
    " 'pg_stat_statements' ({where}), start the server anew, and run: create extension pg_stat_statements."
)
_WHERE: Final = "for the embedded PostgreSQL in postgres.conf of the data directory"


@dataclass(frozen=True, slots=True)
class SystemView:
    """What was seen."""

    database: Row
    oldest_transaction_seconds: float | None
    pools: Sequence[Pool]
    homes: Sequence[tuple[list[str], bool]]
    tables: Sequence[Row]
    migrations: Sequence[Row]
    slow: Sequence[dict[str, Any]]
    slow_reason: str | None
    running: Sequence[dict[str, Any]]
    findings: Sequence[Finding]


async def look(engine: Engine) -> SystemView:
    """The central database and what this process has of it."""
    db = engine.db
    oldest = await db.run(doctor.SQL["oldest_snapshot"])
    slow = await db.run(SQL["slow"], SLOW_MAX)
    return SystemView(
        await db.run(SQL["database"]),
        None if oldest is None else round(oldest["seconds"], 3),
        [
            *db.pools("central"),
            *(pool for home in engine.homes.away for pool in home.pools(f"of {', '.join(home.tenants)}")),
        ],
        [(list(home.tenants), home.is_up) for home in engine.homes.away],
        await db.run(SQL["tables"], TABLES_MAX),
        await db.run(SQL["migrations"]),
        [_shown(row) for row in slow],
        None if slow else _reason(await db.run(SQL["counting"])),
        [_shown(row) for row in await db.run(SQL["running"], RUNNING_SECONDS, RUNNING_MAX)],
        [await doctor.clock(db), *await doctor.examine(db)],
    )


def _reason(row: Row) -> str:
    """Why nothing is known of slow statements."""
    if row["is_there"]:
        return "None were counted yet; or pg_stat_statements is there, but was not loaded when the server started."
    if row["is_available"]:
        return _LOAD_IT.format(where=_WHERE)
    return "This PostgreSQL has no extension pg_stat_statements: install it with the server's contrib package."


def _shown(row: Row) -> dict[str, Any]:
    """A statement as it may be shown: without what stands in quotes, which may be anybody's data."""
    return dict(row) | {"query": shown(row["query"])}


def shown(query: str) -> str:
    plain = " ".join(_QUOTED.sub("'…'", query).split())
    return plain if len(plain) <= _QUERY_MAX else plain[:_QUERY_MAX] + "…"
