"""Two verbs at one job, in both orders: one winner, and the loser waited and is told.

The first verb runs in an open transaction. The second must be seen waiting for it in `pg_stat_activity`, or, where
its rule is to pass over what others have in hand, must come back at once with nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.credits import ledger
from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import ClaimRequest, End
from millpond.errors import (
    AnswerUnavailableError,
    InsufficientCreditsError,
    LeaseLostError,
    RetryUnavailableError,
    TransitionDeniedError,
)
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, TENANT, attempt, progress
from tests.races.rivals import held, outcome_of

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.engine.queue.leases import Lease
    from millpond.lifecycle import Outcome
    from millpond.store.db import Database
    from tests.factories import Factory


# The verbs, each on whatever database it is given


async def finish(db: Any, lease: Lease, result: Outcome = "succeeded") -> Any:
    (answer,) = await leases.finish(db, [End(lease, result, error=None if result == "succeeded" else ERROR)])
    return answer if isinstance(answer, str) else type(answer)


async def give_back(db: Any, lease: Lease) -> Any:
    (answer,) = await leases.give_back(db, [attempt(lease)])
    return answer if isinstance(answer, str) else type(answer)


async def note(db: Any, lease: Lease) -> Any:
    (answer,) = await leases.note(db, [progress(lease, 1, 0.5)])
    return answer if isinstance(answer, bool) else type(answer)


async def lapse(db: Any) -> int:
    return len(await db.run(leases.SQL["lapse"], 10))


async def cancel(db: Any, lease: Lease) -> tuple[bool, str]:
    answer = await jobs.cancel(db, TENANT, lease.job_id, grace=MINUTE)
    return answer.is_accepted, answer.state


async def answer(db: Any, lease: Lease, given: Any) -> Any:
    return await outcome_of(db.run(jobs.SQL["answer"], TENANT, lease.job_id, given))


async def claim(db: Any) -> list[Lease]:
    return await leases.claim(db, Lanes(["brief"]), [ClaimRequest("rival", 1)], 5 * HOUR)


async def transition(db: Any, lease: Lease, state: str) -> Any:
    return await outcome_of(jobs.transition(db, TENANT, lease.job_id, state))


@pytest.fixture
async def lease(make: Factory) -> Lease:
    """A job in the hands of a worker whose lease outlives the job's deadline."""
    await make.submitted("brief")
    (taken,) = await make.claimed("brief", duration=5 * HOUR)
    return taken


async def ends(make: Factory, lease: Lease) -> list[str]:
    """Every end in a job's log: there must never be two."""
    outcomes = {"succeeded", "failed", "canceled", "expired", "blocked"}
    return [kind for kind in await make.types(lease.job_id) if kind in outcomes]


# Two workers


@pytest.mark.parametrize("second", ["succeeded", "failed", "canceled"])
async def test_finish_against_finish(db: Database, make: Factory, lease: Lease, second: Outcome) -> None:
    async with held(db) as first:
        assert await finish(first, lease) == "succeeded"
        rival = await first.meet(finish(db, lease, second))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == ["succeeded"]


