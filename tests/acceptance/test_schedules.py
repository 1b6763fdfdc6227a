"""Four nodes, a thousand schedules that are due in the same minute, two nodes killed: each fires exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from millpond.schedules import Schedule, Timing
from tests.acceptance.processes import PRODUCT, Command, Shell, until

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.clocks import Clock

NODES = 4
SCHEDULES = 1_000
PRICE = 3
KILLED_AFTER = (150, 450)
"""How many have fired when a node is killed."""
OVERLAPS = ("queue", "skip", "cancel_previous")
HOUR = timedelta(hours=1)


async def counted(db: Database, what: str) -> int:
    async with db.transaction() as tx:
        return await tx.fetchval(f"select count(*) from {what}")


async def make(engine: Engine, numbers: range) -> None:
    for number in numbers:
        declared = Schedule(
            f"s{number}",
            "nap",
            Timing(cron="0 * * * *"),
            tenant="acme",
            account="ann",
            input={"n": number},
            overlap=OVERLAPS[number % 3],
        )
        await engine.schedules.make(declared, actor="op")


@pytest.mark.slow
async def test_each_of_a_thousand_schedules_fires_once_whatever_dies(
    sh: Shell, db: Database, engine: Engine, clock: Clock
) -> None:
    await engine.grant("acme", "ann", PRICE * SCHEDULES)
    nodes = [sh.start("serve", PRODUCT, "--role", "services") for _ in range(NODES)]
    await asyncio.gather(*(make(engine, range(n, SCHEDULES, 4)) for n in range(4)))
    await until(lambda: are_ready(nodes))
    (first, *_) = await engine.schedules.list(limit=1)
    assert first.due_at is not None
    await clock.advance(first.due_at - await clock.now() + timedelta(seconds=1))
    for node, seen in zip(nodes, KILLED_AFTER, strict=False):
        await until(lambda seen=seen: has_fired(db, seen))
        node.kill()
    await until(lambda: has_fired(db, SCHEDULES))
    due_at = first.due_at
    async with db.transaction() as tx:
        found = await tx.fetch("select f.outcome, f.due_at from millpond.fires f")
        inputs = await tx.fetch("select (j.input ->> 'n')::int as n from millpond.jobs j")
    assert Counter((row["outcome"], row["due_at"]) for row in found) == {("submitted", due_at): SCHEDULES}
    assert sorted(row["n"] for row in inputs) == list(range(SCHEDULES))
    assert (await engine.balance("acme", "ann")).held == PRICE * SCHEDULES
    assert [node.is_running for node in nodes] == [False, False, True, True]


async def are_ready(nodes: list[Command]) -> bool:
    assert all(node.is_running for node in nodes), nodes[0].stderr
    return all("server.started" in node.stderr for node in nodes)


async def has_fired(db: Database, number: int) -> bool:
    return await counted(db, "millpond.fires where outcome = 'submitted'") >= number
