"""Queues: in which order jobs are handed out, and whether they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.queue import queues
from millpond.errors import NotFoundError
from tests.checks import refused, unchanged
from tests.factories import ACCOUNT, HOUR, interruption

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory


async def tenants(make: Factory, want: int) -> list[str]:
    """Whose jobs a worker of the fair queue gets next."""
    return [lease.tenant for lease in await make.claimed("fair", want=want, duration=HOUR)]


async def submit(engine: Engine, *names: str) -> None:
    await engine.submit_many([{"kind": "fair", "tenant": name, "account": ACCOUNT} for name in names])


# Order


async def test_the_highest_priority_goes_first_and_the_oldest_within_it(engine: Engine, make: Factory) -> None:
    made = {
        (priority, n): (await make.submitted(priority=priority)).job_id
        for n in range(2)
        for priority in (0, 100, -100, 7)
    }
    expected = [made[priority, n] for priority in (100, 7, 0, -100) for n in range(2)]
    assert [lease.job_id for lease in await make.claimed("free", want=8)] == expected


async def test_priority_holds_across_queues(make: Factory) -> None:
    low = await make.submitted("free", priority=-1)
    high = await make.submitted("brief", priority=1)
    assert [lease.job_id for lease in await make.claimed("free", "brief", want=2)] == [high.job_id, low.job_id]
    assert low.job_id != high.job_id


async def test_a_kind_may_have_a_priority_of_its_own(engine: Engine, make: Factory) -> None:
    submitted = await make.submitted("free", priority=5)
    assert (await make.read(submitted.job_id)).priority == 5
    again = await make.submitted("free")
    assert (await make.read(again.job_id)).priority == 0


# Fair share


async def test_tenants_take_turns(engine: Engine, make: Factory) -> None:
    await submit(engine, *["acme"] * 4, *["globex"] * 2, "initech")
    assert await tenants(make, 7) == ["acme", "globex", "initech", "acme", "globex", "acme", "acme"]


@pytest.mark.parametrize("others", [1, 5])
async def test_a_newcomer_waits_for_at_most_one_job_of_every_other_tenant(
    engine: Engine, make: Factory, others: int
) -> None:
    """However long their lines are, and however many of their jobs were served before."""
    crowd = [f"tenant-{n}" for n in range(others)]
    await submit(engine, *(name for name in crowd for _ in range(20)))
    await tenants(make, 7 * others)
    await submit(engine, "newcomer")
    served = await tenants(make, 14 * others)
    assert served.index("newcomer") <= others


async def test_a_tenant_that_comes_and_goes_gains_nothing_by_it(engine: Engine, make: Factory) -> None:
    """One job at a time, each submitted when the last was handed out: it gets its share and no more."""
    await submit(engine, *["acme"] * 10)
    served: list[str] = []
    for _ in range(5):
        await submit(engine, "globex")
        served += await tenants(make, 2)
    assert served.count("globex") == 5


async def test_a_tenant_does_not_save_up_turns_while_it_is_away(engine: Engine, make: Factory) -> None:
    await submit(engine, "globex", *["acme"] * 20)
    await tenants(make, 15)
    await submit(engine, *["globex"] * 10)
    assert await tenants(make, 6) == ["acme", "globex"] * 3


async def test_an_empty_line_forgets_who_had_more(engine: Engine, make: Factory) -> None:
    await submit(engine, *["acme"] * 20)
    await tenants(make, 20)
    await submit(engine, *["acme"] * 3, *["globex"] * 3)
    assert sorted(await tenants(make, 2)) == ["acme", "globex"]


async def test_priority_goes_before_fairness(engine: Engine, make: Factory) -> None:
    await submit(engine, "acme", "globex")
    await engine.submit("fair", tenant="acme", account=ACCOUNT, priority=1)
    assert await tenants(make, 3) == ["acme", "acme", "globex"]


async def test_a_job_that_goes_back_keeps_its_turn(engine: Engine, make: Factory) -> None:
    await submit(engine, *["acme"] * 3, "globex")
    (lease,) = await make.claimed("fair")
    await engine.give_back(interruption(lease))
    assert (await make.claimed("fair"))[0].job_id == lease.job_id


async def test_fair_and_plain_jobs_go_in_one_bulk(engine: Engine, make: Factory) -> None:
    await engine.submit_many(
        [
            {"kind": kind, "tenant": name, "account": ACCOUNT}
            for name in ("acme", "globex")
            for kind in ("fair", "free") * 2
        ]
    )
    assert await tenants(make, 4) == ["acme", "globex", "acme", "globex"]
    assert len(await make.claimed("free", want=9)) == 4


async def test_turns_are_taken_one_tenant_at_a_time_over_many_submits(engine: Engine, make: Factory) -> None:
    for _ in range(3):
        await submit(engine, "acme")
    for _ in range(3):
        await submit(engine, "globex")
    assert await tenants(make, 6) == ["acme", "globex"] * 3


# Pause


async def test_a_paused_queue_hands_out_nothing_and_loses_nothing(engine: Engine, make: Factory) -> None:
    running = await make.leased()
    await make.submitted()
    await engine.pause("free")
    assert await make.claimed("free") == []
    await make.submitted()
    assert await make.finish(running) == "succeeded"
    await engine.resume("free")
    assert len(await make.claimed("free", want=9)) == 2


async def test_a_pause_stops_one_queue_only(engine: Engine, make: Factory) -> None:
    await make.submitted("free")
    await make.submitted("brief")
    await engine.pause("free")
    assert [lease.queue for lease in await make.claimed("free", "brief", want=9)] == ["brief"]


async def test_pausing_twice_is_pausing_once(db: Database, engine: Engine) -> None:
    await engine.pause("free")
    async with unchanged(db):
        await engine.pause("free")
    await engine.resume("free")
    await engine.resume("free")


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_queue_nobody_knows_cannot_be_stopped(db: Database, engine: Engine, verb: str) -> None:
    async with refused(db, NotFoundError, field="queue"):
        await getattr(engine, verb)("nonsense")


async def test_the_list_of_queues_reports_depth_and_pause(db: Database, engine: Engine, make: Factory) -> None:
    await make.submitted("free")
    await make.submitted("free")
    await make.leased("brief")
    await engine.pause("free")
    found = {queue.queue: queue for queue in await queues.list_queues(db)}
    assert (found["free"].depth, found["free"].paused_at is not None) == (2, True)
    assert (found["brief"].depth, found["brief"].paused_at) == (0, None)
    assert found["fair"].is_fair
