"""A controllable database clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.store.db import Database


@dataclass(slots=True)
class Clock:
    """Continues to run from the time it is set to."""

    db: Database
    offset: timedelta = timedelta(0)

    async def now(self) -> datetime:
        async with self.db.transaction() as tx:
            return await tx.fetchval("select millpond.clock()")

    async def advance(self, by: timedelta) -> None:
        """Set the clock, also to an earlier time, for a test of what the clock alone decides."""
        self.offset += by
        async with self.db.transaction() as tx:
            await tx.execute(
                "create or replace function millpond.clock() returns timestamptz"
                " language sql volatile parallel safe as"
                f" 'select clock_timestamp() + interval ''{self.offset.total_seconds()} seconds'''"
            )
