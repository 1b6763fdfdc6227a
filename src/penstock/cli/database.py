"""Which database a command works on: the one it is told, or the embedded one of the data directory."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import logs
from penstock.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Generator

DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", help="Any PostgreSQL from 15 on. [env: DATABASE_URL]", show_default=False),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where the embedded PostgreSQL lives.  [default: .penstock]", show_default=False),
]


def settings_with(database_url: str | None = None, data_dir: Path | None = None) -> Settings:
    """The environment's settings, with what the command line says instead."""
    settings = Settings.from_env()
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir, database_url=None)
    if database_url is not None:
        settings = dataclasses.replace(settings, database_url=database_url)
    return settings


@contextlib.contextmanager
def opened(settings: Settings) -> Generator[str]:
    """The address of the database; the embedded one is started for as long as it is needed."""
    if settings.database_url:
        yield settings.database_url
        return
    from penstock.store.embedded import open_embedded

    with open_embedded(settings.data_dir) as postgres:
        if postgres.is_owner:
            logs.emit("db.embedded_started", data_dir=str(settings.data_dir), pid=postgres.pid)
        yield postgres.dsn
