"""Steps: what a job has done is recorded, and a later attempt gets the record instead of doing it again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.errors import LeaseLostError, UnavailableError
from millpond.work import StepRequest
from tests.factories import TENANT, Factory

if TYPE_CHECKING:
    from millpond.worker import Job
    from tests.composition.conftest import Play


async def test_a_step_is_not_repeated_by_a_later_attempt(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        facts = await job.step("facts", collect, 3)
        play.calls.append("attempt")
        if len(play.calls) < 3:
            raise RuntimeError
        return facts

    def collect(n: int) -> list[int]:
        play.calls.append("collect")
        return list(range(n))

    await play.begin()
    job = await play.run("report")
    assert job.output == [0, 1, 2]
    assert play.calls == ["collect", "attempt", "attempt"]


async def test_a_step_may_be_a_coroutine(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        return await job.step("facts", collect, n=3)

    async def collect(n: int) -> int:
        await asyncio.sleep(0)
        return n

    await play.begin()
    assert (await play.run("report")).output == 3


async def test_a_plain_handler_has_steps(play: Play) -> None:
    @play.kind("report")
    def report(job: Job) -> Any:
        facts = job.step("facts", collect)
        if len(play.calls) == 1:
            play.calls.append("broke")
            raise RuntimeError
        return facts

    def collect() -> str:
        play.calls.append("collect")
        return "facts"

    await play.begin()
    assert (await play.run("report")).output == "facts"
    assert play.calls == ["collect", "broke"]


async def test_the_result_is_what_json_keeps_of_it_from_the_first_attempt_on(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        return await job.step("pair", lambda: (1, 2)) == [1, 2]

    await play.begin()
    assert (await play.run("report")).output is True


async def test_steps_with_one_name_are_numbered(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        found = [await job.step("page", page, n) for n in range(3)]
        if len(play.calls) == 3:
            play.calls.append("broke")
            raise RuntimeError
        return found

    def page(n: int) -> int:
        play.calls.append("page")
        return n

    await play.begin()
    assert (await play.run("report")).output == [0, 1, 2]
    assert play.calls == ["page", "page", "page", "broke"]


async def test_log_lines_before_a_recorded_step_are_not_repeated(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> None:
        await job.log("before")
        await job.step("facts", int)
        await job.log("after")
        await job.step("more", int)
        play.calls.append("attempt")
        if len(play.calls) == 1:
            raise RuntimeError
        await job.log("end")

    await play.begin()
    job = await play.run("report")
    lines = [event.data["text"] for event in await play.engine.events(TENANT, job.job_id) if event.type == "log"]
    assert lines == ["before", "after", "end"]


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        (["a", "b"], ["b", "a"], "Step 'b' was number 2 in an earlier attempt"),
        (["a", "b"], ["a"], "The step 'b' of an earlier attempt was not repeated"),
        (["a", "b"], ["a", "c"], "Step 2 was 'b' in an earlier attempt, and is 'c' now"),
        (["a"], ["sleep"], "Step 1 was 'a'"),
    ],
)
async def test_other_steps_than_before_are_an_error_that_names_them(
    play: Play, then: list[str], now: list[str], message: str
) -> None:
    @play.kind("report")
    async def report(job: Job) -> None:
        names = now if play.calls else then
        for name in names:
            await (job.sleep(60) if name == "sleep" else job.step(name, int))
        if not play.calls:
            play.calls.append("broke")
            raise RuntimeError

    await play.begin()
    job = await play.run("report")
    assert (job.outcome, job.error["code"]) == ("failed", "step_order")
    assert message in job.error["message"]


@pytest.mark.parametrize(
    ("result", "problem"), [({1, 2}, None), (object(), "not a JSON value"), ("x" * 300_000, "the limit is")]
)
async def test_a_result_that_cannot_be_recorded_is_an_error(play: Play, result: Any, problem: str | None) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        return await job.step("facts", lambda: result)

    await play.begin()
    job = await play.run("report")
    if problem is None:
        assert job.outcome == "succeeded"
    else:
        assert (job.outcome, job.error["code"]) == ("failed", "invalid_input")
        assert problem in job.error["message"]
        assert job.error["field"].startswith("step facts")


async def test_tasks_of_a_handler_have_steps_in_any_order(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        names = ["a", "b", "c"] if not play.calls else ["c", "b", "a"]
        found = await asyncio.gather(*(asyncio.create_task(one(job, name)) for name in names))
        if not play.calls:
            play.calls.append("broke")
            raise RuntimeError
        return sorted(found)

    async def one(job: Job, name: str) -> str:
        return await job.step(name, str.upper, name)

    await play.begin()
    assert (await play.run("report")).output == ["A", "B", "C"]


async def test_a_task_that_another_one_stops_need_not_repeat_its_steps(play: Play) -> None:
    """Its steps have no fixed place; the log goes on all the same."""

    @play.kind("report")
    async def report(job: Job) -> str:
        if not play.calls:
            play.calls.append("broke")
            await asyncio.create_task(aside(job))
            raise RuntimeError
        await job.log("went on")
        return "done"

    async def aside(job: Job) -> None:
        await job.step("aside", int)

    await play.begin()
    job = await play.run("report")
    assert (job.outcome, job.output) == ("succeeded", "done"), job.error
    assert "log" in await play.types(job.job_id)


async def test_a_job_sleeps_without_a_worker(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> str:
        await job.sleep("1h")
        return "rested"

    await play.begin()
    job = await play.run("report")
    assert (job.phase, job.waits_for) == ("parked", "time")
    async with play.working():
        await play.clock.advance(timedelta(minutes=59))
        await play.clock.advance(timedelta(minutes=2))
        ended = await play.until_ended(job.job_id)
    assert ended.output == "rested"
    assert await play.types(job.job_id) == ["submitted", "started", "parked", "resumed", "started", "succeeded"]


async def test_a_sleeping_job_cannot_be_answered_and_can_be_canceled(play: Play) -> None:
    @play.kind("report", price=2)
    async def report(job: Job) -> None:
        await job.sleep("1h")

    await play.begin(10)
    job = await play.run("report")
    with pytest.raises(Exception, match="does not wait for this answer"):
        await play.engine.answer(TENANT, job.job_id, "now")
    await play.engine.cancel(TENANT, job.job_id)
    assert (await play.read(job.job_id)).outcome == "canceled"
    assert await play.held() == (10, 0)


async def test_a_lost_lease_records_nothing(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> None: ...

    await play.begin()
    await play.submit("report")
    source = play.engine.source(name="w")
    (lease,) = await Factory(play.engine, play.clock).claimed("report")
    await play.engine.abandon(lease.token)
    for again in range(2):  # while nobody has the job, and while another attempt has it
        with pytest.raises(LeaseLostError):
            await source.record(StepRequest(lease, "facts", 1, "call", "1"))
        if not again:
            await Factory(play.engine, play.clock).claimed("report")


async def test_the_record_of_another_attempt_wins(play: Play) -> None:
    @play.kind("report")
    async def report(job: Job) -> None: ...

    await play.begin()
    await play.submit("report")
    (lease,) = await Factory(play.engine, play.clock).claimed("report")
    first = await play.engine.record(StepRequest(lease, "facts", 1, "call", "1"))
    second = await play.engine.record(StepRequest(lease, "facts", 1, "call", "2"))
    assert (first.result, second.result) == ("1", "1")
    assert [step.result for step in await play.engine.recall(lease)] == ["1"]
    many = await asyncio.gather(
        *(play.engine.record(StepRequest(lease, f"s{n}", n, "call", str(n))) for n in range(2, 60))
    )
    assert [step.result for step in many] == [str(n) for n in range(2, 60)]
    assert len(await play.engine.recall(lease)) == 59


async def test_a_step_is_recorded_once_though_the_answer_is_lost(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    @play.kind("report")
    async def report(job: Job) -> Any:
        return await job.step("facts", collect)

    def collect() -> int:
        play.calls.append("collect")
        return len(play.calls)

    await play.begin()
    record = play.engine.record

    async def lose(item: StepRequest) -> Any:
        step = await record(item)
        if len(play.calls) == 1:
            play.calls.append("lost")
            raise UnavailableError
        return step

    monkeypatch.setattr(play.engine, "record", lose)
    assert (await play.run("report")).output == 1
    assert play.calls == ["collect", "lost"]
