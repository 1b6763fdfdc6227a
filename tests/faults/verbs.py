"""Every verb of the engine as a little story: what must be there, the call, and who may call it twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from millpond.engine.composition import client_batches
from millpond.engine.composition.client_batches import BatchJob
from millpond.engine.engine import Engine
from millpond.engine.jobs import jobs
from millpond.engine.jobs.jobs import SubmitRequest
from millpond.engine.queue import leases, registry
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Lease
from millpond.engine.verify import verify
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.deliveries import Settlement, TryResult
from millpond.errors import InsufficientCreditsError, LeaseLostError, MillpondError, RetryUnavailableError
from millpond.schedules import Schedule, Timing
from millpond.services.firer import firer
from millpond.services.pruner import pruner
from millpond.webhooks import NATIVE, Hook
from millpond.work import ChildRequest, Chunk, SpawnRequest, StepRequest
from tests.checks import Snapshot
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, TENANT, Factory, attempt, interruption, progress
from tests.faults.dumps import story, wipe
from tests.post import SECRET, taken
from tests.product import app

SHOE = {"product": "shoe"}
DAY = timedelta(days=1)
HOOK = Hook(url="http://127.0.0.1:9/hook", secret=SECRET)
MARGIN = timedelta(seconds=5)  # less than the services are given to do their work

Setting = Callable[[Factory], Awaitable[Any]]
Call = Callable[[Engine, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb to be disturbed. ``refusals`` is how a second call may be refused when the first one came through."""

    name: str
    arrange: Setting
    act: Call
    refusals: tuple[type[MillpondError], ...] = ()
    is_atomic: bool = True
    """Whether it is one transaction: one that fails has then written nothing at all."""
    is_repeatable: bool = True
    """Whether it names what it does, so that a caller who heard nothing may call again."""
    leaves_traces: bool = False
    """Whether undoing what got lost is itself an event of the job."""
    passes_over: bool = False
    """Whether it leaves out what another transaction has in hand, also that of a client just cut off."""


VERBS: list[Verb] = []


def verb(arrange: Setting, *refusals: type[MillpondError], **flags: Any) -> Callable[[Call], Call]:
    def add(act: Call) -> Call:
        VERBS.append(Verb(act.__name__, arrange, act, refusals, **flags))
        return act

    return add


async def begin(make: Factory, verb: Verb) -> Any:
    """Nothing but what the verb needs."""
    await wipe(make.engine.db)
    if make.clock.offset:  # to turn the clock makes the database plan everything again
        await make.clock.advance(-make.clock.offset)
    return await verb.arrange(make)


async def undisturbed(make: Factory, verb: Verb) -> Snapshot:
    """What the database says after one call that nothing went wrong with."""
    await verb.act(make.engine, await begin(make, verb))
    return await ending(make, verb)


async def ending(make: Factory, verb: Verb) -> Snapshot:
    """What the database says; whatever it is, every invariant holds."""
    assert await verify(make.engine.db) == []
    found = await story(make.engine.db, in_order=verb.is_atomic)
    found.pop("limit_releases", None)  # a service looks at them, and waiting jobs show whether it has
    return found


# What must be there


async def nothing(make: Factory) -> None:
    pass


async def credits_(make: Factory) -> None:
    await make.credits(100)


async def three_ready(make: Factory) -> None:
    for _ in range(3):
        await make.submitted("priced")


async def held(make: Factory) -> Lease:
    return await make.leased("priced")


async def three_held(make: Factory) -> list[Lease]:
    await three_ready(make)
    return await make.claimed("priced", want=3)


async def held_brief(make: Factory) -> Lease:
    return await make.leased("brief")


async def held_once_broken(make: Factory) -> Lease:
    """Its next failure is its last."""
    lease = await make.leased("fragile")
    await make.engine.give_back(attempt(lease))
    (again,) = await make.claimed("fragile")
    return again


async def parked(make: Factory) -> Lease:
    return await make.parked()


async def pending(make: Factory) -> Any:
    return await make.submitted("priced")


