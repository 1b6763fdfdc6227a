"""What a hostile clock, a confused worker or an impatient operator may do to the engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.jobs import idempotency, jobs
from millpond.engine.queue import leases, registry
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Note, Return
from millpond.engine.verify import verify
from millpond.errors import (
    AnswerUnavailableError,
    InvalidError,
    LeaseLostError,
    LifecycleError,
    MillpondError,
    TransitionDeniedError,
)
from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond.store import partitions
from tests.checks import until
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, TENANT, attempt, interruption, progress, stage
from tests.faults.dumps import wipe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.factories import Factory

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
async def _sound(make: Factory) -> AsyncIterator[None]:
    """Every test begins with nothing and ends with every invariant."""
    await wipe(make.engine.db)
    await make.clock.advance(-make.clock.offset)
    yield
    assert await verify(make.engine.db) == []


# Notes


async def test_a_note_that_never_came_leaves_no_gap(make: Factory) -> None:
    """A handler may swallow the error of a lost note and go on: the events stay without a gap."""
    lease = await make.leased("priced")
    await make.engine.note(progress(lease, 2, 0.5))
    await make.engine.note(progress(lease, 5, 0.7))
    assert await make.types(lease.job_id) == ["submitted", "started", "progress", "progress"]


async def test_two_notes_with_one_number_are_one_note(make: Factory) -> None:
    """The first one counts, in one batch and over two."""
    lease = await make.leased("priced")
    answers = await leases.note(make.engine.db, [progress(lease, 1, 0.2), progress(lease, 1, 0.3)])
    assert answers == [False, False]
    await make.engine.note(progress(lease, 1, 0.4))
    (_, _, event) = await make.engine.events(TENANT, lease.job_id)
    assert event.data == {"progress": 0.2}


async def test_a_note_of_a_lost_lease_is_not_written_beside_one_of_the_present_lease(make: Factory) -> None:
    """One batch may hold the notes of a silent worker and of its successor: only the successor is heard."""
    stale = await make.leased("priced")
    await make.clock.advance(MINUTE + SECOND)
    await leases.lapse(make.engine.db, 10)
    (lease,) = await make.claimed("priced")
    answers = await leases.note(make.engine.db, [progress(stale, 7, 0.9), progress(lease, 1, 0.1)])
    assert isinstance(answers[0], LeaseLostError)
    assert answers[1] is False
    assert (await make.read(lease.job_id)).progress == pytest.approx(0.1)


async def test_stages_in_one_batch_lead_as_far_as_one_by_one(make: Factory) -> None:
    lease = await make.leased("staged")
    await leases.note(make.engine.db, [stage(lease, 1, "rendering"), stage(lease, 2, "planning")])
    assert (await make.read(lease.job_id)).stage == "rendering"


# Ends


async def test_one_job_ended_twice_in_one_batch_ends_once(make: Factory) -> None:
    lease = await make.leased("priced")
    answers = await asyncio.gather(
        make.engine.finish(End(lease, "succeeded", '{"n": 1}')),
        make.engine.finish(End(lease, "succeeded", '{"n": 2}')),
        return_exceptions=True,
    )
    assert "succeeded" in answers
    assert (await make.types(lease.job_id)).count("succeeded") == 1


async def test_a_lost_lease_is_reported_beside_the_present_one(make: Factory) -> None:
    """Of two workers that end one job in one event, the one whose lease it is wins, whatever they say."""
    stale = await make.leased("priced")
    await make.clock.advance(MINUTE + SECOND)
    await leases.lapse(make.engine.db, 10)
    (lease,) = await make.claimed("priced")
    answers = await asyncio.gather(
        make.engine.finish(End(stale, "failed", error=ERROR)),
        make.engine.finish(End(lease, "succeeded", "{}")),
        make.engine.finish(End(stale, "succeeded", '{"n": 2}')),
        return_exceptions=True,
    )
    assert isinstance(answers[0], LeaseLostError)
    assert answers[1] == "succeeded"
    assert isinstance(answers[2], LeaseLostError)
    assert (await make.read(lease.job_id)).output == {}


async def test_an_end_that_cannot_be_written_does_not_take_the_others_with_it(make: Factory) -> None:
    """Each caller of a batch is told the truth about its own job."""
    fine = [await make.leased("priced") for _ in range(3)]
    bad = await make.leased("priced")
    answers = await asyncio.gather(
        make.engine.finish(End(fine[0], "failed", error=ERROR)),
        make.engine.finish(End(fine[1], "succeeded", "{}")),
        make.engine.finish(End(bad, "succeeded", "{", captured=3)),
        make.engine.finish(End(fine[2], "canceled", error=ERROR)),
        return_exceptions=True,
    )
    assert [answer for answer in answers if isinstance(answer, str)] == ["failed", "succeeded", "canceled"]
    assert isinstance(answers[2], Exception)
    assert not isinstance(answers[2], LeaseLostError)
    assert await make.engine.finish(End(bad, "failed", error=ERROR)) == "failed"


async def test_one_job_given_back_twice_goes_back_once(make: Factory) -> None:
    lease = await make.leased("priced")
    answers = await asyncio.gather(
        make.engine.give_back(attempt(lease)),
        make.engine.give_back(attempt(lease)),
        make.engine.give_back(interruption(lease)),
        return_exceptions=True,
    )
    assert sum(answer == "requeued" for answer in answers) == 1
    assert sum(isinstance(answer, LeaseLostError) for answer in answers) == 2
    assert (await make.types(lease.job_id)).count("requeued") == 1


async def test_a_failed_job_may_cost_a_part_and_never_the_whole(make: Factory) -> None:
    lease = await make.leased("priced")
    with pytest.raises(InvalidError):
        End(lease, "failed", error=ERROR, captured=5)
    await make.engine.finish(End(lease, "failed", error=ERROR, captured=4))
    assert (await make.engine.balance(TENANT, ACCOUNT)).available == 1


# Leases


async def test_an_unknown_token_has_nothing_to_give_back(make: Factory) -> None:
    await make.engine.abandon(uuid4())


async def test_a_lease_that_ran_out_is_given_back_all_the_same(make: Factory) -> None:
    """A worker that comes back after an outage must not leave its jobs in nobody's hands."""
    lease = await make.leased("priced")
    await make.clock.advance(MINUTE + SECOND)
    await make.engine.abandon(lease.token)
    await leases.lapse(make.engine.db, 10)
    assert (await make.read(lease.job_id)).phase == "ready"


