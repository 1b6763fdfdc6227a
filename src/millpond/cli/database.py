"""The database of a command: the given one, or the embedded one of the data directory."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from millpond.settings import Settings
    from millpond.store.embedded import Keeper


def settings_with(database_url: str | None = None, data_dir: Path | None = None, **options: Any) -> Settings:
    """The settings of the environment, overridden by the options of the command line."""
    from millpond.settings import Settings

    settings = Settings.from_env()
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir, database_url=None)
    if database_url is not None:
        settings = dataclasses.replace(settings, database_url=database_url)
    return dataclasses.replace(settings, **{name: value for name, value in options.items() if value is not None})


@contextlib.contextmanager
def opened(settings: Settings) -> Generator[str]:
    """The address of the database; the embedded one runs for the duration of the block."""
    with kept(settings) as (dsn, _):
        yield dsn


@contextlib.contextmanager
def kept(settings: Settings) -> Generator[tuple[str, Keeper | None]]:
    """The address of the database, and the keeper of the embedded one, for commands that run for long."""
    if settings.database_url:
        yield settings.database_url, None
        return
    from millpond.store.embedded import Keeper

    with Keeper(settings.data_dir) as keeper:
        yield keeper.dsn, keeper