async def ignored_cancel(make: Factory) -> None:
    """Its worker was asked to stop and did not."""
    lease = await make.leased("priced")
    await make.engine.cancel(TENANT, lease.job_id, grace=MINUTE / 2)
    await make.clock.advance(MINUTE / 2 + MARGIN)


async def four_past_their_deadline(make: Factory) -> None:
    """One in each phase that a deadline can find a job in."""
    await make.parked("brief")
    await make.submitted("brief")
    await make.claimed("brief", duration=2 * HOUR)
    await make.submitted("brief")
    soon = await make.clock.now() + HOUR / 2
    await make.submitted("brief", run_at=soon, expires_in=HOUR / 2)
    await make.clock.advance(HOUR + MARGIN)


async def two_due(make: Factory) -> None:
    present = await make.clock.now()
    for _ in range(2):
        await make.submitted("restartable", run_at=present + HOUR)
    await make.clock.advance(HOUR + MARGIN)


async def silent_workers(make: Factory) -> None:
    """One job that may be tried again, one at its cap, one whose cancel was asked for."""
    await make.leased("fragile")
    await make.clock.advance(MINUTE + MARGIN)
    await leases.lapse(make.engine.tenant_databases.executor_for_all, 10)
    await make.claimed("fragile")
    await make.leased("priced")
    canceling = await make.leased("staged", account="bob")  # two ends in one wallet may come in any order
    await make.engine.cancel(TENANT, canceling.job_id, grace=HOUR)
    await make.clock.advance(MINUTE + MARGIN)


async def failed_studio(make: Factory) -> Any:
    job = await make.ended("restartable", "failed")
    await make.credits(3)
    return job


async def succeeded(make: Factory) -> Any:
    return await make.ended("priced")


async def failed_standard(make: Factory) -> Any:
    job = await make.ended("priced", "failed")
    await make.credits(5)
    return job


async def held_delivered(make: Factory) -> Lease:
    """When it ends well its URL is to be told first."""
    return await make.leased("delivered", hook=HOOK)


async def delivering(make: Factory) -> Any:
    lease = await held_delivered(make)
    await make.finish(lease)
    return lease


async def answered(make: Factory) -> list[Settlement]:
    """One URL has taken the news of its job, another is gone; who sent them has yet to say so."""
    for _ in range(2):
        await delivering(make)
    items = await taken(make.engine.database(TENANT), 5, HOUR / 2)
    return [deliveries.judged(item, TryResult(status), NATIVE) for item, status in zip(items, (200, 410), strict=True)]


async def delivering_past_its_deadline(make: Factory) -> None:
    await delivering(make)
    await make.clock.advance(HOUR + MARGIN)


async def endpoint(make: Factory) -> Any:
    """With something to be told."""
    made, _ = await make.engine.endpoints.make(TENANT, url=HOOK.url, secret=SECRET)
    await make.ended("free")
    return made.endpoint_id


async def old_keys(make: Factory) -> None:
    """A key whose time has passed, and one whose job is still alive."""
    lease = await make.leased("priced", idempotency_key="ended")
    await make.engine.finish(End(lease, "succeeded", "{}"))
    await make.submitted("priced", idempotency_key="alive")
    await make.clock.advance(2 * DAY)


def children(lease: Lease, *, number: int = 2) -> SpawnRequest:
    shots = [ChildRequest("priced", SHOE | {"size": n + 2}) for n in range(number)]
    return SpawnRequest(lease, "shot", 1, shots, total=number)


def shots(number: int, size: int = 2) -> list[BatchJob]:
    return [{"kind": "priced", "input": SHOE | {"size": size + n}} for n in range(number)]


async def open_batch(make: Factory) -> UUID:
    """It has one of its three jobs."""
    await make.credits(100)
    return (await make.engine.batches.create(**OWNER, jobs=shots(1), total=3)).batch.batch_id


