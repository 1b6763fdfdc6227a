"""Schedules by both clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import AsyncClient, Client
from millpond.errors import ConflictError, InvalidError, NotFoundError
from millpond.services.firer import firer
from tests.api.sites import running_site
from tests.client.both import Awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.engine import Engine
    from tests.api.sites import Site
    from tests.clocks import Clock

HOUR = timedelta(hours=1)


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    async with running_site(engine) as running:
        yield running


@pytest.fixture(params=["awaited", "blocking"])
async def admin(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The operator of a tenant of the test's own."""
    key = await site.key(scope="admin", tenant=f"t{uuid4().hex[:12]}", account=None)
    is_awaited = request.param == "awaited"
    client: Any = AsyncClient(site.url, key) if is_awaited else Awaited(Client(site.url, key))
    yield client
    await client.close()


async def test_a_schedule_lives_and_dies(admin: Any) -> None:
    made = await admin.make_schedule(
        "nightly",
        "free",
        {"a": 1},
        cron="0 3 * * *",
        zone="Europe/Berlin",
        jitter=timedelta(minutes=5),
        expires_in="2h",
        tags={"team": "ads"},
        account="ann",
    )
    assert (made.input, made.jitter_seconds, made.expires_in_seconds) == ({"a": 1}, 300, 7200)
    assert await admin.schedule(made.id) == made
    assert [each.id async for each in admin.schedules(state="active", name="nightly")] == [made.id]
    changed = await admin.update_schedule(made.id, every=HOUR, jitter=None, overlap="skip")
    assert (changed.cron, changed.every_seconds, changed.jitter_seconds, changed.overlap) == (None, 3600, 0, "skip")
    assert (await admin.pause_schedule(made.id)).state == "paused"
    assert (await admin.resume_schedule(made.id)).state == "active"
    await admin.delete_schedule(made.id)
    with pytest.raises(NotFoundError):
        await admin.schedule(made.id)


async def test_it_is_run_fired_and_backfilled(admin: Any, site: Site, clock: Clock) -> None:
    made = await admin.make_schedule("hourly", "free", every="1h", catch_up="none", account="ann")
    run = await admin.run_schedule(made.id)
    assert (run.outcome, run.cause, run.job_phase) == ("submitted", "manual", "ready")
    await clock.advance(3 * HOUR + HOUR / 2)
    await firer(site.engine).run_once()
    asked = await admin.preview_backfill(made.id, made.created_at, datetime.now(UTC) + 3 * HOUR)
    assert (asked.due_times, asked.fires) == (3, 3)
    done = await admin.backfill_schedule(made.id, made.created_at, datetime.now(UTC) + 3 * HOUR)
    assert (done.due_times, done.fires) == (3, 3)
    await firer(site.engine).run_once()
    assert (await admin.backfill_schedule(made.id, "24h")).fires == 0
    found = [(fire.cause, fire.outcome) async for fire in admin.fires(made.id)]
    assert found == [*[("backfill", "submitted")] * 3, ("schedule", "skipped"), ("manual", "submitted")]
    assert len([fire async for fire in admin.fires(made.id, outcome="submitted")]) == 4


async def test_due_times_are_previewed(admin: Any) -> None:
    times = await admin.preview_schedule(cron="30 2 29 2 *", zone="Europe/Berlin", count=3)
    assert [each.year % 4 for each in times] == [0, 0, 0]
    with pytest.raises(InvalidError, match="never"):
        await admin.preview_schedule(cron="0 0 30 2 *")


async def test_errors_are_those_of_the_server(admin: Any) -> None:
    await admin.make_schedule("once", "free", at=datetime.now(UTC) + HOUR, account="ann")
    with pytest.raises(ConflictError) as conflict:
        await admin.make_schedule("once", "free", every="1h", account="ann")
    assert conflict.value.field == "name"
    with pytest.raises(InvalidError) as invalid:
        await admin.make_schedule("other", "free", every="often", account="ann")
    assert invalid.value.field == "every"
