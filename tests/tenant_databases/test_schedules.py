"""Schedules of a tenant with a database of its own: decided on in central, submitted there, also when it was away."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.schedules import Schedule, Timing
from millpond.services.firer import firer
from tests.factories import ACCOUNT, HOUR, STRANGER, TENANT

if TYPE_CHECKING:
    from millpond.engine.queue.schedules import ScheduleRecord
    from tests.tenant_databases.conftest import SystemUnderTest


@pytest.fixture(autouse=True)
async def _clear(system: SystemUnderTest) -> None:
    await system.clear()


async def made(system: SystemUnderTest, name: str = "s", **options: Any) -> ScheduleRecord:
    given = {"name": name, "kind": "free", "timing": Timing(every=HOUR), "tenant": TENANT, "account": ACCOUNT}
    return (await system.engine.schedules.make(Schedule(**given | options), actor="op"))[0]


async def outcomes(system: SystemUnderTest, schedule: ScheduleRecord) -> list[str]:
    return [fire.outcome for fire in await system.engine.fires.list(schedule)][::-1]


async def count(system: SystemUnderTest, tenant: str) -> int:
    return len(await system.engine.list_jobs(tenant, ACCOUNT, limit=100))


async def test_its_jobs_are_in_its_database_and_its_fires_in_central(system: SystemUnderTest) -> None:
    schedule = await made(system, kind="priced")
    await system.engine.grant(TENANT, ACCOUNT, 5)
    for _ in range(2):
        await system.make.clock.advance(HOUR)
        await firer(system.engine).run_once()
    assert await outcomes(system, schedule) == ["submitted", "failed"]
    assert await count(system, TENANT) == 1
    async with system.engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.jobs") == 0
    async with system.database.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.fires") == 0
    (fire, *_) = (await system.engine.fires.list(schedule))[::-1]
    assert (await system.engine.fires.jobs([fire]))[fire.job_id].phase == "ready"  # pyright: ignore[reportArgumentType]
    assert await system.engine.verify() == []


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_previous"])
async def test_while_it_cannot_be_reached_its_due_times_wait_and_no_others(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch, overlap: Any
) -> None:
    schedule = await made(system, overlap=overlap)
    other = await made(system, "other", tenant=STRANGER)
    for wait in (HOUR, timedelta(seconds=30)):
        await system.make.clock.advance(wait)
        with monkeypatch.context() as patch:
            patch.setattr(system.database, "is_up", False)
            await firer(system.engine).run_once()
        assert await outcomes(system, schedule) == ["pending"]
        assert await outcomes(system, other) == ["submitted"]
    await system.make.clock.advance(timedelta(minutes=1))
    await firer(system.engine).run_once()
    assert await outcomes(system, schedule) == ["submitted"]
    assert await count(system, TENANT) == 1
    assert await system.engine.verify() == []


async def test_overlap_looks_at_jobs_in_its_database(system: SystemUnderTest) -> None:
    skipping, canceling = await made(system, overlap="skip"), await made(system, "c", overlap="cancel_previous")
    for _ in range(2):
        await system.make.clock.advance(HOUR)
        await firer(system.engine).run_once()
    assert await outcomes(system, skipping) == ["submitted", "skipped"]
    assert await outcomes(system, canceling) == ["submitted", "submitted"]
    ends = [job.outcome for job in await system.engine.list_jobs(TENANT, ACCOUNT)]
    assert sorted(map(str, ends)) == ["None", "None", "canceled"]


async def test_a_run_that_cannot_be_submitted_is_pending_and_submitted_later(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = await made(system)
    with monkeypatch.context() as patch:
        patch.setattr(system.database, "is_up", False)
        fire, _ = await system.engine.fires.run(schedule, actor="op")
    assert fire.outcome == "pending"
    await system.make.clock.advance(timedelta(minutes=1))
    await firer(system.engine).run_once()
    assert await outcomes(system, schedule) == ["submitted"]


async def test_verify_compares_fires_with_jobs_across_databases(system: SystemUnderTest) -> None:
    await made(system)
    await system.make.clock.advance(HOUR)
    await firer(system.engine).run_once()
    assert await system.engine.verify() == []
    assert await system.engine.verify(newest=HOUR) == []
    async with system.engine.db.transaction() as tx:
        await tx.execute("update millpond.fires set job_id = millpond.uuid7()")
    assert await broken(system) == {"fires_name_their_job", "scheduled_jobs_have_a_fire"}


@pytest.mark.parametrize(
    ("statement", "invariants"),
    [
        ("delete from millpond.fires", {"scheduled_jobs_have_a_fire"}),
        ("update millpond.fires set schedule_id = millpond.uuid7()", {"scheduled_jobs_have_a_fire"}),
        ("update millpond.fires set tenant = 'globex'", {"fires_name_their_job", "scheduled_jobs_have_a_fire"}),
        ("delete from millpond.fires; delete from millpond.schedules", set[str]()),
    ],
)
async def test_verify_finds_jobs_of_schedules_without_a_fire_across_databases(
    system: SystemUnderTest, statement: str, invariants: set[str]
) -> None:
    await made(system)
    await system.make.clock.advance(HOUR)
    await firer(system.engine).run_once()
    assert await broken(system) == set()
    async with system.engine.db.transaction() as tx:
        await tx.execute(statement)
    assert await broken(system) == invariants


async def broken(system: SystemUnderTest) -> set[str]:
    """The invariants that do not hold for the tenant."""
    found = await system.engine.verify()
    assert {violation.subject for violation in found} <= {TENANT, "globex"}
    return {violation.invariant for violation in found}