async def canceled_batch(make: Factory) -> UUID:
    """One of its jobs runs; the service has yet to cancel all three."""
    await make.credits(100)
    batch = (await make.engine.batches.create(**OWNER, jobs=shots(3))).batch
    await make.claimed("priced")
    await make.engine.database(TENANT).run(client_batches.SQL["cancel"], batch.batch_id, TENANT)
    return batch.batch_id


async def last_of_a_batch(make: Factory) -> Lease:
    """The batch has a webhook, and an endpoint receives its end too."""
    await make.engine.endpoints.make(TENANT, url=HOOK.url, secret=SECRET, events=("batch.completed",))
    await make.credits(100)
    await make.engine.batches.create(**OWNER, jobs=shots(1), hook=HOOK)
    (lease,) = await make.claimed("priced")
    return lease


async def held_with_credits(make: Factory) -> Lease:
    await make.credits(100)
    return await make.leased("free")


async def held_with_a_budget(make: Factory) -> Lease:
    await make.credits(100)
    return await make.leased("budgeted")


async def held_with_children(make: Factory) -> Lease:
    lease = await held_with_a_budget(make)
    await make.engine.spawn(children(lease))
    return lease


async def last_child_of_a_parked_parent(make: Factory) -> Lease:
    lease = await held_with_children(make)
    await make.engine.suspend(lease, "shot")
    first, last = await make.claimed("priced", want=2)
    await make.finish(first)
    return last


async def ended_before_its_children(make: Factory) -> None:
    await make.finish(await held_with_children(make))


async def rested(make: Factory) -> None:
    """Its time to sleep is over."""
    lease = await held_brief(make)
    await make.engine.record(StepRequest(lease, "sleep", 1, "sleep", wait=MINUTE))
    await make.engine.suspend(lease, "sleep")
    await make.clock.advance(MINUTE + MARGIN)


async def asking(make: Factory) -> Lease:
    lease = await held_brief(make)
    details = '{"question": "Which one?", "who": "client"}'
    await make.engine.record(StepRequest(lease, "question", 1, "question", wait=HOUR, details=details))
    await make.engine.suspend(lease, "question")
    return lease


async def two_scheduled(make: Factory) -> None:
    """One that is due, and one that was missed twice and cancels what it has submitted before."""
    await make.credits(100)
    often = Schedule("often", "priced", Timing(every=HOUR), overlap="cancel_previous", catch_up="all", **OWNER)
    rarely = Schedule("rarely", "free", Timing(every=3 * HOUR), tenant=TENANT, account="bob")
    for declared in (often, rarely):
        await make.engine.schedules.make(declared, actor="op")
    await make.clock.advance(HOUR + MARGIN)
    await make.engine.fires.fire()
    await make.clock.advance(2 * HOUR + MARGIN)


async def scheduled(make: Factory) -> Any:
    await make.credits(100)
    schedule, _ = await make.engine.schedules.make(Schedule("s", "priced", Timing(every=HOUR), **OWNER), actor="op")
    return schedule


# The verbs


@verb(held)
async def record(engine: Engine, lease: Lease) -> Any:
    return (await engine.record(StepRequest(lease, "facts", 1, "call", "[1, 2]"))).result


@verb(held_with_credits)
async def spawn(engine: Engine, lease: Lease) -> Any:
    return (await engine.spawn(children(lease))).submitted


@verb(held_with_a_budget)
async def spawn_from_a_budget(engine: Engine, lease: Lease) -> Any:
    return (await engine.spawn(children(lease))).submitted


@verb(held_with_children, LeaseLostError)
async def suspend(engine: Engine, lease: Lease) -> Any:
    return await engine.suspend(lease, "shot")


@verb(last_child_of_a_parked_parent)
async def finish_the_last_child(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "succeeded", '{"url": "x"}', captured=2))


@verb(held_with_children)
async def finish_before_the_children(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "failed", error=ERROR))


@verb(ended_before_its_children, is_atomic=False)
async def cancel_orphans(engine: Engine, _: Any) -> None:
    await engine.cancel_orphans(10)


@verb(rested, passes_over=True)
async def resume_due(engine: Engine, _: Any) -> None:
    await jobs.resume_due(engine.tenant_databases.executor_for_all, 10)


