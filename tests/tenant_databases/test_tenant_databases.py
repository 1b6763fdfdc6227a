"""Tenants in two databases, side by side: who lives where, what each may do, and one that is gone for a while."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millpond import ids
from millpond.api.jobs.streams import Hub
from millpond.engine.access.access import Principal
from millpond.engine.engine import Engine
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.reads import summaries, views
from millpond.engine.tenant_databases import databases
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.deliveries import TryResult
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    LeaseLostError,
    SettingsError,
    StoreError,
    UnavailableError,
    UnknownKindError,
)
from millpond.services.expirer import expirer
from millpond.services.pruner import pruner
from millpond.settings import Settings
from millpond.store.db import connect
from millpond.store.migrate import status
from millpond.store.moving import move_out
from millpond.webhooks import NATIVE
from millpond.wire import JobFilter
from millpond.work import Chunk, End, Return
from tests.api.test_text_streams import read_text
from tests.checks import until
from tests.factories import ACCOUNT, ERROR, HOUR, MINUTE, OWNER, STRANGER, TENANT, Factory, Owner
from tests.faults.verbs import MARGIN, delivering
from tests.faults.wire import Wire, wire
from tests.post import taken
from tests.product import app
from tests.tenant_databases.conftest import SystemUnderTest, opened
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator
    from uuid import UUID

    from millpond.engine.jobs.jobs import Submitted
    from millpond.store.db import Database
    from tests.databases import DatabaseServer

FLEET = Principal("worker", None, None, "key_fleet")
NEIGHBOUR: Owner = {"tenant": STRANGER, "account": ACCOUNT}


@pytest.fixture(autouse=True)
async def _clear(system: SystemUnderTest) -> AsyncIterator[None]:
    await system.clear()
    yield
    assert await system.engine.verify() == []


async def owes_nothing(system: SystemUnderTest) -> bool:
    return not await count(system.database, "owed")


async def count(db: Database, table: str) -> int:
    async with db.transaction() as tx:
        return await tx.fetchval(f"select count(*) from millpond.{table}")


async def both(system: SystemUnderTest, kind: str = "free") -> tuple[Submitted, Submitted]:
    """A job of the tenant that lives elsewhere, and one of its neighbour in central."""
    return await system.make.submitted(kind), await system.make.submitted(kind, **NEIGHBOUR)


# Who lives where


async def test_opening_prepares_the_database_of_a_tenant(server: DatabaseServer, template: str) -> None:
    async with server.database(template) as central, server.database() as database:
        engine = await Engine.open(central, app, tenant_databases={TENANT: database}, pool_size=2)
        try:
            assert (await status(database)).is_current
            remote = await engine.submit("free", **OWNER)
            near = await engine.submit("free", **NEIGHBOUR)
            assert await count(engine.database(TENANT), "jobs") == await count(engine.db, "jobs") == 1
            assert await count(engine.db, "dispatches") == 2
            claimed = await engine.claim(Lanes(["free"]), 10, worker="w", duration=MINUTE)
            assert [lease.job_id for lease in claimed] == [remote.job_id, near.job_id]
        finally:
            await engine.close()
        with pytest.raises(SettingsError, match=TENANT):
            await Engine.open(central, app, pool_size=1)


async def test_a_tenant_that_still_has_accounts_in_central_is_not_taken_for_one_that_moved(
    server: DatabaseServer, template: str
) -> None:
    async with server.database(template) as central, server.database(template) as database:
        engine = await Engine.open(central, app, pool_size=1)
        await engine.grant(TENANT, ACCOUNT, 5)
        await engine.close()
        with pytest.raises(SettingsError, match="still have accounts"):
            await Engine.open(central, app, tenant_databases={TENANT: database}, pool_size=1)


@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", '{"acme": 5}', '{"acme": "mysql://x"}', '{"a b": "postgresql://x"}'],
    ids=["not_json", "not_an_object", "not_text", "not_postgresql", "not_a_name"],
)
def test_settings_that_name_no_databases_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="MILLPOND_TENANT_DATABASES"):
        Settings.from_env({"MILLPOND_TENANT_DATABASES": text})


def test_settings_name_the_databases_of_tenants_and_do_not_show_them() -> None:
    settings = Settings.from_env({"MILLPOND_TENANT_DATABASES": '{"acme": "postgresql://u:secret@h/d"}'})
    assert settings.tenant_databases == {"acme": "postgresql://u:secret@h/d"}
    assert "secret" not in repr(settings)


async def test_somebody_elses_transaction_cannot_take_in_a_job_that_lives_elsewhere(system: SystemUnderTest) -> None:
    async with system.engine.db.transaction() as tx:
        with pytest.raises(InvalidError, match="another database") as caught:
            await system.engine.submit("free", **OWNER, tx=tx)
        assert caught.value.field == "tx"
        await tx.execute("insert into millpond.tenant_databases values ($1, millpond.clock())", TENANT)
        with pytest.raises(Exception, match="another database"):
            await tx.execute("select * from millpond.submit('free', '{}', $1, $2)", TENANT, ACCOUNT)
    assert await count(system.database, "jobs") == 0
    connection = await connect(system.engine.db.dsn)
    await connection.execute("delete from millpond.tenant_databases")
    await connection.close()


async def test_tags_are_kept_and_found_where_the_tenant_lives(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (views, summaries):
        monkeypatch.setattr(module, "WALK", 3)
    tags = {"team": "ads"}
    await system.engine.submit("free", **NEIGHBOUR, tags=tags, idempotency_key="k")
    made = await system.engine.submit("free", **OWNER, tags=tags, idempotency_key="k")
    assert (await system.engine.submit("free", **OWNER, tags=tags, idempotency_key="k")).is_replay
    with pytest.raises(IdempotencyConflictError):
        await system.engine.submit("free", **OWNER, tags={"team": "x"}, idempotency_key="k")
    both = await system.engine.submit_many([{"kind": "free", **owner, "tags": tags} for owner in (NEIGHBOUR, OWNER)])
    await system.engine.submit_many([{"kind": "free", **owner} for owner in (OWNER, NEIGHBOUR) for _ in range(9)])
    assert (await system.engine.read(TENANT, made.job_id)).tags == tags
    own = {made.job_id, next(job.job_id for job in both[1:] if not isinstance(job, Exception))}
    for tenant, expected in ((TENANT, 2), (STRANGER, 2), (None, 4)):
        page = await system.engine.views.jobs(tenant, tags=tags)
        wanted = summaries.sought(JobFilter(tag=["team:ads"]), tenant, datetime.now(UTC))
        lines = await system.engine.summaries.page(wanted)
        assert len(page.data) == len({job.job_id for job in page.data}) == expected
        assert [line.job_id for line in lines.data] == [job.job_id for job in page.data]
        assert (page.before, lines.before) == (None, None)
        assert (await system.engine.summaries.count(wanted)).matched == expected
        if tenant == TENANT:
            assert {job.job_id for job in page.data} == own


async def test_a_tenant_moves_out_with_all_it_has(server: DatabaseServer, template: str) -> None:
    async with server.database(template) as central, server.database() as database:
        engine = await Engine.open(central, app, pool_size=2)
        make = Factory(engine, None)  # type: ignore[arg-type]
        done = await make.ended("priced")
        running = await make.leased("free", tags={"team": "ads"})
        stays = await make.submitted("free", **NEIGHBOUR)
        with pytest.raises(ConflictError, match="not ended"):
            await move_out(central, TENANT, database)
        assert await engine.emit([Chunk(running, 1, "text")]) == [False]
        await make.finish(running)
        await engine.close()
        transitioned = await move_out(central, TENANT, database)
        assert (transitioned["jobs"], transitioned["accounts"], transitioned["entries"]) == (2, 1, 3)
        assert transitioned["chunks"] == 1
        with pytest.raises(ConflictError, match="already been moved out"):  # and loses nothing by it
            await move_out(central, TENANT, database)
        engine = await Engine.open(central, app, tenant_databases={TENANT: database}, pool_size=2)
        try:
            assert await engine.verify() == []
            assert (await engine.read(TENANT, done.job_id)).output == done.output
            assert await count(engine.db, "jobs") == 1
            assert await count(engine.db, "chunks") == 0
            assert (await engine.views.text(TENANT, ACCOUNT, running.job_id)).text == "text"
            assert [job.job_id for job in (await engine.views.jobs(TENANT, tags={"team": "ads"})).data] == [
                running.job_id
            ]
            again = await engine.retry(TENANT, running.job_id, even_if_succeeded=True)
            assert again.state == "queued"
            assert (await engine.read(TENANT, again.job_id)).tags == {"team": "ads"}
            claimed = await engine.claim(Lanes(["free"]), 2, worker="w", duration=MINUTE)
            assert [lease.tenant for lease in claimed] == [STRANGER, TENANT]
            assert claimed[0].job_id == stays.job_id
            with pytest.raises(Exception, match="append-only"):
                async with engine.database(TENANT).transaction() as tx:
                    await tx.execute("delete from millpond.entries")
        finally:
            await engine.close()


# Side by side


async def test_text_of_both_is_written_and_read_together(system: SystemUnderTest) -> None:
    for owner in (OWNER, NEIGHBOUR):
        await system.make.submitted("free", **owner)
    claimed = await system.make.claimed("free", want=2)
    assert await system.engine.emit(*([Chunk(lease, 1, lease.tenant)] for lease in claimed)) == [False, False]
    stop, hub = asyncio.Event(), Hub(system.engine)
    running = asyncio.create_task(hub.run(stop))
    for lease in claimed:
        async with aclosing(hub.stream(lease.tenant, lease.job_id)) as stream:
            await read_text(stream, lease.tenant)
    stop.set()
    await running
    assert await count(system.database, "chunks") == await count(system.engine.db, "chunks") == 1
    await asyncio.gather(*map(system.make.finish, claimed))


async def test_jobs_of_both_are_handed_out_in_one_order(system: SystemUnderTest) -> None:
    made = [await system.make.submitted("free", **owner) for owner in (OWNER, NEIGHBOUR, OWNER, NEIGHBOUR)]
    claimed = await system.make.claimed("free", want=10)
    assert [lease.job_id for lease in claimed] == [job.job_id for job in made]
    assert len({lease.token for lease in claimed}) == 1
    await asyncio.gather(*map(system.make.finish, claimed))
    assert await count(system.engine.db, "dispatches") == 0


async def test_many_at_once_are_each_accepted_or_refused_by_themselves(system: SystemUnderTest) -> None:
    await system.make.credits(5)
    owners = [OWNER, NEIGHBOUR, OWNER, NEIGHBOUR]
    answers = await system.engine.submit_many([{"kind": "priced", **owner} for owner in owners])
    assert [getattr(answer, "code", "accepted") for answer in answers] == [
        "accepted",
        "insufficient_credits",
        "insufficient_credits",
        "insufficient_credits",
    ]


async def test_a_lease_over_both_lapses_for_both(system: SystemUnderTest) -> None:
    remote, near = await both(system)
    await system.make.claimed("free", want=2)
    await system.make.clock.advance(MINUTE + MARGIN)
    await system.repair()
    assert await count(system.engine.db, "leases") == 0
    claimed = await system.make.claimed("free", want=2)
    assert {lease.job_id: lease.epoch for lease in claimed} == {remote.job_id: 2, near.job_id: 2}


async def test_an_operator_of_all_tenants_sees_both(system: SystemUnderTest) -> None:
    remote, near = await both(system)
    views = system.engine.views
    assert [job.job_id for job in (await views.jobs(None)).data] == [near.job_id, remote.job_id]
    first = await views.jobs(None, limit=1)
    assert [job.job_id for job in (await views.jobs(None, before=first.before, limit=1)).data] == [remote.job_id]
    for job in (remote, near):
        assert (await views.job(None, None, job.job_id)).job_id == job.job_id
        assert [event.type for event in (await views.events(None, None, job.job_id)).data] == ["submitted"]


async def test_a_page_of_both_ends_at_its_size(system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "BYTES_MAX", 4_000)
    given = {"text": "x" * 1_000}
    owners = [OWNER, NEIGHBOUR] * 6
    made = [(await system.make.submitted("free", given, **owner)).job_id for owner in owners]
    found: list[UUID] = []
    before = None
    while not found or before is not None:
        page = await system.engine.views.jobs(None, before=before)
        assert len(page.data) <= 4
        before = page.before
        found += [job.job_id for job in page.data]
    assert found == made[::-1], "each once, and none is missing"


async def test_a_claim_for_the_fleet_of_both_ends_at_its_size(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Central ends its own at the full size, and the other database gets what is left of it."""
    monkeypatch.setattr(leases, "BYTES_MAX", 6_000)
    given = {"text": "x" * 1_000}
    made = [(await system.make.submitted("filmed", given, **owner)).job_id for owner in [NEIGHBOUR] * 3 + [OWNER] * 6]
    workers = system.engine.workers
    worker, _ = await workers.register(worker="w1", routes=["filmed"], slots=100, fleet=FLEET, address="10.0.0.1")
    first = await workers.poll(worker, 100, 0)
    assert [lease.job_id for lease in first] == made[:6]
    second = await workers.poll(worker, 100, 0)
    assert [lease.job_id for lease in second] == made[6:]
    assert {(lease.epoch, lease.attempts) for lease in first + second} == {(1, 0)}, "nobody had them before"
    audited = await system.engine.access.list_audit(limit=100)
    leased = [entry.subject for entry in audited if entry.action == "job.leased"]
    assert (len(leased), set(leased)) == (len(made), {ids.text("job", job_id) for job_id in made})


