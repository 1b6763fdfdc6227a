"""A due time is one job: with any number of processes, whichever of them dies, and whatever changes meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.queue import fires
from millpond.engine.queue.fires import Fires
from millpond.engine.verify import verify
from millpond.errors import UnavailableError
from millpond.schedules import Schedule, Timing, due_key
from millpond.services.firer import firer
from millpond.store.db import Database
from tests.factories import ACCOUNT, HOUR, OWNER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.queue.schedules import ScheduleRecord
    from tests.clocks import Clock
    from tests.factories import Factory

PROCESSES = 5
LATER = 2 * fires._PATIENCE
"""By then, a process that decided on a fire counts as dead."""


@pytest.fixture
async def processes(db: Database) -> AsyncIterator[list[Engine]]:
    """Several engines on one database, each with connections of its own."""
    opened = [Engine(await Database.open(db.dsn, size=3), app) for _ in range(PROCESSES)]
    yield opened
    for engine in opened:
        await engine.close()


async def made(engine: Engine, name: str = "s", **options: Any) -> ScheduleRecord:
    declared = Schedule(**{"name": name, "kind": "priced", "timing": Timing(every=HOUR), **OWNER} | options)
    return (await engine.schedules.make(declared, actor="op"))[0]


async def jobs(engine: Engine) -> list[Any]:
    return await engine.list_jobs(TENANT, ACCOUNT, limit=200)


async def outcomes(engine: Engine, schedule: ScheduleRecord) -> list[str]:
    return [fire.outcome for fire in await engine.fires.list(schedule)][::-1]


async def decided(engine: Engine) -> None:
    """A process decides on what is due, and dies before it submits anything."""
    await engine.db.transact(engine.fires._decide_due)


async def died_before_it_settled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process submits what is due, and dies before it records that."""

    async def die(*_: Any) -> None:
        raise ConnectionAbortedError

    with monkeypatch.context() as patch:
        patch.setattr(Fires, "_settle", die)
        with pytest.raises(ConnectionAbortedError):
            await engine.fires.fire()


async def changed(db: Database, statement: str, *arguments: Any) -> None:
    async with db.transaction() as tx:
        await tx.execute(statement, *arguments)


# Several processes


async def test_of_many_processes_one_fires_each_schedule(make: Factory, clock: Clock, processes: list[Engine]) -> None:
    schedules = [
        await made(make.engine, f"s{n}", overlap=("queue", "skip", "cancel_previous")[n % 3]) for n in range(60)
    ]
    await make.credits(1_000)
    for hours in (1, 2):
        await clock.advance(HOUR)
        await asyncio.gather(*(firer(engine).run_once() for engine in processes for _ in range(2)))
        assert len(await jobs(make.engine)) == 60 if hours == 1 else 100
    for number, schedule in enumerate(schedules):
        expected = ["submitted", "skipped" if number % 3 == 1 else "submitted"]
        assert await outcomes(make.engine, schedule) == expected


async def test_a_fire_that_many_processes_take_over_is_one_job(
    make: Factory, clock: Clock, processes: list[Engine]
) -> None:
    await make.credits(100)
    schedule = await made(make.engine)
    await clock.advance(HOUR)
    await decided(make.engine)
    (fire,) = await make.engine.fires.list(schedule)
    known = {schedule.schedule_id: schedule}
    await asyncio.gather(*(engine.fires._submit([fire], known) for engine in processes))
    assert await outcomes(make.engine, schedule) == ["submitted"]
    assert len(await jobs(make.engine)) == 1


async def test_two_runs_with_one_key_are_one_job(make: Factory, processes: list[Engine]) -> None:
    await make.credits(100)
    schedule = await made(make.engine)
    answers = await asyncio.gather(*(engine.fires.run(schedule, actor="op", key="k") for engine in processes))
    assert len({fire.job_id for fire, _ in answers}) == 1
    assert sorted(is_replay for _, is_replay in answers) == [False, *[True] * (PROCESSES - 1)]
    assert len(await jobs(make.engine)) == 1


