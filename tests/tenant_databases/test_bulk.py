"""Bulk operations about jobs in two databases: each is found and acted on where it is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import wire
from millpond.api.jobs.jobs import export_line
from millpond.engine.reads.summaries import ParsedFilter
from millpond.errors import UnavailableError
from millpond.services.bulk_runner import BulkRunner
from millpond.services.ensurer import ensurer
from tests.clocks import Clock
from tests.factories import ACCOUNT, STRANGER, TENANT
from tests.tenant_databases.conftest import NOW, SystemUnderTest

if TYPE_CHECKING:
    from millpond.engine.bulk.operations import BulkOperationRecord


async def order(system: SystemUnderTest, action: Any, **given: Any) -> BulkOperationRecord:
    body = wire.MakeBulkOperation(action=action, filter=wire.JobFilter(**given), priority=given.pop("priority", None))
    made, _ = await system.engine.bulk_operations.order(body, tenant=given.get("tenant"), bound=None, actor="op")
    return made


async def test_the_jobs_of_both_are_found_in_one_order_and_acted_on(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.clear()
    jobs = [(await system.make.submitted("free", tenant=tenant)).job_id for tenant in (TENANT, STRANGER) * 3]
    newest = list(reversed(jobs))
    for wanted in (ParsedFilter(), ParsedFilter(phase="ready")):
        assert [line.job_id for line in (await system.engine.summaries.page(wanted)).data] == newest
        first = await system.engine.summaries.page(wanted, limit=4)
        second = await system.engine.summaries.page(wanted, limit=4, before=first.before)
        assert [line.job_id for line in (*first.data, *second.data)] == newest
    made = await order(system, "cancel", kind="free")
    await BulkRunner(system.engine, export_line, batch=2).act()
    response = await system.engine.bulk_operations.read(made.operation_id)
    assert (response.state, response.done, response.refused) == ("done", 6, 0)
    assert await system.engine.verify() == []
    await system.make.submitted("free")
    made = await order(system, "cancel", kind="free")
    monkeypatch.setattr(system.database, "is_up", False)
    with pytest.raises(UnavailableError):
        await BulkRunner(system.engine, export_line).act()
    assert (await system.engine.bulk_operations.read(made.operation_id)).state == "running"
    monkeypatch.undo()
    await BulkRunner(system.engine, export_line).act()
    response = await system.engine.bulk_operations.read(made.operation_id)
    assert (response.state, response.done) == ("done", 1)


@pytest.mark.parametrize("ahead", [timedelta(seconds=5), timedelta(seconds=-5)], ids=["ahead", "behind"])
async def test_jobs_whose_database_has_another_clock_are_met_and_what_is_made_of_them_is_not(
    system: SystemUnderTest, ahead: timedelta
) -> None:
    await system.clear()
    clock = Clock(system.database)
    await clock.advance(ahead)
    try:
        for _ in range(3):
            await system.make.ended("free", "failed")
        made = await order(system, "retry", kind="free")
        await BulkRunner(system.engine, export_line, batch=2).act()
        response = await system.engine.bulk_operations.read(made.operation_id)
        assert (response.state, response.matched, response.done) == ("done", 3, 3)
    finally:
        await clock.advance(-ahead)


async def test_a_refund_that_only_the_tenant_has_heard_of_is_audited_once(system: SystemUnderTest) -> None:
    await system.clear()
    job = await system.make.ended("priced")
    async with system.database.transaction() as own:
        await own.execute("select millpond.refund_job('acme', $1, null, null, 'it was wrong')", job.job_id)
    for _ in range(2):
        response = await system.engine.refund(TENANT, job.job_id, reason="said otherwise", actor="op")
        assert (response.is_replay, response.amount) == (True, 5)
    entries = [entry for entry in await system.engine.access.list_audit() if entry.subject == job.id]
    assert [(entry.action, entry.actor, entry.data) for entry in entries] == [
        ("job.refunded", "op", {"amount": 5, "reason": "it was wrong"})
    ]


async def test_a_priority_that_only_the_tenant_has_heard_of_reaches_the_line(system: SystemUnderTest) -> None:
    await system.clear()
    job = await system.make.submitted("free", account=ACCOUNT)
    async with system.database.transaction() as own:
        await own.execute("select millpond.prioritize_job('acme', $1, 7::smallint, 'ready')", job.job_id)
    assert await system.engine.verify() != []
    await ensurer(system.engine, delay=NOW).run_once()
    assert await system.engine.verify() == []
    async with system.engine.db.transaction() as hub:
        assert await hub.fetchval("select rank from millpond.ready where job_id = $1", job.job_id) == -7