async def test_a_tenant_reads_its_own_database_alone(system: SystemUnderTest) -> None:
    remote, near = await both(system, "priced")
    views = system.engine.views
    assert (await views.job(TENANT, ACCOUNT, remote.job_id)).kind == "priced"
    assert (await views.wallet(TENANT, ACCOUNT)).held == 5
    assert len((await views.entries(TENANT, ACCOUNT)).data) == 2
    assert [job.job_id for job in (await views.jobs(TENANT, ACCOUNT)).data] == [remote.job_id]
    with pytest.raises(Exception, match="There is no job"):
        await views.job(TENANT, ACCOUNT, near.job_id)


async def test_keys_are_central_and_accounts_in_the_tenants_database(system: SystemUnderTest) -> None:
    access = system.engine.access
    await access.make_key(scope="client", tenant=TENANT, account=ACCOUNT, actor="test")
    made = await access.make_account(TENANT, "bob", active_max=3, actor="test")
    assert made.active_max == 3
    assert [found.account for found in await access.list_accounts(TENANT)] == [ACCOUNT, "bob"]
    assert (await count(system.database, "accounts"), await count(system.engine.db, "accounts")) == (2, 0)
    assert (await count(system.database, "keys"), await count(system.engine.db, "keys")) == (0, 1)


