"""The network parts client and server while a verb is under way: the server finishes what nobody waits for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.queue.leases import End
from millpond.engine.verify import verify
from millpond.errors import UnavailableError
from millpond.store.db import Database
from tests.checks import until
from tests.factories import ACCOUNT, ERROR, OWNER, TENANT
from tests.faults.dumps import wipe
from tests.faults.wire import Wire, wire
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from tests.factories import Factory

WALLET = "select from millpond.accounts for update"


@pytest.fixture(autouse=True)
async def _sound(make: Factory) -> AsyncIterator[None]:
    await wipe(make.engine.db)
    yield
    assert await verify(make.engine.db) == []


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_submit_that_the_server_is_still_at_is_not_made_twice(make: Factory, key: str | None) -> None:
    """The second try meets the first one's job: it is the answer, and there is one job and one hold."""
    await make.credits(100)
    async with wired(make) as (engine, line):
        submit = engine.submit("priced", {}, **OWNER, idempotency_key=key)
        submitted = await parted_in_the_middle(make, line, submit)
    assert submitted.price == 5
    (job,) = await make.engine.list_jobs(TENANT, ACCOUNT)
    assert job.job_id == submitted.job_id
    assert (await make.engine.balance(TENANT, ACCOUNT)).available == 95


async def test_a_batch_that_the_server_is_still_at_is_not_made_twice(make: Factory) -> None:
    await make.credits(100)
    async with wired(make) as (engine, line):
        submit = engine.submit_many([{"kind": "priced", **OWNER} for _ in range(3)])
        submitted = await parted_in_the_middle(make, line, submit)
    assert {job.job_id for job in await make.engine.list_jobs(TENANT, ACCOUNT)} == {one.job_id for one in submitted}
    assert (await make.engine.balance(TENANT, ACCOUNT)).held == 15


async def test_a_finish_that_the_server_is_still_at_is_believed(make: Factory) -> None:
    """The second try finds the job ended by the first."""
    lease = await make.leased("priced")
    async with wired(make) as (engine, line):
        finish = engine.finish(End(lease, "succeeded", "{}"))
        assert await parted_in_the_middle(make, line, finish) == "succeeded"


@pytest.mark.parametrize("outcome", ["blocked", "failed"])
async def test_an_end_that_its_lifecycle_calls_otherwise_is_believed(make: Factory, outcome: Any) -> None:
    """A studio job whose content is blocked is called failed; its worker's finish came through all the same."""
    lease = await make.leased("restartable")
    async with wired(make) as (engine, line):
        finish = engine.finish(End(lease, outcome, error=ERROR))
        assert await parted_in_the_middle(make, line, finish) == "failed"


async def test_a_grant_that_the_server_is_still_at_is_made_once(make: Factory) -> None:
    """Not by the engine alone: its caller has the reference to ask again with."""
    await make.credits(1)
    async with wired(make) as (engine, line):
        grant = engine.grant(TENANT, ACCOUNT, 100, reference="invoice 1")
        with pytest.raises(UnavailableError):
            await parted_in_the_middle(make, line, grant, tries=1)
    assert await make.engine.grant(TENANT, ACCOUNT, 100, reference="invoice 1") == 101


@asynccontextmanager
async def wired(make: Factory) -> AsyncIterator[tuple[Engine, Wire]]:
    async with wire(make.engine.db.dsn) as line:
        db = await Database.open(line.dsn, size=2)
        try:
            yield Engine(db, app), line
        finally:
            await db.close()


async def parted_in_the_middle(make: Factory, line: Wire, call: Awaitable[Any], *, tries: int = 2) -> Any:
    """The answer of a call whose connection is lost while its statement waits for the wallet."""
    async with make.engine.db.transaction() as other:
        await other.fetch(WALLET)
        task = asyncio.ensure_future(call)
        await until(lambda: are_waiting(make, 1))
        line.part()
        await until(lambda: are_waiting(make, tries))
    done, _ = await asyncio.wait([task])
    return done.pop().result()


async def are_waiting(make: Factory, number: int) -> bool:
    async with make.engine.db.transaction() as tx:
        return number == await tx.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