@verb(credits_)
async def create_a_batch(engine: Engine, _: Any) -> Any:
    created = await engine.batches.create(**OWNER, jobs=shots(2), total=3, key="k", hook=HOOK)
    return created.batch.submitted


@verb(open_batch)
async def add_to_a_batch(engine: Engine, batch: UUID) -> Any:
    return (await engine.batches.add(TENANT, batch, 1, shots(2, 5))).batch.submitted


@verb(last_of_a_batch)
async def finish_the_last_of_a_batch(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "succeeded", '{"url": "x"}', captured=2))


@verb(open_batch, is_atomic=False)
async def cancel_a_batch(engine: Engine, batch: UUID) -> Any:
    await engine.batches.cancel(TENANT, batch)
    while await engine.batches.cancel_jobs(10):
        pass


@verb(canceled_batch, is_atomic=False, passes_over=True)
async def cancel_the_jobs_of_a_batch(engine: Engine, _: UUID) -> None:
    await engine.batches.cancel_jobs(10)


@verb(asking)
async def answer_question(engine: Engine, lease: Lease) -> Any:
    return await engine.answer_question(TENANT, lease.job_id, "question", "the red one", actor="ann")


@verb(credits_)
async def submit_with_a_key(engine: Engine, _: Any) -> Any:
    return (await engine.submit("priced", SHOE, **OWNER, idempotency_key="k", run_at=None)).job_id


@verb(credits_, is_repeatable=False)
async def submit_without_a_key(engine: Engine, _: Any) -> Any:
    return (await engine.submit("priced", SHOE, **OWNER)).job_id


@verb(nothing, is_atomic=False)
async def submit_by_a_stranger(engine: Engine, _: Any) -> Any:
    return (await engine.submit("free", {}, **OWNER, idempotency_key="k")).job_id


@verb(credits_, is_atomic=False)
async def submit_many(engine: Engine, _: Any) -> Any:
    """Two are accepted, one is refused, one is for an account that does not exist yet."""
    requests: list[SubmitRequest] = [
        {"kind": "metered", "input": {"units": units}, **OWNER, "idempotency_key": f"k{units}"}
        for units in (60, 70, 40)
    ]
    requests.append({"kind": "free", "tenant": TENANT, "account": "bob", "idempotency_key": "k"})
    answers = await engine.submit_many(requests)
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, InsufficientCreditsError):
            raise answer
    return [getattr(answer, "price", getattr(answer, "code", None)) for answer in answers]


@verb(three_ready, leaves_traces=True, passes_over=True)
async def claim(engine: Engine, _: Any) -> list[Lease]:
    return await engine.claim(Lanes(["priced"]), 3, worker="w", duration=MINUTE)


@verb(three_held)
async def extend(engine: Engine, held: list[Lease]) -> Any:
    return await engine.extend(held, HOUR)


@verb(held)
async def note(engine: Engine, lease: Lease) -> Any:
    return await engine.note(progress(lease, 1, 0.5))


@verb(held)
async def emit(engine: Engine, lease: Lease) -> Any:
    (result,) = await engine.emit([Chunk(lease, 1, "Once "), Chunk(lease, 2, "upon")])
    if isinstance(result, Exception):
        raise result
    return result


@verb(held)
async def finish_succeeded(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "succeeded", '{"url": "x"}'))


@verb(held)
async def finish_with_a_part_captured(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "succeeded", '{"url": "x"}', captured=2))


@verb(held)
async def finish_failed(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "failed", error=ERROR))


@verb(three_held)
async def finish_three(engine: Engine, held: list[Lease]) -> Any:
    return await leases.finish(
        engine.tenant_databases.executor(TENANT), [End(lease, "succeeded", "{}") for lease in held]
    )


@verb(held, LeaseLostError)
async def give_back_after_an_attempt(engine: Engine, lease: Lease) -> Any:
    return await engine.give_back(attempt(lease, delay=MINUTE))


