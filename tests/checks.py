"""What tests assert over the whole database."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from millpond.errors import MillpondError
    from millpond.store.db import Database

Snapshot = dict[str, list[str]]

# When a key was used last is stored a moment later, in the background.
_EVERY_ROW = """
select string_agg(
    format(case relname when 'keys' then 'select %L, (to_jsonb(t) - ''last_used_at'')::text from millpond.%I t'
        else 'select %L, t::text from millpond.%I t' end, relname, relname), ' union all '
)
from pg_class where relnamespace = 'millpond'::regnamespace and relkind in ('r', 'p') and not relispartition
"""


async def snapshot(db: Database) -> Snapshot:
    """Every row of every table of ours, as text."""
    tables: Snapshot = {}
    async with db.transaction() as tx:
        for name, row in await tx.fetch(await tx.fetchval(_EVERY_ROW)):
            tables.setdefault(name, []).append(row)
    return {name: sorted(rows) for name, rows in tables.items()}


@asynccontextmanager
async def unchanged(db: Database) -> AsyncIterator[None]:
    """Whatever is done in the block, not one row is written."""
    before = await snapshot(db)
    yield
    assert await snapshot(db) == before


@asynccontextmanager
async def refused(
    db: Database, error: type[MillpondError], *, field: str | None = None
) -> AsyncIterator[pytest.ExceptionInfo[MillpondError]]:
    """The block ends in exactly this error, about this field, and not one row is written."""
    async with unchanged(db):
        with pytest.raises(error) as caught:
            yield caught
        assert type(caught.value) is error
        assert caught.value.field == field


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll, with a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.005)


def submitted_jobs(metrics: str) -> dict[str, int]:
    """How many jobs of each kind a process says that it took in, by its /metrics."""
    return {
        sample.labels["kind"]: int(sample.value)
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "millpond_jobs_submitted_total"
    }
