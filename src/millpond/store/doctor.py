"""Doctor: checks the database for problems that affect the queue, and recommends actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millpond.store import isolation, migrate, partitions
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.store.db import Database
    from millpond.store.isolation import Isolation

SQL: Final = queries("millpond.store", "doctor")

_SNAPSHOT_SECONDS_MAX: Final = 60
_DEAD_ROWS_MAX: Final = 200_000
_CONNECTIONS_SHARE_MAX: Final = 0.9
_CHANGES_MAX: Final = 50_000
_CLOCK_APART_MAX: Final = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check and its result."""

    name: str
    is_well: bool
    detail: str


async def examine(db: Database) -> list[CheckResult]:
    """All findings, including those without a problem."""
    schema = await _schema(db)
    if not schema.is_well:
        return [await _server(db), schema]
    checked = [
        await _server(db),
        schema,
        await _durability(db),
        await _snapshot(db),
        await _dead_rows(db),
        await _connections(db),
        await _services(db),
        await _counters(db),
        await _partitions(db),
    ]
    found = await isolation.inspect(db)
    return [*checked, _isolation(found), _role(found)]


async def clock(db: Database) -> CheckResult:
    """The difference between the clocks of the database and this machine: a large difference makes times misleading."""
    async with db.connection() as connection:  # there may be no schema yet
        theirs = await connection.fetchval("select clock_timestamp()")
    apart = abs((datetime.now(UTC) - theirs).total_seconds())
    return CheckResult(
        "clock",
        is_well=apart < _CLOCK_APART_MAX,
        detail=f"the database clock differs by {apart:.1f} s from this machine's clock",
    )


async def _server(db: Database) -> CheckResult:
    row = await db.run(SQL["server"])
    is_well = row["number"] >= migrate.SERVER_VERSION_MIN
    return CheckResult(
        "server",
        is_well=is_well,
        detail=f"PostgreSQL {row['version']}" + ("" if is_well else "; version 15 or later is required"),
    )


async def _schema(db: Database) -> CheckResult:
    found = await migrate.status(db.dsn)
    detail = "up to date" if found.is_current else "outdated; run: millpond db migrate"
    return CheckResult("schema", is_well=found.is_current, detail=detail)


async def _durability(db: Database) -> CheckResult:
    row = await db.run(SQL["durability"])
    off = [name for name, value in row.items() if value == "off"]
    detail = f"{', '.join(off)} off: a crash can lose jobs and credits" if off else "commits survive a crash"
    return CheckResult("durability", is_well=not off, detail=detail)


async def _snapshot(db: Database) -> CheckResult:
    row = await db.run(SQL["oldest_snapshot"])
    if row is None or row["seconds"] < _SNAPSHOT_SECONDS_MAX:
        return CheckResult("snapshots", is_well=True, detail="no long-running transactions")
    return CheckResult(
        "snapshots",
        is_well=False,
        detail=f"pid {row['pid']} ({row['application'] or 'unnamed'}, {row['state']}) has had an open "
        f"transaction for {row['seconds']:.0f} s, which prevents vacuum from removing dead rows; "
        "end it",
    )


async def _dead_rows(db: Database) -> CheckResult:
    worst = [row for row in await db.run(SQL["dead_rows"]) if row["dead"] > _DEAD_ROWS_MAX]
    if not worst:
        return CheckResult("dead rows", is_well=True, detail="the queue tables have few dead rows")
    tables = ", ".join(f"{row['relation']} {row['dead']:,}" for row in worst)
    return CheckResult(
        "dead rows", is_well=False, detail=f"{tables}: autovacuum does not keep up; check for long-running transactions"
    )


async def _connections(db: Database) -> CheckResult:
    row = await db.run(SQL["connections"])
    is_well = row["used"] < row["maximum"] * _CONNECTIONS_SHARE_MAX
    return CheckResult("connections", is_well=is_well, detail=f"{row['used']} of {row['maximum']} in use")


async def _services(db: Database) -> CheckResult:
    row = await db.run(SQL["overdue"])
    if any(row):
        return CheckResult(
            "services",
            is_well=False,
            detail=f"{row['leases']} leases, {row['dispatches']} jobs and {row['schedules']} schedules are overdue; "
            "check that a process of each app runs the services",
        )
    return CheckResult("services", is_well=True, detail="nothing is overdue")


async def _counters(db: Database) -> CheckResult:
    unmerged = (await db.run(SQL["counters"], _CHANGES_MAX))["changes"]
    if unmerged < _CHANGES_MAX:
        return CheckResult("counters", is_well=True, detail="counters are up to date")
    return CheckResult(
        "counters",
        is_well=False,
        detail=f"{unmerged:,} or more changes are not counted yet, which slows the dashboard down; check "
        "that a process runs the services",
    )


async def _partitions(db: Database) -> CheckResult:
    strays = await partitions.has_strays(db)
    detail = (
        "the default partition contains rows; check that a process runs the pruner" if strays else "created in advance"
    )
    return CheckResult("partitions", is_well=not strays, detail=detail)


def _isolation(found: Isolation) -> CheckResult:
    detail = found.missing or "row-level security isolates the reads of clients by tenant"
    return CheckResult("isolation", is_well=found.missing is None, detail=detail)


def _role(found: Isolation) -> CheckResult:
    """On the embedded server, which nobody else uses, Millpond is the superuser."""
    if found.is_superuser and not found.is_embedded:
        return CheckResult(
            "role",
            is_well=False,
            detail=f"{found.owner} is a superuser, whom no privilege and no policy restricts; connect as another role, "
            "which owns the schema millpond",
        )
    return CheckResult("role", is_well=True, detail=f"connected as {found.owner}")
