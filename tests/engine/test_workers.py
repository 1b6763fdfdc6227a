"""The fleet: who may come, who is given what, and what a worker may do with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond.engine.access.access import Principal
from millpond.engine.engine import Engine
from millpond.engine.fleet.workers import FleetSettings, WorkerRecord, shortened
from millpond.errors import (
    FleetFullError,
    ForbiddenError,
    InputError,
    InvalidError,
    LeaseLostError,
    NotFoundError,
    UnauthorizedError,
    UnknownRouteError,
    WorkerAliveError,
    WorkerRevokedError,
    WorkerUnapprovedError,
)
from millpond.scaling import Policy
from millpond.services import notifier
from millpond.services.expirer import expirer
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from millpond.store.db import Database
from millpond.wire import WorkerNote
from tests.factories import ERROR, HOUR, MINUTE, TENANT
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from uuid import UUID

    from millpond.engine.queue.leases import Lease
    from tests.clocks import Clock
    from tests.factories import Factory

FLEET = Principal("worker", None, None, "key_fleet")
KIND = "filmed"
SILENCE = timedelta(seconds=61)


@dataclass(slots=True)
class RemoteWorker:
    """A worker of the fleet in a test's hand."""

    engine: Engine
    record: WorkerRecord
    token: str

    async def poll(self, want: int = 1, wait: float = 0) -> list[Lease]:
        return await self.engine.workers.poll(await self.known(), want, wait)

    async def known(self) -> WorkerRecord:
        return await self.engine.workers.authenticate(self.token)


async def joined(engine: Engine, worker: str = "w1", **options: Any) -> RemoteWorker:
    if not isinstance(engine.notifier, Notifier):
        Notifier(engine)
    given = {"routes": [KIND], "fleet": FLEET, "address": "10.0.0.1"} | options
    return RemoteWorker(engine, *await engine.workers.register(worker=worker, **given))


async def audited(engine: Engine, action: str) -> list[Any]:
    return [entry for entry in await engine.access.list_audit(limit=1_000) if entry.action == action]


@asynccontextmanager
async def another(db: Database) -> AsyncIterator[Engine]:
    """Another process on the same database; both receive notifications."""
    other = Engine(await Database.open(db.dsn, size=3), app)
    try:
        yield other
    finally:
        await other.close()


# Coming in


async def test_a_worker_is_given_a_token_that_is_kept_nowhere(engine: Engine, db: Database) -> None:
    remote_worker = await joined(engine, slots=2, capabilities={"gpu": "L4"})
    assert len(remote_worker.token) == 64
    assert remote_worker.token.startswith("mpw_")
    assert await remote_worker.known() == remote_worker.record
    async with db.transaction() as tx:
        whole = await tx.fetchval("select w::text from millpond.workers w")
    assert remote_worker.token not in whole
    view = await engine.workers.get(remote_worker.record.id)
    assert (view.worker, view.slots, view.capabilities, view.address) == ("w1", 2, {"gpu": "L4"}, "10.0.0.1")
    (entry,) = await audited(engine, "worker.registered")
    assert (entry.actor, entry.subject) == (FLEET.actor, remote_worker.record.id)
    assert entry.data["address"] == "10.0.0.1"
    assert entry.data["routes"] == [KIND]


@pytest.mark.parametrize("route", ["free", "nowhere"], ids=["of-workers-beside-the-database", "unknown"])
async def test_a_route_must_be_one_of_the_fleet(engine: Engine, route: str) -> None:
    with pytest.raises(UnknownRouteError) as refused:
        await joined(engine, routes=[KIND, route])
    assert refused.value.field == "routes[1]"


async def test_a_route_may_be_opened(engine: Engine, make: Factory) -> None:
    await engine.workers.open_route(f"{KIND}:invert")
    remote_worker = await joined(engine, routes=[f"{KIND}:invert"])
    elsewhere = await make.submitted(KIND)
    here = await make.submitted(KIND, route=f"{KIND}:invert")
    assert [lease.job_id for lease in await remote_worker.poll(10)] == [here.job_id]
    assert (await make.read(elsewhere.job_id)).phase == "ready"