@verb(held, LeaseLostError)
async def give_back_after_an_interruption(engine: Engine, lease: Lease) -> Any:
    return await engine.give_back(interruption(lease))


@verb(held_once_broken, LeaseLostError)
async def give_back_at_the_cap(engine: Engine, lease: Lease) -> Any:
    return await engine.give_back(attempt(lease))


@verb(held_brief, LeaseLostError)
async def park(engine: Engine, lease: Lease) -> Any:
    return await engine.park(lease, {"page": 2})


@verb(held_brief, LeaseLostError)
async def proceed(engine: Engine, lease: Lease) -> Any:
    return await engine.proceed(lease, {"approved": True}, {"page": 2})


@verb(parked)
async def answer(engine: Engine, lease: Lease) -> Any:
    return await engine.answer(TENANT, lease.job_id, {"approved": True})


@verb(pending)
async def cancel_pending(engine: Engine, submitted: Any) -> Any:
    return (await engine.cancel(TENANT, submitted.job_id)).state


@verb(parked)
async def cancel_parked(engine: Engine, lease: Lease) -> Any:
    return (await engine.cancel(TENANT, lease.job_id)).state


@verb(held)
async def cancel_running(engine: Engine, lease: Lease) -> Any:
    return (await engine.cancel(TENANT, lease.job_id)).state


@verb(ignored_cancel, passes_over=True)
async def force_cancel(engine: Engine, _: Any) -> None:
    await jobs.force_cancel(engine.tenant_databases.executor_for_all, 10)


@verb(four_past_their_deadline, passes_over=True)
async def expire(engine: Engine, _: Any) -> None:
    await jobs.expire(engine.tenant_databases.executor_for_all, 10)


@verb(two_due, passes_over=True)
async def promote(engine: Engine, _: Any) -> None:
    await jobs.promote(engine.tenant_databases.executor_for_all, 10)


@verb(silent_workers, passes_over=True)
async def lapse(engine: Engine, _: Any) -> None:
    await leases.lapse(engine.tenant_databases.executor_for_all, 10)


@verb(three_held)
async def abandon(engine: Engine, held: list[Lease]) -> None:
    await engine.abandon(held[0].token)


@verb(failed_studio, RetryUnavailableError)
async def retry_in_place(engine: Engine, job: Any) -> Any:
    return (await engine.retry(TENANT, job.job_id)).state


@verb(failed_standard, is_repeatable=False)
async def retry_as_a_new_job(engine: Engine, job: Any) -> Any:
    return (await engine.retry(TENANT, job.job_id)).state


@verb(nothing)
async def grant(engine: Engine, _: Any) -> Any:
    return await engine.grant(TENANT, ACCOUNT, 100, reference="invoice 1")


@verb(credits_)
async def adjust(engine: Engine, _: Any) -> Any:
    return await engine.adjust(TENANT, ACCOUNT, -40, reference="ticket 1", reason="Granted twice.")


@verb(nothing)
async def set_cap(engine: Engine, _: Any) -> Any:
    return await engine.set_cap(TENANT, ACCOUNT, 3)


@verb(succeeded)
async def refund(engine: Engine, job: Any) -> Any:
    return (await engine.refund(TENANT, job.job_id, reason="It was wrong.", actor="op")).amount


@verb(pending)
async def prioritize(engine: Engine, job: Any) -> Any:
    return (await engine.prioritize(TENANT, job.job_id, 7)).state


@verb(held_brief, MillpondError)
async def transition(engine: Engine, lease: Lease) -> Any:
    return await engine.transition(TENANT, lease.job_id, "parked")


@verb(nothing)
async def pause(engine: Engine, _: Any) -> None:
    await engine.pause("priced")


@verb(three_held)
async def close_leases(engine: Engine, held: list[Lease]) -> None:
    await engine.close_leases({held[0].token})


@verb(nothing)
async def register(engine: Engine, _: Any) -> None:
    await registry.register(engine.db, [app.kinds["priced"], app.kinds["restartable"]])


