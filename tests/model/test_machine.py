"""The verbs in any order, against a model that fits on a page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.engine import jobs, leases
from penstock.engine.dispatches import Lanes
from penstock.engine.engine import Engine
from penstock.engine.leases import End, Return
from penstock.engine.verify import verify
from penstock.errors import (
    AnswerUnavailableError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    LeaseLostError,
    RetryUnavailableError,
)
from penstock.store.db import Database
from tests.clocks import Clock
from tests.factories import ERROR
from tests.product import app

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.engine.leases import Lease
    from penstock.lifecycle import Outcome

KINDS = ("priced", "fragile", "brief", "studio")
LEASE = timedelta(minutes=10)
GRACE = timedelta(minutes=3)
DELAY = timedelta(minutes=5)


@dataclass
class Job:
    """What the model knows of a job."""

    kind: str
    state: str
    phase: str = "ready"
    mishaps: dict[str, int] = field(default_factory=lambda: {"attempt": 0, "interruption": 0, "lapse": 0})
    token: UUID | None = None
    held_until: timedelta = timedelta(0)
    expires: timedelta | None = None
    runs_at: timedelta | None = None
    cancels_at: timedelta | None = None
    answer: Any = None

    @property
    def price(self) -> int:
        price = app.kinds[self.kind].price
        assert isinstance(price, int)
        return price

    def go(self, moment: str, phase: str) -> None:
        self.state = app.kinds[self.kind].lifecycle.after(self.state, moment)
        self.phase = phase
        if phase != "leased":
            self.token = None

    def caps(self) -> dict[str, int]:
        kind = app.kinds[self.kind]
        return {"attempt": kind.attempts_max, "interruption": kind.interruptions_max, "lapse": kind.lapses_max}


class Machine(RuleBasedStateMachine):
    """One tenant's jobs, by the engine and by the model."""

    examples = 0

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.db: Database = self.run(Database.open(dsn, size=2))
        self.engine, self.clock = Engine(self.db, app), Clock(self.db)
        type(self).examples += 1
        # What an earlier example left in the line would be claimed by this one, so each has queues to itself: a
        # tenant of its own does not help there. Ending it all is simplest.
        self.run(self.clear())
        self.tenant = f"tenant-{type(self).examples}"
        self.now = timedelta(0)
        self.available = self.captured = 0
        self.jobs: dict[UUID, Job] = {}
        self.keys: dict[str, tuple[str, UUID]] = {}
        self.leases: list[Lease] = []

    def run(self, call: Any) -> Any:
        return self.runner.run(call)

    async def clear(self) -> None:
        async with self.db.transaction() as tx:
            rows = await tx.fetch("select job_id, tenant from penstock.dispatches")
        await self.clock.advance(timedelta(0))
        for row in rows:
            job = await self.engine.read(row["tenant"], row["job_id"])
            if job.phase == "leased":
                async with self.db.transaction() as tx:
                    token = await tx.fetchval(
                        "select lease_token from penstock.dispatches where job_id = $1", job.job_id
                    )
                await self.engine.abandon(token)
            await self.engine.cancel(row["tenant"], row["job_id"])
            await jobs.enforce(self.db, 1_000)
        async with self.db.transaction() as tx:
            assert await tx.fetchval("select count(*) from penstock.dispatches") == 0

    def teardown(self) -> None:
        """Once the services have come by, nothing is overdue and every invariant holds."""
        try:
            self.serve()
            assert self.run(verify(self.db)) == []
        finally:
            self.run(self.db.close())
            self.runner.close()

    # The model's part of each verb

    def live(self, lease: Lease) -> Job | None:
        job = self.jobs[lease.job_id]
        return job if job.token == lease.token and job.held_until > self.now else None

    def settle(self, job: Job, captured: int) -> None:
        self.available += job.price - captured
        self.captured += captured

    def end(self, job: Job, outcome: str, captured: int = 0) -> None:
        job.go(outcome, "ended")
        self.settle(job, captured)

    def give_back(self, job: Job, cause: str, delay: timedelta | None = None) -> str:
        job.mishaps[cause] += 1
        if job.cancels_at is not None:
            self.end(job, "canceled")
            return "canceled"
        if job.mishaps[cause] >= job.caps()[cause]:
            self.end(job, "failed")
            return "failed"
        job.go("requeued", "waiting" if delay else "ready")
        job.runs_at = self.now + delay if delay else None
        return "requeued"

    # The rules

    @initialize(amount=st.integers(0, 40))
    def begin(self, amount: int) -> None:
        if amount:
            self.grant(amount)

    @rule(amount=st.integers(1, 30))
    def grant(self, amount: int) -> None:
        self.available += amount
        assert self.run(self.engine.grant(self.tenant, "ann", amount)) == self.available

    @rule(kind=st.sampled_from(KINDS), key=st.sampled_from([None, None, "a", "b", "c"]))
    def submit(self, kind: str, key: str | None) -> None:
        call = self.engine.submit(kind, tenant=self.tenant, account="ann", idempotency_key=key)
        known = self.keys.get(key) if key else None
        price = app.kinds[kind].price
        if known and known[0] != kind:
            with pytest.raises(IdempotencyConflictError):
                self.run(call)
        elif known:
            assert self.run(call).job_id == known[1]
        elif price > self.available:  # pyright: ignore[reportOperatorIssue]
            with pytest.raises(InsufficientCreditsError):
                self.run(call)
        else:
            self.born(kind, key, self.run(call))

    def born(self, kind: str, key: str | None, submitted: Any) -> None:
        lifetime = app.kinds[kind].expires_in
        job = Job(kind, app.kinds[kind].entry_state, expires=self.now + lifetime if lifetime else None)
        self.jobs[submitted.job_id] = job
        self.available -= job.price
        assert (submitted.state, submitted.available) == (job.state, self.available)
        if key:
            self.keys[key] = kind, submitted.job_id

    @rule()
    def claim(self) -> None:
        found = self.run(self.engine.claim(Lanes(KINDS), 1, worker="w", duration=LEASE))
        ready = {
            job_id
            for job_id, job in self.jobs.items()
            if job.phase == "ready" and (job.expires is None or job.expires > self.now)
        }
        assert {lease.job_id for lease in found} <= ready
        assert bool(found) == bool(ready)
        for lease in found:
            job = self.jobs[lease.job_id]
            job.go("started", "leased")
            job.token, job.held_until = lease.token, self.now + LEASE
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "failed"]), part=st.sampled_from([None, 0, 1]))
    def finish(self, data: st.DataObject, outcome: Outcome, part: int | None) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        error = ERROR if outcome == "failed" else None
        captured = part if outcome == "succeeded" else None
        call = self.engine.finish(End(lease, outcome, "{}", error, captured))
        if (job := self.live(lease)) is None:
            with pytest.raises(LeaseLostError):
                self.run(call)
        else:
            full = job.price if outcome == "succeeded" else 0
            self.end(job, outcome, full if captured is None else captured)
            assert self.run(call) == job.state

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), cause=st.sampled_from(["attempt", "interruption"]), delay=st.sampled_from([None, DELAY]))
    def return_it(self, data: st.DataObject, cause: str, delay: timedelta | None) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        call = self.engine.give_back(Return(lease, cause, ERROR, delay))
        if (job := self.live(lease)) is None:
            with pytest.raises(LeaseLostError):
                self.run(call)
        else:
            assert self.run(call) == self.give_back(job, cause, delay)

    @precondition(lambda self: any(lease.expires_at for lease in self.leases))
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([lease for lease in self.leases if lease.expires_at]))
        job = self.live(lease)
        if job is None or job.cancels_at is not None:
            with pytest.raises(LeaseLostError):
                self.run(self.engine.park(lease, {"memo": 1}))
        else:
            job.go("parked", "parked")
            assert self.run(self.engine.park(lease, {"memo": 1})) == job.state

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), given=st.integers(1, 2))
    def answer(self, data: st.DataObject, given: int) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[job_id]
        call = self.engine.answer(self.tenant, job_id, given)
        if job.phase == "parked" and job.expires is not None and job.expires > self.now:
            job.go("answered", "ready")
            job.answer = given
            assert self.run(call) == job.state
        elif job.answer == given:
            assert self.run(call) == job.state
        else:
            with pytest.raises(AnswerUnavailableError):
                self.run(call)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[job_id]
        call = self.engine.cancel(self.tenant, job_id, grace=GRACE)
        if job.phase == "ended":
            assert not self.run(call).is_accepted
        elif job.phase == "leased":
            assert self.run(call).is_accepted
            job.cancels_at = job.cancels_at or self.now + GRACE
        else:
            self.end(job, "canceled")
            answered = self.run(call)
            assert (answered.is_accepted, answered.state) == (True, job.state)

    @precondition(lambda self: any(job.phase == "ended" for job in self.jobs.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        ended = sorted(job_id for job_id, job in self.jobs.items() if job.phase == "ended")
        job_id = data.draw(st.sampled_from(ended))
        job = self.jobs[job_id]
        call = self.engine.retry(self.tenant, job_id)
        if job.kind == "studio" and job.state not in ("failed", "expired"):
            with pytest.raises(RetryUnavailableError):
                self.run(call)
        elif job.price > self.available:
            with pytest.raises(InsufficientCreditsError):
                self.run(call)
        elif job.kind == "studio":
            self.revive(job)
            assert self.run(call).state == job.state
        else:
            self.born(job.kind, None, self.run(call))

    def revive(self, job: Job) -> None:
        job.go("retried", "ready")
        job.go("queued", "ready")
        job.mishaps = dict.fromkeys(job.mishaps, 0)
        job.answer = job.cancels_at = job.runs_at = None
        job.expires = self.now + timedelta(hours=1)
        self.available -= job.price

    @rule(minutes=st.sampled_from([1, 4, 11, 61]))
    def pass_time(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self.run(self.clock.advance(timedelta(minutes=minutes)))

    @rule()
    def serve(self) -> None:
        """The services come by, in one order, as they would by themselves."""
        self.run(jobs.enforce(self.db, 1_000))
        self.each(
            lambda job: job.phase == "leased" and _due(job.cancels_at, self.now), partial(self.end, outcome="canceled")
        )
        self.run(jobs.expire(self.db, 1_000))
        self.each(lambda job: job.phase != "ended" and _due(job.expires, self.now), self.expire)
        self.run(leases.lapse(self.db, 1_000))
        self.each(
            lambda job: job.token is not None and job.held_until <= self.now, partial(self.give_back, cause="lapse")
        )
        self.run(jobs.promote(self.db, 1_000))
        self.each(
            lambda job: job.phase == "waiting" and _due(job.runs_at, self.now), lambda job: job.go("queued", "ready")
        )

    def each(self, is_due: Any, does: Any) -> None:
        for job in list(self.jobs.values()):
            if is_due(job):
                does(job)

    def expire(self, job: Job) -> None:
        self.end(job, "expired")

    # What must hold after every step

    @invariant()
    def the_wallets_agree(self) -> None:
        balance = self.run(self.engine.balance(self.tenant, "ann"))
        alive = [job for job in self.jobs.values() if job.phase != "ended"]
        assert (balance.available, balance.held, balance.active) == (
            self.available,
            sum(job.price for job in alive),
            len(alive),
        )

    @invariant()
    def the_jobs_agree(self) -> None:
        for record in self.run(self.engine.list_jobs(self.tenant, "ann", limit=200)):
            job = self.jobs[record.job_id]
            assert (record.state, record.phase) == (job.state, job.phase)


def _due(at: timedelta | None, now: timedelta) -> bool:
    return at is not None and at <= now


async def test_any_order_of_verbs_ends_where_the_model_says(dsn: str) -> None:
    """Whatever is called when, job states, counters and credits are those of the model, and every invariant holds."""
    bounds = settings(
        max_examples=80,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    await asyncio.to_thread(run_state_machine_as_test, partial(Machine, dsn), settings=bounds)