@pytest.mark.parametrize("tenant", [TENANT, None], ids=["its_tenant", "an_operator"])
async def test_streams_follow_jobs_of_both(system: SystemUnderTest, tenant: str | None) -> None:
    remote, near = await both(system)
    hub, stop = Hub(system.engine), asyncio.Event()
    running = asyncio.create_task(hub.run(stop))
    streams = [hub.stream(tenant, remote.job_id), hub.stream(tenant and STRANGER, near.job_id)]
    readers = [asyncio.create_task(read(stream)) for stream in streams]
    await asyncio.gather(*map(system.make.finish, await system.make.claimed("free", want=2)))
    received = await asyncio.wait_for(asyncio.gather(*readers), PATIENCE)
    stop.set()
    await running
    for text in received:
        assert [line for line in text.splitlines() if line.startswith("event: ")] == [
            "event: submitted",
            "event: started",
            "event: succeeded",
            "event: end",
        ]


async def read(stream: Any) -> str:
    return b"".join([text async for text in stream]).decode()


async def test_estimates_learn_from_both(system: SystemUnderTest) -> None:
    for _ in range(3):
        await both(system)
        await asyncio.gather(*map(system.make.finish, await system.make.claimed("free", want=2)))
    await system.engine.estimates.learn()
    assert (await system.engine.estimates.durations())["free"].jobs == 6
    assert await count(system.database, "durations") > 0


