"""Crowds on real connections: many engines, each with its own pool, at one database."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.errors import IdempotencyConflictError, InsufficientCreditsError, LeaseLostError, TooManyActiveJobsError
from millpond.store.db import Database
from tests.factories import ACCOUNT, HOUR, MINUTE, OWNER, TENANT, attempt, interruption, progress
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from uuid import UUID

    from millpond.engine.jobs.jobs import SubmitRequest
    from millpond.engine.queue.leases import Lease
    from millpond.store.queries import NamedQuery
    from tests.factories import Factory

ENGINES = 4


@pytest.fixture
async def engines(engine: Engine, dsn: str) -> AsyncIterator[list[Engine]]:
    """As of several processes: nothing is shared but the database. Locks are taken in an order: no deadlock, ever."""
    opened = [Engine(await Database.open(dsn, size=6), app) for _ in range(ENGINES)]
    yield opened
    for one in opened:
        await one.close()
    async with engine.db.transaction() as tx:
        assert await tx.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def answers(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


def kinds_of(found: list[Any]) -> Counter[str]:
    return Counter(type(answer).__name__ for answer in found)


# Keys and credits


@pytest.mark.parametrize("crowd", [1, ENGINES], ids=["one engine", "several engines"])
async def test_fifty_submits_with_one_key_are_one_job_and_one_hold(
    engine: Engine, engines: list[Engine], make: Factory, crowd: int
) -> None:
    await make.credits(1_000)
    found = await answers(engines[n % crowd].submit("priced", **OWNER, idempotency_key="k") for n in range(50))
    assert kinds_of(found) == {"Submitted": 50}
    assert len({answer.job_id for answer in found}) == 1
    assert sum(not answer.is_replay for answer in found) == 1
    assert len({(answer.state, answer.available, answer.created_at) for answer in found}) == 1
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (995, 5, 1)
    assert [entry.type for entry in await engine.entries(TENANT, ACCOUNT)] == ["hold", "grant"]


async def test_one_key_with_two_requests_is_one_job_and_a_conflict_for_the_others(
    engines: list[Engine], make: Factory
) -> None:
    await make.credits(1_000)
    found = await answers(
        engines[n % ENGINES].submit("priced", {"size": n % 2}, **OWNER, idempotency_key="k") for n in range(40)
    )
    assert kinds_of(found) == {"Submitted": 20, "IdempotencyConflictError": 20}
    assert {type(answer) for answer in found if isinstance(answer, Exception)} == {IdempotencyConflictError}


async def test_many_keys_from_many_engines_are_one_job_each(engine: Engine, engines: list[Engine]) -> None:
    """Each engine sends all keys, each in another order, in batches: no deadlock, no twin."""
    keys = [f"k{n}" for n in range(100)]
    crowd = [
        one.submit("free", tenant=TENANT, account=random.choice(["ann", "bob"]), scope="all", idempotency_key=key)
        for one in engines
        for key in random.sample(keys, len(keys))
    ]
    found = await answers(crowd)
    assert kinds_of(found) == {"Submitted": 400}
    assert len({answer.job_id for answer in found}) == 100
    assert sum(not answer.is_replay for answer in found) == 100
    active = [(await engine.balance(TENANT, account)).active for account in ("ann", "bob")]
    assert sum(active) == 100


async def test_bulks_with_the_same_keys_in_other_orders_do_not_lock_each_other_out(engines: list[Engine]) -> None:
    """Each in an account of its own: only the keys bring them together."""
    for _ in range(3):
        keys = [f"k{random.random()}" for _ in range(300)]
        bulks: list[list[SubmitRequest]] = [
            [
                {"kind": "free", "tenant": TENANT, "account": f"a{n}", "scope": "all", "idempotency_key": key}
                for key in random.sample(keys, len(keys))
            ]
            for n in range(ENGINES)
        ]
        found = await answers(one.submit_many(bulk) for one, bulk in zip(engines, bulks, strict=True))
        assert kinds_of([answer for group in found for answer in group]) == {"Submitted": 300 * ENGINES}
        assert len({answer.job_id for group in found for answer in group}) == 300


async def test_credit_for_k_jobs_buys_exactly_k_of_n(engine: Engine, engines: list[Engine], make: Factory) -> None:
    await make.credits(5 * 37 + 4)
    found = await answers(engines[n % ENGINES].submit("priced", **OWNER) for n in range(100))
    assert kinds_of(found) == {"Submitted": 37, "InsufficientCreditsError": 63}
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held) == (4, 185)


@pytest.mark.parametrize("crowd", [1, ENGINES], ids=["one engine", "several engines"])
async def test_of_mixed_prices_none_is_refused_that_could_have_been_paid(
    engine: Engine, engines: list[Engine], make: Factory, crowd: int
) -> None:
    """What is left in the end buys nothing that was refused; what was refused was told what there was."""
    await make.credits(500)
    prices = [random.Random(7).choice([1, 3, 10, 40, 90]) for _ in range(80)]
    found = await answers(
        engines[n % crowd].submit("metered", {"units": price}, **OWNER) for n, price in enumerate(prices)
    )
    refused = [answer for answer in found if isinstance(answer, InsufficientCreditsError)]
    assert kinds_of(found).keys() == {"Submitted", "InsufficientCreditsError"}
    left = (await engine.balance(TENANT, ACCOUNT)).available
    assert all(answer.details["required"] > left for answer in refused)
    assert all(answer.details["required"] > answer.details["available"] for answer in refused)
    assert left == 500 - sum(answer.price for answer in found if not isinstance(answer, Exception))


async def test_bulk_and_single_submits_share_the_last_credits(
    engine: Engine, engines: list[Engine], make: Factory
) -> None:
    await make.credits(5 * 50)
    bulk: list[SubmitRequest] = [{"kind": "priced", **OWNER}] * 40
    found = await answers(
        [*(one.submit_many(bulk) for one in engines), *(engine.submit("priced", **OWNER) for _ in range(20))]
    )
    flat = [answer for group in found for answer in (group if isinstance(group, list) else [group])]
    assert kinds_of(flat) == {"Submitted": 50, "InsufficientCreditsError": 130}


async def test_a_cap_is_kept_to_the_job(engine: Engine, engines: list[Engine]) -> None:
    await engine.set_cap(TENANT, ACCOUNT, 13)
    found = await answers(engines[n % ENGINES].submit("free", **OWNER) for n in range(60))
    assert kinds_of(found) == {"Submitted": 13, "TooManyActiveJobsError": 47}
    assert {type(answer) for answer in found if isinstance(answer, Exception)} == {TooManyActiveJobsError}


async def test_strangers_open_their_accounts_together(engine: Engine, engines: list[Engine]) -> None:
    found = await answers(
        engines[n % ENGINES].submit("free", tenant=TENANT, account=f"account-{n % 10}") for n in range(100)
    )
    assert kinds_of(found) == {"Submitted": 100}
    assert {(await engine.balance(TENANT, f"account-{n}")).active for n in range(10)} == {10}


async def test_grants_submits_and_ends_of_one_account_add_up(
    engine: Engine, engines: list[Engine], make: Factory
) -> None:
    """Money in, aside, out and back at once: the wallet is the sum of its entries, never below zero."""
    await make.credits(50)

    async def work(one: Engine) -> None:
        for lease in await one.claim(Lanes(["priced"]), 20, worker="w", duration=MINUTE):
            await one.finish(End(lease, random.choice(["succeeded", "failed"])))

    for _ in range(5):
        found = await answers(
            [
                *(one.submit("priced", **OWNER) for one in engines for _ in range(5)),
                *(one.grant(TENANT, ACCOUNT, 3) for one in engines),
                *(work(one) for one in engines),
            ]
        )
        assert set(kinds_of(found)) <= {"Submitted", "InsufficientCreditsError", "int", "NoneType"}
    entries = await engine.entries(TENANT, ACCOUNT, limit=1_000)
    balance = await engine.balance(TENANT, ACCOUNT)
    assert sum(entry.available for entry in entries) == balance.available
    assert sum(entry.held for entry in entries) == balance.held


# Leases


async def test_a_hundred_claimers_over_ten_thousand_jobs_lose_none_and_take_none_twice(
    engine: Engine, engines: list[Engine]
) -> None:
    submitted = await engine.submit_many([{"kind": "free", **OWNER} for _ in range(10_000)])
    made = {answer.job_id for answer in submitted if not isinstance(answer, Exception)}
    taken: list[UUID] = []

    async def claimer(one: Engine, number: int) -> None:
        lanes = Lanes(["free"])
        while len(taken) < len(made):
            lanes.look_at = 0.0 if not lanes.marks else lanes.look_at
            found = await one.claim(lanes, random.randint(1, 60), worker=f"w{number}", duration=HOUR)
            taken.extend(lease.job_id for lease in found)
            if not found:
                lanes.look_at = 0.0

    async with asyncio.timeout(60):
        await asyncio.gather(*(claimer(engines[n % ENGINES], n) for n in range(100)))
    assert len(taken) == len(made) == 10_000
    assert set(taken) == made


async def end_somehow(one: Engine, lease: Lease) -> None:
    match random.randrange(5):
        case 0:
            await one.finish(End(lease, "succeeded"))
        case 1:
            await one.give_back(interruption(lease))
        case 2:
            await one.give_back(attempt(lease))
        case 3:
            await one.abandon(lease.token)
        case _:
            pass  # it falls silent


async def test_claims_returns_and_lapses_at_once_never_lease_a_job_twice(
    engine: Engine, engines: list[Engine], make: Factory
) -> None:
    """Every (job, epoch) is handed out once, epochs only grow, and in the end everything ends."""
    await engine.submit_many([{"kind": "free", **OWNER} for _ in range(300)])
    granted: list[tuple[UUID, int]] = []

    async def worker(one: Engine) -> None:
        for _ in range(12):
            for lease in await one.claim(Lanes(["free"]), 10, worker="w", duration=MINUTE):
                granted.append((lease.job_id, lease.epoch))
                with contextlib.suppress(LeaseLostError):
                    await end_somehow(one, lease)

    async def reaper(one: Engine) -> None:
        for _ in range(10):
            await leases.lapse(one.db, 5)
            await jobs.expire(one.db, 5)

    await asyncio.gather(*(worker(one) for one in engines), *(reaper(one) for one in engines))
    assert len(set(granted)) == len(granted)
    await make.clock.advance(2 * MINUTE)
    while await leases.lapse(engine.db, 100):
        pass
    for lease in await make.claimed("free", want=300, duration=HOUR):
        await make.finish(lease)
    async with engine.db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.jobs where phase <> 'ended'") == 0


async def test_a_crowd_at_one_job_has_one_winner(engine: Engine, engines: list[Engine], make: Factory) -> None:
    """Finishes, returns, cancels, moves and the expirer at once, over and over: one end, one settlement."""
    for _ in range(15):
        await make.submitted("brief")
        (lease,) = await make.claimed("brief", duration=5 * HOUR)
        await make.clock.advance(2 * HOUR)
        crowd: list[Any] = [
            *(one.finish(End(lease, random.choice(["succeeded", "failed"]))) for one in engines),
            *(one.cancel(TENANT, lease.job_id) for one in engines),
            *(one.transition(TENANT, lease.job_id, "failed") for one in engines),
            *(jobs.expire(one.db, 5) for one in engines),
        ]
        random.shuffle(crowd)
        await answers(crowd)
        types = await make.types(lease.job_id)
        assert len({"succeeded", "failed", "canceled", "expired"} & set(types)) == 1
        assert types[-1] in {"succeeded", "failed", "canceled", "expired"}
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.held, balance.active) == (0, 0)


async def test_notes_from_everywhere_are_numbered_without_a_gap(
    engine: Engine, engines: list[Engine], make: Factory
) -> None:
    """Cancels and moves write into the same log as the worker."""
    lease = await make.leased("staged")

    async def talk() -> None:
        for number in range(1, 30):
            await engine.note(progress(lease, number, number / 100))

    await asyncio.gather(talk(), *(one.cancel(TENANT, lease.job_id, grace=HOUR) for one in engines))
    events = await engine.events(TENANT, lease.job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count("cancel_requested") == 1
    assert [event.type for event in events].count("progress") == 29


async def test_answers_from_everywhere_are_one_answer(engines: list[Engine], make: Factory) -> None:
    parked = await make.parked("brief")
    found = await answers(engines[n % ENGINES].answer(TENANT, parked.job_id, n % 3) for n in range(30))
    assert kinds_of(found)["str"] >= 1
    assert set(kinds_of(found)) <= {"str", "AnswerUnavailableError"}
    assert (await make.types(parked.job_id)).count("answered") == 1


async def test_fair_turns_are_given_out_once_even_in_a_crowd(engines: list[Engine], make: Factory) -> None:
    """Tenants that submit at once, through many engines, are still served in turns."""
    found = await answers(engines[n % ENGINES].submit("fair", tenant=f"t{n % 5}", account=ACCOUNT) for n in range(100))
    assert kinds_of(found) == {"Submitted": 100}
    served = [lease.tenant for lease in await make.claimed("fair", want=100)]
    assert len(served) == 100
    for tenant in {f"t{n}" for n in range(5)}:
        assert served.count(tenant) == 20


class Meddled:
    """A database on which something happens right after a batch was judged for the first time."""

    def __init__(self, db: Database, meddle: Callable[[], Awaitable[Any]]) -> None:
        self.db = db
        self.meddle: Callable[[], Awaitable[Any]] | None = meddle

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        answer = await self.db.run(query, *arguments)
        if query.name == "jobs.judge" and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return answer


async def test_nothing_is_refused_for_the_sake_of_another_that_is_refused_as_well(
    db: Database, engine: Engine, make: Factory
) -> None:
    """Of 40 and 20 credits 50 pay for one. When the 40 become too many meanwhile, the 20 must not be lost for them."""
    await make.credits(50)
    items = [jobs.prepare(app.kinds, "metered", {"units": units}, **OWNER) for units in (40, 20)]
    meddled: Any = Meddled(db, lambda: engine.submit("metered", {"units": 20}, **OWNER))
    dear, cheap = await jobs.submit(meddled, items)
    assert isinstance(dear, InsufficientCreditsError)
    assert not isinstance(cheap, Exception)
    assert cheap.available == 10


async def test_no_place_is_refused_for_the_sake_of_another_that_is_refused_as_well(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.credits(10)
    await engine.set_cap(TENANT, ACCOUNT, 1)
    items = [jobs.prepare(app.kinds, kind, **OWNER) for kind in ("priced", "free")]
    meddled: Any = Meddled(db, lambda: engine.adjust(TENANT, ACCOUNT, -10, reason="gone"))
    dear, free = await jobs.submit(meddled, items)
    assert isinstance(dear, InsufficientCreditsError)
    assert not isinstance(free, Exception)