async def test_a_job_goes_to_no_route_that_is_not_its_kinds_own(make: Factory) -> None:
    for kind, route in (("free", "free:fast"), (KIND, "free"), (KIND, f"{KIND}er")):
        with pytest.raises(UnknownRouteError):
            await make.submitted(kind, route=route)


async def test_a_fleet_is_not_one_tenants(engine: Engine) -> None:
    with pytest.raises(ForbiddenError, match="one tenant"):
        await joined(engine, fleet=Principal("worker", TENANT, None, "key_x"))


async def test_a_name_is_one_workers_while_that_one_lives(engine: Engine, clock: Clock) -> None:
    await joined(engine)
    with pytest.raises(WorkerAliveError) as refused:
        await joined(engine)
    assert 0 < refused.value.details["retry_after"] <= 61
    await clock.advance(timedelta(seconds=30))
    with pytest.raises(WorkerAliveError):
        await joined(engine)


async def test_one_that_comes_back_replaces_its_silent_self(engine: Engine, make: Factory, clock: Clock) -> None:
    old = await joined(engine)
    await make.submitted(KIND)
    (lease,) = await old.poll()
    await clock.advance(SILENCE)
    new = await joined(engine)
    assert new.record.id != old.record.id
    with pytest.raises(UnauthorizedError):
        await old.known()
    job = await make.read(lease.job_id)
    assert (job.phase, job.attempts) == ("ready", 0)
    with pytest.raises(LeaseLostError):
        await engine.workers.complete(old.record, lease.job_id, lease.token, {})
    (again,) = await new.poll()
    assert (again.job_id, again.epoch) == (lease.job_id, 2)
    assert (await audited(engine, "worker.registered"))[0].data["replaces"] == old.record.id


async def test_the_fleet_has_a_cap_and_the_silent_do_not_count(engine: Engine, clock: Clock) -> None:
    engine.workers.settings = FleetSettings(workers_max=2)
    await joined(engine, "a")
    await joined(engine, "b")
    with pytest.raises(FleetFullError) as full:
        await joined(engine, "c")
    assert full.value.details["limit"] == 2
    await clock.advance(SILENCE)
    await joined(engine, "c")


async def test_the_cap_holds_when_all_come_at_once(engine: Engine) -> None:
    engine.workers.settings = FleetSettings(workers_max=3)
    came = await asyncio.gather(*(joined(engine, f"w{n}") for n in range(8)), return_exceptions=True)
    assert sum(isinstance(one, RemoteWorker) for one in came) == 3
    assert {type(one) for one in came} == {RemoteWorker, FleetFullError}


async def test_one_that_must_be_approved_waits_until_it_is(engine: Engine, make: Factory) -> None:
    engine.workers.settings = FleetSettings(is_open=False)
    remote_worker = await joined(engine)
    assert not remote_worker.record.is_approved
    with pytest.raises(WorkerUnapprovedError):
        await remote_worker.known()
    await make.submitted(KIND)
    assert await engine.workers.poll(remote_worker.record, 1, 0) == []
    await engine.workers.approve(remote_worker.record.id, actor="key_op")
    assert len(await remote_worker.poll()) == 1


@pytest.mark.parametrize(
    "token",
    ["", "mpw_", "mp_worker_x", "mpw_" + "A" * 60, "mpw_" + "A" * 5_000, "mpw_\0" + "A" * 59],
    ids=["empty", "prefix", "key", "bad-checksum", "endless", "nul"],
)
async def test_what_is_no_token_is_refused_without_a_query(engine: Engine, token: str) -> None:
    with pytest.raises(UnauthorizedError, match="malformed or incomplete"):
        await engine.workers.authenticate(token)


# Getting jobs


async def test_a_worker_holds_no_more_than_it_has_slots(engine: Engine, make: Factory) -> None:
    remote_worker = await joined(engine, slots=2)
    for _ in range(5):
        await make.submitted(KIND)
    first, second = await asyncio.gather(remote_worker.poll(2), remote_worker.poll(2))
    leases = first + second
    assert len(leases) == 2
    assert await remote_worker.poll(5) == []
    await engine.workers.requeue(remote_worker.record, leases[0].job_id, leases[0].token, "it is late")
    assert len(await remote_worker.poll(5)) == 1