async def test_each_database_is_pruned(system: SystemUnderTest) -> None:
    await system.make.clock.advance(HOUR * 24 * 21)
    before = await partitions(system.database)
    await pruner(system.engine).run_once()
    assert await partitions(system.database) > before


async def partitions(db: Database) -> int:
    async with db.transaction() as tx:
        return await tx.fetchval("select count(*) from pg_inherits where inhparent = 'millpond.jobs'::regclass")


# Where the queue refuses, or gets out of step


async def test_a_job_that_the_queue_refuses_fails_and_gets_its_credits_back(system: SystemUnderTest) -> None:
    await system.make.credits(5)
    async with system.engine.db.transaction() as tx:
        kind = await tx.fetchrow("delete from millpond.kinds where kind = 'priced' returning *")
    assert kind is not None
    with pytest.raises(UnknownKindError):
        await system.engine.submit("priced", **OWNER)
    async with system.engine.db.transaction() as tx:
        columns = ", ".join(f"${n}" for n in range(1, len(kind) + 1))
        await tx.execute(f"insert into millpond.kinds values ({columns})", *kind)
    (job,) = await system.engine.list_jobs(**OWNER)
    assert (job.state, job.captured) == ("failed", 0)
    assert job.error["code"] == "unknown_kind"
    balance = await system.engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active) == (5, 0, 0)
    assert await count(system.database, "owed") == 0


