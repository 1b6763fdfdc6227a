"""Batches of clients: jobs under one handle, with counts, a cost, one cancel and one webhook."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.composition.client_batches import BatchJob
from millpond.errors import (
    BatchClosedError,
    ConflictError,
    IdempotencyConflictError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    MillpondError,
    NotFoundError,
    PermanentError,
    TooManyActiveJobsError,
    UnknownKindError,
)
from tests.factories import ACCOUNT, OWNER, TENANT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.engine.composition.batches import Batch
    from millpond.worker import Job
    from tests.composition.conftest import Play


@pytest.fixture
async def shots(play: Play) -> Play:
    """One of its kinds fails for odd numbers, and costs 2."""

    @play.kind("shot", price=2)
    async def shot(job: Job, n: int = 0) -> dict[str, int]:
        if n % 2:
            raise PermanentError("It broke.")
        return {"n": n}

    await play.begin(1_000)
    return play


def jobs(numbers: Iterable[int], **options: Any) -> list[BatchJob]:
    made: Any = [{"kind": "shot", "input": {"n": n}, **options} for n in numbers]
    return made


async def create(play: Play, **options: Any) -> Batch:
    return (await play.engine.batches.create(**OWNER, **options)).batch


async def read(play: Play, batch: Batch) -> Batch:
    return await play.engine.batches.read(TENANT, ACCOUNT, batch.batch_id)


async def inputs(play: Play, batch: Batch) -> list[int]:
    """The inputs of a batch's jobs, in order."""
    page = await play.engine.batches.jobs(batch, limit=200)
    return [(await play.read(job_id)).input["n"] for job_id in page.data]


async def test_a_batch_counts_its_jobs_and_ends_with_the_last(shots: Play) -> None:
    batch = await create(shots, jobs=jobs(range(5)), name="first")
    assert (batch.state, batch.total, batch.submitted, batch.ended, batch.price) == ("running", 5, 5, 0, 10)
    assert await shots.held() == (990, 10)
    await shots.drain()
    ended = await read(shots, batch)
    assert (ended.state, ended.name, ended.ended) == ("completed", "first", 5)
    assert (ended.succeeded, ended.failed, ended.canceled, ended.captured) == (3, 2, 0, 6)
    assert ended.ended_at is not None
    assert await shots.held() == (994, 0)
    assert await inputs(shots, batch) == [0, 1, 2, 3, 4]


async def test_jobs_are_added_in_parts(shots: Play) -> None:
    batch = await create(shots, total=5)
    assert (batch.state, batch.submitted, batch.price) == ("open", 0, 0)
    await shots.engine.batches.add(TENANT, batch.id, 0, jobs((0, 2)))
    await shots.drain()
    half = await read(shots, batch)
    assert (half.state, half.submitted, half.ended, half.ended_at) == ("open", 2, 2, None), "it waits for the others"
    added = await shots.engine.batches.add(TENANT, batch.id, 2, jobs((4, 6, 8)))
    assert (added.batch.state, added.batch.submitted) == ("running", 5)
    await shots.drain()
    assert (await read(shots, batch)).state == "completed"
    assert await inputs(shots, batch) == [0, 2, 4, 6, 8]


async def test_a_repeated_request_adds_nothing(shots: Play) -> None:
    batch = await create(shots, total=4, jobs=jobs((0, 2)))
    for is_replay in (False, True, True):
        added = await shots.engine.batches.add(TENANT, batch.id, 2, jobs((4,)))
        assert (added.is_replay, added.batch.submitted) == (is_replay, 3)
    assert (await shots.engine.batches.add(TENANT, batch.id, 0, jobs((0, 2)))).is_replay, "the first part too"
    with pytest.raises(ConflictError, match="Other jobs were added at position 2"):
        await shots.engine.batches.add(TENANT, batch.id, 2, jobs((6,)))
    assert await inputs(shots, batch) == [0, 2, 4]
    assert await shots.held() == (994, 6)


async def test_a_batch_is_created_once_for_a_key(shots: Play) -> None:
    made = await shots.engine.batches.create(**OWNER, jobs=jobs((0, 2)), key="k")
    again = await shots.engine.batches.create(**OWNER, jobs=jobs((0, 2)), key="k")
    assert (made.is_replay, again.is_replay, again.batch.id) == (False, True, made.batch.id)
    more: list[Any] = [{"jobs": jobs((0, 4))}, {"name": "other"}, {"total": 3}]
    others: list[Any] = [{"jobs": jobs((0, 2))} | each for each in more]
    for other in others:
        with pytest.raises(IdempotencyConflictError):
            await shots.engine.batches.create(**OWNER, key="k", **other)
    assert await shots.held() == (996, 4)


