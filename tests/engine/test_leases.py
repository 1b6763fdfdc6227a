"""Leases: what a worker may do with a job it holds, and what becomes of one it does not end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Note
from millpond.errors import InputError, LeaseLostError, TransitionDeniedError
from tests.checks import refused, unchanged
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, TENANT, attempt, interruption, progress, stage

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.engine.queue.leases import Lease
    from millpond.store.db import Database
    from tests.factories import Factory

OUTCOMES = {"succeeded": (0, 0), "failed": (5, 0), "canceled": (5, 0), "blocked": (5, 0)}


async def purse(engine: Engine) -> tuple[int, int]:
    balance = await engine.balance(TENANT, ACCOUNT)
    return balance.available, balance.held


async def lapsed(make: Factory, db: Database) -> set[str]:
    """Let every lease run out and the reaper come."""
    await make.clock.advance(2 * MINUTE)
    return await leases.lapse(db, 100)


# Claim


async def test_a_claim_starts_a_job_and_hands_out_all_a_handler_needs(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("priced", {"product": "hat"})
    (lease,) = await make.claimed("priced", worker="w1")
    assert (lease.job_id, lease.kind, lease.queue, lease.state) == (submitted.job_id, "priced", "priced", "running")
    assert (lease.epoch, lease.attempts, lease.run, lease.price) == (1, 0, 1, 5)
    assert lease.input == '{"product": "hat"}'
    job = await make.read(lease.job_id)
    assert (job.state, job.phase, job.epoch) == ("running", "leased", 1)
    assert job.started_at is not None
    assert await make.types(lease.job_id) == ["submitted", "started"]


async def test_a_claim_takes_no_more_than_wanted_and_nothing_twice(engine: Engine, make: Factory) -> None:
    made = [(await make.submitted()).job_id for _ in range(5)]
    first = await make.claimed("free", want=3)
    second = await make.claimed("free", want=3)
    assert [lease.job_id for lease in (*first, *second)] == made
    assert await make.claimed("free", want=3) == []


async def test_a_claim_is_only_for_the_queues_it_names(engine: Engine, make: Factory) -> None:
    await make.submitted("free")
    await make.submitted("priced")
    assert [lease.kind for lease in await make.claimed("priced", "restartable", want=9)] == ["priced"]


async def test_a_claim_from_no_queue_asks_nobody(db: Database, make: Factory) -> None:
    await make.submitted()
    async with unchanged(db):
        assert await make.claimed() == []
        assert await make.claimed("nonsense") == []


# Finish


@pytest.mark.parametrize(("outcome", "expected"), OUTCOMES.items())
async def test_an_end_settles_the_hold_in_the_same_commit(
    engine: Engine, make: Factory, outcome: Any, expected: tuple[int, int]
) -> None:
    lease = await make.leased("priced")
    assert await make.finish(lease, outcome) == outcome
    job = await make.read(lease.job_id)
    assert (job.phase, job.outcome, job.captured) == ("ended", outcome, 5 if outcome == "succeeded" else 0)
    assert await purse(engine) == expected
    entry, *_ = await engine.entries(TENANT, ACCOUNT)
    assert (entry.type, entry.at, entry.job_id) == (
        *("capture" if outcome == "succeeded" else "release", job.finished_at, job.job_id),
    )
    assert job.error == (None if outcome == "succeeded" else ERROR)


async def test_output_and_error_are_kept(engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    await engine.finish(End(lease, "failed", '{"partial": 1}', {"code": "x", "message": "y"}))
    job = await make.read(lease.job_id)
    assert (job.output, job.error) == ({"partial": 1}, {"code": "x", "message": "y"})


@pytest.mark.parametrize(("captured", "kept"), [(0, 0), (2, 2), (5, 5), (9, 5), (None, 5)])
async def test_a_part_of_the_price_may_be_captured_and_the_rest_goes_back(
    engine: Engine, make: Factory, captured: int | None, kept: int
) -> None:
    lease = await make.leased("priced")
    await engine.finish(End(lease, "succeeded", captured=captured))
    assert (await make.read(lease.job_id)).captured == kept
    assert await purse(engine) == (5 - kept, 0)
    entry, *_ = await engine.entries(TENANT, ACCOUNT)
    assert (entry.available, entry.held, entry.outside) == (5 - kept, -5, kept)


async def test_a_job_ends_once_and_the_second_to_say_so_is_reported(db: Database, make: Factory) -> None:
    lease = await make.leased("priced")
    await make.finish(lease)
    for outcome in ("succeeded", "failed"):
        async with refused(db, LeaseLostError):
            await make.finish(lease, outcome)


async def test_two_ends_in_one_batch_are_one_end(engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    answers = await asyncio.gather(
        make.finish(lease), make.finish(lease), make.finish(lease, "failed"), return_exceptions=True
    )
    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert sum(isinstance(answer, LeaseLostError) for answer in answers) == 2
    assert (await make.types(lease.job_id)).count("started") == 1


async def test_an_end_that_the_lifecycle_does_not_draw_is_denied_and_hurts_nobody_else(
    db: Database, engine: Engine, make: Factory
) -> None:
    """What is read must be answered first: it cannot simply succeed."""
    wrong = await make.leased("reviewed")
    others = [await make.leased("priced") for _ in range(3)]
    answers = await asyncio.gather(*(make.finish(lease) for lease in (*others, wrong)), return_exceptions=True)
    assert answers[:3] == ["succeeded"] * 3
    assert isinstance(answers[3], TransitionDeniedError)
    assert (await make.read(wrong.job_id)).state == "reading"


async def test_a_leased_job_of_every_lifecycle_can_end_well_or_badly(make: Factory) -> None:
    words = {
        "immediate": ("completed", "failed"),
        "requeued": ("completed", "failed"),
        "restartable": ("completed", "failed"),
        "reworded": ("success", "failed"),
    }
    for kind, (good, bad) in words.items():
        assert await make.finish(await make.leased(kind)) == good
        assert await make.finish(await make.leased(kind), "failed") == bad


# The fence

WRITES: dict[str, Any] = {
    "finish": lambda engine, lease: engine.finish(End(lease, "succeeded")),
    "fail": lambda engine, lease: engine.finish(End(lease, "failed", error=ERROR)),
    "give back": lambda engine, lease: engine.give_back(attempt(lease)),
    "interrupt": lambda engine, lease: engine.give_back(interruption(lease)),
    "park": lambda engine, lease: engine.park(lease),
    "proceed": lambda engine, lease: engine.proceed(lease, {"go": "on"}),
    "note": lambda engine, lease: engine.note(progress(lease, 1, 0.5)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_lease_that_has_run_out_writes_nothing_even_before_the_reaper_came(
    db: Database, engine: Engine, make: Factory, write: Any
) -> None:
    lease = await make.leased("brief")
    await make.clock.advance(MINUTE + timedelta(seconds=1))
    async with refused(db, LeaseLostError):
        await write(engine, lease)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_lease_that_another_worker_has_taken_over_writes_nothing(
    db: Database, engine: Engine, make: Factory, write: Any
) -> None:
    old = await make.leased("brief")
    await lapsed(make, db)
    (new,) = await make.claimed("brief")
    assert (new.job_id, new.epoch) == (old.job_id, 2)
    async with refused(db, LeaseLostError):
        await write(engine, old)
    await write(engine, new)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_token_that_was_made_up_writes_nothing(db: Database, engine: Engine, make: Factory, write: Any) -> None:
    lease = await make.leased("brief")
    async with refused(db, LeaseLostError):
        await write(engine, replace(lease, token=uuid4()))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_token_does_not_open_another_job(db: Database, engine: Engine, make: Factory, write: Any) -> None:
    mine, other = await make.leased("brief"), await make.leased("brief")
    async with refused(db, LeaseLostError):
        await write(engine, replace(mine, job_id=other.job_id))


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_the_old_and_the_new_worker_in_one_batch_are_not_mistaken_for_each_other(
    db: Database, engine: Engine, make: Factory, outcome: Any
) -> None:
    """One process may hold a job for the second time while code of the first time still runs."""
    old = await make.leased("brief")
    await lapsed(make, db)
    (new,) = await make.claimed("brief")
    late, right = await asyncio.gather(make.finish(old, outcome), make.finish(new), return_exceptions=True)
    assert isinstance(late, LeaseLostError)
    assert right == "succeeded"


async def test_old_and_new_notes_in_one_batch_are_not_mixed_up(db: Database, engine: Engine, make: Factory) -> None:
    old = await make.leased("brief")
    await lapsed(make, db)
    (new,) = await make.claimed("brief")
    late, right = await asyncio.gather(
        engine.note(progress(old, 7, 0.9)), engine.note(progress(new, 1, 0.1)), return_exceptions=True
    )
    assert isinstance(late, LeaseLostError)
    assert right is False
    job = await make.read(new.job_id)
    assert job.progress == pytest.approx(0.1)
    assert (await make.types(new.job_id)).count("progress") == 1


async def test_old_and_new_returns_in_one_batch_are_not_mixed_up(db: Database, engine: Engine, make: Factory) -> None:
    old = await make.leased("brief")
    await lapsed(make, db)
    (new,) = await make.claimed("brief")
    late, right = await asyncio.gather(
        engine.give_back(attempt(old)), engine.give_back(interruption(new)), return_exceptions=True
    )
    assert isinstance(late, LeaseLostError)
    assert right == "requeued"
    assert (await make.read(new.job_id)).attempts == 0


# Heartbeat


async def test_a_heartbeat_keeps_a_lease_alive(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    for _ in range(3):
        await make.clock.advance(timedelta(seconds=50))
        pulse = await engine.extend([lease], MINUTE)
        assert (pulse.lost, pulse.canceling) == (frozenset(), frozenset())
    assert await leases.lapse(db, 10) == set()
    assert await make.finish(lease) == "succeeded"


async def test_a_heartbeat_that_comes_too_late_learns_that_all_is_lost(
    db: Database, engine: Engine, make: Factory
) -> None:
    lease = await make.leased()
    await make.clock.advance(MINUTE + timedelta(seconds=1))
    async with unchanged(db):
        assert (await engine.extend([lease], MINUTE)).lost == {lease.job_id}


async def test_one_heartbeat_serves_all_jobs_of_a_claim(engine: Engine, make: Factory) -> None:
    for _ in range(3):
        await make.submitted()
    held = await make.claimed("free", want=3)
    await engine.cancel(TENANT, held[1].job_id)
    await make.finish(held[2])
    await make.clock.advance(timedelta(seconds=50))
    pulse = await engine.extend(held, MINUTE)
    assert (pulse.canceling, pulse.lost) == ({held[1].job_id}, {held[2].job_id})
    await make.clock.advance(timedelta(seconds=50))
    assert await make.finish(held[0]) == "succeeded"


# Going back


async def test_a_failed_attempt_goes_back_with_its_own_counter(engine: Engine, make: Factory) -> None:
    lease = await make.leased("fragile")
    assert await engine.give_back(attempt(lease)) == "requeued"
    job = await make.read(lease.job_id)
    assert (job.state, job.phase, job.attempts, job.error) == ("queued", "ready", 1, ERROR)
    (again,) = await make.claimed("fragile")
    assert (again.epoch, again.attempts) == (2, 1)
    assert (await make.read(lease.job_id)).started_at == job.started_at


async def test_a_job_may_have_to_wait_before_its_next_attempt(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("fragile")
    assert await engine.give_back(attempt(lease, MINUTE)) == "requeued"
    assert (await make.read(lease.job_id)).phase == "waiting"
    assert await make.claimed("fragile") == []
    await make.clock.advance(MINUTE)
    assert await jobs.promote(db, 10) == {"fragile"}
    assert len(await make.claimed("fragile")) == 1


async def test_a_wait_is_cut_short_by_the_deadline(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    await engine.give_back(attempt(lease, 5 * HOUR))
    await make.clock.advance(HOUR)
    assert await jobs.expire(db, 10) == 1


async def fail_once(cause: str, engine: Engine, make: Factory, db: Database, lease: Lease) -> str:
    if cause == "lapse":
        await lapsed(make, db)
        return "requeued" if (await make.read(lease.job_id)).outcome is None else "failed"
    return await engine.give_back(attempt(lease) if cause == "attempt" else interruption(lease))


@pytest.mark.parametrize("cause", ["attempt", "interruption", "lapse"])
async def test_at_its_cap_a_failure_fails_the_job_and_gives_the_credits_back(
    db: Database, engine: Engine, make: Factory, cause: str
) -> None:
    lease = await make.leased("fragile")
    assert await fail_once(cause, engine, make, db, lease) == "requeued"
    (lease,) = await make.claimed("fragile")
    assert await fail_once(cause, engine, make, db, lease) == "failed"
    job = await make.read(lease.job_id)
    assert (job.outcome, job.captured, job.attempts) == ("failed", 0, 2 if cause == "attempt" else 0)
    assert job.error is not None
    assert await purse(engine) == (5, 0)
    event = (await engine.events(TENANT, lease.job_id))[-1]
    assert (event.type, event.data["cause"], event.data["count"]) == ("failed", cause, 2)


async def test_failures_of_different_sorts_do_not_add_up(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("fragile")
    for cause in ("attempt", "interruption", "lapse"):
        assert await fail_once(cause, engine, make, db, lease) == "requeued"
        (lease,) = await make.claimed("fragile")
    assert await make.finish(lease) == "succeeded"


async def test_a_job_that_goes_back_keeps_its_place_in_line(engine: Engine, make: Factory) -> None:
    first = await make.leased()
    await make.submitted()
    await engine.give_back(interruption(first))
    assert (await make.claimed("free"))[0].job_id == first.job_id


async def test_returns_in_one_batch_have_each_their_own_fate(engine: Engine, make: Factory) -> None:
    held = [await make.leased("fragile") for _ in range(3)]
    await engine.give_back(attempt(held[0]))
    (held[0],) = await make.claimed("fragile")
    await engine.cancel(TENANT, held[1].job_id)
    answers = await asyncio.gather(*(engine.give_back(attempt(lease)) for lease in held))
    assert answers == ["failed", "canceled", "requeued"]


async def test_a_bad_error_is_refused_at_once(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    async with refused(db, InputError, field="error.message"):
        await engine.finish(End(lease, "failed", error={"message": "\x00"}))


# Lapse


async def test_what_a_silent_worker_holds_is_taken_back(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    assert await lapsed(make, db) == {"priced"}
    job = await make.read(lease.job_id)
    assert (job.state, job.phase, job.attempts) == ("queued", "ready", 0)
    assert (await engine.events(TENANT, lease.job_id))[-1].data["cause"] == "lapse"


async def test_a_lapse_takes_only_what_is_still_held(db: Database, engine: Engine, make: Factory) -> None:
    for _ in range(3):
        await make.submitted()
    done, parked_by_hand, silent = await make.claimed("free", want=3)
    await make.finish(done)
    await engine.give_back(interruption(parked_by_hand))
    (again,) = await make.claimed("free", duration=HOUR)
    assert await lapsed(make, db) == {"free"}
    assert (await make.read(silent.job_id)).phase == "ready"
    assert (await make.read(again.job_id)).phase == "leased"
    assert (await make.read(done.job_id)).outcome == "succeeded"


async def test_a_lapse_at_the_cap_is_served_too_so_that_nothing_is_held_for_ever(
    db: Database, engine: Engine, make: Factory
) -> None:
    """Jobs that can only fail must not hide those that can go back."""
    for _ in range(4):
        await make.submitted("fragile")
    await make.claimed("fragile", want=4)
    await lapsed(make, db)
    await make.submitted("fragile")
    await make.claimed("fragile", want=5)
    await lapsed(make, db)
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (20, 5, 1)


async def test_a_lapse_takes_no_more_leases_than_it_is_asked(db: Database, make: Factory) -> None:
    for _ in range(5):
        await make.leased()
    await make.clock.advance(2 * MINUTE)
    sizes = [len(await db.run(leases.SQL["lapse"], 2)) for _ in range(4)]
    assert sizes == [2, 2, 1, 0]


async def test_a_canceling_job_that_lapses_is_canceled(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    await engine.cancel(TENANT, lease.job_id, grace=HOUR)
    await lapsed(make, db)
    assert (await make.read(lease.job_id)).outcome == "canceled"
    assert await purse(engine) == (5, 0)


# Leaving


async def test_a_worker_that_leaves_gives_back_all_it_holds_as_an_interruption(engine: Engine, make: Factory) -> None:
    for _ in range(3):
        await make.submitted("fragile")
    held = await make.claimed("fragile", want=3)
    await make.finish(held[0])
    await engine.abandon(held[0].token)
    again = await make.claimed("fragile", want=3)
    assert {lease.job_id for lease in again} == {lease.job_id for lease in held[1:]}
    assert {lease.attempts for lease in again} == {0}
    assert (await engine.events(TENANT, held[1].job_id))[-2].data["cause"] == "interruption"


async def test_to_abandon_what_was_never_granted_is_harmless(db: Database, engine: Engine) -> None:
    async with unchanged(db):
        await engine.abandon(uuid4())


@pytest.mark.parametrize("leave", ["abandon", "close_leases"])
async def test_a_worker_that_leaves_after_its_lease_ran_out_strands_nothing(
    db: Database, engine: Engine, make: Factory, leave: str
) -> None:
    """What it could not give back is the reaper's: the lease must not be forgotten before it came."""
    lease = await make.leased("priced")
    await make.clock.advance(2 * MINUTE)
    with pytest.raises(LeaseLostError):
        await make.finish(lease)
    if leave == "abandon":
        await engine.abandon(lease.token)
    else:
        await engine.close_leases([lease.token])
    await leases.lapse(db, 10)
    assert (await make.claimed("priced"))[0].job_id == lease.job_id


