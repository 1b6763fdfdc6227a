"""Children: a job submits other jobs, waits for them without a worker, and gets their results."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.credits import holds
from millpond.engine.jobs import jobs
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.engine.reads import board
from millpond.errors import ChildFailedError, NotFoundError, PermanentError
from millpond.work import ChildRequest, SpawnRequest, StepRequest
from tests.factories import HOUR, MINUTE, OWNER, TENANT, Factory
from tests.lifecycles import RESTARTABLE

if TYPE_CHECKING:
    from millpond.worker import Job
    from tests.composition.conftest import Play

NEVER = datetime.max.replace(tzinfo=UTC)


async def test_children_run_and_their_parent_gets_their_results(play: Play) -> None:
    @play.kind("shot", price=2)
    async def shot(job: Job, n: int) -> dict[str, int]:
        return {"square": n * n}

    @play.kind("film", price=1)
    async def film(job: Job, shots: int) -> list[Any]:
        play.calls.append("film")
        done = await job.gather(*(job.child("shot", {"n": n}) for n in range(shots)))
        return [child.output["square"] for child in done]

    await play.begin(100)
    ended = await play.run("film", {"shots": 5})
    assert (ended.outcome, ended.output) == ("succeeded", [0, 1, 4, 9, 16])
    assert play.calls == ["film"] * 2
    assert await play.held() == (100 - 1 - 5 * 2, 0)
    assert await play.types(ended.job_id) == ["submitted", "started", "parked", "resumed", "started", "succeeded"]
    children = await play.children(ended.job_id)
    assert [child.input for child in children] == [{"n": n} for n in range(5)]
    assert {child.parent_id for child in children} == {ended.job_id}
    assert {child.depth for child in children} == {1}


async def test_a_parent_waits_parked_for_its_children(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job) -> None: ...

    @play.kind("film")
    async def film(job: Job) -> None:
        await job.child("shot")

    await play.begin()
    await play.engine.pause("shot")
    job = await play.run("film")
    assert (job.phase, job.waits_for) == ("parked", "children")
    await play.engine.resume("shot")
    await play.drain()
    assert (await play.read(job.job_id)).outcome == "succeeded"


async def test_a_failed_child_fails_its_parent_at_once(play: Play) -> None:
    @play.kind("shot", price=3)
    async def shot(job: Job, n: int) -> None:
        if n == 1:
            raise PermanentError("It broke.")

    @play.kind("slow", price=3)
    async def slow(job: Job) -> None: ...

    @play.kind("film", price=1)
    async def film(job: Job) -> None:
        await job.gather(job.child("shot", {"n": 1}), job.child("slow"))

    await play.begin(100)
    await play.engine.pause("slow")
    job = await play.run("film")
    assert job.outcome == "failed"
    assert job.error["code"] == "child_failed"
    assert "It broke." in job.error["message"]
    await play.engine.cancel_orphans(100)
    assert [child.outcome for child in await play.children(job.job_id)] == ["failed", "canceled"]
    assert await play.held() == (100, 0)


async def test_errors_are_collected_on_request(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job, n: int) -> int:
        if n == 1:
            raise PermanentError("It broke.")
        return n

    @play.kind("film")
    async def film(job: Job) -> list[Any]:
        done = await job.gather(*(job.child("shot", {"n": n}) for n in range(3)), return_exceptions=True)
        assert isinstance(done[1], ChildFailedError)
        return [str(child) if isinstance(child, Exception) else child.output for child in done]

    await play.begin()
    job = await play.run("film")
    assert job.outcome == "succeeded"
    assert [job.output[0], job.output[2]] == [0, 2]
    assert "It broke." in job.output[1]


async def test_a_child_that_fails_can_be_survived(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job) -> None:
        raise PermanentError("It broke.")

    @play.kind("film")
    async def film(job: Job) -> str:
        try:
            await job.child("shot")
        except ChildFailedError as error:
            return error.details["outcome"]
        return "none"

    await play.begin()
    assert (await play.run("film")).output == "failed"


async def test_a_plain_handler_waits_for_children(play: Play) -> None:
    @play.kind("shot")
    def shot(job: Job, n: int) -> int:
        return n + 1

    @play.kind("film")
    def film(job: Job) -> list[int]:
        first = job.child("shot", {"n": 1}).wait()
        rest = job.gather(*(job.child("shot", {"n": n}) for n in (2, 3)))
        return [first.output, *(child.output for child in rest)]

    await play.begin()
    job = await play.run("film")
    assert (job.outcome, job.output) == ("succeeded", [2, 3, 4])


async def test_a_tree_pays_from_its_budget(play: Play) -> None:
    @play.kind("frame", price=2)
    async def frame(job: Job, n: int) -> None: ...

    @play.kind("shot", price=3)
    async def shot(job: Job, n: int) -> None:
        await job.child("frame", {"n": n})

    @play.kind("film", price=1, budget=20)
    async def film(job: Job) -> None:
        await job.gather(*(job.child("shot", {"n": n}) for n in range(3)))

    await play.begin(100)
    submitted = await play.submit("film")
    assert await play.held() == (79, 21)
    await play.drain()
    assert (await play.read(submitted.job_id)).outcome == "succeeded"
    assert await play.held() == (100 - 1 - 3 * 5, 0)


async def test_children_cannot_cost_more_than_the_budget(play: Play) -> None:
    @play.kind("shot", price=3)
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", price=1, budget=8)
    async def film(job: Job) -> None:
        await job.gather(*(job.child("shot", {"n": n}) for n in range(3)))

    await play.begin(100)
    job = await play.run("film")
    assert (job.outcome, job.error["code"]) == ("failed", "insufficient_credits")
    assert await play.held() == (100, 0)
    assert await play.children(job.job_id) == []


async def test_children_of_a_closed_budget_are_paid_by_the_account(play: Play) -> None:
    @play.kind("shot", price=3)
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", price=1, budget=10)
    async def film(job: Job) -> None:
        await job.child("shot", {"n": 1}, is_detached=True).start()

    await play.begin(100)
    await play.engine.pause("shot")
    job = await play.run("film")
    assert job.outcome == "succeeded"
    assert await play.held() == (100 - 1 - 3, 3)
    await play.engine.resume("shot")
    await play.drain()
    assert await play.held() == (100 - 1 - 3, 0)


async def test_a_nested_budget_is_part_of_the_one_above(play: Play) -> None:
    @play.kind("frame", price=2)
    async def frame(job: Job, n: int) -> None: ...

    @play.kind("shot", price=3, budget=5)
    async def shot(job: Job, n: int) -> None:
        await job.gather(job.child("frame", {"n": n}), job.child("frame", {"n": n + 1}))

    @play.kind("film", price=1, budget=20)
    async def film(job: Job) -> None:
        await job.gather(job.child("shot", {"n": 1}), job.child("shot", {"n": 5}))

    await play.begin(100)
    job = await play.run("film")
    assert job.outcome == "succeeded", job.error
    assert await play.held() == (100 - 1 - 2 * (3 + 4), 0)


async def test_the_overview_counts_what_budgets_hold(play: Play) -> None:
    @play.kind("frame", price=2)
    async def frame(job: Job, n: int) -> None: ...

    @play.kind("shot", price=3, budget=6)
    async def shot(job: Job, n: int) -> None:
        await job.child("frame", {"n": 1})
        await job.child("frame", {"n": 2}, is_detached=True).start()

    @play.kind("film", price=1, budget=20)
    async def film(job: Job) -> None:
        await job.gather(job.child("shot", {"n": 1}), job.child("shot", {"n": 2}))

    async def held() -> tuple[int, int]:
        seen = await board.look(play.engine)
        assert seen.held == (await board.look(play.engine, TENANT)).held
        return seen.held, (await play.held())[1]

    await play.begin(100)
    await play.engine.pause("shot")
    await play.engine.pause("frame")
    film_id = (await play.submit("film")).job_id
    assert await held() == (21, 21)
    await play.drain()
    assert await held() == (21, 21)
    await play.engine.resume("shot")
    await play.drain()
    assert await held() == (21, 21)
    await play.engine.resume("frame")
    [lease] = await play.engine.claim(Lanes(["frame"]), 1, worker="w", duration=HOUR)
    await play.engine.finish(End(lease, "succeeded", "null"))
    assert await held() == (21 - 2, 21 - 2)
    await play.engine.cancel(TENANT, film_id)
    assert await held() == ((await play.held())[1],) * 2
    while await play.engine.cancel_orphans(100):
        assert await held() == ((await play.held())[1],) * 2
    await play.drain()
    assert await held() == (0, 0)


async def test_work_is_not_done_again_when_a_parent_is_interrupted(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job, n: int) -> int:
        play.calls.append(f"shot {n}")
        return n

    @play.kind("film")
    async def film(job: Job) -> list[Any]:
        first = await job.child("shot", {"n": 1})
        if len(play.calls) == 1:
            play.calls.append("broke")
            raise RuntimeError
        second = await job.child("shot", {"n": 2})
        return [first.output, second.output]

    await play.begin()
    job = await play.run("film")
    assert job.output == [1, 2]
    assert play.calls == ["shot 1", "broke", "shot 2"]


async def test_a_canceled_parent_takes_its_children_with_it(play: Play) -> None:
    @play.kind("frame", price=1)
    async def frame(job: Job) -> None: ...

    @play.kind("shot", price=1)
    async def shot(job: Job, n: int) -> None:
        await job.child("frame")

    @play.kind("film", price=1)
    async def film(job: Job) -> None:
        await job.gather(*(job.child("shot", {"n": n}) for n in range(2)))

    await play.begin(100)
    await play.engine.pause("frame")
    job = await play.run("film")
    shots = await play.children(job.job_id)
    await play.engine.cancel(**OWNER_OF, job_id=job.job_id)
    while await play.engine.cancel_orphans(100):
        pass
    assert [(await play.read(child.job_id)).outcome for child in shots] == ["canceled"] * 2
    for child in shots:
        assert [grandchild.outcome for grandchild in await play.children(child.job_id)] == ["canceled"]
    assert await play.held() == (100, 0)


@pytest.mark.parametrize(
    ("kind", "given", "code"),
    [("film", {"n": 1}, "child_cycle"), ("absent", {}, "unknown_kind"), ("shot", {"m": 1}, "invalid_input")],
)
async def test_a_wrong_child_fails_its_parent_with_a_precise_error(
    play: Play, kind: str, given: Any, code: str
) -> None:
    @play.kind("shot", price=1)
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", price=1)
    async def film(job: Job, n: int) -> None:
        await job.child(kind, given)

    await play.begin(100)
    job = await play.run("film", {"n": 1})
    assert (job.outcome, job.error["code"]) == ("failed", code)
    assert await play.held() == (100, 0)


async def test_jobs_are_nested_at_most_ten_levels_deep(play: Play) -> None:
    @play.kind("doll")
    async def doll(job: Job, n: int) -> Any:
        inner = await job.gather(job.child("doll", {"n": n + 1}), return_exceptions=True)
        if isinstance(inner[0], Exception):
            return [n, inner[0].details["error"]["code"]]
        return inner[0].output

    await play.begin()
    job = await play.run("doll", {"n": 0})
    assert job.outcome == "succeeded", job.error
    assert job.output == [9, "tree_too_large"]


async def test_many_children_on_many_workers(play: Play) -> None:
    @play.kind("shot", price=1)
    async def shot(job: Job, n: int) -> int:
        return n

    @play.kind("film", price=1, budget=2_000)
    async def film(job: Job) -> int:
        done = await job.gather(*(job.child("shot", {"n": n}) for n in range(1_200)))
        return sum(child.output for child in done)

    await play.begin(10_000)
    async with play.working(3):
        job = await play.until_ended((await play.submit("film")).job_id)
    assert (job.outcome, job.output) == ("succeeded", sum(range(1_200)))
    assert await play.held() == (10_000 - 1 - 1_200, 0)


async def test_several_tasks_of_a_handler_wait_for_children(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job, n: int) -> int:
        return n

    @play.kind("film")
    async def film(job: Job) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(job, n)) for n in range(3)]
        return sum(task.result() for task in tasks)

    async def one(job: Job, n: int) -> int:
        return (await job.child("shot", {"n": n}, name=f"shot {n}")).output

    await play.begin()
    job = await play.run("film")
    assert (job.outcome, job.output) == ("succeeded", 3), job.error


OWNER_OF: Any = {"tenant": OWNER["tenant"]}


async def test_jobs_with_and_without_children_end_in_one_commit(play: Play) -> None:
    """The account's row moves when the first are settled; the others must still find it."""

    @play.kind("plain", price=2)
    async def plain(job: Job) -> None: ...

    @play.kind("film", price=3)
    async def film(job: Job) -> None: ...

    await play.begin(100)
    await play.submit("plain")
    await play.submit("film")
    make = Factory(play.engine, play.clock)
    leases = await make.claimed("plain", "film", want=2)
    for lease in leases:
        if lease.kind == "film":
            await play.engine.record(StepRequest(lease, "facts", 1, "call", "1"))
    assert await asyncio.gather(*(make.finish(lease) for lease in leases)) == ["succeeded"] * 2
    assert await play.held() == (95, 0)


