"""Jobs: read, list, cancel, answer, retry, move, and what time does to them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import ids
from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.errors import (
    AnswerUnavailableError,
    CancelUnavailableError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    LeaseLostError,
    NotFoundError,
    RetryUnavailableError,
    TooManyActiveJobsError,
    TransitionDeniedError,
)
from tests.checks import refused, unchanged
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, STRANGER, TENANT, attempt, stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from millpond.engine.credits.ledger import Balance
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

GRACE = timedelta(seconds=30)


async def purse(engine: Engine) -> tuple[int, int, int]:
    balance: Balance = await engine.balance(TENANT, ACCOUNT)
    return balance.available, balance.held, balance.active


# Walls between tenants

VERBS: dict[str, Callable[[Engine, str, UUID | str], Awaitable[Any]]] = {
    "read": lambda engine, tenant, job_id: engine.read(tenant, job_id),
    "events": lambda engine, tenant, job_id: engine.events(tenant, job_id),
    "later events": lambda engine, tenant, job_id: engine.events(tenant, job_id, after=1),
    "cancel": lambda engine, tenant, job_id: engine.cancel(tenant, job_id),
    "answer": lambda engine, tenant, job_id: engine.answer(tenant, job_id, {}),
    "retry": lambda engine, tenant, job_id: engine.retry(tenant, job_id),
    "move": lambda engine, tenant, job_id: engine.transition(tenant, job_id, "canceled"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_foreign_job_and_none_at_all_look_alike(
    db: Database, engine: Engine, make: Factory, verb: Callable[..., Awaitable[Any]]
) -> None:
    lease = await make.parked()
    ended = await make.ended("restartable", "failed")
    for job_id in (lease.job_id, ended.job_id, ids.new(), ids.text("job", lease.job_id), "job_nonsense", ""):
        async with refused(db, NotFoundError, field="id"):
            await verb(engine, STRANGER, job_id)


async def test_a_list_shows_only_its_own_account(engine: Engine, make: Factory) -> None:
    await make.submitted()
    assert await engine.list_jobs(STRANGER, ACCOUNT) == []
    assert await engine.list_jobs(TENANT, "bob") == []


# Reading


async def test_an_id_may_be_given_as_text(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted()
    assert (await engine.read(TENANT, submitted.id)).id == submitted.id


async def test_a_list_comes_in_pages_the_newest_first(engine: Engine, make: Factory) -> None:
    made = [(await make.submitted()).job_id for _ in range(5)]
    first = await engine.list_jobs(TENANT, ACCOUNT, limit=2)
    second = await engine.list_jobs(TENANT, ACCOUNT, limit=2, before=first[-1].job_id)
    third = await engine.list_jobs(TENANT, ACCOUNT, limit=2, before=second[-1].job_id)
    assert [job.job_id for job in (*first, *second, *third)] == made[::-1]
    assert len(third) == 1


async def test_a_list_can_be_filtered(engine: Engine, make: Factory) -> None:
    ended = await make.ended("priced")
    leased = await make.leased("priced")
    ready = await make.submitted("free")

    async def found(**filters: Any) -> set[UUID]:
        return {job.job_id for job in await engine.list_jobs(TENANT, ACCOUNT, **filters)}

    assert await found() == {ended.job_id, leased.job_id, ready.job_id}
    assert await found(kind="priced") == {ended.job_id, leased.job_id}
    assert await found(state="running") == {leased.job_id}
    assert await found(phase="ended") == {ended.job_id}
    assert await found(kind="free", phase="ended") == set()


@pytest.mark.parametrize("limit", [0, -1, 201])
async def test_a_page_has_limits(db: Database, engine: Engine, limit: int) -> None:
    async with refused(db, InvalidError, field="limit"):
        await engine.list_jobs(TENANT, ACCOUNT, limit=limit)


# Cancel


@pytest.mark.parametrize("phase", ["waiting", "ready", "parked"])
async def test_a_job_that_does_not_run_is_canceled_at_once(engine: Engine, make: Factory, phase: str) -> None:
    if phase == "parked":
        job_id = (await make.parked("brief")).job_id
    else:
        job_id = (
            await make.submitted("brief", run_at=await make.clock.now() + HOUR if phase == "waiting" else None)
        ).job_id
    assert (await make.read(job_id)).phase == phase
    answer = await engine.cancel(TENANT, job_id)
    assert (answer.is_accepted, answer.state) == (True, "canceled")
    job = await make.read(job_id)
    assert (job.phase, job.outcome, job.captured) == ("ended", "canceled", 0)
    assert await purse(engine) == (5, 0, 0)
    assert (await make.types(job_id))[-1] == "canceled"
    assert await make.claimed("brief") == []


async def test_the_worker_of_a_running_job_is_asked_to_stop(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    answer = await engine.cancel(TENANT, lease.job_id)
    assert (answer.is_accepted, answer.state) == (True, "running")
    job = await make.read(lease.job_id)
    assert (job.phase, job.cancel_requested_at is not None) == ("leased", True)
    assert (await engine.extend([lease], MINUTE)).canceling == {lease.job_id}
    assert await engine.note(stage(lease, 1, "planning")) is True
    assert await make.finish(lease, "canceled") == "canceled"
    assert await purse(engine) == (5, 0, 0)
    assert await make.types(lease.job_id) == ["submitted", "started", "cancel_requested", "stage", "canceled"]


async def test_a_worker_that_heeds_no_cancel_is_cut_off_after_the_grace(
    db: Database, engine: Engine, make: Factory
) -> None:
    lease = await make.leased("priced")
    await engine.cancel(TENANT, lease.job_id, grace=GRACE)
    await make.clock.advance(GRACE - timedelta(seconds=5))
    assert await jobs.force_cancel(db, 10) == 0
    await make.clock.advance(timedelta(seconds=6))
    assert await jobs.force_cancel(db, 10) == 1
    assert (await make.read(lease.job_id)).outcome == "canceled"
    assert await purse(engine) == (5, 0, 0)
    with pytest.raises(LeaseLostError):
        await make.finish(lease)


async def test_a_worker_may_still_be_faster_than_the_cancel(engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    await engine.cancel(TENANT, lease.job_id)
    assert await make.finish(lease) == "succeeded"
    assert await purse(engine) == (0, 0, 0)


async def test_asking_twice_does_not_prolong_the_grace(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    await engine.cancel(TENANT, lease.job_id, grace=GRACE)
    await make.clock.advance(timedelta(seconds=20))
    async with unchanged(db):
        answer = await engine.cancel(TENANT, lease.job_id, grace=GRACE)
    assert answer.is_accepted
    await make.clock.advance(timedelta(seconds=11))
    assert await jobs.force_cancel(db, 10) == 1


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_canceling_what_has_ended_reports_its_state_and_changes_nothing(
    db: Database, engine: Engine, make: Factory, outcome: Any
) -> None:
    ended = await make.ended("priced", outcome)
    async with unchanged(db):
        answer = await engine.cancel(TENANT, ended.job_id)
    assert (answer.is_accepted, answer.state) == (False, outcome)


async def test_a_firm_stage_refuses_a_cancel(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(stage(lease, 1, "uploading"))
    async with refused(db, CancelUnavailableError) as caught:
        await engine.cancel(TENANT, lease.job_id)
    assert caught.value.details == {"state": "running", "stage": "uploading"}


async def test_a_firm_stage_refuses_a_cancel_between_two_attempts(db: Database, engine: Engine, make: Factory) -> None:
    """What was ordered in it is ordered, whether somebody is at the job or not."""
    lease = await make.leased("staged")
    await engine.note(stage(lease, 1, "uploading"))
    await engine.give_back(attempt(lease))
    async with refused(db, CancelUnavailableError):
        await engine.cancel(TENANT, lease.job_id)


async def test_a_job_whose_cancel_was_asked_for_does_not_enter_a_firm_stage(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(stage(lease, 1, "planning"))
    await engine.cancel(TENANT, lease.job_id)
    assert await engine.note(stage(lease, 2, "uploading")) is True
    assert (await make.read(lease.job_id)).stage == "planning"


@pytest.mark.parametrize("phase", ["ready", "leased"])
async def test_a_lifecycle_without_cancel_refuses_it(db: Database, engine: Engine, make: Factory, phase: str) -> None:
    submitted = await make.submitted("reviewed")
    if phase == "leased":
        await make.claimed("reviewed")
    async with refused(db, CancelUnavailableError) as caught:
        await engine.cancel(TENANT, submitted.job_id)
    assert caught.value.details == {"state": "reading"}


async def test_a_job_that_goes_back_after_a_cancel_was_asked_for_is_canceled(engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    await engine.cancel(TENANT, lease.job_id)
    assert await engine.give_back(attempt(lease)) == "canceled"
    assert await purse(engine) == (5, 0, 0)


async def test_one_cancel_that_has_become_impossible_does_not_stop_the_others(
    db: Database, engine: Engine, make: Factory
) -> None:
    """An operator may move a job on to where no cancel leads out of, while its worker is being asked."""
    transitioned, other = await make.leased("brief"), await make.leased("brief")
    for lease in (transitioned, other):
        await engine.cancel(TENANT, lease.job_id, grace=GRACE)
    await engine.transition(TENANT, transitioned.job_id, "delivering")
    await make.clock.advance(MINUTE)
    await jobs.force_cancel(db, 10)
    assert (await make.read(other.job_id)).outcome == "canceled"
    assert (await make.read(transitioned.job_id)).state == "delivering"


# Park and answer


async def test_a_parked_job_waits_and_goes_on_with_its_memo_and_answer(engine: Engine, make: Factory) -> None:
    lease = await make.parked("brief", {"page": 2})
    assert (await make.read(lease.job_id)).phase == "parked"
    assert await make.claimed("brief") == []
    assert await engine.answer(TENANT, lease.job_id, {"ok": True}) == "queued"
    (again,) = await make.claimed("brief")
    assert (again.memo, again.answer, again.epoch) == ('{"page": 2}', '{"ok": true}', 2)
    assert await make.types(lease.job_id) == ["submitted", "started", "parked", "answered", "started"]
    await make.finish(again)


async def test_the_same_answer_again_is_harmless_and_another_is_refused(
    db: Database, engine: Engine, make: Factory
) -> None:
    lease = await make.parked()
    await engine.answer(TENANT, lease.job_id, {"a": 1, "b": 2})
    async with unchanged(db):
        assert await engine.answer(TENANT, lease.job_id, {"b": 2, "a": 1}) == "queued"
    async with refused(db, AnswerUnavailableError) as caught:
        await engine.answer(TENANT, lease.job_id, {"a": 2})
    assert caught.value.details == {"state": "queued"}
    await make.serve("brief")
    assert await engine.answer(TENANT, lease.job_id, {"a": 1, "b": 2}) == "succeeded"


@pytest.mark.parametrize("phase", ["ready", "leased", "ended"])
async def test_a_job_that_does_not_wait_takes_no_answer(
    db: Database, engine: Engine, make: Factory, phase: str
) -> None:
    made = {"ready": make.submitted, "leased": make.leased, "ended": make.ended}[phase]
    job_id = (await made("brief")).job_id
    async with refused(db, AnswerUnavailableError):
        await engine.answer(TENANT, job_id, 1)


async def test_an_answer_after_the_deadline_is_refused_even_before_the_expirer_came(
    db: Database, engine: Engine, make: Factory
) -> None:
    lease = await make.parked()
    await make.clock.advance(HOUR)
    async with refused(db, AnswerUnavailableError):
        await engine.answer(TENANT, lease.job_id, 1)
    assert await jobs.expire(db, 10) == 1


async def test_a_bad_answer_is_refused(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.parked()
    async with refused(db, InputError, field="answer.a"):
        await engine.answer(TENANT, lease.job_id, {"a": "\x00"})


async def test_a_job_without_a_deadline_cannot_be_parked(db: Database, engine: Engine, make: Factory) -> None:
    """Nothing may wait for ever."""
    lease = await make.leased("free")
    async with refused(db, InvalidError):
        await engine.park(lease)
    assert await make.finish(lease) == "succeeded"


async def test_a_job_whose_cancel_was_asked_for_is_not_parked(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    await engine.cancel(TENANT, lease.job_id)
    assert await engine.park(lease) == "canceled"  # it need not wait for its worker to notice
    async with refused(db, LeaseLostError):
        await engine.park(lease)


async def test_a_bad_memo_is_refused(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    async with refused(db, InputError, field="memo"):
        await engine.park(lease, float("nan"))


async def test_a_job_may_be_parked_more_than_once(engine: Engine, make: Factory) -> None:
    lease = await make.parked("brief", 1)
    await engine.answer(TENANT, lease.job_id, "one")
    (second,) = await make.claimed("brief")
    await engine.park(second, 2)
    await engine.answer(TENANT, lease.job_id, "two")
    (third,) = await make.claimed("brief")
    assert (third.memo, third.answer) == ("2", '"two"')


# Retry


@pytest.mark.parametrize("outcome", ["failed", "blocked", "expired"])
async def test_a_studio_job_is_retried_in_place_as_a_new_run_with_its_own_hold(
    db: Database, engine: Engine, make: Factory, outcome: Any
) -> None:
    lease = await make.leased("restartable")
    if outcome == "expired":
        await make.clock.advance(HOUR)
        await jobs.expire(db, 10)
    else:
        await make.finish(lease, outcome)
    before = await make.read(lease.job_id)
    await make.clock.advance(HOUR)
    submitted = await engine.retry(TENANT, lease.job_id)
    job = await make.read(lease.job_id)
    assert (submitted.job_id, submitted.state, submitted.available) == (job.job_id, "queued", 0)
    assert (job.run, job.state, job.phase, job.outcome, job.attempts) == (2, "queued", "ready", None, 0)
    assert (job.progress, job.stage, job.error, job.output, job.captured) == (0, None, None, None, None)
    assert (job.started_at, job.finished_at, job.created_at) == (None, None, before.created_at)
    assert job.expires_at == submitted.expires_at
    assert job.expires_at is not None
    assert job.expires_at > await make.clock.now()
    assert await purse(engine) == (0, 3, 1)
    assert (await make.types(job.job_id))[-2:] == ["retried", "queued"]
    (again,) = await make.claimed("restartable")
    assert (again.run, again.epoch) == (2, lease.epoch + 1)
    with pytest.raises(LeaseLostError):
        await make.finish(lease)
    assert await make.finish(again) == "completed"
    entries = await engine.entries(TENANT, ACCOUNT)
    assert [(entry.type, entry.run) for entry in entries] == [
        *(("capture", 2), ("hold", 2), ("release", 1), ("hold", 1), ("grant", None)),
    ]


async def test_a_retry_in_place_takes_no_key(engine: Engine, make: Factory) -> None:
    """None is remembered for it: one that was taken would only seem to make it once."""
    lease = await make.leased("restartable")
    await make.finish(lease, "failed")
    with pytest.raises(InvalidError, match="retried in place") as raised:
        await engine.retry(TENANT, lease.job_id, idempotency_key="once")
    assert raised.value.field == "idempotency_key"
    assert (await make.read(lease.job_id)).run == 1


async def test_a_retry_that_cannot_be_paid_leaves_the_job_untouched(
    db: Database, engine: Engine, make: Factory
) -> None:
    ended = await make.ended("restartable", "failed")
    await engine.adjust(TENANT, ACCOUNT, -1, reason="spent elsewhere")
    async with refused(db, InsufficientCreditsError) as caught:
        await engine.retry(TENANT, ended.job_id)
    assert caught.value.details == {"required": 3, "available": 2}


async def test_a_retry_is_bound_by_the_cap(db: Database, engine: Engine, make: Factory) -> None:
    ended = await make.ended("restartable", "failed")
    await engine.set_cap(TENANT, ACCOUNT, 0)
    async with refused(db, TooManyActiveJobsError):
        await engine.retry(TENANT, ended.job_id)


@pytest.mark.parametrize("outcome", ["succeeded", "canceled"])
async def test_a_studio_job_that_is_done_or_canceled_is_not_retried(
    db: Database, engine: Engine, make: Factory, outcome: Any
) -> None:
    ended = await make.ended("restartable", outcome)
    async with refused(db, RetryUnavailableError):
        await engine.retry(TENANT, ended.job_id)


@pytest.mark.parametrize("kind", ["restartable", "priced"])
async def test_what_has_not_ended_is_not_retried(db: Database, engine: Engine, make: Factory, kind: str) -> None:
    submitted = await make.submitted(kind)
    await make.credits(50)
    async with refused(db, RetryUnavailableError):
        await engine.retry(TENANT, submitted.job_id)


async def test_a_retry_in_place_may_be_retried_again(engine: Engine, make: Factory) -> None:
    ended = await make.ended("restartable", "failed")
    for run in (2, 3):
        await engine.retry(TENANT, ended.job_id)
        (lease,) = await make.claimed("restartable")
        assert lease.run == run
        await make.finish(lease, "failed")


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "canceled"])
async def test_elsewhere_a_retry_is_a_new_job_that_names_the_old_one(
    engine: Engine, make: Factory, outcome: Any
) -> None:
    lease = await make.leased("priced", {"product": "hat"}, priority=3)
    await make.finish(lease, outcome)
    before = await make.read(lease.job_id)
    await make.credits(5)
    submitted = await engine.retry(TENANT, lease.job_id, even_if_succeeded=True)
    job = await make.read(submitted.job_id)
    assert job.job_id != lease.job_id
    assert (job.retry_of, job.input, job.priority, job.run) == (lease.job_id, {"product": "hat"}, 3, 1)
    assert await make.read(lease.job_id) == before


async def test_a_new_job_is_paid_like_any_other(db: Database, engine: Engine, make: Factory) -> None:
    ended = await make.ended("priced", "failed")
    await engine.adjust(TENANT, ACCOUNT, -5, reason="so that it cannot be paid")
    async with refused(db, InsufficientCreditsError):
        await engine.retry(TENANT, ended.job_id)


async def test_what_succeeded_is_retried_only_on_purpose(db: Database, engine: Engine, make: Factory) -> None:
    ended = await make.ended("priced")
    await make.credits(5)
    async with refused(db, RetryUnavailableError):
        await engine.retry(TENANT, ended.job_id)
    assert (await engine.retry(TENANT, ended.job_id, even_if_succeeded=True)).job_id != ended.job_id


# An operator's move


async def test_a_transition_takes_the_queue_along(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("brief")
    assert await engine.transition(TENANT, lease.job_id, "queued") == "queued"
    with pytest.raises(LeaseLostError):
        await make.finish(lease)
    (again,) = await make.claimed("brief")
    assert again.job_id == lease.job_id
    assert await engine.transition(TENANT, lease.job_id, "parked") == "parked"
    assert await engine.answer(TENANT, lease.job_id, 1) == "queued"
    assert await engine.transition(TENANT, lease.job_id, "failed") == "failed"
    assert await purse(engine) == (5, 0, 0)


async def test_a_job_that_waits_for_its_start_can_be_moved_into_the_line(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("restartable", run_at=await make.clock.now() + HOUR)
    assert await engine.transition(TENANT, submitted.job_id, "queued") == "queued"
    assert len(await make.claimed("restartable")) == 1


async def test_a_transition_to_success_captures_and_to_failure_releases(engine: Engine, make: Factory) -> None:
    one, other = await make.leased("priced"), await make.leased("priced")
    await engine.transition(TENANT, one.job_id, "succeeded")
    await engine.transition(TENANT, other.job_id, "failed")
    assert await purse(engine) == (5, 0, 0)
    assert (await make.read(one.job_id)).captured == 5


async def test_nobody_is_parked_by_hand_without_a_deadline(db: Database, engine: Engine, make: Factory) -> None:
    lease = await make.leased("free")
    async with refused(db, TransitionDeniedError):
        await engine.transition(TENANT, lease.job_id, "parked")


@pytest.mark.parametrize("state", ["a\x00", "\ud800"])
async def test_a_state_that_no_database_can_hold_is_refused(
    db: Database, engine: Engine, make: Factory, state: str
) -> None:
    submitted = await make.submitted()
    async with refused(db, InvalidError):
        await engine.transition(TENANT, submitted.job_id, state)


@pytest.mark.parametrize("state", ["nonsense", "", "queued"])
async def test_a_transition_to_nowhere_is_denied(db: Database, engine: Engine, make: Factory, state: str) -> None:
    submitted = await make.submitted()
    async with refused(db, TransitionDeniedError):
        await engine.transition(TENANT, submitted.job_id, state)


# Time


async def test_due_jobs_join_the_line(db: Database, engine: Engine, make: Factory) -> None:
    soon = await make.submitted("restartable", run_at=await make.clock.now() + HOUR / 2)
    late = await make.submitted("restartable", run_at=await make.clock.now() + 3 * HOUR)
    assert await jobs.promote(db, 10) == set()
    await make.clock.advance(HOUR)
    assert await jobs.promote(db, 10) == {"restartable"}
    (lease,) = await make.claimed("restartable", want=10)
    assert lease.job_id == soon.job_id
    assert (await make.read(late.job_id)).phase == "waiting"
    assert await make.types(soon.job_id) == ["submitted", "queued", "started"]


async def test_a_job_past_its_deadline_does_not_join_the_line(db: Database, engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("brief", run_at=await make.clock.now() + MINUTE, expires_in=MINUTE)
    await make.clock.advance(HOUR)
    assert await jobs.promote(db, 10) == set()
    assert await jobs.expire(db, 10) == 1
    assert (await make.read(submitted.job_id)).outcome == "expired"


PHASES = ["waiting", "ready", "leased", "parked", "delivering"]


@pytest.mark.parametrize("phase", PHASES)
async def test_a_job_expires_from_every_phase_and_gets_its_credits_back(
    db: Database, engine: Engine, make: Factory, phase: str
) -> None:
    run_at = await make.clock.now() + 2 * HOUR if phase == "waiting" else None
    job_id = (await make.submitted("brief", run_at=run_at)).job_id
    lease = None
    if phase in ("leased", "parked", "delivering"):
        (lease,) = await make.claimed("brief", duration=5 * HOUR)
    if lease and phase == "parked":
        await engine.park(lease)
    if phase == "delivering":
        await engine.transition(TENANT, job_id, "delivering")
    assert (await make.read(job_id)).phase == phase

    await make.clock.advance(HOUR - MINUTE)
    assert await jobs.expire(db, 10) == 0
    await make.clock.advance(2 * HOUR + 2 * MINUTE)
    assert await jobs.expire(db, 10) == 1
    job = await make.read(job_id)
    assert (job.outcome, job.captured, job.phase) == ("expired", 0, "ended")
    assert await purse(engine) == (5, 0, 0)
    if lease:
        with pytest.raises(LeaseLostError):
            await make.finish(lease)
    assert await jobs.expire(db, 10) == 0
    assert await jobs.promote(db, 10) == set()


async def test_a_job_past_its_deadline_is_not_handed_out(db: Database, make: Factory) -> None:
    await make.submitted("brief")
    await make.clock.advance(2 * HOUR)
    assert await make.claimed("brief") == []
    await jobs.expire(db, 10)


async def test_the_word_for_an_expired_job_is_the_lifecycles(db: Database, make: Factory) -> None:
    failing, canceled = await make.submitted("immediate"), await make.submitted("reworded")
    await make.clock.advance(2 * HOUR)
    assert await jobs.expire(db, 10) == 2
    assert (await make.read(failing.job_id)).state == "failed"
    assert (await make.read(canceled.job_id)).state == "cancelled"


@pytest.mark.parametrize("event", ["expired", "canceled", "queued"])
async def test_no_more_jobs_are_due_than_were_asked_for(
    db: Database, engine: Engine, make: Factory, event: str
) -> None:
    for _ in range(3):
        if event == "canceled":
            lease = await make.leased("brief")
            await engine.cancel(TENANT, lease.job_id, grace=MINUTE)
        else:
            run_at = await make.clock.now() + MINUTE if event == "queued" else None
            await make.submitted("brief", run_at=run_at)
    await make.clock.advance(2 * HOUR if event == "expired" else HOUR / 2)
    sizes = [len(await db.run(jobs.SQL["apply_due"], event, 2)) for _ in range(3)]
    assert sizes == [2, 1, 0]
    if event == "queued":
        assert len(await make.claimed("brief", want=3)) == 3


async def test_timed_sweeps_leave_alone_what_is_not_theirs(db: Database, make: Factory) -> None:
    await make.parked("brief")
    await make.submitted("brief")
    await make.leased("free")
    async with unchanged(db):
        assert await jobs.expire(db, 10) == 0
        assert await jobs.force_cancel(db, 10) == 0
        assert await jobs.promote(db, 10) == set()
        assert await leases.lapse(db, 10) == set()


async def test_bookkeeping_of_a_whole_life(engine: Engine, make: Factory) -> None:
    """Every change of a job is an event; numbers have no gap; times go forward."""
    lease = await make.leased("staged")
    await engine.note(stage(lease, 1, "planning"))
    await engine.give_back(attempt(lease))
    (lease,) = await make.claimed("staged")
    await make.finish(lease, output={"image": 1})
    job = await make.read(lease.job_id)
    events = await engine.events(TENANT, lease.job_id)
    assert [event.type for event in events] == ["submitted", "started", "stage", "requeued", "started", "succeeded"]
    assert [event.seq for event in events] == list(range(1, job.events + 1))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[3].data == {"cause": "attempt", "count": 1, "error": ERROR}
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    assert (job.output, job.error, job.progress, job.attempts, job.epoch) == ({"image": 1}, None, 1, 1, 2)


async def test_other_accounts_do_not_notice(engine: Engine, make: Factory) -> None:
    await make.credits(7, account="bob")
    await make.ended("priced")
    balance = await engine.balance(TENANT, "bob")
    assert (balance.available, balance.held, balance.active) == (7, 0, 0)
    assert OWNER["account"] != "bob"
