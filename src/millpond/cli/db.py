"""``millpond db``: the schema, and whether the database is well."""

from __future__ import annotations

import sys
from typing import Any

from millpond.cli.command import group
from millpond.cli.database import opened, settings_with
from millpond.cli.options import AsJson, DatabaseUrl, DataDir
from millpond.cli.output import print_json, say

app = group("The schema, and whether the database is well.")


@app.command()
def migrate(database_url: DatabaseUrl = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Bring the schema up to date; safe to run from many machines at once."""
    import asyncio

    from millpond.store.migrate import migrate as apply

    settings = settings_with(database_url, data_dir)
    with opened(settings) as dsn:
        applied = asyncio.run(apply(dsn))
    for address in dict.fromkeys((settings.tenant_databases or {}).values()):
        asyncio.run(apply(address))
    if as_json:
        print_json({"applied": applied})
    else:
        say(f"applied: {', '.join(f'{n:04}' for n in applied)}" if applied else "the schema is up to date")


@app.command()
def status(database_url: DatabaseUrl = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show which migrations are applied. Exit status 1 if some are missing."""
    import asyncio

    from millpond.store.migrate import status as look

    with opened(settings_with(database_url, data_dir)) as dsn:
        found = asyncio.run(look(dsn))
    if as_json:
        print_json(
            {
                "applied": found.applied,
                "pending": found.pending,
                "unknown": found.unknown,
                "functions_current": found.functions_current,
                "is_current": found.is_current,
            }
        )
    else:
        say(f"applied   {_numbers(found.applied)}")
        say(f"pending   {_numbers(found.pending)}")
        say(f"unknown   {_numbers(found.unknown)}")
        say(f"functions {'current' if found.functions_current else 'out of date'}")
    sys.exit(0 if found.is_current else 1)


@app.command()
def doctor(database_url: DatabaseUrl = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Look for what makes a queue on PostgreSQL ill. Exit status 1 if something was found."""
    import asyncio

    with opened(settings_with(database_url, data_dir)) as dsn:
        findings = asyncio.run(_examine(dsn))
    if as_json:
        print_json({"ok": all(finding.is_well for finding in findings), "findings": findings})
    else:
        for finding in findings:
            say(f"{'ok  ' if finding.is_well else 'ILL '} {finding.name}: {finding.detail}")
    sys.exit(0 if all(finding.is_well for finding in findings) else 1)


@app.command()
def recount(database_url: DatabaseUrl = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Count the jobs that have not ended anew, where the dashboard's numbers are not those of the jobs."""
    import asyncio

    settings = settings_with(database_url, data_dir)
    with opened(settings) as dsn:
        away = (settings.tenant_databases or {}).values()
        mended = sum(asyncio.run(_recount(address)) for address in dict.fromkeys((dsn, *away)))
    if as_json:
        print_json({"mended": mended})
    else:
        say(f"{mended} numbers were wrong, and are right now" if mended else "every number was right")


async def _recount(dsn: str) -> int:
    from millpond.engine.tallies import recount as count
    from millpond.store.db import Database

    database = await Database.open(dsn, size=1)
    try:
        return await count(database, is_due=True)
    finally:
        await database.close()


async def _examine(dsn: str) -> list[Any]:
    from millpond.store.db import Database
    from millpond.store.doctor import examine

    database = await Database.open(dsn, size=1)
    try:
        return await examine(database)
    finally:
        await database.close()


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(f"{number:04}" for number in numbers) or "none"
