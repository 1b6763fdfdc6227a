"""Which database a command works on: the one it is told, or the embedded one of the data directory."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from millpond.settings import Settings


def settings_with(database_url: str | None = None, data_dir: Path | None = None, **said: Any) -> Settings:
    """The environment's settings, with what the command line says instead."""
    from millpond.settings import Settings

    settings = Settings.from_env()
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir, database_url=None)
    if database_url is not None:
        settings = dataclasses.replace(settings, database_url=database_url)
    return dataclasses.replace(settings, **{name: value for name, value in said.items() if value is not None})


@contextlib.contextmanager
def opened(settings: Settings) -> Generator[str]:
    """The address of the database; the embedded one is started for as long as it is needed."""
    if settings.database_url:
        yield settings.database_url
        return
    from millpond import logs
    from millpond.store.embedded import open_embedded

    with open_embedded(settings.data_dir) as postgres:
        if postgres.is_owner:
            logs.emit("db.embedded_started", data_dir=str(settings.data_dir), pid=postgres.pid)
        yield postgres.dsn
