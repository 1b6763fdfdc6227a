"""Moving: moves a tenant's rows from the central database to one of its own, while no other process is running."""

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
    """Copy all rows of a tenant from the central database to the one at this address, then delete them from central.

    Returns the number of rows moved, by table. The tenant's jobs must have ended. The copy commits first: if the
    process ends between the two commits, call this again; it replaces the rows that were copied.
    """
    values.check_name(tenant, field="tenant")
    await migrate(address)
    central, database = await Database.open(dsn, size=1), await Database.open(address, size=1)
    try:
        # Transactions end in reverse order, so the copy commits first.
        async with central.transaction() as central_tx, database.transaction() as own:
            # A second move would replace the moved rows with nothing.
            if await fetch(central_tx, SQL["moved"], tenant) is not None:
                raise ConflictError(
                    "The tenant has already been moved out.", field="tenant", hint="Set MILLPOND_TENANT_DATABASES."
                )
            tables = await _tables(central_tx, own, tenant)
            for side in (central_tx, own):
                await fetch(side, SQL["open"], tables)
            if (await fetch(central_tx, SQL["unended"], tenant))["jobs"]:
                raise ConflictError(
                    "The tenant has jobs that have not ended.",
                    field="tenant",
                    hint="Wait until they have ended, or cancel them.",
                )
            await fetch(own, SQL["make_weeks"], (await fetch(central_tx, SQL["mondays"], tenant))["mondays"])
            await fetch(central_tx, SQL["part_failures"], tenant)
            moved = {table: await _copy(central_tx, own, table, tenant) for table in tables}
            await fetch(own, SQL["join_failures"], tenant)
            for side in (central_tx, own):
                await fetch(side, SQL["close"], tables)
            await fetch(central_tx, SQL["settle"], tenant)
        return {table: rows for table, rows in moved.items() if rows}
    finally:
        await central.close()
        await database.close()


async def _tables(central_tx: Connection, own: Connection, tenant: str) -> list[str]:
    here, there = [{str(row["name"]) for row in await fetch(side, SQL["tables"])} for side in (central_tx, own)]
    if missing := [str(row["name"]) for row in await fetch(central_tx, SQL["used"], list(here - there), tenant)]:
        raise ConflictError(
            f"The target database lacks the tables {', '.join(missing)}.",
            hint="They belong to a product: start the product once on that database.",
        )
    return sorted(here & there)


async def _copy(central_tx: Connection, own: Connection, table: str, tenant: str) -> int:
    await fetch(own, SQL["remove"], table, tenant)
    with tempfile.TemporaryFile() as rows:
        query = f"select * from millpond.{table} where tenant = $1"  # noqa: S608 - its name is from the catalogue
        await central_tx.copy_from_query(query, tenant, output=rows, format="binary")
        rows.seek(0)
        status = await own.copy_to_table(table, schema_name="millpond", source=rows, format="binary")
    await fetch(central_tx, SQL["remove"], table, tenant)
    return int(status.split()[-1])