async def test_a_backfill_beside_the_firer_makes_no_second_job(
    make: Factory, clock: Clock, processes: list[Engine]
) -> None:
    await make.credits(1_000)
    schedule = await made(make.engine, catch_up="all")
    await clock.advance(20 * HOUR)
    until = await clock.now()

    async def backfill(engine: Engine) -> None:
        await engine.fires.backfill(schedule, schedule.created_at, until, actor="op")
        await firer(engine).run_once()

    first, second, *_ = processes
    await asyncio.gather(backfill(first), firer(second).run_once())
    await firer(first).run_once()
    assert len(await jobs(make.engine)) == 20
    assert (await make.engine.balance(TENANT, ACCOUNT)).held == 100


# A process dies


async def test_a_process_that_dies_before_it_submits_is_followed_by_another(make: Factory, clock: Clock) -> None:
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine)
    await clock.advance(HOUR)
    await decided(engine)
    assert await outcomes(engine, schedule) == ["pending"]
    await firer(engine).run_once()  # the process may still be at work
    assert await jobs(engine) == []
    await clock.advance(LATER)
    await firer(engine).run_once()
    (job,) = await jobs(engine)
    (fire,) = await engine.fires.list(schedule)
    assert (fire.outcome, fire.job_id) == ("submitted", job.job_id)


async def test_a_process_that_dies_before_it_records_is_followed_by_a_replay(
    make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make.engine
    await make.credits(5)
    schedule = await made(engine)
    await clock.advance(HOUR)
    await died_before_it_settled(engine, monkeypatch)
    (job,) = await jobs(engine)
    assert await outcomes(engine, schedule) == ["pending"]
    await clock.advance(LATER)
    await firer(engine).run_once()
    (fire,) = await engine.fires.list(schedule)
    assert (fire.outcome, fire.job_id) == ("submitted", job.job_id)
    assert [each.job_id for each in await jobs(engine)] == [job.job_id]


CHANGES = [
    ("update millpond.schedules set input = '{\"size\": 2}'", "another input"),
    ("update millpond.schedules set account = 'bob'", "another account"),
    ("update millpond.schedules set kind = 'free', input = '{}'", "another kind"),
    ('update millpond.schedules set tags = \'{"a": "b"}\'', "other tags"),
    ("update millpond.accounts set available = 0, entries = entries", "no credits"),
    ("delete from millpond.idempotency", "a key that was pruned"),
]


@pytest.mark.parametrize("statement", [each[0] for each in CHANGES if "accounts" not in each[0]], ids=str)
async def test_what_changes_before_the_replay_makes_no_second_job(
    make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The job exists, with what was submitted then: the fire names it."""
    engine = make.engine
    await make.credits(5)
    schedule = await made(engine)
    await clock.advance(HOUR)
    await died_before_it_settled(engine, monkeypatch)
    (job,) = await jobs(engine)
    await changed(engine.db, statement)
    await clock.advance(LATER)
    await firer(engine).run_once()
    (fire,) = await engine.fires.list(schedule)
    assert (fire.outcome, fire.job_id) == ("submitted", job.job_id)
    async with engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.jobs") == 1


async def test_a_job_that_ended_and_whose_key_was_pruned_is_not_run_again(
    make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of the firer are down for longer than keys are kept."""
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine, catch_up="none")
    await clock.advance(HOUR)
    await died_before_it_settled(engine, monkeypatch)
    await make.serve("priced")
    await changed(engine.db, "delete from millpond.idempotency")
    await clock.advance(3 * 24 * HOUR + HOUR / 2)
    await firer(engine).run_once()
    (job,) = await jobs(engine)
    assert job.outcome == "succeeded"
    first, *_ = (await engine.fires.list(schedule))[::-1]
    assert (first.outcome, first.job_id) == ("submitted", job.job_id)


@pytest.mark.parametrize("overlap", ["skip", "cancel_previous"])
async def test_a_replay_is_not_decided_on_again(
    make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch, overlap: Any
) -> None:
    """The previous job had ended when the job was submitted; it was retried before that was recorded."""
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine, kind="restartable", overlap=overlap)
    await clock.advance(HOUR)
    await firer(engine).run_once()
    (lease,) = await make.claimed("restartable")
    await make.finish(lease, "failed")
    await clock.advance(HOUR)
    await died_before_it_settled(engine, monkeypatch)
    await engine.retry(TENANT, lease.job_id)
    await clock.advance(LATER)
    await firer(engine).run_once()
    assert await outcomes(engine, schedule) == ["submitted", "submitted"]
    assert [job.outcome for job in await jobs(engine)] == [None, None]


