"""What the engine and its SQL offer to products: reads of what stands in its tables, and ways to write beside a job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from millpond.engine.reads import health
from millpond.errors import NotFoundError
from millpond.store.db import connect
from tests.factories import ACCOUNT, TENANT, attempt, interruption

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

LOCK = "select id, account, created_at from millpond.lock_attempt($1, $2, $3)"
FINAL = "select millpond.final_state($1, $2)"


# Reads


async def test_what_a_job_keeps_for_itself_is_reported(engine: Engine, make: Factory) -> None:
    await make.credits()
    lease = await make.parked(memo={"page": 3})
    assert await engine.memo(TENANT, lease.job_id) == '{"page": 3}'
    assert await engine.memo(TENANT, (await make.submitted()).job_id) is None
    with pytest.raises(NotFoundError):
        await engine.memo("stranger", lease.job_id)


async def test_a_history_counts_attempts(engine: Engine, make: Factory) -> None:
    waiting = (await make.submitted("fair")).job_id
    lease = await make.leased("free")
    await engine.give_back(attempt(lease))
    histories = await engine.histories(TENANT, [waiting, lease.job_id, UUID(int=7)])
    assert set(histories) == {waiting, lease.job_id}
    assert (histories[waiting].attempts, histories[waiting].started_at) == (0, None)
    history, events = histories[lease.job_id], await engine.events(TENANT, lease.job_id)
    assert (history.attempts, history.attempts_since_retry) == (1, 1)
    assert history.changed_at == events[-1].at
    assert history.started_at == next(event.at for event in events if event.type == "started")
    assert await engine.histories("stranger", [lease.job_id]) == {}


async def test_a_retry_in_place_begins_a_new_count(engine: Engine, make: Factory) -> None:
    await make.credits()
    lease = await make.leased("restartable")
    await make.finish(lease, "failed")
    await engine.retry(TENANT, lease.job_id)
    (history,) = (await engine.histories(TENANT, [lease.job_id])).values()
    assert (history.attempts, history.attempts_since_retry) == (1, 0)


async def test_a_job_that_goes_on_with_an_answer_is_at_the_same_attempt(engine: Engine, make: Factory) -> None:
    await make.credits()
    lease = await make.parked()
    await engine.answer(TENANT, lease.job_id, {"seen": True})
    await make.claimed("brief")
    (history,) = (await engine.histories(TENANT, [lease.job_id])).values()
    assert history.attempts == 1


async def test_what_a_worker_gave_back_was_not_tried(engine: Engine, make: Factory) -> None:
    lease = await make.leased("free")
    await engine.give_back(interruption(lease))
    (history,) = (await engine.histories(TENANT, [lease.job_id])).values()
    assert history.attempts == 0


async def test_jobs_that_are_leased_are_reported_with_their_leases(engine: Engine, make: Factory) -> None:
    lease, waiting = await make.leased("free"), (await make.submitted("free")).job_id
    held = await engine.held([lease.job_id, waiting])
    assert set(held) == {lease.job_id}
    assert (held[lease.job_id].token, held[lease.job_id].worker) == (lease.token, "w")
    assert await engine.held([]) == {}


async def test_a_file_is_found_by_its_path(engine: Engine) -> None:
    options = {"name": "a.txt", "content_type": "text/plain", "size": 1}
    record, _ = await engine.artifacts.upload(TENANT, ACCOUNT, path=f"tenants/{TENANT}/own/a.txt", **options)
    found = await engine.artifacts.at_path(TENANT, record.path)
    assert found == record
    assert await engine.artifacts.at_path("stranger", record.path) is None
    assert await engine.artifacts.at_path(TENANT, "elsewhere") is None


async def test_the_flow_of_a_queue_is_counted(engine: Engine, make: Factory) -> None:
    await make.ended("free")
    await make.submitted("free")
    (flow,) = [one for one in await health.flow(engine.tenant_databases, UUID(int=0), 100) if one.queue == "free"]
    assert (flow.in_1m, flow.in_5m, flow.out_1m, flow.out_5m, flow.walked) == (2, 2, 1, 1, 2)
    assert flow.since <= flow.present
    (cut,) = await health.flow(engine.tenant_databases, UUID(int=0), 1)
    assert (cut.in_1m, cut.walked) == (1, 1)


# In SQL


async def test_an_attempt_is_locked_while_it_holds_the_job(engine: Engine, db: Database, make: Factory) -> None:
    lease = await make.leased("free")
    async with db.transaction() as tx:
        row = await tx.fetchrow(LOCK, lease.job_id, TENANT, lease.epoch)
        assert row is not None
        assert (row["id"], row["account"]) == (lease.job_id, ACCOUNT)
        assert await tx.fetchrow(LOCK, lease.job_id, "stranger", lease.epoch) is None
        assert await tx.fetchrow(LOCK, lease.job_id, TENANT, lease.epoch + 1) is None
        ending = asyncio.create_task(make.finish(lease))
        await asyncio.sleep(0.2)
        assert not ending.done(), "the job ended while its attempt was locked"
    await ending
    async with db.transaction() as tx:
        assert await tx.fetchrow(LOCK, lease.job_id, TENANT, lease.epoch) is None


async def test_the_state_in_which_a_job_has_ended_is_reported(engine: Engine, db: Database, make: Factory) -> None:
    lease = await make.leased("free")
    async with db.transaction() as tx:
        assert await tx.fetchval(FINAL, lease.job_id, TENANT) is None
        ending = asyncio.create_task(make.finish(lease))
        await asyncio.sleep(0.2)
        assert not ending.done(), "the job ended while somebody relied on it"
    await ending
    async with db.transaction() as tx:
        assert await tx.fetchval(FINAL, lease.job_id, TENANT) == "succeeded"
        assert await tx.fetchval(FINAL, lease.job_id, "stranger") is None


async def test_an_account_is_given_a_cap_unless_it_has_one(engine: Engine, db: Database) -> None:
    async def given(account: str, cap: int) -> int | None:
        async with db.transaction() as tx:
            await tx.execute("select millpond.default_cap($1, $2, $3)", TENANT, account, cap)
        return (await engine.balance(TENANT, account)).active_max

    assert await given("newcomer", 5) == 5
    assert await given("newcomer", 7) == 5
    await engine.grant(TENANT, "rich", 10)
    assert await given("rich", 5) == 5
    await engine.set_cap(TENANT, "known", 2)
    assert await given("known", 5) == 2


async def test_a_trigger_function_is_called_for_each_job_of_a_lifecycle_that_ends(
    engine: Engine, make: Factory
) -> None:
    """It is called in the transaction in which the job ends, and may be declared again."""
    connection = await connect(engine.db.dsn)
    try:
        await connection.execute(
            """
            create table millpond.tides_ends (job_id uuid primary key, state text not null);
            create function millpond.tides_note() returns trigger language plpgsql as $$
            begin
                insert into millpond.tides_ends values (new.id, new.state);
                return null;
            end $$;
            select millpond.on_end('standard', 'millpond.tides_note');
            select millpond.on_end('standard', 'millpond.tides_note');
            """
        )
        try:
            lease, failing = await make.leased("free"), await make.leased("free")
            await make.finish(lease)
            await make.finish(failing, "failed")
            await make.submitted("free")
            rows = await connection.fetch("select job_id, state from millpond.tides_ends")
            assert {(row["job_id"], row["state"]) for row in rows} == {
                (lease.job_id, "succeeded"),
                (failing.job_id, "failed"),
            }
        finally:
            await connection.execute("drop function millpond.tides_note cascade; drop table millpond.tides_ends")
    finally:
        await connection.close()