async def test_a_lease_is_not_forgotten_while_it_holds_a_job(make: Factory) -> None:
    """A worker may believe that it is done with a job whose end it could not report."""
    lease = await make.leased("priced")
    await make.engine.close_leases({lease.token})
    await make.clock.advance(MINUTE + SECOND)
    await leases.lapse(make.engine.db, 10)
    assert (await make.read(lease.job_id)).phase == "ready"


async def test_epochs_grow_over_a_retry_in_place(make: Factory) -> None:
    """What a worker writes is named by job and epoch, and must not be written over by the next run."""
    first = await make.leased("restartable")
    await make.engine.finish(End(first, "failed", error=ERROR))
    await make.credits(3)
    await make.engine.retry(TENANT, first.job_id)
    (second,) = await make.claimed("restartable")
    assert second.epoch > first.epoch


async def test_the_answer_to_a_retry_in_place_reports_the_new_deadline(make: Factory) -> None:
    first = await make.leased("restartable")
    await make.engine.finish(End(first, "failed", error=ERROR))
    await make.credits(3)
    await make.clock.advance(2 * HOUR)
    again = await make.engine.retry(TENANT, first.job_id)
    assert again.expires_at == (await make.read(first.job_id)).expires_at


# One winner


async def test_after_a_cancel_was_asked_for_a_finish_still_counts(make: Factory) -> None:
    lease = await make.leased("priced")
    assert (await make.engine.cancel(TENANT, lease.job_id)).is_accepted
    assert await make.engine.finish(End(lease, "succeeded", "{}")) == "succeeded"
    assert not (await make.engine.cancel(TENANT, lease.job_id)).is_accepted


