"""Refunds, priorities, and what is done to many jobs at once."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond import ids, wire
from millpond.api.jobs.jobs import export_line
from millpond.engine.bulk.operations import ACTS
from millpond.engine.credits.ledger import RefundTarget
from millpond.engine.engine import Engine
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    NotFoundError,
    PriorityUnavailableError,
    RefundUnavailableError,
    StorageUnavailableError,
    UnknownKindError,
)
from millpond.services.bulk_runner import BulkRunner
from tests.checks import refused, unchanged, until
from tests.children import spawned
from tests.factories import ACCOUNT, MINUTE, OWNER, STRANGER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.engine.bulk.operations import BulkOperationRecord
    from millpond.engine.jobs.jobs import SubmitRequest
    from millpond.storage.local import Local
    from millpond.store.db import Database
    from tests.factories import Factory

ROOT = Path(__file__).parents[2]
WHY = "the model was wrong"


async def order(engine: Engine, action: str, tenant: str | None = None, **given: Any) -> BulkOperationRecord:
    """Order a bulk operation as an operator of every tenant; what no order says is its filter."""
    said = {
        name: given.pop(name) for name in ("all", "even_if_succeeded", "priority", "format", "reason") if name in given
    }
    key, bound = given.pop("key", None), given.pop("bound", None)
    body = wire.MakeBulkOperation(action=action, filter=wire.JobFilter(tenant=tenant, **given), **said)  # pyright: ignore[reportArgumentType]
    made, _ = await engine.bulk_operations.order(body, tenant=tenant, bound=bound, actor="op", key=key)
    return made


async def done(engine: Engine, action: str, tenant: str | None = None, **given: Any) -> BulkOperationRecord:
    """Order one and see it through."""
    made = await order(engine, action, tenant, **given)
    runner = BulkRunner(engine, export_line)
    await (runner.act() if action in ACTS else runner.read())
    return await engine.bulk_operations.read(made.operation_id)


async def audited(engine: Engine, action: str) -> list[Any]:
    return [entry for entry in await engine.access.list_audit() if entry.action == action]


async def failed(make: Factory, number: int, kind: str = "priced", tenant: str = TENANT) -> list[UUID]:
    """So many jobs that have failed, with credits for each to be run once more."""
    engine = make.engine
    price = engine.app.kinds[kind].price
    cost = number * price if isinstance(price, int) else 0
    await make.credits(cost, tenant=tenant) if cost else None
    requests: list[SubmitRequest] = [{"kind": kind, "input": {}, **OWNER, "tenant": tenant} for _ in range(number)]
    await engine.submit_many(requests)
    leases = await engine.claim(Lanes([kind]), number, worker="w", duration=MINUTE)
    ends = [engine.finish(End(lease, "failed", None, {"code": "boom", "message": "It broke."})) for lease in leases]
    await asyncio.gather(*ends)
    return [lease.job_id for lease in leases]


async def begun(engine: Engine, action: str, seen: dict[UUID, int], **given: Any) -> BulkOperationRecord:
    """Order one of which somebody has begun a batch with these jobs, and was killed."""
    made = await order(engine, action, **given)
    claim = await engine.bulk_operations.take(ACTS, timedelta(seconds=-1))
    assert claim is not None
    await engine.bulk_operations.begin(claim, seen, None, len(seen))
    return made


async def spent(engine: Engine, number: int) -> None:
    """So many jobs fail, and cost something all the same."""
    for lease in await engine.claim(Lanes(["restartable"]), number, worker="w", duration=MINUTE):
        await engine.finish(End(lease, "failed", None, {"code": "boom", "message": "It broke."}, 2))


def counts(operation: BulkOperationRecord) -> tuple[str, int, int, int]:
    return operation.state, operation.matched, operation.done, operation.refused


# Refunds


async def test_a_refund_gives_back_what_a_job_has_cost_and_changes_nothing_else(engine: Engine, make: Factory) -> None:
    job = await make.ended()
    part = await engine.refund(TENANT, job.job_id, amount=2, reason=WHY, actor="op")
    assert (part.amount, part.available, part.is_replay) == (2, 2, False)
    assert (await engine.refund(TENANT, job.job_id, amount=2, reason=WHY, actor="op")).is_replay
    other = await engine.refund(TENANT, job.job_id, amount=1, key="second", reason=WHY, actor="op")
    assert (other.amount, other.available) == (1, 3)
    rest = await engine.refund(TENANT, job.id, reason="all of it", actor="op")
    again = await engine.refund(TENANT, job.id, reason="said otherwise", actor="op")
    assert (rest.amount, rest.available, rest.is_replay) == (2, 5, False)
    assert (again.amount, again.available, again.is_replay, again.at) == (2, 5, True, rest.at)
    assert await make.read(job.job_id) == job
    newest = (await engine.entries(TENANT, ACCOUNT))[0]
    assert (newest.type, newest.available, newest.outside, newest.job_id) == ("adjust", 2, -2, job.job_id)
    assert [entry.data for entry in await audited(engine, "job.refunded")] == [
        {"amount": 2, "reason": "all of it"},
        {"amount": 1, "reason": WHY},
        {"amount": 2, "reason": WHY},
    ]


async def test_no_more_is_given_back_than_was_captured(engine: Engine, make: Factory) -> None:
    job = await make.ended()
    async with refused(engine.db, RefundUnavailableError) as caught:
        await engine.refund(TENANT, job.job_id, amount=6, reason=WHY, actor="op")
    assert caught.value.details == {"captured": 5, "refunded": 0}
    await engine.refund(TENANT, job.job_id, reason=WHY, actor="op")
    async with refused(engine.db, RefundUnavailableError):
        await engine.refund(TENANT, job.job_id, amount=1, reason=WHY, actor="op")
    free, lost = await make.ended("free"), await make.ended("priced", "failed")
    for one in (free, lost):
        async with refused(engine.db, RefundUnavailableError):
            await engine.refund(TENANT, one.job_id, reason=WHY, actor="op")
    running = await make.leased()
    async with refused(engine.db, RefundUnavailableError):
        await engine.refund(TENANT, running.job_id, reason=WHY, actor="op")
    async with refused(engine.db, NotFoundError, field="id"):
        await engine.refund(STRANGER, job.job_id, reason=WHY, actor="op")


async def test_many_refunds_at_once_are_one(engine: Engine, make: Factory) -> None:
    job, split = await make.ended(), await make.ended()
    whole = [engine.refund(TENANT, job.job_id, reason=WHY, actor="op") for _ in range(25)]
    parts = [engine.refund(TENANT, split.job_id, amount=1, key=f"k{n}", reason=WHY, actor="op") for n in range(25)]
    described = await asyncio.gather(*whole, *parts, return_exceptions=True)
    first = [one for one in described[:25] if not isinstance(one, BaseException)]
    given = [one for one in described[25:] if not isinstance(one, BaseException)]
    assert (len(first), sum(not one.is_replay for one in first), {one.amount for one in first}) == (25, 1, {5})
    assert sum(one.amount for one in given) == 5
    assert {type(one) for one in described[25:]} == {type(given[0]), RefundUnavailableError}
    assert (await engine.balance(TENANT, ACCOUNT)).available == 10


@pytest.mark.unsound
async def test_verify_knows_of_refunds_that_cannot_be(engine: Engine, make: Factory) -> None:
    job = await make.ended()
    async with engine.db.transaction() as tx:
        await tx.execute("select millpond.post('adjust', 'acme', 'ann', 6, null, 'too much', $1)", job.job_id)
    (found,) = await engine.verify()
    assert (found.invariant, found.job_id) == ("refunds_fit_what_was_captured", job.job_id)


@pytest.mark.unsound
async def test_what_looks_like_a_refund_is_none(engine: Engine, make: Factory) -> None:
    job = await make.ended()
    async with refused(engine.db, InvalidError, field="reference"):
        await engine.adjust(TENANT, ACCOUNT, 1, reference=f"refund:{job.id}:1", reason="x")
    async with refused(engine.db, InvalidError, field="reference"):
        await engine.grant(TENANT, ACCOUNT, 1, reference="refund:1")
    async with engine.db.transaction() as tx:  # as an earlier version let it be
        await tx.execute("select millpond.post('adjust', 'acme', 'ann', 5, $1, 'x')", f"refund:{job.id}:1")
    async with refused(engine.db, ConflictError, field="amount"):
        await engine.refund(TENANT, job.job_id, reason=WHY, actor="op")
    assert (await engine.refund(TENANT, job.job_id, amount=5, reason=WHY, actor="op")).is_replay is False


# Priorities


async def test_a_priority_changes_the_order_of_claims(engine: Engine, make: Factory) -> None:
    jobs = [(await make.submitted()).job_id for _ in range(4)]
    later = await make.submitted(run_at=datetime.now(UTC) + timedelta(hours=1))
    await engine.prioritize(TENANT, jobs[3], 7)
    await engine.prioritize(TENANT, jobs[0], -7)
    waiting = await engine.prioritize(TENANT, later.job_id, 9)
    assert (waiting.is_changed, waiting.before) == (True, 0)
    assert not (await engine.prioritize(TENANT, later.job_id, 9)).is_changed
    assert await engine.verify() == []
    claimed = [(await make.claimed("free"))[0].job_id for _ in range(4)]
    assert claimed == [jobs[3], jobs[1], jobs[2], jobs[0]]
    listed = [event for event in await engine.events(TENANT, jobs[3]) if event.type == "prioritized"]
    assert [event.data for event in listed] == [{"from": 0, "to": 7}]
    assert (await make.read(jobs[3])).priority == 7
    for lost in (jobs[0], (await make.ended()).job_id):
        async with refused(engine.db, PriorityUnavailableError):
            await engine.prioritize(TENANT, lost, 3)
    async with refused(engine.db, InvalidError, field="priority"):
        await engine.prioritize(TENANT, later.job_id, 101)
    async with refused(engine.db, NotFoundError, field="id"):
        await engine.prioritize(STRANGER, later.job_id, 1)


async def test_a_worker_that_knows_its_place_in_the_line_finds_the_job_that_went_ahead(
    engine: Engine, make: Factory
) -> None:
    lanes = Lanes(["free"])
    jobs = [(await make.submitted()).job_id for _ in range(3)]
    assert (await engine.claim(lanes, 1, worker="w", duration=MINUTE))[0].job_id == jobs[0]
    await engine.prioritize(TENANT, jobs[2], 1)
    lanes.rescan()
    assert (await engine.claim(lanes, 1, worker="w", duration=MINUTE))[0].job_id == jobs[2]


# Bulk operations


async def test_jobs_are_retried_once_each_and_what_that_makes_is_not_met_again(engine: Engine, make: Factory) -> None:
    jobs = await failed(make, 120)
    operation = await done(engine, "retry", kind="priced")
    assert counts(operation) == ("done", 120, 120, 0)
    assert operation.estimate == 120
    assert (operation.examined, operation.finished_at is not None) == (120, True)
    page = await engine.views.jobs(None, phase="ready", limit=200)
    assert {job.retry_of for job in page.data} == set(jobs)
    assert len(page.data) == 120
    (ordered,) = await audited(engine, "bulk.ordered")
    assert (ordered.subject, ordered.data["action"], ordered.data["filter"]["kind"]) == (
        operation.id,
        "retry",
        "priced",
    )
    (finished,) = await audited(engine, "bulk.finished")
    assert finished.data == {"state": "done", "examined": 120, "matched": 120, "done": 120, "refused": 0}


async def test_jobs_that_succeeded_are_retried_only_on_purpose(engine: Engine, make: Factory) -> None:
    await failed(make, 2)
    await make.ended("free")
    operation = await done(engine, "retry", all=True)
    assert counts(operation) == ("done", 3, 2, 1)
    assert [(refusal.code, refusal.message) for refusal in operation.refusals] == [
        ("retry_unavailable", "The job has succeeded.")
    ]
    operation = await done(engine, "retry", outcome="succeeded", even_if_succeeded=True)
    assert counts(operation) == ("done", 1, 1, 0)
    assert operation.arguments == {"even_if_succeeded": True}


async def test_refusals_are_reported_by_their_reason(engine: Engine, make: Factory) -> None:
    await failed(make, 3)
    await make.submitted("free")
    await engine.adjust(TENANT, ACCOUNT, -9, reason="so that one can be paid")
    operation = await done(engine, "retry", TENANT)
    assert counts(operation) == ("done", 4, 1, 3)
    by_code = {refusal.code: refusal for refusal in operation.refusals}
    assert {code: refusal.count for code, refusal in by_code.items()} == {
        "insufficient_credits": 2,
        "retry_unavailable": 1,
    }
    assert by_code["insufficient_credits"].sample.startswith("job_")


async def test_each_action_does_what_the_single_verb_does(engine: Engine, make: Factory) -> None:
    ready = [(await make.submitted("free")).job_id for _ in range(3)]
    operation = await done(engine, "priority", phase="ready", priority=5)
    assert counts(operation) == ("done", 3, 3, 0)
    assert {(await make.read(job_id)).priority for job_id in ready} == {5}
    assert len(await audited(engine, "job.prioritized")) == 3
    leased = await make.leased("staged")
    operation = await done(engine, "cancel", kind="*", all=True)
    assert counts(operation) == ("done", 4, 4, 0)
    assert {(await make.read(job_id)).outcome for job_id in ready} == {"canceled"}
    assert (await make.read(leased.job_id)).cancel_requested_at is not None
    paid = [await make.ended() for _ in range(2)]
    before = await engine.refund(TENANT, paid[0].job_id, reason="by hand", actor="op")
    operation = await done(engine, "refund", outcome="succeeded", reason=WHY)
    assert counts(operation) == ("done", 2, 1, 1)
    assert [(refusal.code, refusal.sample) for refusal in operation.refusals] == [("refund_unavailable", paid[0].id)]
    assert (await engine.balance(TENANT, ACCOUNT)).available == before.available + 5


async def test_jobs_that_are_retried_in_place_are_retried_once(engine: Engine, make: Factory) -> None:
    (job_id,) = await failed(make, 1, "restartable")
    await make.credits(10)
    made = await begun(engine, "retry", {job_id: 1}, kind="restartable")
    await engine.retry(TENANT, job_id)  # and there it was killed
    await BulkRunner(engine, export_line).act()
    assert counts(await engine.bulk_operations.read(made.operation_id)) == ("done", 1, 1, 0)
    assert (await make.read(job_id)).run == 2


async def test_what_was_retried_is_not_retried_by_another_bulk_operation(engine: Engine, make: Factory) -> None:
    jobs = await failed(make, 2)
    for retried, again in (2, 0), (0, 2), (0, 2):
        operation = await done(engine, "retry", ids=[ids.text("job", job_id) for job_id in jobs])
        assert counts(operation) == ("done", 2, retried, again)
    assert [(refusal.code, refusal.count) for refusal in operation.refusals] == [("retried", 2)]
    page = await engine.views.jobs(None, phase="ready")
    assert {job.retry_of for job in page.data} == set(jobs)
    assert len(page.data) == 2
    leases = await make.claimed("priced", want=2)
    for lease in leases:
        await engine.finish(End(lease, "failed", None, {"code": "boom", "message": "It broke."}))
    operation = await done(engine, "retry", outcome="failed")
    assert counts(operation) == ("done", 4, 2, 2)


async def test_what_was_done_before_a_kill_is_counted_by_who_takes_over(engine: Engine, make: Factory) -> None:
    jobs = [await make.ended() for _ in range(2)]
    ready = [(await make.submitted("free")).job_id for _ in range(2)]
    for action, job_ids, given in (
        ("refund", [job.job_id for job in jobs], {"outcome": "succeeded", "reason": WHY}),
        ("cancel", ready, {"phase": "ready"}),
    ):
        made = await begun(engine, action, dict.fromkeys(job_ids, int(action == "refund")), **given)
        if action == "refund":
            await engine.refund(TENANT, job_ids[0], reason=WHY, actor="op", seen=RefundTarget(made.id, 1))
        else:
            await engine.cancel(TENANT, job_ids[0])
        await BulkRunner(engine, export_line).act()
        assert counts(await engine.bulk_operations.read(made.operation_id)) == ("done", 2, 2, 0)
    assert (await engine.balance(TENANT, ACCOUNT)).available == 10


async def test_who_takes_over_leaves_jobs_alone_that_fit_no_more(engine: Engine, make: Factory) -> None:
    ready = [(await make.submitted("free")).job_id for _ in range(3)]
    made = await begun(engine, "cancel", dict.fromkeys(ready, 0), phase="ready")
    held = await make.claimed("free", want=2)
    await BulkRunner(engine, export_line).act()
    response = await engine.bulk_operations.read(made.operation_id)
    assert counts(response) == ("done", 3, 1, 2)
    assert [(refusal.code, refusal.count) for refusal in response.refusals] == [("changed", 2)]
    assert {(await make.read(lease.job_id)).cancel_requested_at for lease in held} == {None}


async def test_a_run_that_a_bulk_operation_has_not_seen_is_not_refunded_by_it(engine: Engine, make: Factory) -> None:
    await make.credits(20)
    jobs = [(await engine.submit("restartable", {}, **OWNER)).job_id for _ in range(3)]
    await spent(engine, 3)
    made = await begun(engine, "refund", dict.fromkeys(jobs, 1), kind="restartable", reason=WHY)
    await engine.refund(TENANT, jobs[0], reason=WHY, actor="op", seen=RefundTarget(made.id, 1))
    for job_id in jobs[:2]:
        await engine.retry(TENANT, job_id)
    await spent(engine, 2)
    before = (await engine.balance(TENANT, ACCOUNT)).available
    await BulkRunner(engine, export_line).act()
    response = await engine.bulk_operations.read(made.operation_id)
    assert counts(response) == ("done", 3, 2, 1)
    assert [(refusal.code, refusal.sample) for refusal in response.refusals] == [("changed", ids.text("job", jobs[1]))]
    assert (await engine.balance(TENANT, ACCOUNT)).available == before + 2
    async with refused(engine.db, RefundUnavailableError):
        await engine.refund(TENANT, jobs[1], reason=WHY, actor="op", seen=RefundTarget(made.id, 1))


async def test_ten_thousand_jobs_are_canceled_until_that_is_aborted(engine: Engine) -> None:
    await engine.submit_many([{"kind": "free", "input": {}, **OWNER} for _ in range(10_000)])
    made = await order(engine, "cancel", kind="free")
    assert made.estimate == 10_000
    acting = asyncio.create_task(BulkRunner(engine, export_line, batch=20).act())

    async def has_begun() -> bool:
        return (await engine.bulk_operations.read(made.operation_id)).done >= 40

    await until(has_begun)
    aborting = await engine.bulk_operations.abort(made.operation_id, actor="other")
    assert aborting.is_aborting
    await acting
    operation = await engine.bulk_operations.read(made.operation_id)
    assert operation.state == "aborted"
    assert 40 <= operation.done < 10_000
    async with engine.db.transaction() as tx:
        canceled = await tx.fetchval("select count(*) from millpond.jobs where outcome = 'canceled'")
    assert canceled == operation.done
    assert [entry.actor for entry in await audited(engine, "bulk.aborted")] == ["other"]
    assert (await engine.bulk_operations.abort(made.operation_id, actor="other")).state == "aborted"


async def test_a_bulk_runner_that_is_killed_is_taken_over_and_nothing_is_done_twice(
    engine: Engine, make: Factory, dsn: str
) -> None:
    jobs = await failed(make, 150)
    made = await order(engine, "retry", outcome="failed")
    async with spawned(sys.executable, "-c", _BULK_RUNNER, dsn, cwd=ROOT) as process:
        assert await process.wait() == -signal.SIGKILL
    taken = await engine.bulk_operations.read(made.operation_id)
    assert taken.state == "running"
    assert taken.done < 150

    async def is_over() -> bool:
        await BulkRunner(engine, export_line).act()
        return (await engine.bulk_operations.read(made.operation_id)).finished_at is not None

    await until(is_over)
    assert counts(await engine.bulk_operations.read(made.operation_id)) == ("done", 150, 150, 0)
    async with engine.db.transaction() as tx:
        retried = await tx.fetch("select retry_of from millpond.jobs where retry_of is not null")
    assert sorted(row["retry_of"] for row in retried) == sorted(jobs)
    assert (await engine.balance(TENANT, ACCOUNT)).held == 150 * 5


_BULK_RUNNER = """
import asyncio, os, signal, sys
from datetime import timedelta
from millpond import lifeline
from millpond.api.jobs.jobs import export_line
from millpond.engine.engine import Engine
from millpond.services.bulk_runner import BulkRunner
from millpond.store.db import Database
from tests.product import app