async def test_the_hold_of_a_tree_shrinks_with_what_its_children_cost(play: Play) -> None:
    @play.kind("shot", price=3)
    async def shot(job: Job) -> None: ...

    @play.kind("film", price=1, budget=10)
    async def film(job: Job) -> None:
        await job.child("shot")
        await job.sleep("1h")

    await play.begin(100)
    job = await play.run("film")
    (hold,) = (await holds.page(play.engine, "acme")).data
    assert (hold.job_id, hold.price) == (job.job_id, 1 + 10 - 3)
    assert await play.held() == (100 - 11, 8)
    ages, is_cut = await holds.ages(play.engine, "acme")
    assert (sum(age.credits for age in ages), is_cut) == (8, False)


async def test_only_detached_children_outlive_their_parent(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job) -> None: ...

    @play.kind("film")
    async def film(job: Job) -> None:
        await job.child("shot", name="kept", is_detached=True).start()
        await job.child("shot", name="left").start()

    await play.begin()
    await play.engine.pause("shot")
    job = await play.run("film")
    while await play.engine.cancel_orphans(100):
        pass
    assert [child.outcome for child in await play.children(job.job_id)] == [None, "canceled"]


async def test_a_retry_in_place_keeps_the_children_of_its_own_run(play: Play) -> None:
    """Those of the run before are canceled, though the parent runs again by then."""

    @play.kind("shot")
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", lifecycle=RESTARTABLE, price=1)
    async def film(job: Job) -> None:
        play.calls.append("film")
        await job.child("shot", {"n": len(play.calls)}).start()
        raise PermanentError("It broke.")

    await play.begin(100)
    await play.engine.pause("shot")
    job = await play.run("film")
    await play.engine.retry("acme", job.job_id)
    (lease,) = await Factory(play.engine, play.clock).claimed("film")
    shots = [ChildRequest("shot", {"n": 9})]
    await play.engine.spawn(SpawnRequest(lease, "shot", 1, shots, total=1))
    while await play.engine.cancel_orphans(100):
        pass
    assert [child.outcome for child in await play.children(job.job_id)] == ["canceled", None]


