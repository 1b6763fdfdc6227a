"""Counters: whatever happens to jobs, what is counted is what there is; merged or not, and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.jobs.jobs import JobRecord
from millpond.engine.queue.leases import End
from millpond.engine.reads import counters
from millpond.engine.reads.counters import quantile
from millpond.errors import UnavailableError
from millpond.services.counter import counter
from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from millpond.store.db import Database, connect, fetch
from millpond.store.migrate import migrate
from tests.clocks import Clock
from tests.factories import ERROR, HOUR, MINUTE, OWNER, STRANGER, TENANT, Factory, attempt, interruption
from tests.faults.dumps import wipe
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.engine.jobs.jobs import SubmitRequest

    Story = Callable[[Factory], Awaitable[None]]

_TRUTH = """
select kind, state, phase, count(*) as n, coalesce(sum(price) filter (where phase <> 'ended'), 0) as held
from millpond.jobs where $1::text is null or tenant = $1 group by kind, state, phase order by kind, state, phase
"""


async def truth(db: Database, tenant: str | None = None) -> list[tuple[Any, ...]]:
    async with db.connection() as connection:
        return [tuple(row) for row in await connection.fetch(_TRUTH, tenant)]


async def counted(engine: Engine, tenant: str | None = None) -> list[tuple[Any, ...]]:
    return [(row.kind, row.state, row.phase, row.n, row.held) for row in await engine.counters.counts(tenant)]


async def recounts(db: Database) -> int:
    async with db.connection() as connection:
        return await connection.fetchval("select count(*) from millpond.recounts")


async def unmerged(db: Database) -> int:
    async with db.connection() as connection:
        return await connection.fetchval("select count(*) from millpond.counter_changes")


# Every way of a job


async def _queued(make: Factory) -> None:
    await make.submitted("priced")
    await make.submitted("free", tenant=STRANGER)


async def _many(make: Factory) -> None:
    await make.credits(100)
    given: list[SubmitRequest] = [{"kind": kind, **OWNER, "input": {}} for kind in ("priced", "free", "priced")]
    assert not any(isinstance(one, Exception) for one in await make.engine.submit_many(given))


async def _scheduled(make: Factory) -> None:
    await make.submitted("priced", run_at=await make.clock.now() + HOUR)
    await make.clock.advance(2 * HOUR)
    await scheduler(make.engine).run_once()


async def _succeeded(make: Factory) -> None:
    await make.ended("priced")


async def _failed(make: Factory) -> None:
    await make.ended("priced", "failed")


async def _tried_again(make: Factory) -> None:
    await make.engine.give_back(attempt(await make.leased("priced")))
    await make.engine.give_back(attempt(await make.leased("brief"), delay=MINUTE))


async def _interrupted_too_often(make: Factory) -> None:
    await make.engine.give_back(interruption(await make.leased("fragile")))
    (lease,) = await make.claimed("fragile")
    await make.engine.give_back(interruption(lease))


async def _lapsed(make: Factory) -> None:
    await make.leased("fragile")
    await make.clock.advance(HOUR)
    await reaper(make.engine).run_once()


async def _parked(make: Factory) -> None:
    await make.parked()


async def _answered(make: Factory) -> None:
    lease = await make.parked()
    await make.engine.answer(TENANT, lease.job_id, {"yes": True})


async def _proceeded(make: Factory) -> None:
    await make.engine.proceed(await make.leased("brief"), {"yes": True})


async def _canceled(make: Factory) -> None:
    submitted = await make.submitted("priced")
    await make.engine.cancel(TENANT, submitted.job_id)


async def _canceled_by_force(make: Factory) -> None:
    lease = await make.leased("priced")
    await make.engine.cancel(TENANT, lease.job_id, grace=MINUTE)
    await make.clock.advance(2 * MINUTE)
    await reaper(make.engine).run_once()


async def _expired(make: Factory) -> None:
    await make.parked()
    await make.submitted("brief")
    await make.clock.advance(2 * HOUR)
    await expirer(make.engine).run_once()


async def _retried_in_place(make: Factory) -> None:
    lease = await make.leased("restartable")
    await make.finish(lease, "failed")
    await make.credits(3)
    await make.engine.retry(TENANT, lease.job_id)


async def _retried_as_a_new_one(make: Factory) -> None:
    ended = await make.ended("priced", "failed")
    await make.credits(5)
    await make.engine.retry(TENANT, ended.job_id)


async def _transitioned_by_an_operator(make: Factory) -> None:
    lease = await make.leased("free")
    await make.engine.transition(TENANT, lease.job_id, "failed")


STORIES: tuple[Story, ...] = (
    _queued,
    _many,
    _scheduled,
    _succeeded,
    _failed,
    _tried_again,
    _interrupted_too_often,
    _lapsed,
    _parked,
    _answered,
    _proceeded,
    _canceled,
    _canceled_by_force,
    _expired,
    _retried_in_place,
    _retried_as_a_new_one,
    _transitioned_by_an_operator,
)


async def test_what_is_counted_is_what_there_is_merged_or_not(make: Factory) -> None:
    engine, db = make.engine, make.engine.db
    for story in STORIES:  # on one database: to make another takes longer than they do
        await story(make)
        assert await unmerged(db) > 0, story
        for merges in (0, 1, 1, 100):  # nothing of it, parts, all
            for _ in range(merges):
                await engine.counters.merge(1)
            assert await counted(engine) == await truth(db), story
            assert await counted(engine, TENANT) == await truth(db, TENANT), story
        assert await unmerged(db) == 0
        assert await engine.verify() == [], story
        await wipe(db)


async def test_a_submit_that_is_refused_or_rolled_back_is_not_counted(engine: Engine, db: Database) -> None:
    with pytest.raises(Exception, match="credits"):
        await engine.submit("priced", **OWNER)
    async with db.transaction() as tx:
        await engine.submit("free", tx=tx, **OWNER)
        await tx.execute("savepoint before")
        await engine.submit("free", tx=tx, **OWNER)
        await tx.execute("rollback to before")
    assert await counted(engine) == await truth(db) == [("free", "queued", "ready", 1, 0)]


async def test_the_same_key_is_counted_once(engine: Engine, db: Database) -> None:
    for _ in range(3):
        await engine.submit("free", **OWNER, idempotency_key="once")
    assert await counted(engine) == await truth(db) == [("free", "queued", "ready", 1, 0)]


# Side by side, and killed


async def test_folders_that_race_and_die_lose_nothing_and_count_nothing_twice(make: Factory, dsn: str) -> None:
    engine, over = make.engine, asyncio.Event()
    await make.credits(10_000)

    async def live(kind: str) -> None:
        for n in range(15):
            await engine.submit(kind, **OWNER)
            for lease in await make.claimed(kind, want=5):
                error = None if n % 3 else ERROR
                await engine.finish(End(lease, "failed" if error else "succeeded", error=error))

    async def merge() -> None:
        while not over.is_set():
            await counter(engine).run_once()
            await asyncio.sleep(0)

    async def merge_and_die() -> None:
        while not over.is_set():
            doomed = await Database.open(dsn, size=1)
            with contextlib.suppress(UnavailableError):
                async with doomed.transaction() as tx:
                    await fetch(tx, counters.SQL["merge"], 5)
                    await tx.execute("select pg_terminate_backend(pg_backend_pid())")
                raise AssertionError
            doomed.pool.terminate()

    folders = [asyncio.create_task(folder) for folder in (merge(), merge(), merge_and_die())]
    await asyncio.gather(*(live(kind) for kind in ("free", "priced", "staged")))
    over.set()
    await asyncio.gather(*folders)
    assert await counted(engine) == await truth(engine.db)
    await counter(engine).run_once()
    assert await unmerged(engine.db) == 0
    assert await counted(engine) == await truth(engine.db)
    flow = (await engine.counters.flows("1h")).total
    ends = {
        state: sum(n for _, known, _, n, _ in await truth(engine.db) if known == state)
        for state in ("succeeded", "failed")
    }
    assert (flow.submitted, flow.succeeded, flow.failed) == (45, ends["succeeded"], ends["failed"])


async def test_who_writes_changes_does_not_wait_for_who_merges_them(make: Factory, db: Database) -> None:
    await make.submitted("free")
    async with db.transaction() as tx:
        assert (await fetch(tx, counters.SQL["merge"], 100))["merged"] == 1
        await make.ended("priced")
        assert await make.engine.counters.merge(100) == 0  # one at a time
        assert await counted(make.engine) == await truth(db)
    assert await make.engine.counters.merge(100) > 0
    assert await counted(make.engine) == await truth(db)


# From before


async def test_a_database_with_jobs_is_counted_when_it_is_upgraded(make: Factory, dsn: str) -> None:
    for story in (_succeeded, _failed, _parked, _queued):
        await story(make)
    async with make.engine.db.transaction() as tx:
        await tx.execute("""
            drop table millpond.counter_changes, millpond.counts, millpond.flows, millpond.failures,
                millpond.failure_flows,
                millpond.lengths, millpond.recounts, millpond.bulk_operations cascade;
            alter table millpond.jobs drop column fingerprint;
            delete from millpond.migrations where number in (0, 12, 13)
        """)
    assert await migrate(dsn) == (12, 13)
    assert await counted(make.engine) == await truth(make.engine.db)
    await make.engine.db.pool.expire_connections()  # a process from before has plans from before
    await make.ended("staged")
    assert await counted(make.engine) == await truth(make.engine.db)
    await counter(make.engine).run_once()
    assert await recounts(make.engine.db) == 1  # not yet
    await make.clock.advance(2 * MINUTE)
    await counter(make.engine).run_once()
    assert await recounts(make.engine.db) == 0


async def test_what_old_statements_moved_meanwhile_is_counted_again(make: Factory, db: Database) -> None:
    for story in (_succeeded, _parked, _queued):
        await story(make)
    await make.engine.counters.merge(1)
    async with db.transaction() as tx:
        await tx.execute("update millpond.counts set n = n + 7")
        await tx.execute("insert into millpond.counts values ('gone', 'free', 'queued', 'ready', 3, 3)")
        await tx.execute("insert into millpond.recounts select millpond.clock() + interval '1 minute'")
    await make.engine.counters.recount()
    assert await counted(make.engine) != await truth(db)
    await make.clock.advance(2 * MINUTE)
    assert await make.engine.counters.recount() > 0
    await _assert_alive_ones_add_up(make.engine)


async def _assert_alive_ones_add_up(engine: Engine) -> None:
    alive = [row for row in await truth(engine.db) if row[2] != "ended"]
    assert [row for row in await counted(engine) if row[2] != "ended"] == alive


async def test_what_is_counted_as_less_than_nothing_is_counted_again(make: Factory, db: Database) -> None:
    await make.submitted("free")
    await make.submitted("priced")
    async with db.transaction() as tx:
        await tx.execute("delete from millpond.counter_changes")  # as if the jobs had come in untold
    await make.claimed("free")
    assert [row[3] for row in await counted(make.engine)] == [-1, 1]
    await counter(make.engine).run_once()
    await _assert_alive_ones_add_up(make.engine)
    async with db.transaction() as tx:
        await tx.execute("update millpond.counts set n = n + 7")  # that nobody can see by itself
    assert await make.engine.counters.recount() == 0
    assert await counters.recount(db, is_due=True) > 0
    await _assert_alive_ones_add_up(make.engine)


async def test_a_count_that_fails_keeps_nobody_from_merging(make: Factory, db: Database) -> None:
    await make.submitted("free")
    async with db.transaction() as tx:
        await tx.execute("select millpond.order_recount(interval '0')")
        await tx.execute("alter table millpond.counts add constraint none check (kind <> 'priced')")
    await make.submitted("priced")
    async with db.transaction() as tx:
        await tx.execute("delete from millpond.counter_changes where kind = 'priced'")
    service = counter(make.engine)
    with pytest.raises(Exception, match="none"):
        await service.run_once()
    assert (await unmerged(db), await recounts(db)) == (0, 1)
    await service.run_once()  # and is not tried again at once
    async with db.transaction() as tx:
        await tx.execute("alter table millpond.counts drop constraint none")
    await counter(make.engine).run_once()
    await _assert_alive_ones_add_up(make.engine)


async def test_who_reads_merges_where_nobody_else_does(
    make: Factory, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "UNMERGED_MAX", 3)
    monkeypatch.setattr(counters, "RELIEVE_EVERY", 0.0)
    await make.submitted("free")
    assert await counted(make.engine) == await truth(db)
    assert await unmerged(db) == 1
    await make.ended("priced")
    assert await counted(make.engine) == await truth(db)
    assert await unmerged(db) == 1  # no more than that at a time


# Over time


async def test_what_went_through_is_reported_by_the_minute_and_the_hour(make: Factory) -> None:
    engine = make.engine
    for is_merged in (False, True):
        if is_merged:
            await make.clock.advance(timedelta(days=2))
        await make.submitted("priced")
        await make.clock.advance(10 * MINUTE)
        (lease,) = await make.claimed("priced", duration=HOUR)
        await make.clock.advance(20 * MINUTE)
        await engine.give_back(attempt(lease))
        (lease,) = await make.claimed("priced", duration=HOUR)
        await make.finish(lease)
        await make.submitted("free", tenant=STRANGER)
        if is_merged:
            await counter(engine).run_once()
        for span, tenant, kind in (
            ("1h", None, None),
            ("6h", TENANT, None),
            ("24h", TENANT, "priced"),
            ("24h", None, "priced"),
        ):
            flows = await engine.counters.flows(span, tenant=tenant, kind=kind)  # type: ignore[arg-type]
            flow = flows.total
            assert len(flows.data) == flows.stretch.length // flows.stretch.point
            assert flow.submitted == 1 + (tenant is kind is None)
            assert (flow.succeeded, flow.ended, flow.retried, flow.captured) == (1, 1, 1, 5)
            assert quantile(flow.waits, 0.5) == pytest.approx(600, rel=0.25)
            assert quantile(flow.runs, 0.9) == pytest.approx(1200, rel=0.25)
        assert (await engine.counters.flows("1h", kind="nothing")).total.submitted == 0
        assert [one.tenant for one in await engine.counters.spenders(5)] == [TENANT]
    assert (await engine.counters.flows("7d")).total.submitted == 4
    assert (await engine.counters.flows("30d", tenant=STRANGER)).total.submitted == 2


async def test_old_minutes_and_hours_are_forgotten_and_the_counts_are_not(make: Factory, db: Database) -> None:
    await _failed(make)
    await counter(make.engine).run_once()
    before = await counted(make.engine)
    for age, left in ((timedelta(0), (8, 4, 1)), (timedelta(hours=26), (4, 2, 1)), (timedelta(days=91), (0, 0, 0))):
        await make.clock.advance(age)
        while await counters.prune(db, 1):
            pass
        async with db.connection() as connection:
            found = await connection.fetchrow("""
                select (select count(*) from millpond.flows), (select count(*) from millpond.failure_flows),
                    (select count(*) from millpond.failures)
            """)
        assert tuple(found or ()) == left
    assert await counted(make.engine) == before


# Failures

SAME = [
    ("Took 17.3 s of 20", "Took 5 s of 60"),
    ("No file 'a b.png'.", "No file 'c.png'."),
    ('Key "a one" is taken', 'Key "key-2" is taken'),
    ("Prediction gm3qorzdhgbfurvjtvhg6dckhu failed", "Prediction 7vk2rzdhgbfurvjtvhqqdckhua failed"),
    ("S3 refused it: RequestId TXS2GZ9BFJ3H1VQA", "S3 refused it: RequestId 9QK2GZPBFJ3H1VWW"),
    ("See req_011CSHoEeqs5C35K2UUqR7Fy", "See req_011CQ7pKbeqt4C22P2VVaZ8Gx"),
    ("token eyJhbGciOiJIUzI1NiJ9.abcDEF is bad", "token eyJhbGciOiJIUzI1NiJ9.xyzXYZ.q-_ is bad"),
    ("mail to ann@example.com failed", "mail to bob.b+x@mail.example.org failed"),
    ("It broke.", " It broke.  "),
    ("It  broke\nhere", "It broke here"),
    ("exit code 1 after 20 s", "exit code 1 after 7 s"),
    ("status 20012 of 7", "status 30999 of 9"),
    ("Ошибка 1", "Ошибка 2"),
    ("job_01kaaaaaaaaaaaaaaaaaaaaaaa is gone", "job_01kbbbbbbbbbbbbbbbbbbbbbbb is gone"),
    ("at 0x7f3a11b2c8", "at 0x55d0c9e1aa"),
    ("lost 3f2b8a10-0000-4000-8000-000000000001", "lost 9c2b8a10-1111-4222-8333-00000000000f"),
    ("GET https://cdn.test/a/b?x=1 gave 500", "GET https://cdn.test/c gave 502"),
    ("cannot open /var/lib/x/1.bin", "cannot open /srv/other"),
    (r"cannot open C:\files\a.txt", r"cannot open C:\temp\b.txt"),
    ("digest deadbeef0011 differs", "digest 0badc0ffee99 differs"),
]
OTHER = [
    ("Out of memory", "Out of time"),
    ("GET https://one.test/a failed", "GET https://two.test/a failed"),
    ("can't read", "can't write"),
    ("HTTP 404", "HTTP 500"),
    ("HTTP/1.1 404 Not Found", "HTTP/1.1 410 Not Found"),
    ("Client error: status code 404.", "Client error: status code 422."),
    ("status=404", "status=504"),
    ("exit status 1", "exit status 137"),
    ("exit status 1", "exit status 11"),
    ("KeyError: 'width'", "KeyError: 'height'"),
    ('no field "width" in "a b"', 'no field "height" in "c d"'),
    ("Unsupported operand", "Unsupportedoperand"),
    ("", "It broke"),
]


async def _print(db: Database, message: str | None, kind: str = "free", code: str | None = "boom") -> str:
    async with db.connection() as connection:
        return await connection.fetchval(
            "select millpond.fingerprint($1, 'failed', jsonb_strip_nulls($2::jsonb))",
            kind,
            json.dumps({"code": code, "message": message}),
        )


async def test_failures_that_differ_in_variable_parts_are_one(db: Database) -> None:
    for pair in SAME:
        one, other = [await _print(db, message) for message in pair]
        assert one == other, pair
        assert len(one) == 16


async def test_failures_that_differ_otherwise_are_not_one(db: Database) -> None:
    for pair in OTHER:
        assert await _print(db, pair[0]) != await _print(db, pair[1]), pair
    assert len({await _print(db, "x"), await _print(db, "x", kind="priced"), await _print(db, "x", code="bang")}) == 3
    assert await _print(db, None, code=None) != await _print(db, None)


async def _fails(make: Factory, message: str, **owner: str) -> JobRecord:
    lease = await make.leased("priced", **owner)
    await make.engine.finish(End(lease, "failed", error={"code": "boom", "message": message}))
    return await make.engine.read(lease.tenant, lease.job_id)


async def test_failures_are_reported_by_what_they_have_in_common(make: Factory, clock: Clock, db: Database) -> None:
    first = await _fails(make, "Took 7 s")
    await clock.advance(5 * MINUTE)
    await counter(make.engine).run_once()
    await _fails(make, "Took 9 s", tenant=STRANGER)
    last = await _fails(make, "Took 11 s " + "x" * 600)
    other = await _fails(make, "No disk")
    for since in ("1h", "24h", "7d", "30d"):
        found = await make.engine.counters.failures(since)  # type: ignore[arg-type]
        assert [(one.count, one.code, one.kind, one.tenants, one.released) for one in found.data] == [
            (2, "boom", "priced", 2, 10),
            (1, "boom", "priced", 1, 5),
            (1, "boom", "priced", 1, 5),
        ]
        assert [sum(one.counts) for one in found.data] == [2, 1, 1]
        assert len(found.data[0].counts) == found.stretch.length // found.stretch.point
    took = found.data[0]
    assert took.last_at - took.first_at == 5 * MINUTE
    assert {one.sample for one in found.data[1:]} == {last.job_id, other.job_id}
    assert {len(one.message) for one in found.data} == {8, 7, 500}
    own = await make.engine.counters.failures("1h", tenant=STRANGER)
    assert [(one.fingerprint, one.count, one.tenants) for one in own.data] == [(took.fingerprint, 1, 1)]
    assert (await make.engine.counters.failures("1h", kind="free")).data == []
    assert len((await make.engine.counters.failures("1h", kind="priced", limit=2)).data) == 2
    async with db.connection() as connection:
        stored = await connection.fetchval("select fingerprint from millpond.jobs where id = $1", first.job_id)
    assert stored == took.fingerprint


async def test_of_messages_that_never_repeat_some_are_distinguished(make: Factory, db: Database) -> None:
    words = ["one", "two", "three", "four", "five", "six"]
    limit = 2

    async def merge() -> None:
        async with db.transaction() as tx:
            await tx.execute("select millpond.merge_counter_changes(1000, $1)", limit)

    await _fails(make, "It broke one")
    await merge()
    jobs = [await _fails(make, f"It broke {word}") for word in words]
    await _fails(make, "It broke one", tenant=STRANGER)  # which has room
    await merge()
    found = (await make.engine.counters.failures("1h")).data
    assert [(one.count, one.released, one.tenants) for one in found] == [(4, 20, 1), (3, 15, 2), (1, 5, 1)]
    assert [one.fingerprint.startswith("others") for one in found] == [True, False, False]
    assert len({len(one.fingerprint) for one in found}) == 1
    async with db.connection() as connection:
        kept = await connection.fetch(
            "select distinct fingerprint from millpond.jobs where id = any($1)", [job.job_id for job in jobs]
        )
    assert len(kept) == len(words)
    await make.clock.advance(timedelta(hours=25))
    await _fails(make, "It broke seven")
    await merge()
    (new,) = (await make.engine.counters.failures("1h")).data
    assert (new.count, new.fingerprint.startswith("others")) == (1, False)


async def test_an_expiry_is_a_failure_and_a_cancel_is_none(make: Factory) -> None:
    await _expired(make)
    await _canceled(make)
    await _canceled_by_force(make)
    (found,) = (await make.engine.counters.failures("1h")).data
    assert (found.code, found.message, found.count) == ("expired", "", 2)


async def test_a_job_has_its_fingerprint_until_it_is_retried(make: Factory, db: Database) -> None:
    lease = await make.leased("restartable")
    await make.finish(lease, "failed")
    query = "select fingerprint from millpond.jobs where id = $1"
    async with db.connection() as connection:
        assert len(await connection.fetchval(query, lease.job_id)) == 16
    await make.credits(3)
    await make.engine.retry(TENANT, lease.job_id)
    async with db.connection() as connection:
        assert await connection.fetchval(query, lease.job_id) is None


async def test_jobs_that_do_not_fail_stay_where_they_are(new_dsn: str) -> None:
    """Their updates touch no index, though one knows of fingerprints."""
    db = await Database.open(new_dsn, size=1)  # what a session has done, others see later
    make = Factory(Engine(db, app), Clock(db))
    for _ in range(20):
        await make.ended("priced")
    async with db.connection() as connection:
        await connection.execute("select pg_stat_force_next_flush()")
        row = await connection.fetchrow(
            "select sum(n_tup_upd) as moved, sum(n_tup_hot_upd) as hot from pg_stat_user_tables"
            " where relname ~ '^jobs_' and schemaname = 'millpond'"
        )
    assert row is not None
    assert row["hot"] == row["moved"] >= 40
    await db.close()


# Numbers from histograms


def test_a_quantile_lies_within_its_bucket() -> None:
    histogram = [0] * counters.BUCKETS
    assert quantile(histogram, 0.5) is None
    histogram[20] = 10
    low, high = counters.bounds(20)
    assert quantile(histogram, 0.5) == pytest.approx((low + high) / 2, abs=1e-4)
    histogram[63] = 10
    assert (quantile(histogram, 0.5), quantile(histogram, 0.9)) == (
        pytest.approx(high, abs=1e-4),
        pytest.approx(sum(counters.bounds(63)) / 2, rel=0.2),
    )


async def test_a_bucket_is_where_its_bounds_say(dsn: str) -> None:
    connection = await connect(dsn)
    try:
        for seconds in (0, 0.0004, 0.01, 1, 59.9, 3600, 86_400 * 7):
            bucket = await connection.fetchval("select millpond.bucket(make_interval(secs => $1))", float(seconds))
            low, high = counters.bounds(bucket)
            assert low - 1e-9 <= seconds < high
        assert await connection.fetchval("select millpond.bucket(interval '-1 hour')") == 0
        several = (
            "select millpond.add_histograms("
            "millpond.histogram('{99,3,3}', '{1,2,5}'), millpond.histogram('{3}', '{1}'))"
        )
        assert await connection.fetchval(several) == [8 * 64 + 3, 64 + 63]
        assert await connection.fetchval("select millpond.histogram(null, null)") is None
    finally:
        await connection.close()