async def main():
    lifeline.stop_with_parent()
    engine = Engine(await Database.open(sys.argv[1], size=4), app)
    retry, left = engine.retry, list(range(30))

    async def retry_and_die(*given, **more):
        left.pop()
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return await retry(*given, **more)

    engine.retry = retry_and_die
    await BulkRunner(engine, export_line, lease=timedelta(seconds=1)).act()

asyncio.run(main())
"""


async def test_bulk_operations_take_turns(engine: Engine, make: Factory) -> None:
    for _ in range(6):
        await make.submitted("free")
        await make.submitted("fair")
    first, second = await order(engine, "cancel", kind="free"), await order(engine, "cancel", kind="fair")
    turns: list[str] = []
    take = engine.bulk_operations.take

    async def taking(*given: Any) -> Any:
        claim = await take(*given)
        turns.extend([] if claim is None else [claim.operation.id])
        return claim

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.bulk_operations, "take", taking)
        await BulkRunner(engine, export_line, batch=2).act()
    assert turns[:4] == [first.id, second.id, first.id, second.id]
    assert {(await engine.bulk_operations.read(one)).done for one in (first.id, second.id)} == {6}


async def test_a_tenant_s_bulk_operation_meets_that_tenant_s_jobs_alone(engine: Engine, make: Factory) -> None:
    await engine.submit("free", tenant=STRANGER, account=ACCOUNT)
    own = await make.submitted("free")
    theirs = await engine.submit("free", tenant=STRANGER, account="bob")
    operation = await done(engine, "cancel", TENANT, bound=TENANT, ids=[own.id, theirs.id])
    assert counts(operation) == ("done", 1, 1, 0)
    assert (await engine.read(STRANGER, theirs.job_id)).outcome is None
    with pytest.raises(NotFoundError):
        await engine.bulk_operations.read(operation.operation_id, tenant=STRANGER)
    with pytest.raises(NotFoundError):
        await engine.bulk_operations.abort(operation.operation_id, tenant=STRANGER, actor="them")
    assert await engine.bulk_operations.list_operations(tenant=STRANGER) == []


@pytest.mark.parametrize(
    ("action", "given", "error", "field"),
    [
        ("cancel", {}, InvalidError, "filter"),
        ("retry", {}, InvalidError, "filter"),
        ("cancel", {"kind": "free", "even_if_succeeded": True}, InvalidError, "even_if_succeeded"),
        ("refund", {"reason": WHY}, InvalidError, "filter"),
        ("cancel", {"tenant": TENANT, "bound": TENANT}, InvalidError, "filter"),
        ("refund", {"kind": "priced"}, InvalidError, "reason"),
        ("priority", {"kind": "priced"}, InvalidError, "priority"),
        ("priority", {"kind": "priced", "priority": 101}, InvalidError, "priority"),
        ("cancel", {"kind": "priced", "priority": 1}, InvalidError, "priority"),
        ("cancel", {"kind": "priced", "format": "csv"}, InvalidError, "format"),
        ("cancel", {"kind": "never"}, UnknownKindError, "filter.kind"),
        ("cancel", {"ids": ["job_x"]}, InvalidError, "filter.ids"),
        ("export", {"since": "ever"}, InvalidError, "filter.since"),
        ("verify", {"kind": "priced"}, InvalidError, "filter.kind"),
    ],
)
async def test_an_order_that_cannot_be_meant_is_refused(
    engine: Engine, action: str, given: dict[str, Any], error: type[InvalidError], field: str
) -> None:
    async with refused(engine.db, error, field=field):
        await order(engine, action, **given)


async def test_nothing_that_fits_is_done_with_nothing(engine: Engine) -> None:
    operation = await done(engine, "cancel", kind="staged")
    assert counts(operation) == ("done", 0, 0, 0)
    assert (operation.estimate, operation.refusals) == (0, [])
    with pytest.raises(ConflictError):
        await engine.bulk_operations.abort(operation.operation_id, actor="op")


async def test_one_that_nobody_has_begun_is_aborted_at_once(engine: Engine, make: Factory) -> None:
    await make.submitted("free")
    made = await order(engine, "cancel", kind="free")
    assert (await engine.bulk_operations.abort(made.operation_id, actor="op")).state == "aborted"
    assert await BulkRunner(engine, export_line).act() == 0


async def test_a_key_orders_it_once(engine: Engine) -> None:
    first = await order(engine, "cancel", kind="free", since="1h", key="k")
    async with unchanged(engine.db):
        assert await order(engine, "cancel", kind="free", since="1h", key="k") == first
        with pytest.raises(IdempotencyConflictError):
            await order(engine, "retry", kind="free", since="1h", key="k")


async def test_a_preview_counts_and_changes_nothing(engine: Engine, make: Factory) -> None:
    await failed(make, 7)
    async with unchanged(engine.db):
        response = await engine.bulk_operations.preview(wire.JobFilter(outcome="failed"), tenant=None)
    assert (response.matched, response.is_capped, response.searched_to, len(response.sample)) == (7, False, None, 5)


# Exports and verifications


async def lines_of(engine: Engine, files: Local, operation: BulkOperationRecord) -> bytes:
    signed = engine.bulk_operations.url(operation)
    assert signed is not None
    assert "bulk/" in signed.url
    return await files.read(f"bulk/{operation.id}.{operation.arguments['format']}")


async def test_an_export_holds_every_job_as_it_is_read(engine: Engine, make: Factory, files: Local) -> None:
    jobs = [(await make.ended("priced")).job_id, *await failed(make, 3)]
    await engine.submit("free", {"text": 'a "quoted"\nline, and — more'}, tenant=STRANGER, account="bob")
    operation = await done(engine, "export", TENANT)
    assert operation.result is not None
    rows = [json.loads(line) for line in (await lines_of(engine, files, operation)).splitlines()]
    assert [row["id"] for row in rows] == [ids.text("job", job_id) for job_id in sorted(jobs, reverse=True)]
    assert counts(operation) == ("done", 4, 4, 0)
    assert (operation.result["rows"], operation.result["name"].endswith(".ndjson")) == (4, True)
    for row in rows:
        job = await engine.read(TENANT, row["id"])
        assert (row["input"], row["output"], row["error"], row["state"]) == (
            job.input,
            job.output,
            job.error,
            job.state,
        )


async def test_a_table_is_quoted_and_holds_no_formula(engine: Engine, make: Factory, files: Local) -> None:
    bad = '=HYPERLINK("http://evil", "x"),\r\n@SUM(1)'
    lease = await make.leased("priced", priority=-5)
    await engine.finish(End(lease, "failed", None, {"code": "+boom", "message": bad}))
    operation = await done(engine, "export", TENANT, format="csv")
    text = (await lines_of(engine, files, operation)).decode()
    head, row = csv.reader(io.StringIO(text, newline=""))
    read = dict(zip(head, row, strict=True))
    assert head == list(wire.JobSummary.__struct_fields__)
    assert (read["error_message"], read["error_code"]) == ("'" + bad, "'+boom")
    assert (read["priority"], read["captured"], read["worker"], read["is_canceling"]) == ("-5", "0", "", "false")


async def test_a_file_is_removed_after_a_week_and_a_bulk_operation_with_the_history(
    engine: Engine, make: Factory, files: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make.submitted("free")
    operation = await done(engine, "export", TENANT)
    assert await engine.bulk_operations.prune(timedelta(days=90)) == 0
    monkeypatch.setattr("millpond.engine.bulk.operations.FILE_KEPT", timedelta(0))
    assert await engine.bulk_operations.prune(timedelta(days=90)) == 1
    assert await files.head(f"bulk/{operation.id}.ndjson") is None
    after = await engine.bulk_operations.read(operation.operation_id)
    assert engine.bulk_operations.url(after) is None
    assert await engine.bulk_operations.prune(timedelta(0)) == 1
    assert await engine.bulk_operations.list_operations() == []


async def test_an_export_that_is_too_large_fails_and_leaves_no_file(
    engine: Engine, make: Factory, files: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make.submitted("free")
    monkeypatch.setattr(sys.modules[BulkRunner.__module__], "SIZE_MAX", 1)
    operation = await done(engine, "export", TENANT)
    assert (operation.state, (operation.error or {})["code"], engine.bulk_operations.url(operation)) == (
        "failed",
        "too_large",
        None,
    )
    assert await files.head(f"bulk/{operation.id}.ndjson") is None


async def test_without_storage_nothing_is_exported(db: Database) -> None:
    async with refused(db, StorageUnavailableError):
        await order(Engine(db, app), "export", TENANT)


async def test_a_verification_is_kept_with_what_it_found(engine: Engine, make: Factory) -> None:
    await make.ended()
    operation = await done(engine, "verify")
    assert (operation.state, operation.result) == ("done", {"ok": True, "violations": []})


@pytest.mark.unsound
async def test_a_violation_is_reported(engine: Engine, make: Factory) -> None:
    job = await make.submitted()
    async with engine.db.transaction() as tx:
        await tx.execute("delete from millpond.ready")
    operation = await done(engine, "verify", since="1h")
    assert operation.result is not None
    assert operation.result["ok"] is False
    assert operation.result["violations"][0]["job_id"] == job.id
