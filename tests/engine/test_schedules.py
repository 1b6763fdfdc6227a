"""Schedules: who may make them, when they fire, what they submit, and what happens when something goes wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.queue import schedules as stored
from millpond.engine.queue.fires import BACKFILL_MAX, Backfill
from millpond.engine.reads import board
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    LifecycleError,
    NotFoundError,
    UnknownKindError,
)
from millpond.schedules import Schedule, Timing
from millpond.services.firer import firer
from millpond.services.pruner import pruner
from tests.checks import refused, unchanged
from tests.factories import ACCOUNT, HOUR, MINUTE, OWNER, STRANGER, TENANT, stage

if TYPE_CHECKING:
    from millpond.engine.queue.fires import FireRecord
    from millpond.engine.queue.schedules import ScheduleRecord
    from millpond.engine.reads.board import Alarm
    from millpond.store.db import Database
    from tests.clocks import Clock
    from tests.factories import Factory

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
HOURLY = Timing(every=HOUR)


def declared(timing: Timing = HOURLY, **options: Any) -> Schedule:
    return Schedule(**{"name": "s", "kind": "free", "timing": timing, **OWNER} | options)


async def made(engine: Engine, timing: Timing = HOURLY, **options: Any) -> ScheduleRecord:
    schedule, _ = await engine.schedules.make(declared(timing, **options), actor="op")
    return schedule


async def fired(engine: Engine) -> None:
    await firer(engine).run_once()


async def fires(engine: Engine, schedule: ScheduleRecord) -> list[FireRecord]:
    """In the order in which they were decided."""
    return (await engine.fires.list(schedule))[::-1]


async def outcomes(engine: Engine, schedule: ScheduleRecord) -> list[tuple[str, str | None]]:
    return [(fire.outcome, fire.reason) for fire in await fires(engine, schedule)]


async def jobs(engine: Engine, account: str = ACCOUNT) -> list[Any]:
    return (await engine.list_jobs(TENANT, account, limit=200))[::-1]


async def move_to(clock: Clock, instant: datetime) -> None:
    await clock.advance(instant - await clock.now())


async def move_past(clock: Clock, schedule: ScheduleRecord, by: timedelta = SECOND) -> None:
    assert schedule.next_at is not None
    await move_to(clock, schedule.next_at + by)


# Creating


async def test_a_schedule_knows_its_next_due_time_and_charges_nothing(make: Factory, engine: Engine) -> None:
    schedule = await made(engine, Timing(cron="0 3 * * *", zone="Europe/Berlin"), kind="priced")
    assert schedule.due_at is not None
    assert schedule.due_at.minute == 0
    assert schedule.due_at > schedule.created_at
    assert (schedule.state, schedule.source, schedule.next_at) == ("active", "api", schedule.due_at)
    assert await engine.schedules.read(schedule.id) == schedule
    assert await engine.entries(TENANT, ACCOUNT) == []
    (audited,) = await engine.access.list_audit(tenant=TENANT)
    assert (audited.actor, audited.action, audited.subject) == ("op", "schedule.created", schedule.id)


REFUSED = [
    ({"kind": "nothing"}, UnknownKindError, "kind"),
    ({"kind": "priced", "input": {"size": "big"}}, InputError, "input.size"),
    ({"kind": "priced", "input": {"colour": "red"}}, InputError, "input.colour"),
    ({"kind": "drawn", "input": {}}, InputError, "input"),
    ({"kind": "priced", "due_field": "when"}, InputError, "input.when"),
    ({"kind": "metered", "input": {"units": 10**12}}, InvalidError, "price"),
    ({"timing": Timing(at=datetime(2020, 1, 1, tzinfo=UTC))}, InvalidError, "at"),
]


@pytest.mark.parametrize(("given", "error", "field"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_could_never_be_submitted_is_refused(
    engine: Engine, given: dict[str, Any], error: Any, field: str
) -> None:
    with pytest.raises(error) as caught:
        await engine.schedules.make(declared(**given), actor="op")
    assert caught.value.field == field
    assert await engine.schedules.list() == []


async def test_a_preview_reports_the_next_due_times_and_writes_nothing(engine: Engine, db: Database) -> None:
    async with unchanged(db):
        times = await engine.schedules.preview(Timing(every=HOUR), 3)
    assert [later - earlier for earlier, later in pairwise(times)] == [HOUR, HOUR]
    with pytest.raises(InvalidError, match="never fires"):
        await engine.schedules.preview(Timing(at=datetime(2020, 1, 1, tzinfo=UTC)), 3)


async def test_a_name_is_given_once_in_a_tenant(engine: Engine, db: Database) -> None:
    await made(engine)
    async with refused(db, ConflictError, field="name"):
        await made(engine)
    await made(engine, tenant=STRANGER)


async def test_a_repeated_request_makes_one_schedule(engine: Engine, db: Database) -> None:
    first, is_replay = await engine.schedules.make(declared(), actor="op", key="k")
    assert not is_replay
    async with unchanged(db):
        assert await engine.schedules.make(declared(), actor="op", key="k") == (first, True)
        with pytest.raises(IdempotencyConflictError) as caught:
            await engine.schedules.make(declared(name="other"), actor="op", key="k")
    assert caught.value.details["schedule_id"] == first.id
    other, is_replay = await engine.schedules.make(declared(name="other"), actor="somebody else", key="k")
    assert (other.declared.name, is_replay) == ("other", False)


async def test_a_tenant_has_a_limited_number(engine: Engine, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "SCHEDULES_MAX", 1)
    await made(engine)
    async with refused(db, ConflictError):
        await made(engine, name="second")
    await made(engine, tenant=STRANGER)


# Firing


async def test_a_schedule_fires_at_its_due_time_and_not_before(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, tags={"team": "ads"}, priority=7, input={"a": 1}, due_field="hour")
    await fired(engine)
    assert await jobs(engine) == []
    await move_past(clock, schedule)
    await fired(engine)
    await fired(engine)
    (job,) = await jobs(engine)
    (fire,) = await fires(engine, schedule)
    assert schedule.due_at is not None
    assert (fire.outcome, fire.cause, fire.due_at, fire.job_id) == (
        "submitted",
        "schedule",
        schedule.due_at,
        job.job_id,
    )
    assert (job.kind, job.priority, job.tags) == ("free", 7, {"schedule": "s", "team": "ads"})
    assert job.input == {"a": 1, "hour": schedule.due_at.isoformat()}
    after = await engine.schedules.read(schedule.id)
    assert after.due_at == schedule.due_at + HOUR
    assert await engine.fires.last([schedule.schedule_id]) == {schedule.schedule_id: fire}
    assert (await engine.fires.jobs([fire]))[job.job_id].phase == "ready"


async def test_each_due_time_has_a_job_of_its_own(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(every=10 * MINUTE))
    for _ in range(4):
        await clock.advance(10 * MINUTE)
        await fired(engine)
    found = [fire.due_at for fire in await fires(engine, schedule)]
    assert found == [schedule.created_at + n * 10 * MINUTE for n in range(1, 5)]
    assert len(await jobs(engine)) == 4


async def test_a_single_time_fires_once_and_ends_the_schedule(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(at=await clock.now() + HOUR))
    await clock.advance(HOUR + SECOND)
    await fired(engine)
    await clock.advance(DAY)
    await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None)]
    assert (await engine.schedules.read(schedule.id)).state == "ended"


async def test_jitter_delays_the_job_and_not_the_due_time(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(cron="0 * * * *", jitter=HOUR))
    assert schedule.due_at is not None
    assert schedule.next_at is not None
    assert schedule.due_at < schedule.next_at < schedule.due_at + HOUR
    await move_to(clock, schedule.next_at - SECOND)
    await fired(engine)
    assert await fires(engine, schedule) == []
    await move_past(clock, schedule)
    await fired(engine)
    assert [fire.due_at for fire in await fires(engine, schedule)] == [schedule.due_at]


ZONES = [("Europe/Berlin", "30 2 * * *"), ("America/New_York", "30 1,2 * * *"), ("Australia/Lord_Howe", "45 1,2 * * *")]


@pytest.mark.parametrize(("zone", "cron"), ZONES, ids=[zone for zone, _ in ZONES])
async def test_a_change_of_the_clock_neither_loses_nor_repeats_a_job(
    engine: Engine, clock: Clock, zone: str, cron: str
) -> None:
    """Through all changes of a year, in steps of some hours; what is due is what the arithmetic says."""
    schedule = await made(engine, Timing(cron=cron, zone=zone), catch_up="all")
    begin = await clock.now()
    expected = [*schedule.declared.timing.upcoming(begin, 800)]
    for _ in range(80):
        await clock.advance(5 * DAY)
        await fired(engine)
    end = await clock.now()
    page = await engine.fires.list(schedule, limit=200)
    found = [fire.due_at for fire in page]
    while page:
        page = await engine.fires.list(schedule, before=page[-1].fire_id, limit=200)
        found += [fire.due_at for fire in page]
    assert found[::-1] == [each for each in expected if each <= end]
    days = {each.astimezone(tz=None).date() for each in found}
    assert len(days) > 390


async def test_the_29th_of_february_comes_every_four_years(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(cron="0 12 29 2 *"), kind="free")
    for _ in range(2):
        found = await engine.schedules.read(schedule.id)
        assert found.due_at is not None
        assert (found.due_at.month, found.due_at.day, found.due_at.year % 4) == (2, 29, 0)
        await move_past(clock, found)
        await fired(engine)
    first, second = (fire.due_at.year for fire in await fires(engine, schedule))
    assert second == first + 4


# Catching up

OUTAGES = [
    ("none", 100, 1 * DAY + 30 * MINUTE, 0, 24),
    ("none", 100, 1 * DAY + 30 * SECOND, 1, 23),
    ("last", 100, 1 * DAY + 30 * MINUTE, 1, 23),
    ("all", 100, 1 * DAY + 30 * MINUTE, 24, 0),
    ("all", 5, 1 * DAY + 30 * MINUTE, 5, 19),
    ("none", 100, 30 * SECOND + HOUR, 1, 0),
    ("last", 100, 60 * DAY, 1, 1_000),
]


@pytest.mark.parametrize(("policy", "limit", "outage", "submitted", "skipped"), OUTAGES)
async def test_after_an_outage_the_policy_decides(
    engine: Engine, clock: Clock, policy: Any, limit: int, outage: timedelta, submitted: int, skipped: int
) -> None:
    """A schedule that is due every hour, and no process for that long; the last due times are made up for."""
    schedule = await made(engine, Timing(every=HOUR), catch_up=policy, catch_up_max=limit)
    await clock.advance(outage)
    await fired(engine)
    found = await fires(engine, schedule)
    times = [fire for fire in found if fire.outcome == "submitted"]
    missed = [fire for fire in found if fire.outcome == "skipped"]
    assert len(times) == submitted == len(await jobs(engine))
    assert [fire.due_at for fire in times] == sorted(fire.due_at for fire in times)
    assert sum(fire.times for fire in missed) == skipped
    if missed:
        (line,) = missed
        assert (line.reason, line.due_at, line.job_id) == ("catch_up", schedule.due_at, None)
        assert line.until is not None
        assert not times or line.until + HOUR == times[0].due_at
    after = await engine.schedules.read(schedule.id)
    present = await clock.now()
    assert after.due_at is not None
    assert present < after.due_at <= present + HOUR


@pytest.mark.parametrize(("policy", "expected"), [("none", 0), ("last", 1), ("all", 1)])
async def test_a_nightly_schedule_that_missed_its_night_follows_its_policy(
    engine: Engine, clock: Clock, policy: Any, expected: int
) -> None:
    schedule = await made(engine, Timing(cron="0 3 * * *"), catch_up=policy)
    await move_past(clock, schedule, 5 * HOUR)
    await fired(engine)
    assert len(await jobs(engine)) == expected
    line = await fires(engine, schedule)
    assert [(fire.outcome, fire.until, fire.times) for fire in line] == [
        ("submitted" if expected else "skipped", None, 1)
    ]


# Overlap


async def test_skip_leaves_out_a_due_time_while_the_previous_job_is_active(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine, overlap="skip")
    for _ in range(3):
        await clock.advance(HOUR)
        await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None), ("skipped", "overlap"), ("skipped", "overlap")]
    await make.serve("free")
    await clock.advance(HOUR)
    await fired(engine)
    assert (await outcomes(engine, schedule))[-1] == ("submitted", None)
    assert len(await jobs(engine)) == 2


async def test_queue_submits_at_every_due_time(make: Factory, clock: Clock) -> None:
    schedule = await made(make.engine, overlap="queue")
    for _ in range(3):
        await clock.advance(HOUR)
        await fired(make.engine)
    assert await outcomes(make.engine, schedule) == [("submitted", None)] * 3


async def test_cancel_previous_cancels_the_job_before_and_submits(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine, overlap="cancel_previous")
    for _ in range(3):
        await clock.advance(HOUR)
        await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None)] * 3
    assert [job.outcome for job in await jobs(engine)] == ["canceled", "canceled", None]


async def test_cancel_previous_asks_a_running_job_to_stop(make: Factory, clock: Clock) -> None:
    engine = make.engine
    await made(engine, overlap="cancel_previous")
    await clock.advance(HOUR)
    await fired(engine)
    (lease,) = await make.claimed("free", duration=3 * HOUR)
    await clock.advance(HOUR)
    await fired(engine)
    first, second = await jobs(engine)
    assert (first.job_id, first.cancel_requested_at is not None) == (lease.job_id, True)
    assert second.phase == "ready"


async def test_a_job_that_cannot_be_canceled_does_not_stop_the_schedule(make: Factory, clock: Clock) -> None:
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine, overlap="cancel_previous", kind="staged")
    await clock.advance(HOUR)
    await fired(engine)
    (lease,) = await make.claimed("staged", duration=3 * HOUR)
    await engine.note(stage(lease, 1, "uploading"))
    await clock.advance(HOUR)
    await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None)] * 2
    assert [job.cancel_requested_at for job in await jobs(engine)] == [None, None]


async def test_skip_after_an_outage_makes_up_for_one_due_time(make: Factory, clock: Clock) -> None:
    schedule = await made(make.engine, overlap="skip", catch_up="all")
    await move_past(clock, schedule, 3 * HOUR + 30 * MINUTE)
    await fired(make.engine)
    assert await outcomes(make.engine, schedule) == [("submitted", None), *[("skipped", "overlap")] * 3]


# Refusals


async def test_a_refused_job_is_recorded_and_the_schedule_continues(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine, kind="priced")
    await clock.advance(HOUR)
    await fired(engine)
    (fire,) = await fires(engine, schedule)
    assert (fire.outcome, fire.reason, fire.job_id) == ("failed", "insufficient_credits", None)
    assert fire.message == "The job costs 5 credits, but only 0 are available."
    await make.credits(5)
    await clock.advance(HOUR)
    await fired(engine)
    assert (await outcomes(engine, schedule))[-1] == ("submitted", None)
    assert (await engine.balance(TENANT, ACCOUNT)).held == 5


async def test_an_account_at_its_cap_is_refused_for_that_due_time(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine)
    await engine.set_cap(TENANT, ACCOUNT, 1)
    for _ in range(2):
        await clock.advance(HOUR)
        await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None), ("failed", "too_many_active_jobs")]


def app_with(price: Any = 0, **options: Any) -> Millpond:
    app = Millpond()

    @app.kind("own", price=price, **options)
    def own(job: Any) -> None:
        """A kind of another app."""

    return app


async def registered(db: Database, app: Millpond) -> Engine:
    await registry.register(db, app.kinds.values())
    return Engine(db, app)


async def test_a_missing_provider_and_a_broken_price_are_refusals_too(db: Database, clock: Clock) -> None:
    def price(_: Any) -> int:
        if is_broken:
            raise ZeroDivisionError
        return 0

    is_broken = False
    needing = await registered(db, app_with(needs=("replicate",), expires_in="1h"))
    lacking = await made(needing, kind="own", name="lacking")
    broken = await registered(db, app_with(price=price))
    failing = await made(broken, kind="own", name="failing")
    is_broken = True
    await clock.advance(HOUR)
    await fired(needing)
    assert (await outcomes(needing, lacking))[0] == ("failed", "provider_missing")
    assert (await outcomes(needing, failing))[0] == ("failed", "provider_missing")
    await clock.advance(HOUR)
    await fired(broken)
    assert (await outcomes(needing, failing))[-1] == ("failed", "error")


async def test_a_schedule_is_fired_by_a_process_that_has_its_kind(engine: Engine, db: Database, clock: Clock) -> None:
    owner = await registered(db, app_with())
    schedule = await made(owner, kind="own")
    await clock.advance(HOUR)
    await fired(engine)
    assert await fires(engine, schedule) == []
    await clock.advance(5 * MINUTE)
    assert await engine.schedules.overdue() == 1
    await fired(owner)
    assert await outcomes(engine, schedule) == [("submitted", None)]
    assert await engine.schedules.overdue() == 0


async def test_a_schedule_that_a_process_does_not_understand_does_not_stop_the_others(
    engine: Engine, db: Database, clock: Clock
) -> None:
    """Its time zone is in no version of the zones here; a process with a newer one fires it."""
    odd, plain = await made(engine, name="odd"), await made(engine, name="plain")
    async with db.transaction() as tx:
        await tx.execute("update millpond.schedules set zone = 'Mars/Olympus' where name = 'odd'")
    await clock.advance(HOUR)
    await fired(engine)
    await fired(engine)
    assert await outcomes(engine, plain) == [("submitted", None)]
    assert await fires(engine, odd) == []
    async with db.transaction() as tx:
        await tx.execute("update millpond.schedules set zone = 'UTC' where name = 'odd'")
    await clock.advance(2 * MINUTE)
    await fired(engine)
    assert await outcomes(engine, odd) == [("submitted", None)]


# Changing


async def test_a_paused_schedule_does_not_fire_and_does_not_catch_up(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, catch_up="all")
    paused = await engine.schedules.pause(schedule.id, actor="op")
    assert (paused.state, paused.due_at, paused.next_at) == ("paused", None, None)
    assert (await engine.schedules.pause(schedule.id, actor="op")).paused_at == paused.paused_at
    await clock.advance(DAY)
    await fired(engine)
    resumed = await engine.schedules.resume(schedule.id, actor="op")
    assert resumed.state == "active"
    assert resumed.due_at is not None
    assert resumed.due_at > await clock.now()
    assert await engine.schedules.resume(schedule.id, actor="op") == resumed
    await fired(engine)
    assert await fires(engine, schedule) == []
    actions = [entry.action for entry in await engine.access.list_audit(tenant=TENANT)]
    assert actions == ["schedule.resumed", "schedule.paused", "schedule.created"]


async def test_a_change_of_the_timing_counts_from_now_and_any_other_keeps_the_due_time(
    engine: Engine, clock: Clock
) -> None:
    schedule = await made(engine)
    after = await engine.schedules.update(schedule.id, {"input": {"a": 2}, "priority": 3}, actor="op")
    assert (after.due_at, after.declared.input, after.declared.priority) == (schedule.due_at, {"a": 2}, 3)
    after = await engine.schedules.update(schedule.id, {"every": MINUTE}, actor="op")
    present = await clock.now()
    assert after.due_at is not None
    assert present < after.due_at <= present + MINUTE
    assert (after.declared.timing.cron, after.declared.timing.every) == (None, MINUTE)
    after = await engine.schedules.update(schedule.id, {"cron": "@daily", "zone": "Asia/Tokyo"}, actor="op")
    assert (after.declared.timing.every, after.declared.timing.zone) == (None, "Asia/Tokyo")
    after = await engine.schedules.update(schedule.id, {"zone": "UTC"}, actor="op")
    assert (after.declared.timing.cron, after.declared.timing.zone) == ("@daily", "UTC")
    last = (await engine.access.list_audit(tenant=TENANT))[0]
    assert (last.action, last.data) == ("schedule.updated", {"changed": ["zone"]})


UPDATES = [
    ({"cron": "0 0 30 2 *"}, "cron"),
    ({"cron": "@daily", "every": HOUR}, "every"),
    ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "at"),
    ({"zone": "Nowhere"}, "zone"),
    ({"kind": "nothing"}, "kind"),
    ({"kind": "metered", "input": {}}, "input.units"),
    ({"overlap": "wait"}, "overlap"),
]


@pytest.mark.parametrize(("changes", "field"), UPDATES, ids=str)
async def test_a_change_is_checked_like_a_new_schedule(
    engine: Engine, db: Database, changes: dict[str, Any], field: str
) -> None:
    schedule = await made(engine)
    async with unchanged(db):
        with pytest.raises(InvalidError) as caught:
            await engine.schedules.update(schedule.id, changes, actor="op")
    assert caught.value.field == field


async def test_a_deleted_schedule_is_gone_and_its_jobs_remain(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine)
    await clock.advance(HOUR)
    await fired(engine)
    await engine.schedules.delete(schedule.id, actor="op")
    with pytest.raises(NotFoundError):
        await engine.schedules.read(schedule.id)
    await clock.advance(DAY)
    await fired(engine)
    assert len(await jobs(engine)) == 1
    await made(engine)  # its name is free again


async def test_another_tenant_and_account_see_and_change_nothing(engine: Engine, db: Database) -> None:
    schedule = await made(engine)
    others: list[dict[str, Any]] = [{"tenant": STRANGER}, {"tenant": TENANT, "account": "bob"}]
    for other in others:
        async with unchanged(db):
            for call in (engine.schedules.pause, engine.schedules.resume, engine.schedules.delete):
                with pytest.raises(NotFoundError):
                    await call(schedule.id, actor="op", **other)
            with pytest.raises(NotFoundError):
                await engine.schedules.update(schedule.id, {"priority": 1}, actor="op", **other)
            with pytest.raises(NotFoundError):
                await engine.schedules.read(schedule.id, **other)
        assert await engine.schedules.list(**other) == []
    assert await engine.schedules.list(tenant=TENANT, account=ACCOUNT) == [schedule]


async def test_schedules_are_listed_by_page_and_filter(engine: Engine) -> None:
    all_of_them = [await made(engine, name=f"s{n}", kind="free" if n % 2 else "brief") for n in range(5)]
    await engine.schedules.pause(all_of_them[0].id, actor="op")
    names = [each.declared.name for each in await engine.schedules.list(limit=2)]
    assert names == ["s0", "s1"]
    page = await engine.schedules.list(after=all_of_them[1].schedule_id)
    assert [each.declared.name for each in page] == ["s2", "s3", "s4"]
    filters: list[tuple[dict[str, Any], int]] = [
        ({"kind": "brief"}, 3),
        ({"name": "s3"}, 1),
        ({"state": "paused"}, 1),
        ({"state": "active"}, 4),
        ({"state": "ended"}, 0),
        ({"source": "code"}, 0),
        ({"tenant": STRANGER}, 0),
    ]
    for given, count in filters:
        assert len(await engine.schedules.list(**given)) == count, given


# Running now, and backfilling


async def test_a_schedule_can_be_run_now_whatever_its_state_is(make: Factory, db: Database) -> None:
    engine = make.engine
    schedule = await made(engine, overlap="skip")
    await engine.schedules.pause(schedule.id, actor="op")
    first, is_replay = await engine.fires.run(schedule, actor="op", key="k")
    assert (first.outcome, first.cause, first.actor, is_replay) == ("submitted", "manual", "op", False)
    async with unchanged(db):
        again, is_replay = await engine.fires.run(schedule, actor="op", key="k")
    assert (again, is_replay) == (first, True)
    second, _ = await engine.fires.run(schedule, actor="op")
    assert second.job_id != first.job_id
    assert len(await jobs(engine)) == 2
    runs = [entry for entry in await engine.access.list_audit(tenant=TENANT) if entry.action == "schedule.run"]
    assert [entry.subject for entry in runs] == [schedule.id] * 2


async def test_a_refused_run_is_raised_and_recorded_and_can_be_repeated(make: Factory) -> None:
    engine = make.engine
    schedule = await made(engine, kind="priced")
    with pytest.raises(InsufficientCreditsError):
        await engine.fires.run(schedule, actor="op", key="k")
    assert await outcomes(engine, schedule) == [("failed", "insufficient_credits")]
    await make.credits(5)
    fire, is_replay = await engine.fires.run(schedule, actor="op", key="k")
    assert (fire.outcome, is_replay) == ("submitted", False)


async def test_a_backfill_fires_the_due_times_that_have_no_job(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine, Timing(every=HOUR), kind="priced", catch_up="none", due_field="product")
    begin = schedule.created_at
    await clock.advance(HOUR)  # the first one is refused
    await fired(engine)
    await make.credits(100)
    await clock.advance(HOUR)  # the second one is submitted
    await fired(engine)
    await clock.advance(3 * HOUR + 30 * MINUTE)  # three are missed
    await fired(engine)
    assert len(await jobs(engine)) == 1
    async with unchanged(engine.db):
        assert await engine.fires.preview_backfill(schedule, begin, await clock.now()) == Backfill(5, 4)
    done = await engine.fires.backfill(schedule, begin, await clock.now(), actor="op")
    assert done == Backfill(5, 4)
    await fired(engine)
    assert sorted(job.input["product"] for job in await jobs(engine)) == [
        (begin + n * HOUR).isoformat() for n in range(1, 6)
    ]
    again = await engine.fires.backfill(schedule, begin, await clock.now(), actor="op")
    assert again == Backfill(5, 0)
    made_up = [fire for fire in await fires(engine, schedule) if fire.cause == "backfill"]
    assert {fire.outcome for fire in made_up} == {"submitted"}
    assert {fire.actor for fire in made_up} == {"op"}


async def test_a_backfill_ignores_the_overlap_policy(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(every=HOUR), overlap="skip", catch_up="none")
    await clock.advance(3 * HOUR + 30 * MINUTE)
    await fired(engine)
    await engine.fires.backfill(schedule, schedule.created_at, await clock.now(), actor="op")
    await fired(engine)
    assert len(await jobs(engine)) == 3


async def test_a_backfill_is_of_a_limited_past_period(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, Timing(every=SECOND))
    begin, present = schedule.created_at, await clock.now()
    periods = [
        (begin, present + HOUR, "until"),
        (present, begin - HOUR, "since"),
        (begin.replace(tzinfo=None), present, "since"),
    ]
    for since, until, field in periods:
        with pytest.raises(InvalidError) as caught:
            await engine.fires.backfill(schedule, since, until, actor="op")
        assert caught.value.field == field
        with pytest.raises(InvalidError) as caught:
            await engine.fires.preview_backfill(schedule, since, until)
        assert caught.value.field == field
    await clock.advance((BACKFILL_MAX + 10) * SECOND)
    with pytest.raises(InvalidError) as caught:
        await engine.fires.backfill(schedule, begin, await clock.now(), actor="op")
    assert (caught.value.field, caught.value.message) == ("since", "The period has more than 1,000 due times.")


async def test_the_pruner_forgets_old_fires_and_keeps_pending_ones(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine, catch_up="none")
    await clock.advance(3 * HOUR + 30 * MINUTE)
    await fired(engine)
    await engine.schedules.pause(schedule.id, actor="op")
    await engine.fires.backfill(schedule, schedule.created_at, await clock.now(), actor="op")
    assert await outcomes(engine, schedule) == [("skipped", "catch_up"), *[("pending", None)] * 3]
    await clock.advance(2 * DAY)
    await pruner(engine, retention=DAY).run_once()
    assert await outcomes(engine, schedule) == [("pending", None)] * 3
    await fired(engine)
    assert await outcomes(engine, schedule) == [("submitted", None)] * 3


# The code of an app


def app_of(
    *names: str, name: str | None = None, kind: str = "own", cron: str = "0 * * * *", **options: Any
) -> Millpond:
    app = Millpond(name)

    @app.kind(kind)
    def own(job: Any) -> None:
        """A kind of this app."""

    for each in names:
        app.schedule(cron, kind=kind, name=each, **{**OWNER, **options})
    return app


async def started(db: Database, app: Millpond) -> Engine:
    engine = await registered(db, app)
    await engine.schedules.declare()
    return engine


async def states(engine: Engine) -> dict[str, str]:
    return {each.declared.name: each.state for each in await engine.schedules.list()}


async def test_the_schedules_of_an_app_are_stored_when_it_starts(db: Database, clock: Clock) -> None:
    engine = await started(db, app_of("nightly", input={}))
    (schedule,) = await engine.schedules.list()
    assert (schedule.source, schedule.declared.tenant, schedule.declared.kind) == ("code", TENANT, "own")
    async with unchanged(db):
        await engine.schedules.declare()
    await move_past(clock, schedule)
    await fired(engine)
    assert len(await jobs(engine)) == 1


async def test_a_due_time_that_passed_while_no_process_ran_is_not_forgotten_by_a_start(
    db: Database, clock: Clock
) -> None:
    engine = await started(db, app_of("nightly"))
    (schedule,) = await engine.schedules.list()
    await clock.advance(5 * HOUR)
    engine = await started(db, app_of("nightly", priority=5))
    assert (await engine.schedules.list())[0].due_at == schedule.due_at
    await fired(engine)
    (job,) = await jobs(engine)
    assert job.priority == 5


async def test_a_changed_timing_is_counted_from_the_start(db: Database, clock: Clock) -> None:
    await started(db, app_of("nightly"))
    engine = await started(db, app_of("nightly", cron="30 3 * * *"))
    (schedule,) = await engine.schedules.list()
    assert schedule.due_at is not None
    assert (schedule.due_at.hour, schedule.due_at.minute) == (3, 30)


async def test_what_an_app_no_longer_declares_is_orphaned_until_it_does_again(db: Database, clock: Clock) -> None:
    await started(db, app_of("one", "two"))
    engine = await started(db, app_of("one"))
    assert await states(engine) == {"one": "active", "two": "orphaned"}
    _, two = await engine.schedules.list()
    await clock.advance(5 * HOUR)
    await fired(engine)
    assert await fires(engine, two) == []
    with pytest.raises(ConflictError, match="orphaned"):
        await engine.schedules.resume(two.id, actor="op")
    engine = await started(db, app_of("one", "two"))
    assert await states(engine) == {"one": "active", "two": "active"}
    await fired(engine)
    assert await fires(engine, two) == []  # it was not an outage
    await started(db, app_of("one"))
    await engine.schedules.delete(two.id, actor="op")
    assert await states(engine) == {"one": "active"}


async def test_a_pause_by_an_operator_outlasts_starts(db: Database) -> None:
    engine = await started(db, app_of("one"))
    (schedule,) = await engine.schedules.list()
    await engine.schedules.pause(schedule.id, actor="op")
    engine = await started(db, app_of("one", priority=3))
    assert await states(engine) == {"one": "paused"}
    await started(db, app_of())
    assert await states(engine) == {"one": "orphaned"}
    await started(db, app_of("one"))
    assert await states(engine) == {"one": "paused"}


async def test_apps_without_a_kind_in_common_leave_each_others_schedules_alone(db: Database) -> None:
    await started(db, app_of("one", kind="first"))
    engine = await started(db, app_of("two", kind="second"))
    assert await states(engine) == {"one": "active", "two": "active"}
    engine = await started(db, Millpond())
    assert await states(engine) == {"one": "active", "two": "active"}
    engine = await started(db, app_of(kind="second"))
    assert await states(engine) == {"one": "active", "two": "orphaned"}


async def test_an_app_with_a_name_owns_what_was_declared_under_that_name(db: Database) -> None:
    await started(db, app_of("one", name="shop"))
    await started(db, app_of("two", name="back-office"))
    engine = await started(db, app_of("three"))
    assert await states(engine) == {"one": "active", "two": "active", "three": "active"}
    engine = await started(db, app_of(name="shop", kind="another"))
    assert await states(engine) == {"one": "orphaned", "two": "active", "three": "active"}


async def test_a_schedule_in_code_is_changed_in_code_and_can_be_paused_and_run(db: Database) -> None:
    engine = await started(db, app_of("one"))
    (schedule,) = await engine.schedules.list()
    async with unchanged(db):
        with pytest.raises(ConflictError, match="declared in the code"):
            await engine.schedules.update(schedule.id, {"priority": 1}, actor="op")
        with pytest.raises(ConflictError, match="declared in the code"):
            await engine.schedules.delete(schedule.id, actor="op")
    fire, _ = await engine.fires.run(schedule, actor="op")
    assert fire.outcome == "submitted"
    assert (await engine.schedules.pause(schedule.id, actor="op")).state == "paused"
    assert (await engine.schedules.resume(schedule.id, actor="op")).state == "active"


async def test_a_schedule_of_the_api_moves_into_code_under_its_name(engine: Engine, db: Database) -> None:
    before = await made(engine, name="one")
    owner = await started(db, app_of("one", cron="30 5 * * *"))
    (after,) = await owner.schedules.list()
    assert (after.schedule_id, after.source, after.declared.kind) == (before.schedule_id, "code", "own")


async def test_a_single_time_in_code_that_has_passed_does_not_stop_the_app(db: Database) -> None:
    app = app_of()
    app.schedule(at=datetime(2020, 1, 1, tzinfo=UTC), kind="own", name="once", **OWNER)
    engine = await started(db, app)
    assert await states(engine) == {"once": "ended"}


async def test_an_invalid_input_in_code_stops_the_app_and_names_the_schedule(db: Database) -> None:
    with pytest.raises(LifecycleError, match=r"Schedule 'one': input\.colour"):
        await started(db, app_of("one", input={"colour": "red"}))


async def test_many_processes_may_start_at_once(db: Database) -> None:
    app = app_of("one", "two", "three")
    engines = [await registered(db, app) for _ in range(4)]
    await asyncio.gather(*(engine.schedules.declare() for engine in engines))
    assert await states(engines[0]) == {"one": "active", "two": "active", "three": "active"}


# Alarms


async def alarms(engine: Engine, tenant: str | None = None) -> list[Alarm]:
    return [alarm for alarm in (await board.look(engine, tenant)).alarms if alarm.type == "schedule"]


async def test_a_schedule_whose_jobs_are_refused_again_and_again_raises_an_alarm(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine, kind="priced")
    await made(engine, name="free")
    for _ in range(board.REFUSALS):
        assert await alarms(engine) == []
        await clock.advance(HOUR)
        await fired(engine)
    (alarm,) = await alarms(engine)
    assert (alarm.level, alarm.id, alarm.tenant) == ("warn", schedule.id, TENANT)
    assert alarm.text == f"Schedule s of {TENANT} submits no jobs: the last 2 were refused (insufficient_credits)."
    assert (await alarms(engine, TENANT), await alarms(engine, STRANGER)) == ([alarm], [])
    await make.credits(5)
    await clock.advance(HOUR)
    await fired(engine)
    assert await alarms(engine) == []


async def test_a_schedule_that_nobody_fires_raises_an_alarm(engine: Engine, clock: Clock) -> None:
    schedule = await made(engine)
    await clock.advance(HOUR + MINUTE / 2)
    assert await alarms(engine) == []
    await clock.advance(2 * HOUR)
    (alarm,) = await alarms(engine)
    assert (alarm.level, alarm.id) == ("bad", schedule.id)
    assert "should have fired 2 h ago" in alarm.text
    assert (await alarms(engine, TENANT), await alarms(engine, STRANGER)) == ([alarm], [])
    await engine.schedules.pause(schedule.id, actor="op")
    assert await alarms(engine) == []


async def test_an_orphaned_schedule_raises_an_alarm(db: Database, clock: Clock) -> None:
    await started(db, app_of("one", "two"))
    engine = await started(db, app_of("one"))
    (alarm,) = await alarms(engine)
    assert (alarm.level, alarm.text) == (
        "warn",
        f"Schedule two of {TENANT} is orphaned: its app no longer declares it.",
    )
    await engine.schedules.delete(alarm.id, actor="op")
    assert await alarms(engine) == []
