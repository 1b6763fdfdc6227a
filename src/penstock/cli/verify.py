"""``penstock verify``: every invariant, on a live database."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.database import DatabaseUrl, DataDir, opened, settings_with
from penstock.cli.output import print_json, say

if TYPE_CHECKING:
    from datetime import timedelta


def verify(
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    newest: Annotated[
        str | None, typer.Option(help="Look only at jobs born within this time, e.g. 24h.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check every invariant of ledger, jobs, leases and events; name what breaks one.

    Exit status 0 if all hold, 1 if not.
    """
    from penstock import ids, values

    span = None if newest is None else values.duration(newest, field="newest")
    with opened(settings_with(database_url, data_dir)) as dsn:
        found = asyncio.run(_verify(dsn, span))
    if as_json:
        told = [
            {
                "invariant": violation.invariant,
                "subject": violation.subject,
                "job_id": violation.job_id and ids.text("job", violation.job_id),
                "detail": violation.detail,
            }
            for violation in found
        ]
        print_json({"ok": not found, "violations": told})
    else:
        for violation in found:
            sys.stdout.write(f"{violation}\n")
        say("verify: ok" if not found else f"verify: {len(found)} violations")
    sys.exit(1 if found else 0)


async def _verify(dsn: str, newest: timedelta | None) -> list[Any]:
    from penstock.engine.verify import verify as check
    from penstock.store.db import Database

    database = await Database.open(dsn, size=1)
    try:
        return await check(database, newest=newest)
    finally:
        await database.close()