async def test_a_lease_of_which_nothing_is_held_can_be_forgotten(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    await make.finish(lease)
    await engine.close_leases([lease.token])
    async with db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.leases") == 0


# Notes


async def test_notes_become_events_and_move_the_job_on(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    assert await engine.note(stage(lease, 1, "planning")) is False
    assert await engine.note(progress(lease, 2, 0.4)) is False
    assert await engine.note(Note(lease, 3, "log", '{"text": "hello"}')) is False
    job = await make.read(lease.job_id)
    assert (job.stage, job.progress) == ("planning", pytest.approx(0.4))
    events = await engine.events(TENANT, lease.job_id, after=2)
    assert [(event.seq, event.type, event.data) for event in events] == [
        (3, "stage", {"stage": "planning"}),
        (4, "progress", {"progress": 0.4}),
        (5, "log", {"text": "hello"}),
    ]


async def test_a_note_that_comes_twice_is_written_once(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(progress(lease, 1, 0.4))
    async with unchanged(db):
        await engine.note(progress(lease, 1, 0.4))
    await asyncio.gather(*(engine.note(progress(lease, 2, 0.5)) for _ in range(3)))
    await asyncio.gather(engine.note(progress(lease, 2, 0.5)), engine.note(progress(lease, 3, 0.6)))
    assert (await make.types(lease.job_id)).count("progress") == 3


async def test_notes_of_a_new_lease_are_counted_again(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(progress(lease, 1, 0.4))
    await engine.give_back(interruption(lease))
    (again,) = await make.claimed("staged")
    await engine.note(progress(again, 1, 0.5))
    assert (await make.types(lease.job_id)).count("progress") == 2


async def test_many_notes_of_many_jobs_in_one_batch_stay_in_order(engine: Engine, make: Factory) -> None:
    held = [await make.leased("staged") for _ in range(3)]
    await asyncio.gather(*(engine.note(progress(lease, n, n / 10)) for n in range(1, 6) for lease in held))
    for lease in held:
        events = await engine.events(TENANT, lease.job_id, after=2)
        assert [event.data["progress"] for event in events] == [0.1, 0.2, 0.3, 0.4, 0.5]


async def test_progress_never_goes_back_not_even_over_attempts(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(progress(lease, 1, 0.8))
    await engine.note(progress(lease, 2, 0.3))
    assert (await make.read(lease.job_id)).progress == pytest.approx(0.8)
    await engine.give_back(attempt(lease))
    (again,) = await make.claimed("staged")
    assert again.progress == pytest.approx(0.8)
    await engine.note(progress(again, 1, 0.1))
    assert (await make.read(lease.job_id)).progress == pytest.approx(0.8)


async def test_stages_only_go_forward(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    for number, name in enumerate(("rendering", "planning", "nonsense"), start=1):
        await engine.note(stage(lease, number, name))
        assert (await make.read(lease.job_id)).stage == "rendering"
    await engine.note(stage(lease, 4, "uploading"))
    assert (await make.read(lease.job_id)).stage == "uploading"


async def test_one_lost_lease_in_a_batch_of_notes_silences_nobody_else(
    db: Database, engine: Engine, make: Factory
) -> None:
    good = await make.leased("staged")
    bad = replace(await make.leased("staged"), token=uuid4())
    answers = await asyncio.gather(
        engine.note(progress(good, 1, 0.5)), engine.note(progress(bad, 1, 0.5)), return_exceptions=True
    )
    assert answers[0] is False
    assert isinstance(answers[1], LeaseLostError)
    assert (await make.read(bad.job_id)).progress == 0


# Where a claim begins to look


async def test_a_process_that_goes_on_from_its_mark_misses_nothing(engine: Engine, make: Factory) -> None:
    """What appears behind the mark is found by the next look at the whole line."""
    lanes = Lanes(["free"])

    async def claim() -> list[Lease]:
        return await engine.claim(lanes, 1, worker="w", duration=MINUTE)

    made = [(await make.submitted()).job_id for _ in range(3)]
    first = await claim()
    second = await claim()
    await engine.give_back(interruption(first[0]))
    third = await claim()
    assert [lease.job_id for lease in (*first, *second, *third)] == made
    assert await claim() == []
    lanes.rescan()
    assert [lease.job_id for lease in await claim()] == made[:1]
