"""What a process checks when it starts: the isolation of tenants, the encryption key, and the storage of files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from millpond import logs
from millpond.errors import SettingsError, StorageUnavailableError, VaultError
from millpond.store.isolation import inspect

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.storage import Storage
    from millpond.store.db import Database

_STORAGE_SECONDS: Final = 10.0


async def report_isolation(engine: Engine) -> None:
    """Write a warning for each database in which only one of two mechanisms isolates tenants."""

    async def report(db: Database) -> None:
        found, tenants = await inspect(db), engine.tenant_databases.tenants_of(db)
        if found.missing is not None:
            logs.emit("isolation.incomplete", reason=found.missing, tenants=tenants)
        if found.is_superuser:
            logs.emit("isolation.superuser", role=found.owner, tenants=tenants)

    await engine.tenant_databases.each(report)


async def check_encryption_key(engine: Engine, *, is_needed: bool) -> None:
    """Refuse to start with a key that is not the one of this installation; report that a needed one is missing."""
    try:
        status = await engine.safe.status()
    except VaultError as error:
        raise SettingsError(error.message, field="encryption_key", hint=error.hint) from error
    if is_needed and not status.has_key:
        hint = "Set MILLPOND_ENCRYPTION_KEY in every process."
        logs.emit("vault.missing", has_secrets=status.has_secrets, hint=hint)


async def report_storage(storage: Storage) -> None:
    """Write a warning if files cannot be stored, or if uploads can replace them."""
    try:
        async with asyncio.timeout(_STORAGE_SECONDS):
            if not await storage.refuses_replacement():
                logs.emit("storage.mutable")
    except TimeoutError:
        logs.emit("storage.unavailable", error=f"There was no response within {_STORAGE_SECONDS:g} seconds.")
    except StorageUnavailableError as error:
        logs.emit("storage.unavailable", error=str(error))