async def test_after_a_return_the_same_lease_ends_nothing(make: Factory) -> None:
    lease = await make.leased("brief")
    await make.engine.give_back(attempt(lease))
    with pytest.raises(LeaseLostError):
        await make.engine.finish(End(lease, "succeeded", "{}"))
    with pytest.raises(LeaseLostError):
        await make.engine.note(progress(lease, 1, 0.5))
    with pytest.raises(LeaseLostError):
        await make.engine.park(lease)


async def test_a_job_that_expired_in_its_workers_hands_takes_no_result(make: Factory) -> None:
    await make.submitted("brief")
    (lease,) = await make.claimed("brief", duration=2 * HOUR)
    await make.clock.advance(HOUR + SECOND)
    await jobs.expire(make.engine.db, 10)
    with pytest.raises(LeaseLostError):
        await make.engine.finish(End(lease, "succeeded", "{}"))
    assert (await make.engine.balance(TENANT, ACCOUNT)).available == 5


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "canceled", "blocked"])
async def test_an_ended_job_takes_no_answer_and_no_second_end(make: Factory, outcome: str) -> None:
    lease = await make.leased("brief")
    await make.engine.finish(End(lease, outcome, error=ERROR))  # pyright: ignore[reportArgumentType]
    with pytest.raises(AnswerUnavailableError):
        await make.engine.answer(TENANT, lease.job_id, {"late": True})
    assert not (await make.engine.cancel(TENANT, lease.job_id)).is_accepted
    with pytest.raises(TransitionDeniedError):
        await make.engine.transition(TENANT, lease.job_id, "queued")
    with pytest.raises(LeaseLostError):
        await make.engine.give_back(attempt(lease))


async def test_a_cancel_that_can_no_longer_be_carried_out_does_not_stop_the_others(make: Factory) -> None:
    """An operator moves a job to where it cannot be canceled; the next one in line must be cut off all the same."""
    transitioned = await make.leased("brief")
    other = await make.leased("priced")
    for lease in (transitioned, other):
        await make.engine.cancel(TENANT, lease.job_id, grace=MINUTE / 2)
    await make.engine.transition(TENANT, transitioned.job_id, "delivering")
    await make.clock.advance(MINUTE / 2 + SECOND)
    await jobs.force_cancel(make.engine.db, 10)
    assert (await make.read(other.job_id)).state == "canceled"


# The clock


async def test_a_clock_that_goes_back_breaks_no_invariant(make: Factory) -> None:
    """Clocks are set right now and then; what has begun must end all the same."""
    done = await make.leased("priced")
    failing = await make.leased("fragile")
    parking = await make.leased("brief")
    pending = await make.submitted("priced")
    await make.clock.advance(-HOUR)
    assert await make.engine.finish(End(done, "succeeded", "{}")) == "succeeded"
    assert await make.engine.give_back(attempt(failing)) == "requeued"
    await make.engine.park(parking)
    await make.engine.answer(TENANT, parking.job_id, 1)
    await make.engine.cancel(TENANT, pending.job_id)
    (again,) = await make.claimed("fragile")
    assert await make.engine.finish(End(again, "failed", error=ERROR)) == "failed"


