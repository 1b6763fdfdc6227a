"""Moving: a tenant's rows from the central database to one of its own, while nothing runs."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Final

from millpond import values
from millpond.errors import ConflictError
from millpond.store.db import Database, fetch
from millpond.store.migrate import migrate
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.store.db import Connection

SQL: Final = queries("millpond.store", "moving")


async def move_out(dsn: str, tenant: str, address: str) -> dict[str, int]:
    """Copy all that a tenant has in central to the database at this address, then remove it from central.

    Tells how many rows of each table were moved. The tenant's jobs must have ended. The copy commits first: whoever
    dies between the two calls it again, and what is there already is replaced.
    """
    values.check_name(tenant, field="tenant")
    await migrate(address)
    central, home = await Database.open(dsn, size=1), await Database.open(address, size=1)
    try:
        async with central.transaction() as hub, home.transaction() as own:  # left from within: the copy commits first
            if await fetch(hub, SQL["moved"], tenant) is not None:  # to copy nothing over what is there would lose it
                raise ConflictError(
                    "The tenant has moved out already.", field="tenant", hint="Set MILLPOND_TENANT_DATABASES."
                )
            tables = await _tables(hub, own, tenant)
            for side in (hub, own):
                await fetch(side, SQL["open"], tables)
            if (await fetch(hub, SQL["unended"], tenant))["jobs"]:
                raise ConflictError(
                    "The tenant has jobs that have not ended.", field="tenant", hint="Wait for them, or cancel them."
                )
            await fetch(own, SQL["make_weeks"], (await fetch(hub, SQL["mondays"], tenant))["mondays"])
            await fetch(hub, SQL["part_failures"], tenant)
            moved = {table: await _copy(hub, own, table, tenant) for table in tables}
            await fetch(own, SQL["join_failures"], tenant)
            for side in (hub, own):
                await fetch(side, SQL["close"], tables)
            await fetch(hub, SQL["settle"], tenant)
        return {table: rows for table, rows in moved.items() if rows}
    finally:
        await central.close()
        await home.close()


async def _tables(hub: Connection, own: Connection, tenant: str) -> list[str]:
    here, there = [{str(row["name"]) for row in await fetch(side, SQL["tables"])} for side in (hub, own)]
    if missing := [str(row["name"]) for row in await fetch(hub, SQL["used"], list(here - there), tenant)]:
        raise ConflictError(
            f"The other database does not have the tables {', '.join(missing)}.",
            hint="They are those of a blueprint: start it once on that database, by itself.",
        )
    return sorted(here & there)


async def _copy(hub: Connection, own: Connection, table: str, tenant: str) -> int:
    await fetch(own, SQL["remove"], table, tenant)
    with tempfile.TemporaryFile() as rows:
        query = f"select * from millpond.{table} where tenant = $1"  # noqa: S608 - its name is from the catalogue
        await hub.copy_from_query(query, tenant, output=rows, format="binary")
        rows.seek(0)
        told = await own.copy_to_table(table, schema_name="millpond", source=rows, format="binary")
    await fetch(hub, SQL["remove"], table, tenant)
    return int(told.split()[-1])
