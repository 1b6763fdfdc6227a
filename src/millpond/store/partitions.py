"""Partitions: history by week, created in advance and dropped by age."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.store.queries import queries

if TYPE_CHECKING:
    from datetime import timedelta

    from millpond.store.db import Database

SQL: Final = queries("millpond.store", "partitions")


async def ensure(db: Database, weeks: int) -> int:
    """Create the partitions of this week and the next ones, and return how many were missing."""
    return int((await db.run(SQL["ensure"], weeks))["made"])


async def drop(db: Database, age: timedelta) -> list[str]:
    """Drop the weeks that are older than this and whose jobs have all ended, and return their names."""
    return [str(row["name"]) for row in await db.run(SQL["drop"], age)]


async def has_strays(db: Database) -> bool:
    """Whether the default partitions contain rows."""
    row = await db.run(SQL["strays"])
    return bool(row["has_jobs"] or row["has_events"])
