"""``millpond doctor``: one look at all that must be right."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from millpond.cli.command import single
from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Key, Url

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.settings import Settings
    from millpond.store.doctor import Finding

_PATIENCE: Final = 5.0


app = single()


@app.command("doctor")
def doctor(
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, database, schema, clocks and server. Exit status 1 if something is not well."""
    import asyncio

    from millpond.cli.output import print_json

    findings = asyncio.run(_examine(url, key, data_dir, database_url))
    is_well = all(finding.is_well for finding in findings)
    if as_json:
        print_json({"ok": is_well, "findings": findings})
    else:
        for finding in findings:
            sys.stdout.write(f"{'ok  ' if finding.is_well else 'ILL '} {finding.name}: {finding.detail}\n")
    sys.exit(0 if is_well else 1)


async def _examine(url: str | None, key: str | None, data_dir: Path | None, database_url: str | None) -> list[Finding]:
    from millpond.cli.database import settings_with
    from millpond.cli.development import Home, running
    from millpond.errors import MillpondError
    from millpond.store.doctor import Finding

    try:
        settings = settings_with(database_url, data_dir)
    except MillpondError as error:
        return [Finding("settings", is_well=False, detail=str(error))]
    up = running(Home(settings.data_dir))
    url = url or settings.url or (up.url if up else None)
    key = key or settings.api_key or (up.admin_key if up else None)
    return [
        Finding("settings", is_well=True, detail="sane"),
        *await _database(settings),
        *await _server(url, key),
    ]


async def _database(settings: Settings) -> list[Finding]:
    from millpond.cli.database import opened
    from millpond.errors import MillpondError
    from millpond.store.db import Database
    from millpond.store.doctor import Finding, clock, examine

    if not settings.database_url and not settings.data_dir.exists():
        return [Finding("database", is_well=True, detail="none here; `millpond up` makes one")]
    try:
        with opened(settings) as dsn:
            database = await Database.open(dsn, size=1)
            try:
                return [await clock(database), *await examine(database)]
            finally:
                await database.close()
    except MillpondError as error:
        return [Finding("database", is_well=False, detail=str(error))]


async def _server(url: str | None, key: str | None) -> list[Finding]:
    from millpond import wire
    from millpond.client import AsyncClient
    from millpond.errors import MillpondError
    from millpond.store.doctor import Finding

    if url is None:
        return [Finding("server", is_well=True, detail="none is named, and none runs here")]
    try:
        async with AsyncClient(url, key or "none", timeout=_PATIENCE) as client:
            health = await client.request("GET", "/readyz", type=wire.Health)
            if key is not None:
                await client.request("GET", "/v1/kinds", type=wire.Kinds)
    except MillpondError as error:
        return [Finding("api", is_well=False, detail=f"{url}: {error}")]
    detail = f"{url} is {health.status} ({health.version})" + ("" if key else "; no key to try")
    return [Finding("api", is_well=health.status == "ok", detail=detail)]