async def test_a_pending_fire_counts_as_an_active_job(make: Factory, clock: Clock) -> None:
    """The process that decided on it may submit at any time."""
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine, overlap="skip")
    await clock.advance(HOUR)
    await decided(engine)
    await clock.advance(HOUR)
    await engine.fires.fire()
    assert await outcomes(engine, schedule) == ["pending", "skipped"]
    await firer(engine).run_once()
    assert await outcomes(engine, schedule) == ["submitted", "skipped"]


async def test_a_slow_process_records_the_job_that_another_one_gave_up(make: Factory, clock: Clock) -> None:
    """One submits, and is overtaken by one that records a refusal: the job exists, and is named."""
    engine = make.engine
    await make.credits(5)
    schedule = await made(engine)
    await clock.advance(HOUR)
    await decided(engine)
    (fire,) = await engine.fires.list(schedule)
    await changed(
        engine.db,
        "update millpond.fires set outcome = 'failed', reason = 'x', job_id = null, tries = null, try_at = null",
    )
    await engine.fires._submit([fire], {schedule.schedule_id: schedule})
    (job,) = await jobs(engine)
    (fire,) = await engine.fires.list(schedule)
    assert (fire.outcome, fire.job_id, fire.reason) == ("submitted", job.job_id, None)


async def test_a_deleted_schedule_withdraws_what_is_pending(make: Factory, clock: Clock) -> None:
    engine = make.engine
    schedule = await made(engine)
    await clock.advance(HOUR)
    await decided(engine)
    await engine.schedules.delete(schedule.id, actor="op")
    await clock.advance(LATER)
    await firer(engine).run_once()
    assert await engine.fires.list(schedule) == []
    assert await jobs(engine) == []


async def test_a_database_that_cannot_be_reached_is_tried_again(
    make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no refusal: the fire waits, and those behind it too; the schedule goes on."""
    engine = make.engine
    await make.credits(100)
    schedule = await made(engine, overlap="skip", catch_up="all")
    other = await made(engine, "other", kind="free", account="bob")
    submit_many = engine.submit_many

    async def submit(requests: Any) -> Any:
        return [
            UnavailableError() if each["account"] == ACCOUNT else (await submit_many([each]))[0] for each in requests
        ]

    await clock.advance(2 * HOUR)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "submit_many", submit)
        await firer(engine).run_once()
        assert (await outcomes(engine, other))[-1] == "submitted"
        assert await outcomes(engine, schedule) == ["pending", "pending"]
        assert await jobs(engine) == []
    await clock.advance(timedelta(minutes=2))
    await firer(engine).run_once()
    assert await outcomes(engine, schedule) == ["submitted", "skipped"]
    assert len(await jobs(engine)) == 1


# What verify would find


WRONG = [
    ("schedules_stay_due", "update millpond.schedules set due_at = null, next_at = null"),
    (
        "fires_come_before_the_next_due_time",
        "update millpond.schedules set due_at = due_at - interval '1 day', next_at = next_at - interval '1 day'",
    ),
    (
        "fires_are_settled",
        "update millpond.fires set outcome = 'pending', tries = 1, try_at = at, at = at - interval '2 hours'",
    ),
    ("fires_name_their_job", "update millpond.fires set job_id = gen_random_uuid()"),
    ("scheduled_jobs_have_a_fire", "delete from millpond.fires"),
]


@pytest.mark.unsound
@pytest.mark.parametrize(("invariant", "statement"), WRONG, ids=[each[0] for each in WRONG])
async def test_verify_finds_what_breaks_an_invariant(
    make: Factory, clock: Clock, invariant: str, statement: str
) -> None:
    engine = make.engine
    await make.credits(5)
    schedule = await made(engine)
    await clock.advance(HOUR)
    await firer(engine).run_once()
    assert await verify(engine.db) == []
    await changed(engine.db, statement)
    found = {violation.invariant for violation in await verify(engine.db)}
    assert invariant in found
    assert found <= {invariant, "scheduled_jobs_have_a_fire"}
    assert due_key(schedule.schedule_id, schedule.created_at).startswith(str(schedule.schedule_id))
