"""``millpond db``: the schema of the database."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import group
from millpond.cli.database import opened, settings_with
from millpond.cli.options import AsJson, DatabaseUrl, DataDir
from millpond.cli.show import show

if TYPE_CHECKING:
    from millpond.settings import Settings

app = group("Migrate the database schema; repair counters.")


@app.command()
def migrate(
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: show the migrations, and exit with 1 if any is missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Apply the schema migrations that are missing.

    Several machines may run this command at the same time.
    """
    settings = settings_with(database_url, data_dir)
    if check:
        found = _status(settings)
        show(found if as_json else _described(found), as_json=as_json)
        sys.exit(0 if found["is_current"] else 1)
    applied = _migrate(settings)
    if as_json:
        show({"applied": applied}, as_json=True)
    else:
        show(f"applied: {_numbers(applied)}" if applied else "The schema is up to date.", as_json=False)


def _migrate(settings: Settings) -> list[int]:
    import asyncio

    from millpond.store.migrate import migrate as apply

    with opened(settings) as dsn:
        applied = asyncio.run(apply(dsn))
    for address in dict.fromkeys((settings.tenant_databases or {}).values()):
        asyncio.run(apply(address))
    return list(applied)


def _status(settings: Settings) -> dict[str, Any]:
    import asyncio

    from millpond.store.migrate import status

    with opened(settings) as dsn:
        found = asyncio.run(status(dsn))
    names = ("applied", "pending", "unknown", "functions_current", "is_current")
    return {name: getattr(found, name) for name in names}


def _described(found: dict[str, Any]) -> dict[str, str]:
    migrations = {name: _numbers(found[name]) for name in ("applied", "pending", "unknown")}
    return migrations | {"functions": "current" if found["functions_current"] else "out of date"}


def _numbers(numbers: Any) -> str:
    return ", ".join(f"{number:04}" for number in numbers) or "none"


@app.command()
def recount(database_url: DatabaseUrl = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Count the active jobs again.

    Use it if the numbers on the dashboard differ from the jobs.
    """
    import asyncio

    settings = settings_with(database_url, data_dir)
    with opened(settings) as dsn:
        remote = (settings.tenant_databases or {}).values()
        mended = sum(asyncio.run(_recount(address)) for address in dict.fromkeys((dsn, *remote)))
    if as_json:
        show({"mended": mended}, as_json=True)
    else:
        show(f"{mended} counters corrected." if mended else "All counters are correct.", as_json=False)


async def _recount(dsn: str) -> int:
    from millpond.engine.reads.counters import recount as count
    from millpond.store.db import Database

    database = await Database.open(dsn, size=1)
    try:
        return await count(database, is_due=True)
    finally:
        await database.close()