async def test_slots_hold_across_processes(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker = await joined(engine, slots=3)
    for _ in range(10):
        await make.submitted(KIND)
    async with another(db) as other:
        polls = [remote_worker.poll(3), other.workers.poll(remote_worker.record, 3, 0), remote_worker.poll(3)]
        assert sum(map(len, await asyncio.gather(*polls))) == 3


async def test_many_polls_share_a_claim_and_each_gets_its_own(engine: Engine, make: Factory) -> None:
    remote_workers = [await joined(engine, f"w{n}", slots=3) for n in range(10)]
    jobs = {(await make.submitted(KIND)).job_id for _ in range(12)}
    given = await asyncio.gather(*(remote_worker.poll(2) for remote_worker in remote_workers))
    leased = [lease for leases in given for lease in leases]
    assert {lease.job_id for lease in leased} == jobs
    assert len(leased) == 12
    for remote_worker, leases in zip(remote_workers, given, strict=True):
        pulse = await engine.workers.heartbeat(remote_worker.record, [(lease.job_id, lease.token) for lease in leases])
        assert not pulse.lost


async def test_a_poll_waits_for_a_notification(engine: Engine, make: Factory) -> None:
    remote_workers = [await joined(engine, f"w{n}") for n in range(3)]
    waiting = [asyncio.create_task(remote_worker.poll(wait=20)) for remote_worker in remote_workers]
    await asyncio.sleep(0)
    jobs = {(await make.submitted(KIND)).job_id for _ in range(3)}
    async with asyncio.timeout(PATIENCE):
        given = await asyncio.gather(*waiting)
    assert {lease.job_id for leases in given for lease in leases} == jobs


async def test_a_poll_that_finds_nothing_ends_when_its_time_is_up(engine: Engine) -> None:
    remote_worker = await joined(engine)
    assert await remote_worker.poll(wait=0.05) == []


async def test_whoever_stops_waiting_is_given_nothing(engine: Engine, make: Factory) -> None:
    remote_worker, other = await joined(engine), await joined(engine, "w2")
    gone = asyncio.create_task(remote_worker.poll(wait=20))
    staying = asyncio.create_task(other.poll(wait=20))
    while not engine.workers.waiting:
        await asyncio.sleep(0.001)
    gone.cancel()
    job = await make.submitted(KIND)
    async with asyncio.timeout(PATIENCE):
        assert [lease.job_id for lease in await staying] == [job.job_id]
    view = await engine.workers.get(remote_worker.record.id)
    assert view.jobs == 0


async def test_what_was_on_its_way_to_one_that_has_gone_goes_back(engine: Engine, make: Factory) -> None:
    remote_worker = await joined(engine)
    job = await make.submitted(KIND)
    poll = asyncio.create_task(remote_worker.poll(wait=5))
    while not engine.workers.waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # its claim is under way
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    async with asyncio.timeout(PATIENCE):
        while (await make.read(job.job_id)).phase != "ready" or (
            await engine.workers.get(remote_worker.record.id)
        ).leases:
            await asyncio.sleep(0.005)
    assert (await make.read(job.job_id)).attempts == 0


async def test_one_that_drains_keeps_what_it_has_and_gets_no_more(engine: Engine, make: Factory) -> None:
    remote_worker = await joined(engine, slots=5)
    await make.submitted(KIND)
    (lease,) = await remote_worker.poll()
    await make.submitted(KIND)
    drained = await engine.workers.drain(remote_worker.record.id, actor="key_op")
    assert drained.status == "draining"
    assert await remote_worker.poll(5) == []
    assert await engine.workers.poll(remote_worker.record, 5, 0) == []  # as one that has not heard of it yet
    pulse = await engine.workers.heartbeat(await remote_worker.known(), [(lease.job_id, lease.token)])
    assert pulse.is_draining
    assert not pulse.lost
    await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, {})
    await engine.workers.resume(remote_worker.record.id, actor="key_op")
    assert len(await remote_worker.poll(5)) == 1