async def test_children_inherit_the_deadline_of_their_parent(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", expires_in="1h")
    async def film(job: Job) -> None:
        await job.gather(
            job.child("shot", {"n": 1}),
            job.child("shot", {"n": 2}, expires_in="2h"),
            job.child("shot", {"n": 3}, expires_in="1m"),
        )

    await play.begin()
    await play.engine.pause("shot")
    job = await play.run("film")
    late = [(child.expires_at or NEVER) - (job.expires_at or NEVER) for child in await play.children(job.job_id)]
    assert [timedelta(0) <= each < 10 * MINUTE for each in late] == [True, True, False]
    assert late[2] < -30 * MINUTE
    await play.clock.advance(2 * HOUR)
    await jobs.expire(play.engine.tenant_databases.executor_for_all, 10)
    assert [child.outcome for child in await play.children(job.job_id)] == ["expired"] * 3


async def test_children_of_an_earlier_run_do_not_resume_a_later_one(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job, n: int) -> None: ...

    @play.kind("film", lifecycle=RESTARTABLE, expires_in="1h")
    async def film(job: Job) -> None:
        play.calls.append("film")
        await job.child("shot", {"n": len(play.calls)})

    await play.begin(100)
    await play.engine.pause("shot")
    job = await play.run("film")
    await play.clock.advance(2 * HOUR)
    await jobs.expire(play.engine.tenant_databases.executor_for_all, 1)  # the parent, and not yet the child
    children = await play.children(job.job_id)
    await play.engine.retry("acme", job.job_id)
    await play.drain()
    assert (await play.read(job.job_id)).waits_for == "children"
    await play.engine.cancel("acme", children[0].job_id)
    assert ((await play.read(job.job_id)).phase, play.calls) == ("parked", ["film"] * 2)


async def test_what_belongs_to_a_tenant_is_read_by_that_tenant_only(play: Play) -> None:
    @play.kind("shot")
    async def shot(job: Job) -> None: ...

    @play.kind("film", budget=10)
    async def film(job: Job) -> None:
        await job.child("shot")

    await play.begin(100)
    job = await play.run("film")
    (batch,) = await play.engine.batches_of("acme", job.job_id)
    assert await play.engine.members("acme", batch.batch_id)
    assert await play.engine.budget("acme", job.job_id, job.run)
    for read in (
        play.engine.batches_of("globex", job.job_id),
        play.engine.members("globex", batch.batch_id),
        play.engine.budget("globex", job.job_id, job.run),
    ):
        assert not await read
    assert (await play.engine.children("globex", job.job_id)).data == []
    with pytest.raises(NotFoundError):
        await play.engine.batch("globex", batch.batch_id)
    with pytest.raises(NotFoundError):
        await play.engine.questions("globex", job.job_id)
