"""Events: a job's log, read after a cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.errors import InvalidError
from tests.checks import refused
from tests.factories import TENANT, progress

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory


async def test_a_reader_goes_on_where_it_was(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    for number in (1, 2, 3):
        await engine.note(progress(lease, number, number / 10))
    seen: list[int] = []
    while page := await engine.events(TENANT, lease.job_id, after=seen[-1] if seen else 0, limit=2):
        seen += [event.seq for event in page]
    assert seen == [1, 2, 3, 4, 5]


async def test_an_event_reports_the_state_the_job_was_in(engine: Engine, make: Factory) -> None:
    ended = await make.ended("restartable", "failed")
    assert [event.state for event in await engine.events(TENANT, ended.job_id)] == [
        *("pending", "queued", "processing", "failed"),
    ]


async def test_nothing_new_is_an_empty_answer(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted()
    assert await engine.events(TENANT, submitted.job_id, after=1) == []
    assert await engine.events(TENANT, submitted.job_id, after=2**31 - 1) == []


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_a_page_of_events_has_limits(db: Database, engine: Engine, make: Factory, limit: int) -> None:
    submitted = await make.submitted()
    async with refused(db, InvalidError, field="limit"):
        await engine.events(TENANT, submitted.job_id, limit=limit)
