"""The process killed with SIGKILL before every statement of every verb over two databases: repaired, charged once.

A process that dies before its n-th statement has sent all before it, to either database; so between the commit of the
tenant and the commit of central, and at every other step.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest

from millpond.engine.queue.dispatches import Lanes
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.deliveries import TryResult
from millpond.webhooks import NATIVE
from tests.checks import until
from tests.factories import ACCOUNT, HOUR, TENANT
from tests.faults.dumps import story
from tests.faults.verbs import VERBS, Verb
from tests.post import taken
from tests.tenant_databases.processes import VerbProcess, verb_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from millpond.engine.queue.leases import Lease
    from tests.checks import Snapshot
    from tests.tenant_databases.conftest import SystemUnderTest

pytestmark = pytest.mark.slow

SPANNING = {
    "submit_with_a_key",
    "submit_without_a_key",
    "submit_many",
    "claim",
    "note",
    "finish_with_a_part_captured",
    "give_back_after_an_attempt",
    "give_back_at_the_cap",
    "park",
    "proceed",
    "answer",
    "cancel_pending",
    "cancel_running",
    "force_cancel",
    "expire",
    "promote",
    "lapse",
    "abandon",
    "retry_in_place",
    "refund",
    "prioritize",
    "move",
    "submit_with_a_url",
    "finish_and_deliver",
    "claim_deliveries",
    "settle_and_conclude",
    "expire_what_is_delivered",
    "delete_an_endpoint",
    "record",
    "spawn",
    "spawn_from_a_budget",
    "suspend",
    "finish_the_last_child",
    "finish_before_the_children",
    "cancel_orphans",
    "create_a_batch",
    "add_to_a_batch",
    "finish_the_last_of_a_batch",
    "cancel_a_batch",
    "cancel_the_jobs_of_a_batch",
    "resume_due",
    "answer_question",
    "claim_past_a_limit",
    "claim_under_a_limit",
    "finish_under_a_limit",
    "look_again",
    "run_a_schedule",
    "fire_schedules",
}
"""One of each verb that writes to both; the others of the list differ from these in one database only."""


@pytest.fixture(scope="module")
async def killed(system: SystemUnderTest) -> AsyncIterator[VerbProcess]:
    async with verb_process(system.engine.db.dsn, system.database.dsn) as made:
        yield made


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.name in SPANNING], ids=lambda verb: verb.name)
async def test_a_process_killed_before_any_statement_leaves_one_effect_or_none(
    system: SystemUnderTest, killed: VerbProcess, verb: Verb
) -> None:
    await system.clear()
    given = await verb.arrange(system.make)
    before = await system.tenants_story(in_order=verb.is_atomic)
    assert not await killed.call(verb.name, given)
    await until(system.repair)
    expected = await system.tenants_story(in_order=verb.is_atomic)
    statements = killed.fuse.sent
    assert statements > 1
    known: list[list[Snapshot]] = []
    for number in count(1):
        await system.clear()
        given = await verb.arrange(system.make)
        if not await killed.call(verb.name, given, kill_before=number):
            break
        left = [await story(db, in_order=verb.is_atomic) for db in system.engine.databases()]
        if left in known:  # after a statement that only reads, what follows is what followed before
            continue
        known.append(left)
        await until(system.repair)
        if not verb.is_repeatable:
            assert await system.tenants_story(in_order=verb.is_atomic) in (before, expected), f"statement {number}"
        else:
            with suppress(*verb.refusals):
                await verb.act(system.engine, given)
            if not verb.leaves_traces:
                assert await system.tenants_story(in_order=verb.is_atomic) == expected, f"statement {number}"
        await all_ends(system)
    assert number > statements / 2


async def all_ends(system: SystemUnderTest) -> None:
    """Whatever is there can be brought to its end, once, and every credit is accounted for."""
    async with system.engine.db.transaction() as tx:
        await tx.execute("update millpond.leases set expires_at = millpond.clock()")
        due = "update millpond.dispatches set run_at = millpond.clock(), wakes_at = millpond.clock()"
        await tx.execute(f"{due} where phase = 'waiting'")
    await system.serve()
    async with system.database.transaction() as tx:
        parked = await tx.fetch("select id from millpond.jobs where phase = 'parked'")
    for row in parked:
        await system.engine.cancel(TENANT, row["id"])
    queues = [
        "priced",
        "free",
        "metered",
        "staged",
        "brief",
        "fragile",
        "restartable",
        "delivered",
        "budgeted",
        "limited",
    ]
    while claimed := await claim(system, queues):
        await asyncio.gather(*map(system.make.finish, claimed))
    while await system.engine.cancel_orphans(10):
        pass
    await all_is_delivered(system)
    assert await system.engine.verify() == []
    async with system.database.transaction() as tx:
        unended = await tx.fetchval("select count(*) from millpond.jobs where phase <> 'ended'")
        entries = await tx.fetchrow(
            "select coalesce(sum(available), 0) as available, coalesce(sum(held), 0) as held from millpond.entries"
            " where account = $1",
            ACCOUNT,
        )
    async with system.engine.db.transaction() as tx:
        left = await tx.fetchval("select count(*) from millpond.dispatches")
    balance = await system.engine.balance(TENANT, ACCOUNT)
    assert (unended, left, balance.held) == (0, 0, 0)
    assert entries is not None
    assert (entries["available"], entries["held"]) == (balance.available, 0)


async def all_is_delivered(system: SystemUnderTest) -> None:
    """Whatever is to be told is taken, in order, also what a courier that was killed had in hand."""
    async with system.database.transaction() as tx:
        await tx.execute("update millpond.deliveries set due_at = millpond.clock() where is_out")
    while items := await taken(system.database, 10, HOUR):
        settled = [deliveries.judged(item, TryResult(200), NATIVE) for item in items]
        await deliveries.settle(system.engine, system.database, settled)
    async with system.database.transaction() as tx:
        waiting = "select count(*) from millpond.deliveries where due_at is not null and due_at <> 'infinity'"
        assert await tx.fetchval(waiting) == 0


async def claim(system: SystemUnderTest, queues: Sequence[str]) -> list[Lease]:
    """Jobs that may start now, whatever they waited for."""
    if system.engine._watchers:
        await asyncio.wait(system.engine._watchers)
    await system.engine.limits.look_again()
    return await system.engine.claim(Lanes(queues), 10, worker="w", duration=HOUR)