async def test_finish_against_a_finish_that_is_given_up(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await finish(first, lease, "failed") == "failed"
        rival = await first.meet(finish(db, lease))
        await first.rollback()
        assert await rival == "succeeded"
    assert await ends(make, lease) == ["succeeded"]


async def test_finish_against_give_back(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await finish(first, lease) == "succeeded"
        rival = await first.meet(give_back(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == ["succeeded"]


async def test_give_back_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await give_back(first, lease) == "requeued"
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == []


async def test_finish_against_note(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await finish(first, lease)
        rival = await first.meet(note(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert (await make.types(lease.job_id))[-1] == "succeeded"


async def test_note_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await note(first, lease) is False
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival == "succeeded"
    assert (await make.types(lease.job_id))[-2:] == ["progress", "succeeded"]


# The worker and the reaper. The clock is turned back under the finish: what stops it is the fence, not the clock.


async def test_finish_against_lapse(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await finish(first, lease) == "succeeded"
        await make.clock.advance(6 * HOUR)
        rival = await first.meet(lapse(db))
        await first.commit()
        assert await rival == 0
    assert await ends(make, lease) == ["succeeded"]


async def test_lapse_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    await make.clock.advance(6 * HOUR)
    async with held(db) as first:
        assert await lapse(first) == 1
        await make.clock.advance(-6 * HOUR)
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == []
    assert (await claim(db))[0].epoch == 2


async def test_lapse_and_a_new_lease_against_the_old_note(db: Database, make: Factory, lease: Lease) -> None:
    """The job is leased again when the old worker's note gets through to it: the epoch tells them apart."""
    await make.clock.advance(6 * HOUR)
    async with held(db) as first:
        await lapse(first)
        await make.clock.advance(-6 * HOUR)
        (new,) = await claim(first)
        rival = await first.meet(note(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert (await make.read(lease.job_id)).progress == 0
    assert await finish(db, new) == "succeeded"


async def test_extend_against_lapse(db: Database, engine: Engine, make: Factory, lease: Lease) -> None:
    """A lease that is just being prolonged is passed over."""
    async with held(db) as first:
        await leases.extend(first, [lease], 20 * HOUR)
        await make.clock.advance(6 * HOUR)
        assert await lapse(db) == 0
        await first.commit()
    assert await lapse(db) == 0
    assert await finish(db, lease) == "succeeded"


async def test_lapse_against_extend(db: Database, make: Factory, lease: Lease) -> None:
    await make.clock.advance(6 * HOUR)
    async with held(db) as first:
        await lapse(first)
        await make.clock.advance(-6 * HOUR)
        rival = await first.meet(leases.extend(db, [lease], HOUR))
        await first.commit()
        assert (await rival).lost == {lease.job_id}


async def test_a_lapse_takes_every_job_in_hand_before_it_touches_an_account(
    db: Database, engine: Engine, make: Factory
) -> None:
    """As all others do: who has a job may wait for its account, so who has an account must not wait for a job."""
    await make.leased("fragile")
    await make.clock.advance(2 * MINUTE)
    assert await lapse(db) == 1
    await make.claimed("fragile")  # whose second lapse is its last, and gives its credits back
    busy = await make.leased("brief")
    await make.clock.advance(2 * MINUTE)
    async with held(db) as first:
        await first.connection.execute("select from millpond.dispatches where job_id = $1 for update", busy.job_id)
        rival = await first.meet(lapse(db))
        await first.connection.execute("select from millpond.accounts for update nowait")
        await first.commit()
        assert await rival == 2
    assert (await engine.balance(TENANT, ACCOUNT)).available == 5


async def test_finish_against_abandon(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await finish(first, lease)
        rival = await first.meet(leases.abandon(db, lease.token))
        await first.commit()
        assert await rival == set()
    assert await ends(make, lease) == ["succeeded"]


async def test_abandon_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await leases.abandon(first, lease.token) == {"brief"}
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == []


# The worker and the customer


async def test_finish_against_cancel(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await finish(first, lease)
        rival = await first.meet(cancel(db, lease))
        await first.commit()
        assert await rival == (False, "succeeded")
    assert await ends(make, lease) == ["succeeded"]


async def test_cancel_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    """A cancel of a running job is a wish: the worker may still be faster."""
    async with held(db) as first:
        assert await cancel(first, lease) == (True, "running")
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival == "succeeded"
    assert await ends(make, lease) == ["succeeded"]


async def test_cancel_against_cancel(db: Database, make: Factory) -> None:
    submitted: Any = await make.submitted("brief")
    async with held(db) as first:
        assert await cancel(first, submitted) == (True, "canceled")
        rival = await first.meet(cancel(db, submitted))
        await first.commit()
        assert await rival == (False, "canceled")
    assert await ends(make, submitted) == ["canceled"]


async def test_cancel_against_claim(db: Database, make: Factory) -> None:
    submitted: Any = await make.submitted("brief")
    async with held(db) as first:
        assert await cancel(first, submitted) == (True, "canceled")
        assert await claim(db) == []
        await first.commit()
    assert await claim(db) == []
    assert await ends(make, submitted) == ["canceled"]


async def test_claim_against_cancel(db: Database, make: Factory) -> None:
    """It has started meanwhile: its worker is asked instead."""
    submitted: Any = await make.submitted("brief")
    async with held(db) as first:
        (lease,) = await claim(first)
        rival = await first.meet(cancel(db, submitted))
        await first.commit()
        assert await rival == (True, "running")
    assert await finish(db, lease, "canceled") == "canceled"


async def test_claim_against_claim(db: Database, make: Factory) -> None:
    one, other = await make.submitted("brief"), await make.submitted("brief")
    async with held(db) as first:
        assert [lease.job_id for lease in await claim(first)] == [one.job_id]
        assert [lease.job_id for lease in await claim(db)] == [other.job_id]
        assert await claim(db) == []
        await first.commit()
    assert await claim(db) == []


async def test_finish_against_force_cancel(db: Database, engine: Engine, make: Factory, lease: Lease) -> None:
    await cancel(db, lease)
    await make.clock.advance(2 * MINUTE)
    async with held(db) as first:
        assert await finish(first, lease) == "succeeded"
        assert await jobs.force_cancel(db, 10) == 0
        await first.commit()
    assert await jobs.force_cancel(db, 10) == 0
    assert await ends(make, lease) == ["succeeded"]


async def test_force_cancel_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    await cancel(db, lease)
    await make.clock.advance(2 * MINUTE)
    async with held(db) as first:
        assert await jobs.force_cancel(first, 10) == 1
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == ["canceled"]


async def test_park_against_cancel(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await leases.park(first, lease, None)
        rival = await first.meet(cancel(db, lease))
        await first.commit()
        assert await rival == (True, "canceled")
    assert await ends(make, lease) == ["canceled"]


async def test_cancel_against_park(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await cancel(first, lease)
        rival = await first.meet(outcome_of(leases.park(db, lease, None)))
        await first.commit()
        assert await rival is LeaseLostError
    assert (await make.read(lease.job_id)).phase == "leased"


@pytest.mark.parametrize(("given", "verdict"), [('"yes"', "repeated"), ('"no"', "unavailable")])
async def test_answer_against_answer(db: Database, make: Factory, given: str, verdict: str) -> None:
    parked = await make.parked("brief")
    async with held(db) as first:
        assert (await answer(first, parked, '"yes"'))["verdict"] == "answered"
        rival = await first.meet(answer(db, parked, given))
        await first.commit()
        assert (await rival)["verdict"] == verdict
    assert (await make.types(parked.job_id)).count("answered") == 1


async def test_cancel_against_answer(db: Database, engine: Engine, make: Factory) -> None:
    parked = await make.parked("brief")
    async with held(db) as first:
        assert await cancel(first, parked) == (True, "canceled")
        rival = await first.meet(outcome_of(jobs.answer(db, TENANT, parked.job_id, 1)))
        await first.commit()
        assert await rival is AnswerUnavailableError
    assert await ends(make, parked) == ["canceled"]


# The deadline


async def test_finish_against_expire(db: Database, make: Factory, lease: Lease) -> None:
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        assert await finish(first, lease) == "succeeded"
        assert await jobs.expire(db, 10) == 0
        await first.commit()
    assert await jobs.expire(db, 10) == 0
    assert await ends(make, lease) == ["succeeded"]


async def test_expire_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        assert await jobs.expire(first, 10) == 1
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == ["expired"]


async def test_expire_against_cancel(db: Database, make: Factory, lease: Lease) -> None:
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        await jobs.expire(first, 10)
        rival = await first.meet(cancel(db, lease))
        await first.commit()
        assert await rival == (False, "expired")
    assert await ends(make, lease) == ["expired"]


async def test_expire_against_answer(db: Database, make: Factory) -> None:
    """The clock is turned back under the answer: it is told of the end, not of the time."""
    parked = await make.parked("brief")
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        assert await jobs.expire(first, 10) == 1
        await make.clock.advance(-2 * HOUR)
        rival = await first.meet(outcome_of(jobs.answer(db, TENANT, parked.job_id, 1)))
        await first.commit()
        assert await rival is AnswerUnavailableError
    assert await ends(make, parked) == ["expired"]


async def test_answer_against_expire(db: Database, make: Factory) -> None:
    parked = await make.parked("brief")
    async with held(db) as first:
        assert (await jobs.answer(first, TENANT, parked.job_id, 1))[0] == "queued"
        await make.clock.advance(2 * HOUR)
        assert await jobs.expire(db, 10) == 0
        await first.commit()
    assert await jobs.expire(db, 10) == 1
    assert (await make.types(parked.job_id))[-2:] == ["answered", "expired"]


async def test_expire_against_claim(db: Database, make: Factory) -> None:
    submitted: Any = await make.submitted("brief")
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        assert await jobs.expire(first, 10) == 1
        await make.clock.advance(-2 * HOUR)
        assert await claim(db) == []
        await first.commit()
    assert await claim(db) == []
    assert await ends(make, submitted) == ["expired"]


async def test_claim_against_expire(db: Database, make: Factory) -> None:
    await make.submitted("brief")
    async with held(db) as first:
        (lease,) = await claim(first)
        await make.clock.advance(2 * HOUR)
        assert await jobs.expire(db, 10) == 0
        await first.commit()
    assert await jobs.expire(db, 10) == 1
    assert await finish(db, lease) is LeaseLostError


async def test_services_side_by_side_share_the_work(db: Database, engine: Engine, make: Factory) -> None:
    """Two of a sort never do one job twice, and wait for each other at most for an account's lock."""
    accounts = ["ann", "bob", "cid", "dan"]
    for account in accounts:
        await make.submitted("brief", account=account)
    await make.clock.advance(2 * HOUR)
    async with held(db) as first:
        assert await jobs.expire(first, 2) == 2
        assert await jobs.expire(db, 10) == 2
        await first.commit()
    assert await jobs.expire(db, 10) == 0
    assert [(await engine.balance(TENANT, account)).available for account in accounts] == [5, 5, 5, 5]


# The operator


async def test_finish_against_transition(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        await finish(first, lease)
        rival = await first.meet(transition(db, lease, "failed"))
        await first.commit()
        assert await rival is TransitionDeniedError
    assert await ends(make, lease) == ["succeeded"]


async def test_transition_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await transition(first, lease, "failed") == "failed"
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert await ends(make, lease) == ["failed"]


async def test_transition_back_to_the_line_against_finish(db: Database, make: Factory, lease: Lease) -> None:
    async with held(db) as first:
        assert await transition(first, lease, "queued") == "queued"
        rival = await first.meet(finish(db, lease))
        await first.commit()
        assert await rival is LeaseLostError
    assert len(await claim(db)) == 1


async def test_retry_against_retry(db: Database, engine: Engine, make: Factory) -> None:
    ended = await make.ended("restartable", "failed")
    await make.credits(50)
    async with held(db) as first:
        await jobs.revive(first, ended, HOUR)
        rival = await first.meet(outcome_of(jobs.revive(db, ended, HOUR)))
        await first.commit()
        assert await rival is RetryUnavailableError
    assert (await engine.balance(TENANT, ACCOUNT)).held == 3


# Credits


def request(engine: Engine, **options: Any) -> list[jobs.Submission]:
    owner: Any = OWNER | options
    return [jobs.prepare(engine.app.kinds, "priced", **owner)]


async def submit(db: Any, items: list[jobs.Submission]) -> Any:
    (found,) = await jobs.submit(db, items)
    return type(found) if isinstance(found, Exception) else found


async def test_two_submits_for_the_last_credits(db: Database, engine: Engine, make: Factory) -> None:
    await make.credits(5)
    async with held(db) as first:
        await submit(first, request(engine))
        rival = await first.meet(submit(db, request(engine)))
        await first.commit()
        assert await rival is InsufficientCreditsError
    assert (await engine.balance(TENANT, ACCOUNT)).active == 1


async def test_a_submit_that_is_given_up_leaves_the_credits_to_the_other(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.credits(5)
    async with held(db) as first:
        await submit(first, request(engine))
        rival = await first.meet(submit(db, request(engine)))
        await first.rollback()
        assert (await rival).available == 0


async def test_two_submits_with_one_key(db: Database, engine: Engine, make: Factory) -> None:
    """The twin waits for the first, and gets its answer."""
    await make.credits(50)
    async with held(db) as first:
        one = await submit(first, request(engine, idempotency_key="k"))
        rival = await first.meet(submit(db, request(engine, idempotency_key="k")))
        await first.commit()
        twin = await rival
    assert (twin.job_id, twin.available, twin.is_replay) == (one.job_id, one.available, True)


async def test_the_twin_of_a_submit_that_is_given_up_takes_its_place(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.credits(5)
    async with held(db) as first:
        one = await submit(first, request(engine, idempotency_key="k"))
        rival = await first.meet(submit(db, request(engine, idempotency_key="k")))
        await first.rollback()
        twin = await rival
    assert (twin.job_id != one.job_id, twin.is_replay) == (True, False)


async def test_a_twin_that_could_not_pay_gets_the_first_answer_all_the_same(
    db: Database, engine: Engine, make: Factory
) -> None:
    """The first one took the last credits: to the twin that is no refusal but its own job."""
    await make.credits(5)
    async with held(db) as first:
        one = await submit(first, request(engine, idempotency_key="k"))
        rival = await first.meet(submit(db, request(engine, idempotency_key="k")))
        await first.commit()
        twin = await rival
    assert (twin.job_id, twin.is_replay) == (one.job_id, True)


async def test_one_key_in_two_accounts_of_one_scope(db: Database, engine: Engine, make: Factory) -> None:
    await make.credits(5)
    await make.credits(5, account="bob")
    async with held(db) as first:
        one = await submit(first, request(engine, idempotency_key="k", scope="all"))
        rival = await first.meet(submit(db, request(engine, idempotency_key="k", scope="all", account="bob")))
        await first.commit()
        twin = await rival
    assert (twin.job_id, twin.is_replay) == (one.job_id, True)
    assert (await engine.balance(TENANT, "bob")).available == 5


async def test_a_grant_against_a_submit(db: Database, engine: Engine, make: Factory) -> None:
    """Credits that arrive while a submit waits for its account are there for it."""
    await make.credits(5)
    async with held(db) as first:
        await submit(first, request(engine))
        rival = await first.meet(ledger.grant(db, TENANT, ACCOUNT, 7))
        await first.commit()
        assert await rival == 7


async def test_one_reference_granted_twice_at_once(db: Database, engine: Engine) -> None:
    async with held(db) as first:
        assert await ledger.grant(first, TENANT, ACCOUNT, 7, reference="order-7") == 7
        rival = await first.meet(ledger.grant(db, TENANT, ACCOUNT, 7, reference="order-7"))
        await first.commit()
        assert await rival == 7
    assert len(await engine.entries(TENANT, ACCOUNT)) == 1


async def test_ends_of_two_jobs_of_one_account_settle_one_after_the_other(
    db: Database, engine: Engine, make: Factory
) -> None:
    for _ in range(2):
        await make.submitted("brief")
    one, other = await make.claimed("brief", want=2, duration=HOUR)
    async with held(db) as first:
        await finish(first, one, "failed")
        rival = await first.meet(finish(db, other, "failed"))
        await first.commit()
        assert await rival == "failed"
    assert (await engine.balance(TENANT, ACCOUNT)).available == 10


async def test_a_cap_is_kept_by_submits_that_meet(db: Database, engine: Engine) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 1)
    items = [[jobs.prepare(engine.app.kinds, "free", **OWNER)] for _ in range(2)]
    async with held(db) as first:
        await submit(first, items[0])
        rival = await first.meet(submit(db, items[1]))
        await first.commit()
        assert (await rival).__name__ == "TooManyActiveJobsError"
