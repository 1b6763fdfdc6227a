"""The engine beside a model of it: whatever is done to both, in whatever order, they agree.

The model keeps what a customer could: the phase and counters of each job, what each wallet has, which key names which
job, which jobs wait for which others, who pays for them, and until when each lease holds. It knows nothing of tables,
locks or statements.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.engine.composition.batches import DEPTH_MAX
from millpond.engine.engine import Engine
from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Lease, Note, Return
from millpond.engine.verify import verify
from millpond.errors import (
    AnswerUnavailableError,
    ChildCycleError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    RetryUnavailableError,
    TooManyActiveJobsError,
    TreeTooLargeError,
)
from millpond.work import ChildRequest, SpawnRequest
from tests.clocks import Clock
from tests.faults.dumps import wipe
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from millpond.kinds import Kind

KINDS = ("brief", "budgeted", "fragile", "free", "priced", "restartable")
ACCOUNTS = ("ann", "bob")
PARKING = ("brief", "restartable")
ERROR = {"code": "boom", "message": "It broke."}

# Times are multiples of ten seconds and steps take far less, so no comparison is ever a close call.
LEASE = 40
GRACE = 30
LATER = 600
STEPS = (20, 20, 20, 130, 1_300, 4_000)

ACCOUNT = st.sampled_from(ACCOUNTS)
KIND = st.sampled_from([*KINDS, "fragile"])
CHILDREN = st.lists(KIND, min_size=1, max_size=3)
BATCH = st.sampled_from(["one", "two"])
PICK = st.tuples(st.integers(0, 3), st.sampled_from([True, True, True, False]))
HAS_LEASES = precondition(lambda machine: any(map(machine.model.holds, machine.leases)))

Pick = tuple[int, bool]


@dataclass(eq=False, slots=True)
class ModelJob:
    """What became of a job so far."""

    job_id: UUID
    kind: Kind
    account: str
    price: int
    given: int
    state: str = ""
    phase: str = "ready"
    outcome: str | None = None
    events: int = 0
    epoch: int = 0
    run: int = 1
    attempts: int = 0
    interruptions: int = 0
    lapses: int = 0
    noted: int = 0
    progress: float = 0.0
    captured: int | None = None
    token: UUID | None = None
    run_at: int | None = None
    expires_at: int | None = None
    cancel_at: int | None = None
    answer: int | None = None
    content: dict[str, int] = field(default_factory=dict[str, int])
    batch: ModelBatch | None = None
    payer: ModelJob | None = None
    """The ancestor whose budget pays for it; none if the account does."""
    spent: int = 0
    """What its descendants have cost that its budget pays for."""
    waits: ModelBatch | None = None
    batches: dict[tuple[int, str], ModelBatch] = field(default_factory=dict[tuple[int, str], "ModelBatch"])

    @property
    def parent(self) -> ModelJob | None:
        return None if self.batch is None else self.batch.parent

    @property
    def line(self) -> Iterator[ModelJob]:
        """The job and its ancestors."""
        job: ModelJob | None = self
        while job is not None:
            yield job
            job = job.parent

    @property
    def may_cost(self) -> int:
        """What it and its descendants may still cost."""
        return self.price + (self.kind.budget - self.spent if self.kind.budget else 0)

    def happen(self, event: str, phase: str) -> None:
        """The lifecycle, which has tests of its own, says what a lifecycle event does to the state."""
        self.state = self.kind.lifecycle.after(self.state, event)
        self.outcome = self.kind.lifecycle.states[self.state].outcome
        self.phase = "ended" if self.outcome else phase
        self.events += 1
        if phase != "leased":
            self.token = None
        self.waits = None


@dataclass(eq=False, slots=True)
class ModelBatch:
    """Children of a run of a job."""

    parent: ModelJob
    run: int
    is_detached: bool
    fails_fast: bool
    members: list[ModelJob] = field(default_factory=list[ModelJob])

    @property
    def ended(self) -> list[str]:
        return [job.outcome for job in self.members if job.outcome is not None]

    @property
    def is_over(self) -> bool:
        return len(self.ended) == len(self.members) or (self.fails_fast and bool(set(self.ended) - {"succeeded"}))

    @property
    def is_orphaned(self) -> bool:
        return not self.is_detached and (self.parent.phase == "ended" or self.parent.run > self.run)


@dataclass(slots=True)
class Wallet:
    granted: int = 0
    charged: int = 0
    active: int = 0
    active_max: int | None = None


@dataclass(slots=True)
class System:
    """The real thing, on a loop of its own."""

    runner: asyncio.Runner
    engine: Engine
    clock: Clock

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)


@dataclass(slots=True)
class Model:
    """All that a customer and a worker may rely on."""

    now: int = 0
    jobs: dict[UUID, ModelJob] = field(default_factory=dict)
    wallets: dict[str, Wallet] = field(default_factory=dict)
    keys: dict[tuple[str, str], ModelJob] = field(default_factory=dict)
    leases: dict[UUID, int] = field(default_factory=dict)

    def wallet(self, account: str) -> Wallet:
        return self.wallets.setdefault(account, Wallet())

    def holds(self, lease: Lease) -> ModelJob | None:
        """The job, if this lease still holds it."""
        job = self.jobs[lease.job_id]
        return job if job.token == lease.token and self.leases.get(lease.token, 0) > self.now else None

    def held(self, account: str) -> int:
        """What open jobs hold, unless the budget of another pays for them."""
        mine = (job for job in self.jobs.values() if job.account == account and job.phase != "ended")
        return sum(job.may_cost for job in mine if job.payer is None)

    def available(self, account: str) -> int:
        wallet = self.wallet(account)
        return wallet.granted - wallet.charged - self.held(account)

    def refusal(self, account: str, cost: int) -> type[MillpondError] | None:
        wallet = self.wallet(account)
        if cost > self.available(account):
            return InsufficientCreditsError
        if wallet.active_max is not None and wallet.active >= wallet.active_max:
            return TooManyActiveJobsError
        return None

    def be_born(self, job: ModelJob, run_at: int | None) -> None:
        self.jobs[job.job_id] = job
        self.wallet(job.account).active += job.batch is None
        is_later = run_at is not None and run_at > self.now
        initial, entry = job.kind.lifecycle.initial, job.kind.entry_state
        job.state, job.phase, job.events = initial, "waiting", 1
        job.run_at = run_at if is_later else None
        if job.kind.expires_in is not None:
            job.expires_at = (job.run_at or self.now) + int(job.kind.expires_in.total_seconds())
        if job.batch is not None and not job.batch.is_detached and (until := job.batch.parent.expires_at) is not None:
            job.expires_at = min(job.expires_at or until, until)
        if not is_later:
            job.state, job.phase, job.events = entry, "ready", 1 if entry == initial else 2

    def end(self, job: ModelJob, event: str, captured: int = 0) -> None:
        job.happen(event, "ended")
        job.captured = captured
        wallet = self.wallet(job.account)
        wallet.charged += captured
        wallet.active -= job.batch is None
        payer = job.payer
        while payer is not None:
            payer.spent += captured
            payer = payer.payer
        for heir in self.jobs.values():
            if heir.payer is job and heir.phase != "ended":
                heir.payer = job.payer
        if job.batch is not None and job.batch.parent.waits is job.batch and job.batch.is_over:
            job.batch.parent.happen("resumed", "ready")

    def payer_of_children(self, job: ModelJob) -> ModelJob | None:
        return job if job.kind.budget else job.payer

    def budget_left(self, payer: ModelJob) -> int:
        """What the budget has neither spent nor reserved."""
        open_ones = (job for job in self.jobs.values() if job.payer is payer and job.phase != "ended")
        return (payer.kind.budget or 0) - payer.spent - sum(job.may_cost for job in open_ones)

    def take_back(self, job: ModelJob, cause: str, delay: int | None = None) -> str:
        """A job that left its worker without having ended; tells its fate."""
        setattr(job, cause, getattr(job, cause) + 1)
        if job.cancel_at is not None:
            self.end(job, "canceled")
            return "canceled"
        if getattr(job, cause) >= getattr(job.kind, f"{cause}_max"):
            self.end(job, "failed")
            return "failed"
        job.happen("requeued", "waiting" if delay else "ready")
        job.run_at = self.now + delay if delay else None
        return "requeued"


def _content(kind: str, given: int) -> dict[str, int]:
    return {"given": given} if kind == "free" else {"size": given + 1} if kind == "priced" else {}


def _price(kind: Kind) -> int:
    return kind.price if isinstance(kind.price, int) else 0


class Machine(RuleBasedStateMachine):
    """Each rule does one thing to both and compares what they say; after each, everything is compared."""

    system: System

    @initialize(
        kinds=st.lists(KIND, min_size=2, max_size=4),
        parents=st.lists(st.sampled_from(["budgeted", "budgeted", "brief", "free", "restartable"]), max_size=2),
        children=CHILDREN,
    )
    def begin(self, kinds: list[str], parents: list[str], children: list[str]) -> None:
        """A customer with some credits, some jobs, and some that wait for children."""
        self.model = Model()
        self.leases: list[Lease] = []
        self.tenant = f"t{uuid4().hex[:12]}"
        self.system.run(wipe(self.system.engine.db))
        self.system.run(self.system.clock.advance(-self.system.clock.offset))
        for account, amount in zip(ACCOUNTS, (150, 40), strict=True):
            self.grant(account, amount)
        for kind in parents:
            self.submit(ACCOUNTS[0], kind, None, 0, None)
            self.claim_all()
            self._spawn(self.leases[-1], children, "one", is_detached=False, fails_fast=kind == "brief")
            self._await_children(self.leases[-1], "one")
        for kind in kinds:
            self.submit(ACCOUNTS[0], kind, None, 0, None)

    # Customers

    @rule(
        account=ACCOUNT,
        kind=KIND,
        key=st.sampled_from([None, "k1", "k2"]),
        given=st.integers(0, 1),
        later=st.sampled_from([None, None, LATER]),
    )
    def submit(self, account: str, kind: str, key: str | None, given: int, later: int | None) -> None:
        drawn = app.kinds[kind]
        content = _content(kind, given)
        seen = given if content else 0
        known = self.model.keys.get((account, key)) if key else None
        price = _price(drawn)
        call = self._submit(account, kind, content, key, later)
        if known is not None and (known.kind.name, known.given) != (kind, seen):
            self._refused(IdempotencyConflictError, call)
        elif known is not None:
            answer = self.system.run(call)
            assert (answer.job_id, answer.is_replay) == (known.job_id, True)
        elif (refusal := self.model.refusal(account, price + (drawn.budget or 0))) is not None:
            self._refused(refusal, call)
        else:
            answer = self.system.run(call)
            assert not answer.is_replay
            job = ModelJob(answer.job_id, drawn, account, price, seen, content=content)
            self.model.be_born(job, self.model.now + later if later else None)
            if key:
                self.model.keys[account, key] = job

    async def _submit(self, account: str, kind: str, content: Any, key: str | None, later: int | None) -> Any:
        begin = await self.system.clock.now() + timedelta(seconds=later) if later else None
        return await self.system.engine.submit(
            kind, content, tenant=self.tenant, account=account, idempotency_key=key, run_at=begin
        )

    @precondition(lambda self: self._alive())
    @rule(pick=PICK)
    def cancel(self, pick: Pick) -> None:
        job = self._job(pick, "leased", "parked", "ready", "waiting")
        answer = self.system.run(self.system.engine.cancel(self.tenant, job.job_id, grace=timedelta(seconds=GRACE)))
        assert answer.is_accepted == (job.phase != "ended")
        assert answer.is_ended == (job.phase not in {"leased", "ended"})
        self._cancel(job)
        assert answer.state == job.state

    def _cancel(self, job: ModelJob) -> None:
        if job.phase == "leased":
            if job.cancel_at is None:
                job.cancel_at = self.model.now + GRACE
                job.events += 1
        elif job.phase != "ended":
            self.model.end(job, "canceled")

    @precondition(lambda self: self._are("parked"))
    @rule(pick=PICK, answer=st.integers(1, 2))
    def answer(self, pick: Pick, answer: int) -> None:
        job = self._job(pick, "parked")
        call = self.system.engine.answer(self.tenant, job.job_id, answer)
        if job.phase == "parked" and job.waits is None and (job.expires_at or 0) > self.model.now:
            job.happen("answered", "ready")
            job.answer = answer
            assert self.system.run(call) == job.state
        elif job.answer == answer:
            assert self.system.run(call) == job.state
        else:
            self._refused(AnswerUnavailableError, call)

    @precondition(lambda self: self._are("ended"))
    @rule(pick=PICK)
    def retry(self, pick: Pick) -> None:
        self._retry(self._job(pick, "ended"))

    def _retry(self, job: ModelJob) -> None:
        """In place where the lifecycle draws it, otherwise as a new job."""
        call = self.system.engine.retry(self.tenant, job.job_id, even_if_succeeded=True)
        in_place = any(transition.event == "retried" for transition in job.kind.lifecycle.transitions)
        can = [transition.source for transition in job.kind.lifecycle.transitions if transition.event == "retried"]
        if job.phase != "ended" or (in_place and (job.state not in can or job.batch is not None)):
            self._refused(RetryUnavailableError, call)
        elif (refusal := self.model.refusal(job.account, job.price + (job.kind.budget or 0))) is not None:
            self._refused(refusal, call)
        elif in_place:
            assert self.system.run(call).job_id == job.job_id
            self._revive(job)
        else:
            again = ModelJob(self.system.run(call).job_id, job.kind, job.account, job.price, job.given)
            again.content = job.content
            self.model.be_born(again, None)

    def _revive(self, job: ModelJob) -> None:
        self.model.wallet(job.account).active += 1
        job.happen("retried", "waiting")
        if job.kind.entry_state != job.kind.lifecycle.initial:
            job.happen("queued", "ready")
        job.phase, job.run, job.progress, job.captured = "ready", job.run + 1, 0.0, None
        job.attempts = job.interruptions = job.lapses = 0
        job.cancel_at = job.run_at = job.answer = None
        lifetime = job.kind.expires_in
        job.expires_at = None if lifetime is None else self.model.now + int(lifetime.total_seconds())

    # Operators

    @rule(account=ACCOUNT, amount=st.integers(1, 20), limit=st.sampled_from([None, 0, 1, 5]), is_cap=st.booleans())
    def operate(self, account: str, amount: int, limit: int | None, *, is_cap: bool) -> None:
        if is_cap:
            self.set_cap(account, limit)
        else:
            self.grant(account, amount)

    def grant(self, account: str, amount: int) -> None:
        left = self.system.run(self.system.engine.grant(self.tenant, account, amount))
        self.model.wallet(account).granted += amount
        assert left == self.model.available(account)

    def set_cap(self, account: str, limit: int | None) -> None:
        self.system.run(self.system.engine.set_cap(self.tenant, account, limit))
        self.model.wallet(account).active_max = limit

    # Workers

    @precondition(lambda self: self._are("ready"))
    @rule()
    def claim_all(self) -> None:
        self.claim(set(KINDS), 10)

    @precondition(lambda self: self._are("ready"))
    @rule(kinds=st.sets(KIND, min_size=1), want=st.integers(1, 3))
    def claim(self, kinds: set[str], want: int) -> None:
        ready = sorted(
            job.job_id
            for job in self.model.jobs.values()
            if job.phase == "ready" and job.kind.name in kinds and (job.expires_at or 10**9) > self.model.now
        )
        call = self.system.engine.claim(Lanes(sorted(kinds)), want, worker="w", duration=timedelta(seconds=LEASE))
        held = self.system.run(call)
        assert sorted(lease.job_id for lease in held) == ready[:want]
        for lease in held:
            job = self.model.jobs[lease.job_id]
            job.happen("started", "leased")
            job.token, job.epoch, job.noted = lease.token, job.epoch + 1, 0
            assert (lease.epoch, lease.attempts, lease.run) == (job.epoch, job.attempts, job.run)
            self.model.leases[lease.token] = self.model.now + LEASE
        self.leases += held

    @HAS_LEASES
    @rule(pick=PICK)
    def extend(self, pick: Pick) -> None:
        lease = self._lease(pick)
        pulse = self.system.run(self.system.engine.extend([lease], timedelta(seconds=LEASE)))
        if self.model.leases.get(lease.token, 0) > self.model.now:
            self.model.leases[lease.token] = self.model.now + LEASE
        job = self.model.holds(lease)
        assert pulse.lost == (set() if job else {lease.job_id})
        assert pulse.canceling == ({lease.job_id} if job and job.cancel_at is not None else set())

    @HAS_LEASES
    @rule(pick=PICK, number=st.integers(1, 5), value=st.sampled_from([0.25, 0.5, 0.75]))
    def note(self, pick: Pick, number: int, value: float) -> None:
        self._note(self._lease(pick), number, value)

    def _note(self, lease: Lease, number: int, value: float) -> None:
        job = self.model.holds(lease)
        call = self.system.engine.note(Note(lease, number, "progress", "{}", value=value))
        if job is None:
            self._refused(LeaseLostError, call)
            return
        assert self.system.run(call) == (job.cancel_at is not None)
        job.progress = max(job.progress, value)
        if number > job.noted:
            job.noted, job.events = number, job.events + 1

    @HAS_LEASES
    @rule(
        pick=PICK,
        outcome=st.sampled_from(["succeeded", "failed", "canceled", "blocked"]),
        captured=st.sampled_from([None, 0, 1, 3]),
    )
    def finish(self, pick: Pick, outcome: Any, captured: int | None) -> None:
        self._finish(self._lease(pick), outcome, captured)

    def _finish(self, lease: Lease, outcome: Any, captured: int | None) -> None:
        job = self.model.holds(lease)
        captured = captured if outcome == "succeeded" else None
        call = self.system.engine.finish(End(lease, outcome, "{}", captured=captured))
        if job is None:
            self._refused(LeaseLostError, call)
            return
        if outcome == "succeeded":
            job.progress = 1.0
        whole = job.price if outcome == "succeeded" else 0
        self.model.end(job, outcome, whole if captured is None else min(captured, job.price))
        assert self.system.run(call) == job.state

    @HAS_LEASES
    @rule(pick=PICK, cause=st.sampled_from(["attempt", "interruption"]), delay=st.sampled_from([None, LATER]))
    def give_back(self, pick: Pick, cause: str, delay: int | None) -> None:
        lease = self._lease(pick)
        job = self.model.holds(lease)
        call = self.system.engine.give_back(Return(lease, cause, ERROR, timedelta(seconds=delay) if delay else None))
        if job is None:
            self._refused(LeaseLostError, call)
        else:
            assert self.system.run(call) == self.model.take_back(job, f"{cause}s", delay)

    @precondition(lambda self: any(lease.kind in PARKING and self.model.holds(lease) for lease in self.leases))
    @rule(pick=PICK)
    def park(self, pick: Pick) -> None:
        lease = self._lease(pick, PARKING)
        job = self.model.holds(lease)
        call = self.system.engine.park(lease)
        if job is None:
            self._refused(LeaseLostError, call)
        elif job.cancel_at is not None:
            self.model.end(job, "canceled")
            assert self.system.run(call) == job.state
        else:
            job.happen("parked", "parked")
            assert self.system.run(call) == job.state

    # Parents

    @HAS_LEASES
    @rule(pick=PICK, kinds=CHILDREN, name=BATCH, is_detached=st.booleans(), fails_fast=st.booleans())
    def spawn(self, pick: Pick, kinds: list[str], name: str, *, is_detached: bool, fails_fast: bool) -> None:
        self._spawn(self._lease(pick), kinds, name, is_detached=is_detached, fails_fast=fails_fast)

    def _spawn(self, lease: Lease, kinds: list[str], name: str, *, is_detached: bool, fails_fast: bool) -> None:
        parent = self.model.jobs[lease.job_id]
        if (parent.expires_at or 10**9) <= self.model.now:
            return  # its children would have a second
        contents = [_content(kind, len(self.model.jobs) + n) for n, kind in enumerate(kinds)]
        children = [ChildRequest(kind, content) for kind, content in zip(kinds, contents, strict=True)]
        request = SpawnRequest(lease, name, None, children, len(children), 0, is_detached, fails_fast)
        call = self.system.engine.spawn(request)
        costs = [_price(app.kinds[kind]) + (app.kinds[kind].budget or 0) for kind in kinds]
        payer = self.model.payer_of_children(parent)
        left = self.model.available(parent.account) if payer is None else self.model.budget_left(payer)
        family = [(job.kind.name, job.content) for job in parent.line]
        if (parent.token, parent.phase) != (lease.token, "leased"):
            self._refused(LeaseLostError, call)
        elif (parent.run, name) in parent.batches:
            assert self.system.run(call).submitted == len(parent.batches[parent.run, name].members)
        elif len(family) > DEPTH_MAX:
            self._refused(TreeTooLargeError, call)
        elif any(child in family for child in zip(kinds, contents, strict=True)):
            self._refused(ChildCycleError, call)
        elif sum(costs) > left:
            self._refused(InsufficientCreditsError, call)
        else:
            step = self.system.run(call)
            batch = ModelBatch(parent, parent.run, is_detached, fails_fast)
            parent.batches[parent.run, name] = batch
            members = self.system.run(self.system.engine.members(self.tenant, step.batch_id))
            for member, content in zip(members, contents, strict=True):
                kind = app.kinds[member.kind]
                child = ModelJob(member.job_id, kind, parent.account, _price(kind), 0, content=content)
                child.batch, child.payer = batch, payer
                batch.members.append(child)
                self.model.be_born(child, None)

    @HAS_LEASES
    @rule(pick=PICK, name=BATCH)
    def await_children(self, pick: Pick, name: str) -> None:
        self._await_children(self._lease(pick), name)

    def _await_children(self, lease: Lease, name: str) -> None:
        job = self.model.jobs[lease.job_id]
        batch = job.batches.get((job.run, name))
        call = self.system.engine.suspend(lease, name)
        if batch is None:
            self._refused(InvalidError, call)
        elif self.model.holds(lease) is None:
            self._refused(LeaseLostError, call)
        elif job.cancel_at is not None:
            self.system.run(call)
            self.model.end(job, "canceled")
        else:
            self.system.run(call)
            job.happen("parked", "parked")
            job.waits = batch
            if batch.is_over:
                job.happen("resumed", "ready")

    @HAS_LEASES
    @rule(pick=PICK)
    def abandon(self, pick: Pick) -> None:
        lease = self._lease(pick)
        self.system.run(self.system.engine.abandon(lease.token))
        for job in self._held_by(lease.token):
            self.model.take_back(job, "interruptions")
        self.model.leases.pop(lease.token, None)

    # Time, and those who watch it

    @rule(seconds=st.sampled_from(STEPS))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds
        self.system.run(self.system.clock.advance(timedelta(seconds=seconds)))

    @rule(service=st.sampled_from(["lapse", "expire", "force_cancel", "promote", "cancel_orphans"]))
    def serve(self, service: str) -> None:
        getattr(self, service)()

    def lapse(self) -> None:
        self.system.run(leases.lapse(self.system.engine.db, 1_000))
        for token in [token for token, until in self.model.leases.items() if until <= self.model.now]:
            for job in self._held_by(token):
                self.model.take_back(job, "lapses")
            del self.model.leases[token]

    def expire(self) -> None:
        self.system.run(jobs.expire(self.system.engine.db, 1_000))
        for job in self._alive():
            if job.expires_at is not None and job.expires_at <= self.model.now:
                self.model.end(job, "expired")

    def force_cancel(self) -> None:
        self.system.run(jobs.force_cancel(self.system.engine.db, 1_000))
        for job in self._alive():
            if job.cancel_at is not None and job.cancel_at <= self.model.now:
                self.model.end(job, "canceled")

    def promote(self) -> None:
        self.system.run(jobs.promote(self.system.engine.db, 1_000))
        for job in self._alive():
            is_due = job.phase == "waiting" and (job.run_at or 0) <= self.model.now
            if is_due and (job.expires_at is None or job.expires_at > self.model.now):
                job.happen("queued", "ready")
                job.run_at = None

    def cancel_orphans(self) -> None:
        self.system.run(self._cancel_orphans())
        while orphans := [
            job for job in self._alive() if job.batch is not None and job.batch.is_orphaned and job.cancel_at is None
        ]:
            for job in orphans:
                self._cancel(job)

    async def _cancel_orphans(self) -> None:
        canceled = 1
        while canceled:  # one that leaves children behind again is looked at after a while: let that have passed
            async with self.system.engine.db.transaction() as tx:
                await tx.execute("update millpond.orphans set at = millpond.clock()")
            canceled = await self.system.engine.cancel_orphans(1_000)

    # What takes several steps, and chance alone would seldom string together

    @precondition(lambda self: self._are("ready"))
    @rule()
    def fall_silent(self) -> None:
        """Whoever holds the jobs is not heard of again."""
        self.claim_all()
        self.wait(LEASE + 10)
        self.lapse()

    @precondition(lambda self: self._are("ready"))
    @rule(pick=PICK, kinds=CHILDREN, fails_fast=st.booleans())
    def have_children(self, pick: Pick, kinds: list[str], *, fails_fast: bool) -> None:
        """A job begins, and waits for its children."""
        self.claim_all()
        lease = self._lease(pick)
        self._spawn(lease, kinds, "one", is_detached=False, fails_fast=fails_fast)
        self._await_children(lease, "one")

    @precondition(lambda self: self._are("ready"))
    @rule(outcomes=st.lists(st.sampled_from(["succeeded", "succeeded", "failed"]), min_size=1, max_size=3))
    def work(self, outcomes: list[Any]) -> None:
        """All that is ready is done, and perhaps what that made ready."""
        for outcome in outcomes:
            self.claim_all()
            for lease in [lease for lease in self.leases if self.model.holds(lease)]:
                self._finish(lease, outcome, None)

    @rule(pick=PICK)
    def come_late(self, pick: Pick) -> None:
        """Deadlines pass, and others look before those who watch them."""
        self.wait(max(STEPS))
        self.promote()
        if self._are("parked"):
            self.answer(pick, 1)

    @precondition(lambda self: self._are("ready"))
    @rule(kind=KIND, limit=st.sampled_from([None, 0]))
    def fail_and_try_again(self, kind: str, limit: int | None) -> None:
        """Half done, failed, and begun again, where the account may."""
        known = len(self.leases)
        self.claim({kind}, 1)
        for lease in self.leases[known:]:
            self._note(lease, 1, 0.5)
            self._finish(lease, "failed", None)
            self.set_cap(self.model.jobs[lease.job_id].account, limit)
            self._retry(self.model.jobs[lease.job_id])

    # What must be so

    @invariant()
    def jobs_agree(self) -> None:
        rows = self.system.run(self._rows())
        assert {row["id"]: tuple(row.values())[1:] for row in rows} == {
            job.job_id: (
                job.state,
                job.phase,
                job.outcome,
                job.events,
                job.epoch,
                job.run,
                job.attempts,
                job.progress,
                job.captured,
                None if job.parent is None else job.parent.job_id,
                None if job.waits is None else "children",
            )
            for job in self.model.jobs.values()
        }

    @invariant()
    def wallets_agree(self) -> None:
        for account, wallet in self.model.wallets.items():
            found = self.system.run(self.system.engine.balance(self.tenant, account))
            assert (found.available, found.held, found.active, found.active_max) == (
                self.model.available(account),
                self.model.held(account),
                wallet.active,
                wallet.active_max,
            )

    @invariant()
    def budgets_agree(self) -> None:
        budgeted = [job for job in self.model.jobs.values() if job.kind.budget]
        for job in budgeted:
            budget = self.system.run(self.system.engine.budget(self.tenant, job.job_id, 1))
            amount = job.kind.budget or 0
            reserved = 0 if job.phase == "ended" else amount - job.spent - self.model.budget_left(job)
            assert (budget.amount, budget.spent, budget.reserved) == (amount, job.spent, reserved)

    def teardown(self) -> None:
        """The services do what is due, and every invariant holds."""
        if hasattr(self, "model"):
            for service in (self.lapse, self.expire, self.force_cancel, self.promote, self.cancel_orphans):
                service()
            self.jobs_agree()
            self.wallets_agree()
            assert self.system.run(verify(self.system.engine.db)) == []

    async def _rows(self) -> list[Any]:
        async with self.system.engine.db.transaction() as tx:
            return await tx.fetch(
                "select id, state, phase, outcome, events, epoch, run, attempts, progress, captured,"
                " parent_id, waits_for"
                " from millpond.jobs where tenant = $1",
                self.tenant,
            )

    def _refused(self, error: type[MillpondError], call: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(error) as caught:
            self.system.run(call)
        assert type(caught.value) is error

    def _are(self, phase: str) -> bool:
        return any(job.phase == phase for job in self.model.jobs.values())

    def _job(self, pick: Pick, *phases: str) -> ModelJob:
        """A job in one of these phases, or now and then any."""
        number, is_apt = pick
        every = list(self.model.jobs.values())
        apt = [job for job in every if job.phase in phases]
        return (apt if apt and is_apt else every)[number % len(apt if apt and is_apt else every)]

    def _lease(self, pick: Pick, kinds: tuple[str, ...] = KINDS) -> Lease:
        """A lease that holds its job, or now and then any that ever did."""
        number, is_apt = pick
        every = [lease for lease in self.leases if lease.kind in kinds]
        apt = [lease for lease in every if self.model.holds(lease)]
        return (apt if apt and is_apt else every)[number % len(apt if apt and is_apt else every)]

    def _alive(self) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.phase != "ended"]

    def _held_by(self, token: UUID) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.token == token]
