"""What tests assert over the whole database."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from penstock.errors import PenstockError
    from penstock.store.db import Database

Snapshot = dict[str, list[str]]

_PATIENCE = 20.0


async def snapshot(db: Database) -> Snapshot:
    """Every row of every table of ours, as text."""
    async with db.transaction() as tx:
        tables = await tx.fetch(
            "select c.relname from pg_class c where c.relnamespace = 'penstock'::regnamespace"
            " and c.relkind in ('r', 'p') and not c.relispartition order by 1"
        )
        return {
            name: [row[0] for row in await tx.fetch(f"select t::text from penstock.{name} t order by 1")]
            for (name,) in tables
        }


@asynccontextmanager
async def unchanged(db: Database) -> AsyncIterator[None]:
    """Whatever is done in the block, not one row is written."""
    before = await snapshot(db)
    yield
    assert await snapshot(db) == before


@asynccontextmanager
async def refused(
    db: Database, error: type[PenstockError], *, field: str | None = None
) -> AsyncIterator[pytest.ExceptionInfo[PenstockError]]:
    """The block ends in exactly this error, about this field, and not one row is written."""
    async with unchanged(db):
        with pytest.raises(error) as caught:
            yield caught
        assert type(caught.value) is error
        assert caught.value.field == field


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll, with a deadline."""
    deadline = time.monotonic() + _PATIENCE
    while not await holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.005)