async def test_a_repeated_request_has_its_dispatch_made(system: SystemUnderTest) -> None:
    """As when the first one died before it could."""
    first = await system.make.submitted("free", idempotency_key="k")
    await until(lambda: owes_nothing(system))
    await lose_dispatches(system)
    async with system.database.transaction() as tx:
        await tx.execute("insert into millpond.owed values ($1, millpond.clock())", first.job_id)
    again = await system.engine.submit("free", **OWNER, idempotency_key="k")
    assert again.is_replay
    assert [lease.job_id for lease in await system.make.claimed("free")] == [first.job_id]


async def lose_dispatches(system: SystemUnderTest) -> None:
    async with system.engine.db.transaction() as tx:
        await tx.execute("delete from millpond.ready")
        await tx.execute("delete from millpond.dispatches")


async def test_a_queue_that_was_lost_is_made_again_from_the_jobs(system: SystemUnderTest) -> None:
    """Ready, scheduled, parked and leased: all have a place again, and end."""
    later = await system.make.clock.now() + HOUR
    await system.make.parked("brief")
    await system.make.submitted("free", run_at=later)
    await system.make.submitted("free")
    await system.make.leased("priced")
    await lose_dispatches(system)
    await until(system.repair)
    async with system.engine.db.transaction() as tx:
        rows = await tx.fetch("select kind, phase from millpond.dispatches order by 1, 2")
    assert [tuple(row) for row in rows] == [
        ("brief", "parked"),
        ("free", "ready"),
        ("free", "waiting"),
        ("priced", "ready"),
    ]


async def test_a_dispatch_whose_job_has_ended_is_discarded(system: SystemUnderTest) -> None:
    job = await system.make.submitted("free")
    async with system.database.transaction() as tx:
        nothing = ", ".join(["null"] * 8)
        await tx.execute(
            f"select * from millpond.transition('canceled', 'ended', array[$1::uuid], {nothing})", job.job_id
        )
    assert await system.make.claimed("free") == []
    assert await count(system.engine.db, "dispatches") == 0


# One that is gone for a while


class Gate(Wire):
    """A wire that may refuse to connect."""

    is_shut = False

    async def connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self.is_shut:
            writer.close()
        else:
            await super().connect(reader, writer)

    def shut(self) -> None:
        self.is_shut = True
        for link in self._links:
            link.writer.transport.abort()  # and not its task: a loop reports one that is canceled


async def test_a_database_that_is_gone_keeps_nobody_else_waiting(system: SystemUnderTest) -> None:
    async with wire(system.database.dsn, Gate) as gate:
        assert isinstance(gate, Gate)
        async with opened(system.engine.db.dsn, gate.dsn) as engine:
            make = Factory(engine, system.make.clock)
            remote, near = await both(SystemUnderTest(make))
            leased = await make.leased("priced")
            gate.shut()
            with pytest.raises(UnavailableError):
                await engine.read(TENANT, remote.job_id)
            with pytest.raises(UnavailableError):
                await engine.submit("free", **OWNER)
            with pytest.raises(UnavailableError):
                await make.finish(leased)
            claimed = await make.claimed("free", want=10)
            assert [lease.job_id for lease in claimed] == [near.job_id]
            await make.finish(claimed[0])
            await SystemUnderTest(make).repair()
            await until(lambda: is_up(engine, up=False))
            assert [
                str(found) for found in await engine.verify() if found.invariant == "tenant_databases_can_be_reached"
            ] != []
            gate.is_shut = False
            await until(lambda: is_up(engine, up=True))
            (again,) = await make.claimed("free", want=10)
            assert again.job_id == remote.job_id
            assert await make.finish(again) == await make.finish(leased) == "succeeded"


async def is_up(engine: Engine, *, up: bool) -> bool:
    return engine.tenant_databases.remote[0].is_up is up


async def test_a_database_that_is_gone_when_the_engine_opens_is_prepared_when_it_is_back(
    server: DatabaseServer, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 0.2)
    async with server.database(template) as central, server.database() as database, wire(database, Gate) as gate:
        assert isinstance(gate, Gate)
        gate.shut()
        engine = await Engine.open(central, app, tenant_databases={TENANT: gate.dsn}, pool_size=2)
        assert (await engine.submit("free", **NEIGHBOUR)).state == "queued"
        with pytest.raises(UnavailableError):
            await engine.submit("free", **OWNER)
        monkeypatch.undo()
        gate.is_shut = False
        await until(lambda: is_up(engine, up=True))
        assert (await engine.submit("free", **OWNER)).state == "queued"
        await engine.close()