async def test_one_that_is_bound_elsewhere_is_woken(engine: Engine, make: Factory) -> None:
    await engine.workers.open_route(f"{KIND}:other")
    remote_worker = await joined(engine)
    waiting = asyncio.create_task(remote_worker.poll(wait=20))
    while not engine.workers.waiting:
        await asyncio.sleep(0.001)
    await engine.workers.assign(remote_worker.record.id, [f"{KIND}:other"], actor="key_op")
    async with asyncio.timeout(PATIENCE):
        assert await waiting == []
    await make.submitted(KIND)
    assert await remote_worker.poll() == []
    assert (await remote_worker.known()).routes == (f"{KIND}:other",)


async def test_workers_beside_the_database_leave_the_fleets_jobs_alone(engine: Engine, make: Factory) -> None:
    await make.submitted(KIND)
    source = engine.source()
    await source.open(app, 1, _Ears())
    assert KIND not in source.queues
    assert "free" in source.queues


# Doing them


async def held(engine: Engine, make: Factory, **options: Any) -> tuple[RemoteWorker, Lease]:
    remote_worker = await joined(engine, **options)
    await make.submitted(KIND)
    (lease,) = await remote_worker.poll()
    return remote_worker, lease


async def test_a_job_is_completed_once_and_reported_again(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker, lease = await held(engine, make)
    workers = engine.workers
    state = await workers.complete(
        remote_worker.record, lease.job_id, lease.token, {"n": 1}, captured=2, address="10.9.9.9"
    )
    assert state == "succeeded"
    assert await workers.complete(remote_worker.record, lease.job_id, lease.token, {"n": 2}) == "succeeded"
    async with another(db) as other:
        assert await other.workers.complete(remote_worker.record, lease.job_id, lease.token, {"n": 3}) == "succeeded"
        with pytest.raises(LeaseLostError):
            await other.workers.fail(remote_worker.record, lease.job_id, lease.token, ERROR)
    job = await make.read(lease.job_id)
    assert (job.output, job.captured) == ({"n": 1}, 2)
    (entry,) = await audited(engine, "job.completed")
    assert (entry.actor, entry.subject, entry.tenant) == (remote_worker.record.id, job.id, TENANT)
    assert entry.data["address"] == "10.9.9.9"
    (leased,) = await audited(engine, "job.leased")
    assert (leased.actor, leased.subject, leased.data["route"]) == (remote_worker.record.id, job.id, KIND)


async def test_what_workers_beside_the_database_do_is_not_audited(engine: Engine, make: Factory) -> None:
    await make.ended()
    assert await engine.access.list_audit() == []


async def test_another_process_knows_a_lease_too(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker, lease = await held(engine, make)
    async with another(db) as other:
        found = await other.workers.lease(remote_worker.record, lease.job_id, lease.token)
        assert (found.job_id, found.epoch, found.price) == (lease.job_id, lease.epoch, lease.price)
        assert not await other.workers.note(remote_worker.record, lease.job_id, lease.token, [_log(1, "from there")])
        assert await other.workers.complete(remote_worker.record, lease.job_id, lease.token, {}) == "succeeded"


VERBS = ("note", "complete", "fail", "retry", "requeue", "park", "lease")


async def act(engine: Engine, verb: str, worker: WorkerRecord, job_id: UUID, token: UUID) -> Any:
    workers, key = engine.workers, (worker, job_id, token)
    acts = {
        "note": lambda: workers.note(*key, [_log(1, "still here")]),
        "complete": lambda: workers.complete(*key, {}),
        "fail": lambda: workers.fail(*key, ERROR),
        "retry": lambda: workers.fail(*key, ERROR, retry=True),
        "requeue": lambda: workers.requeue(*key, "late"),
        "park": lambda: workers.park(*key, {}),
        "lease": lambda: workers.lease(*key),
    }
    return await acts[verb]()


@pytest.mark.parametrize("verb", VERBS)
async def test_no_write_goes_past_the_fence(engine: Engine, make: Factory, clock: Clock, verb: str) -> None:
    """Another worker's lease, another job's, one that ran out, one that was given back: nothing is written."""
    remote_worker, lease = await held(engine, make, slots=2)
    other = await joined(engine, "w2")
    await make.submitted(KIND)
    (theirs,) = await other.poll()
    before = await make.read(lease.job_id)
    wrong = [
        (other.record, lease.job_id, lease.token),
        (remote_worker.record, lease.job_id, theirs.token),
        (remote_worker.record, theirs.job_id, lease.token),
        (remote_worker.record, lease.job_id, uuid4()),
        (remote_worker.record, uuid4(), uuid4()),
    ]
    for worker, job_id, token in wrong:
        with pytest.raises(LeaseLostError):
            await act(engine, verb, worker, job_id, token)
    assert await make.read(lease.job_id) == before
    await clock.advance(timedelta(seconds=901))
    with pytest.raises(LeaseLostError):
        await act(engine, verb, remote_worker.record, lease.job_id, lease.token)
    assert await make.read(lease.job_id) == before
    await reaper(engine).run_once()
    for _ in range(2):
        await other.poll()
    with pytest.raises(LeaseLostError):
        await act(engine, verb, remote_worker.record, lease.job_id, lease.token)


async def test_a_late_complete_of_a_requeued_job_changes_nothing(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    await engine.workers.requeue(remote_worker.record, lease.job_id, lease.token, "spot")
    (again,) = await remote_worker.poll()
    assert again.token != lease.token
    await engine.workers.complete(remote_worker.record, again.job_id, again.token, {"by": "second"})
    with pytest.raises(LeaseLostError):
        await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, {"by": "first"})
    assert (await make.read(lease.job_id)).output == {"by": "second"}


async def test_a_requeue_is_an_interruption(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    assert await engine.workers.requeue(remote_worker.record, lease.job_id, lease.token, "spot") == "requeued"
    job = await make.read(lease.job_id)
    assert (job.phase, job.attempts) == ("ready", 0)
    assert job.error["message"] == "Requeued: spot"
    (entry,) = await audited(engine, "job.requeued")
    assert entry.data["cause"] == "interruption"


async def test_another_attempt_waits_as_long_as_the_worker_says(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    fate = await engine.workers.fail(remote_worker.record, lease.job_id, lease.token, ERROR, retry=True, retry_after=60)
    job = await make.read(lease.job_id)
    assert (fate, job.phase, job.attempts) == ("requeued", "waiting", 1)


@pytest.mark.parametrize("outcome", ["failed", "blocked", "canceled"])
async def test_a_job_fails_as_its_worker_says(engine: Engine, make: Factory, outcome: Any) -> None:
    remote_worker, lease = await held(engine, make)
    assert await engine.workers.fail(remote_worker.record, lease.job_id, lease.token, ERROR, outcome=outcome) == outcome
    assert await engine.workers.fail(remote_worker.record, lease.job_id, lease.token, ERROR, outcome=outcome) == outcome
    job = await make.read(lease.job_id)
    assert (job.outcome, job.error["message"], job.captured) == (outcome, ERROR["message"], 0)
    assert len(await audited(engine, "job.failed")) == 1


async def test_no_more_than_the_price_is_captured(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    with pytest.raises(InvalidError) as refused:
        await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, {}, captured=6)
    assert refused.value.field == "captured"
    assert (await make.read(lease.job_id)).phase == "leased"


async def test_notes_are_written_once_and_shortened(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    notes = [
        WorkerNote(number=1, type="progress", value=0.5),
        WorkerNote(number=2, type="stage", stage="drawing"),
        _log(3, "x" * 100_000),
    ]
    for _ in range(2):
        assert not await engine.workers.note(remote_worker.record, lease.job_id, lease.token, notes)
    events = await engine.events(TENANT, lease.job_id)
    listed = [event for event in events if event.type in ("progress", "stage", "log")]
    assert [event.type for event in listed] == ["progress", "stage", "log"]
    assert len(listed[2].data["text"]) < 10_000
    job = await make.read(lease.job_id)
    assert (job.progress, job.stage) == (0.5, "drawing")


@pytest.mark.parametrize(
    ("note", "field"),
    [
        (WorkerNote(number=1, type="progress"), "notes[0].value"),
        (WorkerNote(number=1, type="log"), "notes[0].text"),
        (WorkerNote(number=1, type="stage"), "notes[0].stage"),
        (WorkerNote(number=1, type="stage", stage="dreaming"), "notes[0].stage"),
    ],
    ids=["progress", "log", "stage", "unknown-stage"],
)
async def test_a_note_that_says_nothing_is_refused(engine: Engine, make: Factory, note: WorkerNote, field: str) -> None:
    remote_worker, lease = await held(engine, make)
    with pytest.raises((InvalidError, InputError)) as refused:
        await engine.workers.note(remote_worker.record, lease.job_id, lease.token, [note])
    assert refused.value.field == field


async def test_a_heartbeat_keeps_the_job_and_reports_a_cancel(engine: Engine, make: Factory, clock: Clock) -> None:
    remote_worker, lease = await held(engine, make)
    key = (lease.job_id, lease.token)
    for _ in range(3):
        await clock.advance(timedelta(seconds=600))
        pulse = await engine.workers.heartbeat(remote_worker.record, [key])
        assert (pulse.lost, pulse.canceling) == (frozenset(), frozenset())
    await engine.cancel(TENANT, lease.job_id)
    assert (await engine.workers.heartbeat(remote_worker.record, [key])).canceling == {lease.job_id}
    await clock.advance(timedelta(seconds=901))
    assert (await engine.workers.heartbeat(remote_worker.record, [key])).lost == {lease.job_id}


async def test_nobody_prolongs_the_lease_of_another(engine: Engine, make: Factory, clock: Clock) -> None:
    remote_worker, lease = await held(engine, make)
    other = await joined(engine, "w2")
    for _ in range(2):
        await clock.advance(timedelta(seconds=600))
        pulse = await engine.workers.heartbeat(other.record, [(lease.job_id, lease.token)])
        assert pulse.lost == {lease.job_id}
    assert (await engine.workers.heartbeat(remote_worker.record, [(lease.job_id, lease.token)])).lost == {lease.job_id}
    await reaper(engine).run_once()


async def test_heartbeats_of_many_are_one_statement_each_with_its_own_answer(engine: Engine, make: Factory) -> None:
    pairs = []
    for n in range(5):
        remote_worker = await joined(engine, f"w{n}")
        await make.submitted(KIND)
        pairs.append((remote_worker, (await remote_worker.poll())[0]))
    beats = [engine.workers.beat(remote_worker.record, [(lease.job_id, lease.token)]) for remote_worker, lease in pairs]
    answers = await asyncio.gather(*beats)
    assert [list(answer) for answer in answers] == [[(lease.job_id, lease.token)] for _, lease in pairs]


async def test_a_worker_that_says_anything_is_heard(engine: Engine, clock: Clock) -> None:
    remote_worker = await joined(engine)
    before = (await engine.workers.get(remote_worker.record.id)).heard_at
    await clock.advance(SILENCE)
    assert (await engine.workers.get(remote_worker.record.id)).status == "lost"
    await engine.workers.authenticate(remote_worker.token, "10.7.7.7")
    await engine.workers.close()  # which writes it now
    view = await engine.workers.get(remote_worker.record.id)
    assert view.heard_at > before
    assert (view.status, view.address) == ("idle", "10.7.7.7")


async def test_leases_of_which_nothing_is_left_are_closed(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker, lease = await held(engine, make)
    await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, {})
    await engine.workers.close()
    async with db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.leases") == 0


# Going, and being thrown out


async def test_one_that_leaves_gives_back_what_it_has(engine: Engine, make: Factory) -> None:
    remote_worker, lease = await held(engine, make)
    await engine.workers.deregister(await remote_worker.known())
    job = await make.read(lease.job_id)
    assert (job.phase, job.attempts) == ("ready", 0)
    with pytest.raises(UnauthorizedError):
        await remote_worker.known()
    with pytest.raises(NotFoundError):
        await engine.workers.get(remote_worker.record.id)
    await joined(engine)  # its name is free at once
    assert len(await audited(engine, "worker.deregistered")) == 1


async def test_a_revoke_acts_at_once_in_every_process(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker, lease = await held(engine, make)
    async with another(db) as other, _listening(engine, other):
        assert await other.workers.authenticate(remote_worker.token) == remote_worker.record
        waiting = asyncio.create_task(
            other.workers.poll(WorkerRecord(remote_worker.record.id, "w1", (KIND,), 9), 1, 20)
        )
        await engine.workers.revoke(remote_worker.record.id, actor="key_op", address="10.2.2.2")
        with pytest.raises(WorkerRevokedError):
            await remote_worker.known()
        async with asyncio.timeout(PATIENCE):
            assert await waiting == []
            while True:
                try:
                    await other.workers.authenticate(remote_worker.token)
                except WorkerRevokedError:
                    break
                await asyncio.sleep(0.005)
    assert (await make.read(lease.job_id)).phase == "ready"
    with pytest.raises(LeaseLostError):
        await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, {})
    with pytest.raises(WorkerRevokedError):
        await joined(engine)
    (entry,) = await audited(engine, "worker.revoked")
    assert (entry.actor, entry.data["address"]) == ("key_op", "10.2.2.2")


async def test_one_that_was_revoked_may_be_approved_again(engine: Engine, make: Factory) -> None:
    remote_worker = await joined(engine)
    await engine.workers.revoke(remote_worker.record.id, actor="key_op")
    await make.submitted(KIND)
    assert await engine.workers.poll(remote_worker.record, 1, 0) == []
    await engine.workers.approve(remote_worker.record.id, actor="key_op")
    assert len(await remote_worker.poll()) == 1


async def test_what_a_revoke_that_was_cut_short_left_is_given_back(engine: Engine, make: Factory, db: Database) -> None:
    remote_worker, lease = await held(engine, make)
    async with db.transaction() as tx:
        await tx.execute("update millpond.workers set revoked_at = millpond.clock()")
    assert (await make.read(lease.job_id)).phase == "leased"
    await reaper(engine).run_once()
    assert (await make.read(lease.job_id)).phase == "ready"
    assert remote_worker.record.id


async def test_a_new_token_replaces_the_old_at_once_or_later(engine: Engine, clock: Clock) -> None:
    remote_worker = await joined(engine)
    await remote_worker.known()
    _, second = await engine.workers.rotate(remote_worker.record.id, actor="key_op")
    with pytest.raises(UnauthorizedError):
        await remote_worker.known()
    assert (await engine.workers.authenticate(second)).id == remote_worker.record.id
    _, third = await engine.workers.rotate(remote_worker.record.id, overlap="1h", actor="key_op")
    for token in (second, third):
        assert (await engine.workers.authenticate(token)).id == remote_worker.record.id
    await clock.advance(HOUR + MINUTE)
    engine.workers.hear(frozenset({f"worker:{remote_worker.record.id}"}))
    with pytest.raises(UnauthorizedError):
        await engine.workers.authenticate(second)
    assert (await engine.workers.authenticate(third)).id == remote_worker.record.id


async def test_the_long_silent_are_forgotten(engine: Engine, make: Factory, clock: Clock) -> None:
    remote_worker, lease = await held(engine, make)
    revoked = await joined(engine, "bad")
    await engine.workers.revoke(revoked.record.id, actor="key_op")
    await clock.advance(timedelta(days=1, minutes=1))
    for _ in range(2):  # the first takes back what it held
        await reaper(engine).run_once()
    assert [view.worker for view in await engine.workers.list()] == ["bad"]
    assert (await make.read(lease.job_id)).phase != "leased"
    with pytest.raises(WorkerRevokedError):
        await joined(engine, "bad")
    assert remote_worker.record.worker == "w1"
    await expirer(engine).run_once()


@pytest.mark.parametrize("verb", ["approve", "revoke", "drain", "resume", "rotate", "get"])
async def test_what_is_not_a_worker_is_not_found(engine: Engine, verb: str) -> None:
    actor = {} if verb == "get" else {"actor": "key_op"}
    for given in ("worker_01h2xcejqtf2nbrexx3vqjhp41", "w1", "job_01h2xcejqtf2nbrexx3vqjhp41", "\0"):
        with pytest.raises(NotFoundError):
            await getattr(engine.workers, verb)(given, **actor)


# Errors as workers tell them


@pytest.mark.parametrize(
    ("given", "code", "start"),
    [
        ({"code": "oom", "message": "no memory", "node": 3}, "oom", "no memory"),
        ({"code": "x" * 100, "message": "m"}, "handler_failed", "m"),
        ({"message": "a\0b"}, "handler_failed", "a\ufffdb"),
        ({}, "handler_failed", "No reason was given."),
        ({"code": 5, "message": ["odd"]}, "handler_failed", "['odd']"),
        ({"message": "m", "trace": "y" * 300_000}, "handler_failed", "m"),
        ({"message": "m" * 500_000}, "handler_failed", "mmmm"),
    ],
    ids=["plain", "long-code", "nul", "empty", "odd", "long-trace", "long-message"],
)
def test_an_error_is_made_fit_to_be_kept(given: dict[str, Any], code: str, start: str) -> None:
    short = shortened(given)
    assert short["code"] == code
    assert short["message"].startswith(start)
    assert sum(len(str(value)) for value in short.values()) < 20_000


# Scaling


async def test_a_route_is_scaled_by_its_load(engine: Engine, make: Factory) -> None:
    remote_worker, _ = await held(engine, make)
    await joined(engine, "idle")
    drained = await joined(engine, "leaving")
    await engine.workers.drain(drained.record.id, actor="key_op")
    for _ in range(4):
        await make.submitted(KIND)
    load = await engine.scaling.route(KIND)
    assert (load.ready, load.leased, load.idle, load.busy, load.draining) == (4, 1, 1, 1, 1)
    assert load.desired(Policy(min=0, max=50, jobs_per_worker=1, target_wait=0)) == 5
    assert load.desired(Policy(min=0, max=50, jobs_per_worker=5, target_wait=0)) == 1
    assert remote_worker.record.slots == 1
    with pytest.raises(NotFoundError):
        await engine.scaling.route("free")


class _Ears:
    def cancel(self, job_id: UUID) -> None: ...
    def lose(self, leases: Iterable[Lease] | None = None) -> None: ...
    def dismiss(self, reason: Exception) -> None: ...
    def wake(self) -> None: ...


def _log(number: int, text: str) -> WorkerNote:
    return WorkerNote(number=number, type="log", text=text)


@asynccontextmanager
async def _listening(*engines: Engine) -> AsyncIterator[None]:
    """All of them hear each other."""
    stop = asyncio.Event()
    made = [Notifier(engine) for engine in engines]
    heard: list[asyncio.Event] = []
    for one in made:
        event = asyncio.Event()
        one.listen(lambda _, event=event: event.set())
        heard.append(event)
    tasks = [asyncio.create_task(one.run(stop)) for one in made]
    async with asyncio.timeout(PATIENCE):
        while not all(event.is_set() for event in heard):
            await engines[0].db.run(notifier.SQL["notify"], "hello")
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_what_was_leased_by_an_answer_that_never_came_goes_back_with_the_next_poll(
    engine: Engine, make: Factory
) -> None:
    remote_worker = await joined(engine, slots=2)
    await make.submitted(KIND)
    (kept,) = await remote_worker.poll()
    await make.submitted(KIND)
    (lost,) = await remote_worker.poll()  # and the answer is lost on its way
    assert await remote_worker.poll() == []
    await engine.workers.drop_others(remote_worker.record, [kept.token])
    (again,) = await remote_worker.poll()
    assert (again.job_id, again.epoch) == (lost.job_id, lost.epoch + 1)
    with pytest.raises(LeaseLostError):
        await engine.workers.complete(remote_worker.record, lost.job_id, lost.token, None)
    for lease in (kept, again):
        await engine.workers.complete(remote_worker.record, lease.job_id, lease.token, None)


async def test_one_with_room_is_not_kept_waiting_by_those_without(engine: Engine, make: Factory) -> None:
    full = [await joined(engine, f"w{n}") for n in range(16)]
    for remote_worker in full:
        await make.submitted(KIND)
        assert len(await remote_worker.poll()) == 1
    polls = [asyncio.create_task(remote_worker.poll(wait=25)) for remote_worker in full]
    while engine.workers.waiting < len(full):
        await asyncio.sleep(0.001)
    idle = asyncio.create_task((await joined(engine, "idle")).poll(wait=25))
    while engine.workers.waiting == len(full):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.3)  # by now it was looked for, in vain; sooner it would prove less
    await make.submitted(KIND)
    await asyncio.wait([idle, *polls], return_when=asyncio.FIRST_COMPLETED)
    assert len(await idle) == 1
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
