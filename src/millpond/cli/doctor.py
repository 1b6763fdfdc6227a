"""``millpond doctor``: checks the settings, the database, the storage, the clocks and the server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from millpond.cli.command import single
from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Key, Url

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.settings import Settings
    from millpond.store.db import Database
    from millpond.store.doctor import CheckResult

_TIMEOUT_SECONDS: Final = 5.0


app = single()


@app.command("doctor")
def doctor(
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the database, the storage, the clocks and the server.

    The exit status is 0 if all checks pass, and 1 if one fails. A failed check says what to do.
    """
    import asyncio

    from millpond.cli.output import print_json, verdict_line

    findings = asyncio.run(_examine(url, key, data_dir, database_url))
    is_well = all(finding.is_well for finding in findings)
    if as_json:
        print_json({"ok": is_well, "findings": findings})
    else:
        for finding in findings:
            sys.stdout.write(f"{verdict_line(finding.name, finding.detail, is_well=finding.is_well)}\n")
    sys.exit(0 if is_well else 1)


async def _examine(
    url: str | None, key: str | None, data_dir: Path | None, database_url: str | None
) -> list[CheckResult]:
    from millpond.cli.database import settings_with
    from millpond.cli.development import DevelopmentFolder, running
    from millpond.errors import MillpondError
    from millpond.store.doctor import CheckResult

    try:
        settings = settings_with(database_url, data_dir)
    except MillpondError as error:
        return [CheckResult("settings", is_well=False, detail=str(error))]
    up = running(DevelopmentFolder(settings.data_dir))
    url = url or settings.url or (up.url if up else None)
    key = key or settings.api_key or (up.admin_key if up else None)
    return [
        CheckResult("settings", is_well=True, detail="valid"),
        *await _database(settings),
        await _storage(settings),
        *await _server(url, key),
    ]


async def _database(settings: Settings) -> list[CheckResult]:
    from millpond.cli.database import opened
    from millpond.errors import MillpondError
    from millpond.store.db import Database
    from millpond.store.doctor import CheckResult, clock, examine

    if not settings.database_url and not settings.data_dir.exists():
        return [CheckResult("database", is_well=True, detail="not configured; `millpond up` creates one")]
    try:
        with opened(settings) as dsn:
            database = await Database.open(dsn, size=1)
            try:
                found = [await clock(database), *await examine(database)]
                is_migrated = any(finding.name == "schema" and finding.is_well for finding in found)
                return [*found, await _encryption_key(settings, database)] if is_migrated else found
            finally:
                await database.close()
    except MillpondError as error:
        return [CheckResult("database", is_well=False, detail=str(error))]


async def _encryption_key(settings: Settings, database: Database) -> CheckResult:
    """Compare the encryption key with the one that this installation uses. Creates no key, not even in development."""
    from millpond.engine.webhooks.vault import Safe, open_vault
    from millpond.errors import SettingsError, VaultError
    from millpond.store.doctor import CheckResult

    name, action = "encryption key", "set MILLPOND_ENCRYPTION_KEY in every process"
    try:
        status = await Safe(open_vault(settings, is_development=False), database).status()
    except (SettingsError, VaultError) as error:
        return CheckResult(name, is_well=False, detail=str(error))
    if status.has_key:
        detail = "the one that webhook secrets are encrypted with" if status.has_secrets else "not used yet"
    elif status.has_secrets:
        detail = f"missing here, but webhook secrets have been encrypted; {action}"
    elif settings.database_url is None:
        detail = "`millpond up` creates one with the first webhook secret"
    else:
        detail = f"not set: webhook secrets are disabled; to use webhooks, {action}"
    return CheckResult(name, is_well=status.has_key or not status.has_secrets, detail=detail)


async def _storage(settings: Settings) -> CheckResult:
    from millpond.errors import MillpondError
    from millpond.storage import open_storage
    from millpond.storage.storage import is_bucket
    from millpond.store.doctor import CheckResult

    try:
        is_well = await open_storage(settings).refuses_replacement()
    except MillpondError as error:
        return CheckResult("storage", is_well=False, detail=str(error))
    detail = f"a {'bucket' if is_bucket(settings) else 'folder'} whose files no upload replaces"
    if not is_well:
        detail = "the bucket ignores conditional writes, so a signed URL can replace a stored file; use another server"
    return CheckResult("storage", is_well=is_well, detail=detail)


async def _server(url: str | None, key: str | None) -> list[CheckResult]:
    from millpond import wire
    from millpond.client import AsyncClient
    from millpond.errors import MillpondError
    from millpond.store.doctor import CheckResult

    if url is None:
        return [CheckResult("api", is_well=True, detail="no server configured, and no `millpond up` runs here")]
    try:
        async with AsyncClient(url, key or "none", timeout=_TIMEOUT_SECONDS) as client:
            health = await client.request("GET", "/readyz", type=wire.Health)
            if key is not None:
                await client.request("GET", "/v1/kinds", type=wire.Kinds)
    except MillpondError as error:
        return [CheckResult("api", is_well=False, detail=f"{url}: {error}")]
    detail = f"{url} is {health.status} ({health.version})" + ("" if key else "; there is no key to check")
    return [CheckResult("api", is_well=health.status == "ok", detail=detail)]
