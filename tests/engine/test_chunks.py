"""Chunks: the text that jobs emit while they run, in order, once, and no longer than it is needed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond
from millpond.engine.engine import Engine
from millpond.engine.jobs import chunks
from millpond.engine.queue import registry
from millpond.errors import InvalidError, LeaseLostError, NotFoundError
from millpond.services import all_services
from millpond.services.pruner import chunk_pruner
from millpond.services.reaper import reaper
from millpond.settings import Settings
from millpond.store import partitions
from millpond.work import TEXT_MAX, Chunk, Lease
from tests.factories import ACCOUNT, HOUR, OWNER, STRANGER, TENANT, Factory, attempt, progress
from tests.gates import WordGate
from tests.races.rivals import held

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.store.db import Database

SECOND = timedelta(seconds=1)
WEEK = timedelta(weeks=1)


def pieces(lease: Lease, *texts: str, first: int = 1) -> list[Chunk]:
    return [Chunk(lease, number, text) for number, text in enumerate(texts, first)]


async def emit(engine: Engine, lease: Lease, *texts: str, first: int = 1) -> bool:
    (result,) = await engine.emit(pieces(lease, *texts, first=first))
    if isinstance(result, Exception):
        raise result
    return result


async def stored(db: Database, job_id: UUID) -> list[tuple[Any, ...]]:
    """The chunks of a job in order: the event before it, its number, the epoch and the text."""
    async with db.connection() as connection:
        rows = await connection.fetch(
            "select after, number, epoch, text from millpond.chunks where job_id = $1 order by after, number", job_id
        )
    return [tuple(row) for row in rows]


async def texts(db: Database, job_id: UUID) -> list[str]:
    return [text for *_, text in await stored(db, job_id)]


async def test_chunks_are_stored_in_their_place_between_the_events(make: Factory) -> None:
    lease = await make.leased()
    assert await emit(make.engine, lease, "Once ", "upon ") is False
    await make.engine.note(progress(lease, 1, 0.5))
    await emit(make.engine, lease, "a time", first=3)
    assert await make.types(lease.job_id) == ["submitted", "started", "text_started", "progress"]
    assert await stored(make.engine.db, lease.job_id) == [(3, 1, 1, "Once "), (3, 2, 1, "upon "), (4, 3, 1, "a time")]
    assert await make.engine.verify() == []


async def test_chunks_that_are_sent_again_are_written_once(make: Factory) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "a", "b")
    assert await emit(make.engine, lease, "a", "b") is False
    assert await emit(make.engine, lease, "b", "c", first=2) is False
    assert await texts(make.engine.db, lease.job_id) == ["a", "b", "c"]
    assert (await make.types(lease.job_id)).count("text_started") == 1


async def test_the_chunks_of_many_jobs_are_written_together(make: Factory) -> None:
    for _ in range(3):
        await make.submitted()
    leases = await make.claimed("free", want=3)
    results = await make.engine.emit(*(pieces(lease, lease.job_id.hex) for lease in leases))
    assert results == [False, False, False]
    for lease in leases:
        assert await stored(make.engine.db, lease.job_id) == [(3, 1, 1, lease.job_id.hex)]


async def test_a_gap_is_refused_and_nothing_is_written(make: Factory) -> None:
    lease = await make.leased()
    with pytest.raises(InvalidError, match="number 1: chunks are numbered without gaps"):
        await emit(make.engine, lease, "b", first=2)
    await emit(make.engine, lease, "a")
    with pytest.raises(InvalidError, match="number 2"):
        await emit(make.engine, lease, "c", "d", first=3)
    (result,) = await make.engine.emit([Chunk(lease, 2, "b"), Chunk(lease, 4, "d")])
    assert isinstance(result, InvalidError)
    assert await texts(make.engine.db, lease.job_id) == ["a"]
    assert await make.types(lease.job_id) == ["submitted", "started", "text_started"]


async def test_the_text_of_an_attempt_is_limited(make: Factory) -> None:
    lease = await make.leased()
    half = "é" * (TEXT_MAX // 4)
    await emit(make.engine, lease, half)
    with pytest.raises(InvalidError, match="at most 1,048,576 bytes"):
        await emit(make.engine, lease, half, "!", first=2)
    await emit(make.engine, lease, half, first=2)
    with pytest.raises(InvalidError, match="at most 1,048,576 bytes"):
        await emit(make.engine, lease, "!", first=3)
    assert await texts(make.engine.db, lease.job_id) == [half, half]


async def test_a_refusal_does_not_concern_the_other_jobs(make: Factory) -> None:
    await make.submitted()
    await make.submitted()
    good, bad = await make.claimed("free", want=2)
    refusal, accepted = await make.engine.emit(pieces(bad, "x", first=9), pieces(good, "y"))
    assert isinstance(refusal, InvalidError)
    assert accepted is False


async def test_a_cancel_is_reported_by_the_next_write(make: Factory) -> None:
    lease = await make.leased()
    assert await emit(make.engine, lease, "a") is False
    await make.engine.cancel(TENANT, lease.job_id)
    assert await emit(make.engine, lease, "b", first=2) is True
    assert await texts(make.engine.db, lease.job_id) == ["a", "b"]


# The fence


async def test_after_its_end_a_job_emits_nothing(make: Factory) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "a")
    await make.finish(lease)
    with pytest.raises(LeaseLostError):
        await emit(make.engine, lease, "b", first=2)
    assert await texts(make.engine.db, lease.job_id) == ["a"]


async def test_after_its_lease_has_expired_a_job_emits_nothing(make: Factory) -> None:
    lease = await make.leased()
    await make.clock.advance(timedelta(hours=1))
    with pytest.raises(LeaseLostError):
        await emit(make.engine, lease, "a")
    assert await texts(make.engine.db, lease.job_id) == []
    await reaper(make.engine).run_once()


async def test_a_later_attempt_restarts_the_text(make: Factory) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "Once ", "upon ")
    await make.engine.give_back(attempt(lease))
    assert await texts(make.engine.db, lease.job_id) == ["Once ", "upon "]
    (again,) = await make.claimed("free")
    with pytest.raises(LeaseLostError):
        await emit(make.engine, lease, "a time", first=3)
    await emit(make.engine, again, "There ", "was")
    assert await stored(make.engine.db, lease.job_id) == [(6, 1, 2, "There "), (6, 2, 2, "was")]
    assert (await make.types(lease.job_id))[-3:] == ["requeued", "started", "text_started"]
    assert await make.engine.verify() == []


async def test_a_batch_may_have_the_text_of_a_lost_lease_and_of_its_successor(make: Factory) -> None:
    stale = await make.leased()
    await make.engine.give_back(attempt(stale))
    (lease,) = await make.claimed("free")
    lost, written = await make.engine.emit(pieces(stale, "old"), pieces(lease, "new"))
    assert isinstance(lost, LeaseLostError)
    assert written is False
    assert await stored(make.engine.db, lease.job_id) == [(5, 1, 2, "new")]


async def test_an_end_waits_for_the_chunks_before_it_and_has_none_after_it(db: Database, make: Factory) -> None:
    """So the order of the events and chunks of a job is that of their commits."""
    lease = await make.leased()
    await emit(make.engine, lease, "a")
    async with held(db) as first:
        assert await chunks.emit(first, [pieces(lease, "b", first=2)]) == [False]
        rival = await first.meet(make.finish(lease))
        await first.commit()
        assert await rival == "succeeded"
    assert await make.types(lease.job_id) == ["submitted", "started", "text_started", "succeeded"]
    assert await stored(db, lease.job_id) == [(3, 1, 1, "a"), (3, 2, 1, "b")]


async def test_a_chunk_that_meets_a_new_lease_of_its_job_is_not_written(db: Database, make: Factory) -> None:
    lease = await make.leased()
    async with held(db) as first:
        await first.connection.execute("select from millpond.jobs where id = $1 for update", lease.job_id)
        rival = await first.meet(chunks.emit(db, [pieces(lease, "a")]))
        await first.connection.execute(
            "update millpond.jobs set epoch = epoch + 1 where id = $1", lease.job_id
        )  # as a new lease does
        await first.commit()
        (result,) = await rival
    assert isinstance(result, LeaseLostError)
    assert await texts(db, lease.job_id) == []
    async with db.transaction() as tx:
        await tx.execute("update millpond.jobs set epoch = epoch - 1 where id = $1", lease.job_id)


async def test_the_same_chunks_sent_twice_at_once_are_written_once(db: Database, make: Factory) -> None:
    lease = await make.leased()
    async with held(db) as first:
        assert await chunks.emit(first, [pieces(lease, "a", "b")]) == [False]
        rival = await first.meet(chunks.emit(db, [pieces(lease, "a", "b", "c")]))
        await first.commit()
        assert await rival == [False]
    assert await texts(db, lease.job_id) == ["a", "b", "c"]
    assert await make.engine.verify() == []


# Gates


async def test_a_kind_with_a_gate_emits_nothing(db: Database, make: Factory) -> None:
    """What a gate would remove may be spread over several chunks, and cannot be taken back."""
    app = Millpond()
    app.gate("words", WordGate({}, {"secret": "no secrets"}))
    app.kind("gated", gate="words")(lambda _: None)
    await registry.register(db, app.kinds.values())
    engine = Engine(db, app)
    await engine.submit("gated", {}, **OWNER)
    (lease,) = await make.claimed("gated")
    for emitter in (engine, make.engine):  # one of them does not know the kind
        with pytest.raises(InvalidError, match="'gated' cannot emit text, because the kind has a gate") as refused:
            await emit(emitter, lease, "se")
        assert refused.value.field == "text"
    assert await make.types(lease.job_id) == ["submitted", "started"]


# Reads


async def test_the_text_so_far_is_read_with_its_position(make: Factory) -> None:
    lease = await make.leased()
    text = await make.engine.views.text(TENANT, ACCOUNT, lease.job_id)
    assert (text.text, text.seq, text.number, text.epoch, text.at) == ("", 2, 0, None, None)
    await emit(make.engine, lease, "Once ", "upon ")
    await make.engine.note(progress(lease, 1, 0.5))
    await emit(make.engine, lease, "a time", first=3)
    text = await make.engine.views.text(TENANT, ACCOUNT, lease.job_id)
    assert (text.text, text.seq, text.number, text.epoch) == ("Once upon a time", 4, 3, 1)
    assert text.at is not None


@pytest.mark.parametrize("owner", [(STRANGER, None), (STRANGER, ACCOUNT), (TENANT, "bob")])
async def test_nobody_else_reads_the_text(make: Factory, owner: tuple[str, str | None]) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "a")
    with pytest.raises(NotFoundError):
        await make.engine.views.text(*owner, lease.job_id)
    assert await make.engine.views.last_chunk(owner[0], owner[1] or ACCOUNT, lease.job_id) is None
    assert (await make.engine.views.text(None, None, lease.job_id)).text == "a"


# Deletion


async def test_chunks_are_deleted_soon_after_the_end_and_not_before(make: Factory) -> None:
    await make.submitted()
    await make.submitted()
    over, running = await make.claimed("free", want=2, duration=HOUR)
    await emit(make.engine, over, "a", "b")
    await emit(make.engine, running, "c")
    await make.finish(over)
    prune = chunk_pruner(make.engine).run_once
    await make.clock.advance(chunks.KEPT - SECOND)
    assert await prune() == 0
    assert await texts(make.engine.db, over.job_id) == ["a", "b"]
    await make.clock.advance(2 * SECOND)
    assert await prune() == 1
    assert await texts(make.engine.db, over.job_id) == []
    assert await texts(make.engine.db, running.job_id) == ["c"]
    assert await prune() == 0


async def test_chunks_of_many_jobs_are_deleted_some_at_a_time(make: Factory) -> None:
    for _ in range(5):
        await make.submitted()
    for lease in await make.claimed("free", want=5):
        await emit(make.engine, lease, "a")
        await make.finish(lease)
    await make.clock.advance(chunks.KEPT + SECOND)
    assert [await chunks.prune(make.engine.db, 2) for _ in range(2)] == [5, 0]


async def test_their_deletion_is_a_service(make: Factory) -> None:
    names = {service.name for service in all_services(make.engine, Settings(), lambda _: b"")}
    assert "chunk_pruner" in names


async def test_old_weeks_go_with_their_chunks(db: Database, make: Factory) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "a")
    await make.finish(lease)
    await make.clock.advance(5 * WEEK)
    await partitions.drop(db, 3 * WEEK)
    assert await texts(db, lease.job_id) == []


# Invariants


@pytest.mark.parametrize(
    "damage",
    [
        "update millpond.chunks set number = 5 where number = 2",
        "update millpond.chunks set total = total + 1 where number = 2",
        "update millpond.chunks set epoch = 7",
        "update millpond.chunks set after = 99 where number = 2",
        "update millpond.chunks set tenant = 'globex'",
        "update millpond.chunks set text = 'other'",
        "delete from millpond.chunks where number = 1",
    ],
)
async def test_damage_to_chunks_is_found(make: Factory, damage: str) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, "a", "b")
    await make.engine.note(progress(lease, 1, 0.5))
    assert await make.engine.verify() == []
    async with make.engine.db.transaction() as tx:
        await tx.execute(damage)
    found = await make.engine.verify()
    assert {violation.invariant for violation in found} == {"chunks_have_no_gap"}
    async with make.engine.db.transaction() as tx:
        await tx.execute("delete from millpond.chunks")
