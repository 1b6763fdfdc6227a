"""Doctor: looks for what makes a queue on PostgreSQL ill, and says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millpond.store import migrate, partitions
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.store.db import Database

SQL: Final = queries("millpond.store", "doctor")

_SNAPSHOT_SECONDS_MAX: Final = 60
_DEAD_ROWS_MAX: Final = 200_000
_CONNECTIONS_SHARE_MAX: Final = 0.9
_TALLIES_MAX: Final = 50_000
_CLOCK_APART_MAX: Final = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and whether it is well."""

    name: str
    is_well: bool
    detail: str


async def examine(db: Database) -> list[Finding]:
    """Every finding, good or bad."""
    schema = await _schema(db)
    if not schema.is_well:
        return [await _server(db), schema]
    return [
        await _server(db),
        schema,
        await _durability(db),
        await _snapshot(db),
        await _dead_rows(db),
        await _connections(db),
        await _services(db),
        await _tallies(db),
        await _partitions(db),
        await _wall(db),
    ]


async def clock(db: Database) -> Finding:
    """How far the database's clock is from this machine's: far apart, times that people compare mislead them."""
    async with db.connection() as connection:  # there may be no schema yet
        theirs = await connection.fetchval("select clock_timestamp()")
    apart = abs((datetime.now(UTC) - theirs).total_seconds())
    return Finding(
        "clock", is_well=apart < _CLOCK_APART_MAX, detail=f"the database's is {apart:.1f} s away from this machine's"
    )


async def _server(db: Database) -> Finding:
    row = await db.run(SQL["server"])
    is_well = row["number"] >= migrate.SERVER_VERSION_MIN
    return Finding(
        "server",
        is_well=is_well,
        detail=f"PostgreSQL {row['version']}" + ("" if is_well else "; 15 or later is needed"),
    )


async def _schema(db: Database) -> Finding:
    found = await migrate.status(db.dsn)
    detail = "up to date" if found.is_current else "out of date; run: millpond db migrate"
    return Finding("schema", is_well=found.is_current, detail=detail)


async def _durability(db: Database) -> Finding:
    row = await db.run(SQL["durability"])
    off = [name for name, value in row.items() if value == "off"]
    detail = f"{', '.join(off)} off: a crash can lose jobs and credits" if off else "commits survive a crash"
    return Finding("durability", is_well=not off, detail=detail)


async def _snapshot(db: Database) -> Finding:
    row = await db.run(SQL["oldest_snapshot"])
    if row is None or row["seconds"] < _SNAPSHOT_SECONDS_MAX:
        return Finding("snapshots", is_well=True, detail="no transaction stays open")
    return Finding(
        "snapshots",
        is_well=False,
        detail=f"pid {row['pid']} ({row['application'] or 'unnamed'}, {row['state']}) has kept a transaction open for"
        f" {row['seconds']:.0f} s: nothing it could see can be cleaned away; end it",
    )


async def _dead_rows(db: Database) -> Finding:
    worst = [row for row in await db.run(SQL["dead_rows"]) if row["dead"] > _DEAD_ROWS_MAX]
    if not worst:
        return Finding("dead rows", is_well=True, detail="the queue's tables are clean")
    told = ", ".join(f"{row['relation']} {row['dead']:,}" for row in worst)
    return Finding(
        "dead rows", is_well=False, detail=f"{told}: autovacuum does not keep up; look for open transactions"
    )


async def _connections(db: Database) -> Finding:
    row = await db.run(SQL["connections"])
    is_well = row["used"] < row["most"] * _CONNECTIONS_SHARE_MAX
    return Finding("connections", is_well=is_well, detail=f"{row['used']} of {row['most']} in use")


async def _services(db: Database) -> Finding:
    row = await db.run(SQL["overdue"])
    if row["leases"] or row["dispatches"]:
        return Finding(
            "services",
            is_well=False,
            detail=f"{row['leases']} leases and {row['dispatches']} jobs are overdue: does a process run the services?",
        )
    return Finding("services", is_well=True, detail="nothing is overdue")


async def _tallies(db: Database) -> Finding:
    piled = (await db.run(SQL["tallies"], _TALLIES_MAX))["tallies"]
    if piled < _TALLIES_MAX:
        return Finding("tallies", is_well=True, detail="what jobs do is folded as it comes")
    return Finding(
        "tallies",
        is_well=False,
        detail=f"{piled:,} or more are not folded, and the dashboard is slow: does a process run the services?",
    )


async def _partitions(db: Database) -> Finding:
    strays = await partitions.has_strays(db)
    detail = "rows landed in the default partition: no pruner has run for weeks" if strays else "made ahead"
    return Finding("partitions", is_well=not strays, detail=detail)


async def _wall(db: Database) -> Finding:
    row = await db.run(SQL["wall"])
    steps = [
        step
        for step, is_done in (
            ("create role millpond_client nologin", row["has_role"]),
            (f'grant millpond_client to "{row["owner"]}"', row["has_grant"]),
            ("select millpond.raise_wall()", row["is_raised"]),
        )
        if not is_done
    ]
    if not steps:
        return Finding("isolation", is_well=True, detail="clients' reads are held to their tenants by the database too")
    return Finding(
        "isolation",
        is_well=False,
        detail=f"one wall between tenants is missing; run, as one who may: {'; '.join(steps)}",
    )