async def test_a_job_born_in_a_week_without_a_partition_does_not_stop_the_weeks_to_come(make: Factory) -> None:
    """One machine with a clock far ahead must not keep everybody's partitions from being made."""
    ahead = await make.clock.now() + 60 * DAY
    far = UUID(int=(int(ahead.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | 1)
    await make.engine.submit("free", {}, **OWNER, job_id=far)
    await make.clock.advance(45 * DAY)
    await partitions.ensure(make.engine.db, 5)


# Keys


async def test_old_keys_of_live_jobs_do_not_hide_those_that_can_go(make: Factory) -> None:
    """A page of keys that must stay is no reason to stop."""
    for number in range(3):
        await make.submitted("priced", idempotency_key=f"alive{number}")
    lease = await make.leased("free", idempotency_key="ended")
    await make.engine.finish(End(lease, "succeeded", "{}"))
    await make.clock.advance(2 * DAY)
    assert await idempotency.prune(make.engine.db, DAY, 2) == 1
    await make.clock.advance(-2 * DAY)


async def test_an_id_that_is_taken_is_refused(make: Factory) -> None:
    """A caller may choose the id of its job, not that of somebody else's."""
    taken = await make.submitted("free")
    with pytest.raises(MillpondError):
        await make.engine.submit("free", {}, tenant="globex", account="eve", job_id=taken.job_id)
    answers = await asyncio.gather(
        *(
            make.engine.submit("free", {}, tenant=tenant, account="ann", job_id=UUID(int=taken.job_id.int + 1))
            for tenant in ("acme", "globex")
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, MillpondError) for answer in answers) == 1


# Absurd amounts


async def test_a_thousand_and_more_at_once(make: Factory) -> None:
    await make.credits(5 * 3_000)
    answers = await make.engine.submit_many([{"kind": "priced", **OWNER} for _ in range(3_000)])
    assert not any(isinstance(answer, Exception) for answer in answers)
    held = await make.claimed("priced", want=3_000)
    assert len({lease.job_id for lease in held}) == 3_000
    assert set(await leases.finish(make.engine.db, [End(lease, "succeeded", "{}") for lease in held])) == {"succeeded"}
    assert (await make.engine.balance(TENANT, ACCOUNT)).available == 0


async def test_a_delay_beyond_the_calendar_is_as_long_as_can_be(make: Factory) -> None:
    lease = await make.leased("priced")
    assert await make.engine.give_back(Return(lease, "attempt", ERROR, timedelta.max)) == "requeued"
    assert (await make.read(lease.job_id)).phase == "waiting"


async def test_a_capture_below_nothing_is_refused(make: Factory) -> None:
    lease = await make.leased("priced")
    with pytest.raises(MillpondError):
        await make.engine.finish(End(lease, "succeeded", "{}", captured=-1))
    assert await make.engine.finish(End(lease, "succeeded", "{}")) == "succeeded"


async def test_a_job_without_a_deadline_is_not_parked(make: Factory) -> None:
    lease = await make.leased("priced")
    with pytest.raises(MillpondError):
        await make.engine.park(lease)
    assert await make.engine.finish(End(lease, "succeeded", "{}")) == "succeeded"


async def test_a_week_in_which_a_job_is_just_being_retried_is_not_dropped(make: Factory) -> None:
    """Retention must see the life that comes back while it waits for its locks."""
    job = await make.ended("restartable", "failed")
    await make.credits(3)
    await make.clock.advance(120 * DAY)
    async with make.engine.db.transaction() as tx:
        await tx.execute("select from millpond.revive($1, $2, '1h')", TENANT, job.job_id)
        dropping = asyncio.create_task(partitions.drop(make.engine.db, 90 * DAY))
        await until(lambda: is_waiting(make))
    await dropping
    assert (await make.read(job.job_id)).phase == "ready"
    await make.clock.advance(-120 * DAY)


async def is_waiting(make: Factory) -> bool:
    async with make.engine.db.transaction() as tx:
        return await tx.fetchval(
            "select exists (select from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock')"
        )


# Deployments


async def test_a_lifecycle_is_not_changed_under_the_feet_of_its_jobs(make: Factory) -> None:
    """A job in a state without an arrow could not be claimed, nor anything that stands in line behind it."""
    drawn = "* -> {0} submitted\n{0} -> done succeeded\n{0} -> broken failed expired"
    before, after = (
        Kind(name="renamed", lifecycle=lifecycle("renamed", drawn.format(state), ends="done=succeeded broken=failed"))
        for state in ("running", "working")
    )
    product = Millpond()
    product.add(before)
    engine = Engine(make.engine.db, product)
    await registry.register(engine.db, [before])
    await engine.submit("renamed", **OWNER)
    with pytest.raises(LifecycleError):
        await registry.register(engine.db, [after])
    assert await engine.claim(Lanes(["renamed"]), 1, worker="w", duration=MINUTE)


async def test_a_note_cannot_pass_for_a_transition(make: Factory) -> None:
    """The types of events that the engine writes are its own."""
    lease = await make.leased("priced")
    with pytest.raises(InvalidError):
        Note(lease, 1, "succeeded", "{}")
