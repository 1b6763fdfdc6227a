"""Submit: key, cap, hold, job, place in the queue and first events commit together, or nothing does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from millpond import ids
from millpond.engine.engine import BULK_MAX
from millpond.errors import (
    IdempotencyConflictError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    TooManyActiveJobsError,
    UnknownKindError,
)
from millpond.values import PRICE_MAX
from tests.checks import refused, snapshot, unchanged
from tests.factories import ACCOUNT, HOUR, OWNER, TENANT

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import SubmitRequest, Submitted
    from millpond.store.db import Database
    from tests.factories import Factory


async def test_a_job_is_there_with_its_hold_its_place_and_its_first_events(engine: Engine, make: Factory) -> None:
    await make.credits(100)
    submitted = await engine.submit("priced", {"product": "hat"}, **OWNER, priority=7)
    job = await make.read(submitted.job_id)
    assert (job.state, job.phase, job.price, job.priority, job.input) == ("queued", "ready", 5, 7, {"product": "hat"})
    assert (job.run, job.epoch, job.attempts, job.progress, job.captured) == (1, 0, 0, 0, None)
    assert (submitted.state, submitted.price, submitted.available, submitted.is_replay) == ("queued", 5, 95, False)
    assert submitted.created_at == job.created_at
    assert ids.parse("job", submitted.id) == submitted.job_id
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (95, 5, 1)
    hold, grant = await engine.entries(TENANT, ACCOUNT)
    assert (hold.type, hold.job_id, hold.run, hold.available, hold.held, hold.outside) == (
        *("hold", job.job_id, 1),
        *(-5, 5, 0),
    )
    assert grant.type == "grant"
    assert await make.types(job.job_id) == ["submitted"]


async def test_the_queue_hop_of_a_lifecycle_is_an_event_of_its_own(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("restartable")
    events = await engine.events(TENANT, submitted.job_id)
    assert [(event.seq, event.type, event.state) for event in events] == [
        (1, "submitted", "pending"),
        (2, "queued", "queued"),
    ]
    assert submitted.state == "queued"


async def test_a_free_job_needs_no_account_beforehand_and_leaves_no_entry(engine: Engine, make: Factory) -> None:
    await make.submitted("free")
    assert await engine.entries(TENANT, ACCOUNT) == []
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (0, 0, 1)


async def test_a_price_may_come_from_the_input(engine: Engine, make: Factory) -> None:
    await make.credits(10)
    submitted = await engine.submit("metered", {"units": 7}, **OWNER)
    assert (submitted.price, submitted.available) == (7, 3)


async def test_no_input_is_an_empty_object(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("priced")
    assert (await make.read(submitted.job_id)).input == {}


async def test_the_deadline_comes_from_the_kind_or_the_request(engine: Engine, make: Factory) -> None:
    by_kind = await make.submitted("brief")
    by_request = await make.submitted("brief", expires_in="10m")
    never = await make.submitted("free")
    assert by_kind.expires_at == by_kind.created_at + HOUR
    assert by_request.expires_at == by_request.created_at + timedelta(minutes=10)
    assert never.expires_at is None


async def test_too_few_credits_are_reported_and_nothing_is_written(db: Database, engine: Engine, make: Factory) -> None:
    await make.credits(4)
    async with refused(db, InsufficientCreditsError) as caught:
        await engine.submit("priced", **OWNER, idempotency_key="k")
    assert caught.value.details == {"required": 5, "available": 4}
    await make.credits(1)
    assert not (await engine.submit("priced", **OWNER, idempotency_key="k")).is_replay


async def test_an_account_nobody_knows_has_no_credits(engine: Engine) -> None:
    with pytest.raises(InsufficientCreditsError) as caught:
        await engine.submit("priced", **OWNER)
    assert caught.value.details == {"required": 5, "available": 0}


async def test_the_last_credits_can_be_spent(engine: Engine, make: Factory) -> None:
    await make.credits(5)
    assert (await engine.submit("priced", **OWNER)).available == 0


async def test_a_cap_bounds_the_active_jobs_of_an_account(db: Database, engine: Engine, make: Factory) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 1)
    lease = await make.leased("free")
    async with refused(db, TooManyActiveJobsError) as caught:
        await engine.submit("free", **OWNER)
    assert caught.value.details == {"active": 1}
    assert caught.value.retryable
    await engine.submit("free", tenant=TENANT, account="bob")
    await make.finish(lease)
    await engine.submit("free", **OWNER)


async def test_a_cap_may_be_lifted_and_may_be_zero(engine: Engine) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 0)
    with pytest.raises(TooManyActiveJobsError):
        await engine.submit("free", **OWNER)
    assert (await engine.set_cap(TENANT, ACCOUNT, None)).active_max is None
    await engine.submit("free", **OWNER)


# One key, one job


async def again(engine: Engine, kind: str = "priced", given: Any = None, **options: Any) -> Submitted:
    merged: dict[str, Any] = {**OWNER, "idempotency_key": "k", **options}
    return await engine.submit(kind, given or {"product": "hat"}, **merged)


@pytest.mark.parametrize("kind", ["priced", "free", "restartable", "brief"])
async def test_the_same_key_gets_the_first_answer_again(db: Database, engine: Engine, make: Factory, kind: str) -> None:
    """All of it, whatever has become of the job and the account since."""
    await make.credits(20)
    given = {} if kind in ("restartable", "brief") else {"product": "hat"}
    first = await engine.submit(kind, given, **OWNER, idempotency_key="k")
    async with unchanged(db):
        repeat = await engine.submit(kind, given, **OWNER, idempotency_key="k")
    await make.credits(20)
    await make.serve(kind)
    late = await engine.submit(kind, given, **OWNER, idempotency_key="k")
    assert repeat == late == replace(first, is_replay=True)


async def test_a_replay_of_a_job_that_was_retried_in_place_is_still_the_first_answer(
    engine: Engine, make: Factory
) -> None:
    await make.credits(20)
    first = await engine.submit("restartable", **OWNER, idempotency_key="k")
    (lease,) = await make.claimed("restartable")
    await make.finish(lease, "failed")
    await make.clock.advance(HOUR)
    await engine.retry(TENANT, first.job_id)
    assert await engine.submit("restartable", **OWNER, idempotency_key="k") == replace(first, is_replay=True)


async def test_the_same_input_in_other_words_is_the_same_request(engine: Engine, make: Factory) -> None:
    await make.credits(20)
    first = await engine.submit("priced", {"product": "hat", "size": 2}, **OWNER, idempotency_key="k")
    repeat = await engine.submit("priced", {"size": 2, "product": "hat"}, **OWNER, idempotency_key="k")
    assert repeat.job_id == first.job_id


async def test_a_replay_needs_neither_credits_nor_room(engine: Engine, make: Factory) -> None:
    await make.credits(5)
    first = await again(engine)
    await engine.set_cap(TENANT, ACCOUNT, 0)
    assert (await again(engine)).job_id == first.job_id


@pytest.mark.parametrize(
    ("kind", "given"), [("priced", {"product": "shoe"}), ("free", {"product": "hat"}), ("free", {"other": 1})]
)
async def test_another_request_with_the_same_key_is_a_conflict(
    db: Database, engine: Engine, make: Factory, kind: str, given: Any
) -> None:
    await make.credits(20)
    first = await again(engine)
    async with refused(db, IdempotencyConflictError, field="idempotency_key") as caught:
        await again(engine, kind, given)
    assert caught.value.details == {"job_id": first.id}


async def test_the_request_that_is_compared_may_be_given_apart_from_the_input(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.credits(20)
    first = await again(engine, given={"product": "hat"}, request={"body": 1})
    assert (await again(engine, given={"product": "made again"}, request={"body": 1})).job_id == first.job_id
    async with refused(db, IdempotencyConflictError, field="idempotency_key"):
        await again(engine, given={"product": "hat"}, request={"body": 2})


async def test_keys_of_other_accounts_tenants_and_scopes_are_other_keys(engine: Engine, make: Factory) -> None:
    for owner in ({}, {"account": "bob"}, {"tenant": "globex"}):
        await make.credits(20, **owner)
    answers = [
        await again(engine),
        await again(engine, account="bob"),
        await again(engine, tenant="globex"),
        await again(engine, scope="refunds"),
        await again(engine, idempotency_key="K"),
    ]
    assert len({answer.job_id for answer in answers}) == 5
    assert not any(answer.is_replay for answer in answers)


async def test_a_scope_may_span_accounts(engine: Engine, make: Factory) -> None:
    await make.credits(20)
    await make.credits(20, account="bob")
    first = await again(engine, scope="all")
    assert (await again(engine, scope="all", account="bob")).job_id == first.job_id


# Many at once


async def test_each_of_many_is_accepted_or_refused_by_itself_in_order(engine: Engine, make: Factory) -> None:
    await make.credits(12)
    answers = await engine.submit_many(
        [
            {"kind": "priced", **OWNER},
            {"kind": "nonsense", **OWNER},
            {"kind": "priced", "input": {"product": 1}, **OWNER},
            {"kind": "metered", "input": {"units": 100}, **OWNER},
            {"kind": "priced", **OWNER},
            {"kind": "priced", **OWNER},
            {"kind": "metered", "input": {"units": 2}, **OWNER},
            {"kind": "free", "account": "bob", "tenant": TENANT},
        ]
    )
    assert [type(answer).__name__ for answer in answers] == [
        *("Submitted", "UnknownKindError", "InputError", "InsufficientCreditsError"),
        *("Submitted", "InsufficientCreditsError", "Submitted", "Submitted"),
    ]
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (0, 12, 3)


async def test_twins_in_one_bulk_are_one_job(engine: Engine, make: Factory) -> None:
    await make.credits(5)
    request: SubmitRequest = {"kind": "priced", **OWNER, "idempotency_key": "k"}
    first, second, other = await engine.submit_many([request, request, {**request, "input": {"product": "x"}}])
    assert not isinstance(first, Exception)
    assert not isinstance(second, Exception)
    assert first.job_id == second.job_id
    assert (first.is_replay, second.is_replay) == (False, True)
    assert isinstance(other, IdempotencyConflictError)


async def test_a_cap_within_a_bulk_is_kept_to_the_job(engine: Engine) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 3)
    answers = await engine.submit_many([{"kind": "free", **OWNER} for _ in range(5)])
    assert [isinstance(answer, TooManyActiveJobsError) for answer in answers] == [False] * 3 + [True] * 2


async def test_jobs_of_a_bulk_stand_in_line_in_their_order(engine: Engine, make: Factory) -> None:
    answers = await engine.submit_many([{"kind": "free", **OWNER} for _ in range(1_200)])
    leases = await make.claimed("free", want=1_200)
    assert [lease.job_id for lease in leases] == [
        answer.job_id for answer in answers if not isinstance(answer, Exception)
    ]


async def test_an_empty_bulk_is_no_work(db: Database, engine: Engine) -> None:
    async with unchanged(db):
        assert await engine.submit_many([]) == []


async def test_a_bulk_has_a_limit(db: Database, engine: Engine) -> None:
    async with refused(db, InvalidError, field="jobs"):
        await engine.submit_many([{"kind": "free", **OWNER} for _ in range(BULK_MAX + 1)])


async def test_entries_of_a_bulk_form_a_chain(engine: Engine, make: Factory) -> None:
    await make.credits(30)
    await engine.submit_many([{"kind": kind, **OWNER} for kind in ("priced", "free", "priced", "restartable", "free")])
    entries = await engine.entries(TENANT, ACCOUNT)
    assert [(entry.seq, entry.available_after, entry.held_after) for entry in reversed(entries)] == [
        *((1, 30, 0), (2, 25, 5), (3, 20, 10), (4, 17, 13)),
    ]


# A start in the future


async def test_a_job_with_a_start_waits_for_it(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("restartable", run_at=await make.clock.now() + HOUR)
    job = await make.read(submitted.job_id)
    assert (job.state, job.phase) == ("pending", "waiting")
    assert await make.claimed("restartable") == []
    assert await make.types(job.job_id) == ["submitted"]


async def test_its_lifetime_begins_at_its_start(engine: Engine, make: Factory) -> None:
    start = await make.clock.now() + HOUR
    submitted = await make.submitted("brief", run_at=start)
    assert submitted.expires_at == start + HOUR


async def test_a_start_in_the_past_is_now(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("brief", run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert submitted.expires_at == submitted.created_at + HOUR
    assert len(await make.claimed("brief")) == 1


# Bad input


BAD: dict[str, tuple[dict[str, Any], type[InvalidError], str]] = {
    "an unknown kind": ({"kind": "nonsense"}, UnknownKindError, "kind"),
    "a kind that is no text": ({"kind": None}, UnknownKindError, "kind"),
    "an unknown member": ({"input": {"colour": 1}}, InputError, "input.colour"),
    "a member of the wrong type": ({"input": {"product": 7}}, InputError, "input.product"),
    "input that is no object": ({"input": [1]}, InputError, "input"),
    "input outside its schema": ({"kind": "drawn", "input": {"width": 0}}, InputError, "input.width"),
    "a NUL": ({"kind": "free", "input": {"a": "\x00"}}, InputError, "input.a"),
    "half a surrogate pair": ({"kind": "free", "input": {"a": "\ud800"}}, InputError, "input.a"),
    "NaN": ({"kind": "free", "input": {"a": float("nan")}}, InputError, "input.a"),
    "infinity": ({"kind": "free", "input": {"a": [float("inf")]}}, InputError, "input.a[0]"),
    "a number beyond 64 bits": ({"kind": "free", "input": {"a": 2**63}}, InputError, "input.a"),
    "too many bytes": ({"kind": "free", "input": {"a": "x" * 300_000}}, InputError, "input"),
    "a negative price by input": ({"kind": "metered", "input": {"units": -5}}, InvalidError, "price"),
    "an absurd price by input": ({"kind": "metered", "input": {"units": 10**13}}, InvalidError, "price"),
    "an over-long key": ({"idempotency_key": "k" * 256}, InvalidError, "idempotency_key"),
    "an empty key": ({"idempotency_key": ""}, InvalidError, "idempotency_key"),
    "a key with a space": ({"idempotency_key": "a b"}, InvalidError, "idempotency_key"),
    "a key with a NUL": ({"idempotency_key": "a\x00"}, InvalidError, "idempotency_key"),
    "a tenant with a NUL": ({"tenant": "a\x00"}, InvalidError, "tenant"),
    "an empty account": ({"account": ""}, InvalidError, "account"),
    "an over-long account": ({"account": "a" * 129}, InvalidError, "account"),
    "a scope with a space": ({"scope": "a b"}, InvalidError, "scope"),
    "a request with a NUL": ({"request": {"a": "\x00"}}, InputError, "request.a"),
    "a priority out of range": ({"priority": 101}, InvalidError, "priority"),
    "a start without a time zone": ({"run_at": datetime(2030, 1, 1)}, InvalidError, "run_at"),  # noqa: DTZ001
    "a start that is no time": ({"run_at": "tomorrow"}, InvalidError, "run_at"),
    "a start at the end of time": ({"run_at": datetime.max.replace(tzinfo=UTC)}, InvalidError, "run_at"),
    "a lifetime of nothing": ({"expires_in": 0}, InvalidError, "expires_in"),
    "a lifetime that is no time": ({"expires_in": "soon"}, InvalidError, "expires_in"),
    "a lifetime of ages": ({"expires_in": float("inf")}, InvalidError, "expires_in"),
}


def deep(depth: int) -> Any:
    return [] if depth == 1 else [deep(depth - 1)]


BAD["nesting of 33 levels"] = ({"kind": "free", "input": {"a": deep(32)}}, InputError, "input.a" + "[0]" * 31)


@pytest.mark.parametrize(("request_", "error", "field"), BAD.values(), ids=BAD)
async def test_bad_input_is_refused_with_its_field_and_nothing_is_written(
    db: Database, engine: Engine, make: Factory, request_: dict[str, Any], error: type[InvalidError], field: str
) -> None:
    await make.credits(100)
    before = await snapshot(db)
    options = {"kind": "priced", **OWNER} | request_
    with pytest.raises(error) as caught:
        await engine.submit(options.pop("kind"), options.pop("input", None), **options)
    assert caught.value.field == field
    assert caught.value.code
    assert await snapshot(db) == before
    bad: Any = {"kind": "priced", **OWNER} | request_
    (answer,) = await engine.submit_many([bad])
    assert type(answer) is type(caught.value)
    assert await snapshot(db) == before


async def test_the_highest_price_can_be_paid(engine: Engine, make: Factory) -> None:
    await make.credits(PRICE_MAX)
    submitted = await engine.submit("metered", {"units": PRICE_MAX}, **OWNER)
    assert (submitted.price, submitted.available) == (PRICE_MAX, 0)
    await make.serve("metered")
    assert (await make.read(submitted.job_id)).captured == PRICE_MAX