async def test_no_credit_is_lost_where_everybody_dies_all_the_time(system: SystemUnderTest) -> None:
    """The work of a product with its calls canceled at any moment: what is left is mended, and ends."""
    await system.make.credits(200)

    async def work(number: int) -> None:
        await system.engine.submit("priced", **OWNER, idempotency_key=f"k{number}")
        for lease in await system.make.claimed("priced", want=2, duration=MINUTE):
            await system.make.finish(lease, "failed" if number % 3 else "succeeded")

    tasks = [asyncio.create_task(work(number)) for number in range(30)]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.004)
        if number % 2:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await system.make.clock.advance(MINUTE + MARGIN)
    await until(system.repair)
    while claimed := await system.make.claimed("priced", want=10):
        await asyncio.gather(*map(system.make.finish, claimed))
    balance = await system.engine.balance(TENANT, ACCOUNT)
    ended = [job for job in await system.engine.list_jobs(**OWNER) if job.outcome == "succeeded"]
    assert balance.held == balance.active == 0
    assert balance.available == 200 - 5 * len(ended)


async def test_a_stale_end_in_the_batch_of_the_true_one_changes_nothing(system: SystemUnderTest) -> None:
    await system.make.credits(7)
    submitted = await system.engine.submit("metered", {"units": 7}, **OWNER)
    (stale,) = await system.engine.claim(Lanes(("metered",)), 1, worker="stale", duration=MINUTE)
    await system.make.clock.advance(MINUTE * 2)
    await system.repair()
    (held,) = await system.engine.claim(Lanes(("metered",)), 1, worker="winner", duration=HOUR)
    true, late = End(held, "succeeded", '"winner"'), End(stale, "succeeded", '"stale"', captured=0)
    split = system.engine.tenant_databases.executors[TENANT]
    with pytest.raises(StoreError):  # whoever gathers them asks for each alone then
        await leases.finish(split, [true, late])
    described = await asyncio.gather(system.engine.finish(true), system.engine.finish(late), return_exceptions=True)
    assert isinstance(described[1], LeaseLostError)
    job = await system.engine.read(TENANT, submitted.job_id)
    assert (job.output, job.captured) == ("winner", 7)


async def test_claims_and_other_verbs_do_not_wait_for_each_others_connections(system: SystemUnderTest) -> None:
    await system.make.credits(100)
    kinds = ("free", "staged", "brief", "metered")
    submitted = [
        await system.engine.submit(kind, {"units": 0} if kind == "metered" else {}, **OWNER) for kind in kinds * 3
    ]
    async with asyncio.timeout(PATIENCE):
        for round_ in range(3):
            claims = [system.engine.claim(Lanes((kind,)), 1, worker="w", duration=HOUR) for kind in kinds]
            cancels = [system.engine.cancel(TENANT, job.job_id) for job in submitted[round_ * 4 : round_ * 4 + 4]]
            await asyncio.gather(*claims, *cancels)


async def test_a_job_that_waits_for_its_next_attempt_is_found_again(system: SystemUnderTest) -> None:
    await system.engine.submit("free", **OWNER)
    (lease,) = await system.engine.claim(Lanes(("free",)), 1, worker="w", duration=HOUR)
    await system.engine.give_back(Return(lease, "attempt", ERROR, MINUTE))
    async with system.engine.db.transaction() as tx:
        await tx.execute("delete from millpond.dispatches")
    await system.make.clock.advance(MINUTE * 2)
    for _ in range(3):
        await system.repair()
    (again,) = await system.engine.claim(Lanes(("free",)), 1, worker="w", duration=HOUR)
    assert again.job_id == lease.job_id


async def test_news_that_was_taken_in_time_is_concluded_also_past_the_deadline(system: SystemUnderTest) -> None:
    """Who sent it was killed before he could."""
    lease = await delivering(system.make)
    (item,) = await taken(system.database, 5, HOUR / 2)
    columns = deliveries._columns([deliveries.judged(item, TryResult(200), NATIVE)])
    await system.database.run(deliveries.SQL["settle"], *columns, HOUR)
    await system.make.clock.advance(2 * HOUR)
    await expirer(system.engine).run_once()
    job = await system.make.read(lease.job_id)
    assert (job.outcome, job.captured) == ("succeeded", job.price)