async def test_clients_that_add_the_same_part_at_once_add_it_once(shots: Play) -> None:
    batch = await create(shots, total=100)
    for first in range(0, 100, 20):
        part = jobs(range(first, first + 20))
        added = await asyncio.gather(*(shots.engine.batches.add(TENANT, batch.id, first, part) for _ in range(4)))
        assert sorted(each.is_replay for each in added) == [False, True, True, True]
    assert await inputs(shots, batch) == list(range(100))


async def test_of_clients_that_add_other_jobs_at_the_same_position_one_is_refused(shots: Play) -> None:
    batch = await create(shots, total=10)
    adding = (shots.engine.batches.add(TENANT, batch.id, 0, jobs((n,))) for n in (0, 2))
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert sorted(isinstance(outcome, ConflictError) for outcome in outcomes) == [False, True]
    assert (await read(shots, batch)).submitted == 1


async def test_the_same_key_at_once_creates_one_batch(shots: Play) -> None:
    made = await asyncio.gather(*(shots.engine.batches.create(**OWNER, jobs=jobs((0, 2)), key="k") for _ in range(4)))
    assert len({each.batch.id for each in made}) == 1
    assert sorted(each.is_replay for each in made) == [False, True, True, True]
    assert await shots.held() == (996, 4)


@pytest.mark.parametrize(
    ("given", "error", "field"),
    [
        ({}, InvalidError, "jobs"),
        ({"jobs": jobs(range(1_001))}, InvalidError, "jobs"),
        ({"total": 0}, InvalidError, "total"),
        ({"total": 100_001}, InvalidError, "total"),
        ({"total": 1, "jobs": jobs(range(2))}, InvalidError, "total"),
        ({"total": 1, "name": ""}, InvalidError, "name"),
        ({"total": 1, "name": "a\x00"}, InvalidError, "name"),
        ({"total": 1, "tags": {"a b": "c"}}, InvalidError, "tags"),
        ({"jobs": [*jobs((0, 2)), {"kind": "nothing"}]}, UnknownKindError, "jobs[2].kind"),
        ({"jobs": [{"kind": "shot", "input": {"n": "x"}}]}, InputError, "jobs[0].input.n"),
        ({"jobs": jobs((0,), priority=101)}, InvalidError, "jobs[0].priority"),
        ({"jobs": jobs((0,), tags={"": "x"})}, InvalidError, "jobs[0].tags"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_done(
    shots: Play, given: dict[str, Any], error: type[MillpondError], field: str
) -> None:
    with pytest.raises(error) as refused:
        await create(shots, **given)
    assert refused.value.field == field
    assert await shots.engine.batches.list(TENANT) == []
    assert await shots.held() == (1_000, 0)


async def test_a_request_that_cannot_be_paid_for_leaves_nothing_behind(shots: Play) -> None:
    with pytest.raises(InsufficientCreditsError, match="cost 1200 credits, but only 1000"):
        await create(shots, jobs=jobs(range(600)), key="k")
    assert await shots.engine.batches.list(TENANT) == []
    batch = await create(shots, total=700, jobs=jobs(range(400)), key="k")
    with pytest.raises(InsufficientCreditsError) as short:
        await shots.engine.batches.add(TENANT, batch.id, 400, jobs(range(300)))
    assert short.value.details == {"required": 600, "available": 200}
    assert (await read(shots, batch)).submitted == 400
    await shots.engine.grant(TENANT, ACCOUNT, 400)
    added = await shots.engine.batches.add(TENANT, batch.id, 400, jobs(range(300)))
    assert (added.batch.state, added.batch.submitted) == ("running", 700)
    assert await shots.held() == (0, 1_400)


async def test_the_limit_of_active_jobs_applies_to_a_whole_request(shots: Play) -> None:
    await shots.engine.set_cap(TENANT, ACCOUNT, 5)
    batch = await create(shots, total=10, jobs=jobs(range(4)))
    with pytest.raises(TooManyActiveJobsError):
        await shots.engine.batches.add(TENANT, batch.id, 4, jobs(range(2)))
    assert (await read(shots, batch)).submitted == 4


async def test_free_jobs_of_an_account_without_credits(shots: Play) -> None:
    @shots.kind("free")
    async def free(job: Job) -> None: ...

    await shots.begin()
    made = await shots.engine.batches.create(tenant=TENANT, account="new", jobs=[{"kind": "free"}])
    await shots.drain()
    assert (await shots.engine.batches.read(TENANT, "new", made.batch.id)).state == "completed"
    with pytest.raises(InsufficientCreditsError):
        await shots.engine.batches.create(tenant=TENANT, account="newer", jobs=jobs((0,)))


async def test_a_closed_batch_accepts_no_more_jobs(shots: Play) -> None:
    batch = await create(shots, total=3, jobs=jobs((0, 2)))
    with pytest.raises(InvalidError, match="would have 4"):
        await shots.engine.batches.add(TENANT, batch.id, 2, jobs((0, 2)))
    with pytest.raises(ConflictError, match="next position is 2, not 1"):
        await shots.engine.batches.add(TENANT, batch.id, 1, jobs((0,)))
    await shots.engine.batches.add(TENANT, batch.id, 2, jobs((4,)))
    for _ in range(2):
        with pytest.raises(BatchClosedError, match="has all its jobs"):
            await shots.engine.batches.add(TENANT, batch.id, 3, jobs((0,)))
        await shots.drain()
    canceled = await create(shots, total=3, jobs=jobs((0, 2)))
    await shots.engine.batches.cancel(TENANT, canceled.id)
    with pytest.raises(BatchClosedError, match="was canceled"):
        await shots.engine.batches.add(TENANT, canceled.id, 2, jobs((0,)))


async def test_a_cancel_ends_the_jobs_that_have_not_ended(shots: Play) -> None:
    batch = await create(shots, total=10, jobs=jobs((0, 2)))
    await shots.drain()
    await shots.engine.batches.add(TENANT, batch.id, 2, jobs((4, 6, 8)))
    canceled, is_accepted = await shots.engine.batches.cancel(TENANT, batch.id)
    assert is_accepted
    assert (canceled.state, canceled.total, canceled.succeeded, canceled.canceled) == ("canceled", 5, 2, 3)
    assert canceled.captured == 4
    assert await shots.held() == (996, 0)
    again, is_accepted = await shots.engine.batches.cancel(TENANT, batch.id)
    assert (again, is_accepted) == (canceled, False)
    while await shots.engine.batches.cancel_jobs(100):
        pass


async def test_a_batch_without_jobs_ends_when_it_is_canceled(shots: Play) -> None:
    batch = await create(shots, total=10)
    canceled, _ = await shots.engine.batches.cancel(TENANT, batch.id)
    assert (canceled.state, canceled.total, canceled.ended_at is not None) == ("canceled", 0, True)


async def test_running_jobs_of_a_canceled_batch_are_asked_to_stop(play: Play) -> None:
    started = asyncio.Event()

    @play.kind("slow", price=2)
    async def slow(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    await play.begin(100)
    async with play.working():
        batch = await create(play, jobs=[{"kind": "slow"} for _ in range(50)])
        await started.wait()
        canceling, is_accepted = await play.engine.batches.cancel(TENANT, batch.id)
        assert is_accepted
        assert canceling.state in {"canceling", "canceled"}
        async with asyncio.timeout(60):
            while (await read(play, batch)).ended_at is None:
                await asyncio.sleep(0.01)
    ended = await read(play, batch)
    assert (ended.state, ended.canceled, ended.captured) == ("canceled", 50, 0)
    assert await play.held() == (100, 0)


async def test_jobs_with_budgets_cost_what_their_children_do(play: Play) -> None:
    @play.kind("frame", price=3)
    async def frame(job: Job) -> None: ...

    @play.kind("film", price=1, budget=20)
    async def film(job: Job) -> None:
        await job.gather(job.child("frame"), job.child("frame"))

    await play.begin(100)
    batch = await create(play, jobs=[{"kind": "film"}, {"kind": "film"}])
    assert batch.price == 42
    await play.drain()
    ended = await read(play, batch)
    assert (ended.state, ended.captured) == ("completed", 2 * (1 + 6))
    assert await play.held() == (100 - 14, 0)


async def test_jobs_inherit_the_tags_of_their_batch(shots: Play) -> None:
    batch = await create(shots, tags={"team": "ads", "run": "1"}, jobs=jobs((0,), tags={"run": "2"}))
    page = await shots.engine.batches.jobs(batch)
    assert (await shots.read(page.data[0])).tags == {"team": "ads", "run": "2"}
    assert batch.tags == {"team": "ads", "run": "1"}


async def test_batches_are_listed_newest_first(shots: Play) -> None:
    made = [await create(shots, total=1, name=f"n{n}", tags={"even": str(n % 2 == 0)}) for n in range(4)]
    await shots.engine.batches.cancel(TENANT, made[1].id)
    ours = [batch.name for batch in await shots.engine.batches.list(TENANT, ACCOUNT)]
    assert ours == ["n3", "n2", "n1", "n0"]
    assert [batch.name for batch in await shots.engine.batches.list(None)] == ours
    assert [batch.name for batch in await shots.engine.batches.list(TENANT, before=made[2].batch_id, limit=1)] == ["n1"]
    assert [batch.name for batch in await shots.engine.batches.list(TENANT, state="canceled")] == ["n1"]
    assert [batch.name for batch in await shots.engine.batches.list(TENANT, tags={"even": "True"})] == ["n2", "n0"]
    assert await shots.engine.batches.list("other") == await shots.engine.batches.list(TENANT, "other") == []
    with pytest.raises(InvalidError):
        await shots.engine.batches.list(TENANT, state="lost")


async def test_jobs_of_a_batch_are_filtered(shots: Play) -> None:
    batch = await create(shots, jobs=jobs(range(6)))
    await shots.drain()
    failed = await shots.engine.batches.jobs(batch, outcome="failed", limit=2)
    assert len(failed.data) == 2
    rest = await shots.engine.batches.jobs(batch, outcome="failed", limit=2, after=failed.after)
    assert [(await shots.read(job_id)).input["n"] for job_id in (*failed.data, *rest.data)] == [1, 3, 5]
    assert rest.after is None
    assert (await shots.engine.batches.jobs(batch, phase="ready")).data == []


async def test_a_batch_is_seen_by_its_tenant_and_account_only(shots: Play) -> None:
    batch = await create(shots, total=2, jobs=jobs((0,)))
    for tenant, account in (("other", None), (TENANT, "other"), ("other", ACCOUNT)):
        with pytest.raises(NotFoundError):
            await shots.engine.batches.read(tenant, account, batch.id)
        with pytest.raises(NotFoundError):
            await shots.engine.batches.add(tenant, batch.id, 1, jobs((0,)), account=account)
        with pytest.raises(NotFoundError):
            await shots.engine.batches.cancel(tenant, batch.id, account=account)
    assert (await shots.engine.batches.read(None, None, batch.id)).id == batch.id
    assert (await read(shots, batch)).state == "open"


async def test_the_children_of_a_job_are_a_batch_that_clients_only_read(play: Play) -> None:
    @play.kind("frame")
    async def frame(job: Job) -> None: ...

    @play.kind("film")
    async def film(job: Job) -> None:
        await job.child("frame")

    await play.begin()
    await play.engine.pause("frame")
    parent = await play.run("film")
    (batch,) = await play.engine.batches_of(TENANT, parent.job_id)
    assert (await read(play, batch)).price is None
    assert await play.engine.batches.list(TENANT) == []
    with pytest.raises(ConflictError, match="children"):
        await play.engine.batches.add(TENANT, batch.id, 1, [{"kind": "frame"}])
    with pytest.raises(ConflictError, match="children"):
        await play.engine.batches.cancel(TENANT, batch.id)
    await play.engine.cancel(TENANT, parent.job_id)


async def test_ten_thousand_jobs_in_one_batch(play: Play) -> None:
    @play.kind("free")
    async def free(job: Job) -> None: ...

    await play.begin()
    batch = await create(play, total=10_000)
    part: list[BatchJob] = [{"kind": "free"}] * 1_000
    for first in range(0, 10_000, 1_000):
        await play.engine.batches.add(TENANT, batch.id, first, part)
    assert (await read(play, batch)).state == "running"
    canceled, _ = await play.engine.batches.cancel(TENANT, batch.id)
    assert canceled.state == "canceling"
    while await play.engine.batches.cancel_jobs(1_000):
        pass
    ended = await read(play, batch)
    assert (ended.state, ended.canceled) == ("canceled", 10_000)
