"""Errands about jobs in two databases: each is found and acted on where it is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import wire
from millpond.engine.lines import Sought
from millpond.errors import UnavailableError
from millpond.services.ensurer import ensurer
from millpond.services.steward import Steward
from tests.clocks import Clock
from tests.factories import ACCOUNT, STRANGER, TENANT
from tests.homes.conftest import NOW, Town

if TYPE_CHECKING:
    from millpond.engine.errands import ErrandRecord


async def order(town: Town, action: Any, **given: Any) -> ErrandRecord:
    body = wire.MakeErrand(action=action, filter=wire.JobFilter(**given), priority=given.pop("priority", None))
    made, _ = await town.engine.errands.order(body, tenant=given.get("tenant"), bound=None, actor="op")
    return made


async def test_the_jobs_of_both_are_found_in_one_order_and_acted_on(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.clear()
    jobs = [(await town.make.submitted("free", tenant=tenant)).job_id for tenant in (TENANT, STRANGER) * 3]
    newest = list(reversed(jobs))
    for wanted in (Sought(), Sought(phase="ready")):
        assert [line.job_id for line in (await town.engine.lines.page(wanted)).data] == newest
        first = await town.engine.lines.page(wanted, limit=4)
        second = await town.engine.lines.page(wanted, limit=4, before=first.before)
        assert [line.job_id for line in (*first.data, *second.data)] == newest
    made = await order(town, "cancel", kind="free")
    await Steward(town.engine, batch=2).act()
    told = await town.engine.errands.read(made.errand_id)
    assert (told.state, told.done, told.refused) == ("done", 6, 0)
    assert await town.engine.verify() == []
    await town.make.submitted("free")
    made = await order(town, "cancel", kind="free")
    monkeypatch.setattr(town.home, "is_up", False)
    with pytest.raises(UnavailableError):
        await Steward(town.engine).act()
    assert (await town.engine.errands.read(made.errand_id)).state == "running"
    monkeypatch.undo()
    await Steward(town.engine).act()
    told = await town.engine.errands.read(made.errand_id)
    assert (told.state, told.done) == ("done", 1)


@pytest.mark.parametrize("ahead", [timedelta(seconds=5), timedelta(seconds=-5)], ids=["ahead", "behind"])
async def test_jobs_whose_database_has_another_clock_are_met_and_what_is_made_of_them_is_not(
    town: Town, ahead: timedelta
) -> None:
    await town.clear()
    clock = Clock(town.home)
    await clock.advance(ahead)
    try:
        for _ in range(3):
            await town.make.ended("free", "failed")
        made = await order(town, "retry", kind="free")
        await Steward(town.engine, batch=2).act()
        told = await town.engine.errands.read(made.errand_id)
        assert (told.state, told.matched, told.done) == ("done", 3, 3)
    finally:
        await clock.advance(-ahead)


async def test_a_refund_that_only_the_tenant_has_heard_of_is_audited_once(town: Town) -> None:
    await town.clear()
    job = await town.make.ended("priced")
    async with town.home.transaction() as own:
        await own.execute("select millpond.refund_job('acme', $1, null, null, 'it was wrong')", job.job_id)
    for _ in range(2):
        told = await town.engine.refund(TENANT, job.job_id, reason="said otherwise", actor="op")
        assert (told.is_replay, told.amount) == (True, 5)
    entries = [entry for entry in await town.engine.access.list_audit() if entry.subject == job.id]
    assert [(entry.action, entry.actor, entry.data) for entry in entries] == [
        ("job.refunded", "op", {"amount": 5, "reason": "it was wrong"})
    ]


async def test_a_priority_that_only_the_tenant_has_heard_of_reaches_the_line(town: Town) -> None:
    await town.clear()
    job = await town.make.submitted("free", account=ACCOUNT)
    async with town.home.transaction() as own:
        await own.execute("select millpond.prioritize_job('acme', $1, 7::smallint, 'ready')", job.job_id)
    assert await town.engine.verify() != []
    await ensurer(town.engine, moment=NOW).run_once()
    assert await town.engine.verify() == []
    async with town.engine.db.transaction() as hub:
        assert await hub.fetchval("select rank from millpond.ready where job_id = $1", job.job_id) == -7