@verb(credits_)
async def submit_with_a_url(engine: Engine, _: Any) -> Any:
    return (await engine.submit("priced", SHOE, **OWNER, idempotency_key="k", hook=HOOK)).job_id


@verb(held_delivered)
async def finish_and_deliver(engine: Engine, lease: Lease) -> Any:
    return await engine.finish(End(lease, "succeeded", '{"url": "x"}', captured=2))


@verb(delivering, passes_over=True)
async def claim_deliveries(engine: Engine, _: Any) -> Any:
    return len(await taken(engine.database(TENANT), 5, HOUR / 2))


@verb(answered, is_atomic=False)
async def settle_and_conclude(engine: Engine, settlements: list[Settlement]) -> Any:
    return await deliveries.settle(engine, engine.database(TENANT), settlements)


@verb(delivering_past_its_deadline, passes_over=True)
async def expire_what_is_delivered(engine: Engine, _: Any) -> None:
    await jobs.expire(engine.tenant_databases.executor_for_all, 10)


@verb(endpoint, MillpondError)
async def delete_an_endpoint(engine: Engine, endpoint_id: Any) -> None:
    await engine.endpoints.delete(TENANT, endpoint_id)


@verb(old_keys, is_atomic=False)
async def prune(engine: Engine, _: Any) -> None:
    await pruner(engine).run_once()


async def one_limited(make: Factory) -> None:
    await make.submitted("limited")


async def one_of_three_limited(make: Factory) -> Lease:
    for _ in range(3):
        await make.submitted("limited")
    (lease,) = await make.claimed("limited", want=3)
    return lease


async def two_limited_waiting(make: Factory) -> None:
    """The first has ended, and nobody has looked yet whether another may start."""
    lease = await one_of_three_limited(make)
    await leases.finish(make.engine.tenant_databases.executor(lease.tenant), [End(lease, "succeeded")])


@verb(one_limited, leaves_traces=True)
async def claim_under_a_limit(engine: Engine, _: Any) -> Any:
    return len(await engine.claim(Lanes(["limited"]), 3, worker="w", duration=HOUR))


@verb(one_of_three_limited, passes_over=True)
async def claim_past_a_limit(engine: Engine, _: Any) -> Any:
    return len(await engine.claim(Lanes(["limited"]), 3, worker="w", duration=HOUR))


@verb(one_of_three_limited, is_atomic=False)
async def finish_under_a_limit(engine: Engine, lease: Lease) -> None:
    """What the engine does in the background, the scheduler does too."""
    await leases.finish(engine.tenant_databases.executor(TENANT), [End(lease, "succeeded")])
    await engine.limits.look_again()


@verb(two_limited_waiting, is_atomic=False, passes_over=True)
async def look_again(engine: Engine, _: Any) -> None:
    await engine.limits.look_again()


@verb(one_of_three_limited, is_repeatable=False)
async def close_a_limit(engine: Engine, _: Any) -> None:
    await engine.limits.close("one", f"{TENANT}/{ACCOUNT}", HOUR, actor="op")


@verb(nothing)
async def make_a_schedule(engine: Engine, _: Any) -> Any:
    declared = Schedule("s", "priced", Timing(every=HOUR), **OWNER)
    return (await engine.schedules.make(declared, actor="op", key="k"))[0].declared.name


@verb(scheduled, is_atomic=False)
async def run_a_schedule(engine: Engine, schedule: Any) -> Any:
    fire, _ = await engine.fires.run(schedule, actor="op", key="k")
    await overtake(engine)
    return fire.cause


@verb(two_scheduled, is_atomic=False, passes_over=True)
async def fire_schedules(engine: Engine, _: Any) -> None:
    """What the database refuses for now is tried again."""
    await overtake(engine)
    await overtake(engine)


async def overtake(engine: Engine) -> None:
    """Fire what is due, and submit what a process that was disturbed has left pending."""

    async def release(tx: Any) -> None:
        await tx.execute("update millpond.fires set try_at = millpond.clock() where outcome = 'pending'")

    await engine.db.transact(release)
    await firer(engine).run_once()
