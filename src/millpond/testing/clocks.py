"""Time travel: the one clock of the database, moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.store.db import Database


@dataclass(slots=True)
class Clock:
    """Runs on from wherever it is put."""

    db: Database
    offset: timedelta = timedelta(0)

    async def now(self) -> datetime:
        async with self.db.transaction() as tx:
            return await tx.fetchval("select millpond.clock()")

    async def advance(self, by: timedelta) -> None:
        """Also back, where a test must take away what the clock alone would decide."""
        self.offset += by
        async with self.db.transaction() as tx:
            await tx.execute(
                "create or replace function millpond.clock() returns timestamptz"
                " language sql volatile parallel safe as"
                f" 'select clock_timestamp() + interval ''{self.offset.total_seconds()} seconds'''"
            )
