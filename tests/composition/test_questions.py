"""Questions: a job asks somebody, and waits without a worker until it is answered."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.errors import AnswerUnavailableError, InputError, NotFoundError
from tests.factories import TENANT

if TYPE_CHECKING:
    from millpond.worker import Job
    from tests.composition.conftest import Play


class Choice(msgspec.Struct):
    take: int


async def answered(play: Play, job_id: Any, given: Any, name: str = "question") -> str:
    return await play.engine.answer_question(TENANT, job_id, name, given, actor="key_1")


async def test_a_job_asks_and_gets_the_answer(play: Play) -> None:
    @play.kind("film")
    async def film(job: Job) -> Any:
        first = await job.ask("Which take?", schema=Choice, who="operator")
        second = await job.ask("Are you sure?")
        assert isinstance(first, Choice)
        return [first.take, second]

    await play.begin()
    job = await play.run("film")
    assert (job.phase, job.waits_for) == ("parked", "question")
    (question,) = await play.engine.questions(TENANT, job.job_id)
    assert (question.question, question.who, question.is_open) == ("Which take?", "operator", True)
    await answered(play, job.job_id, {"take": 2})
    await play.drain()
    await answered(play, job.job_id, "yes", "question:2")
    await play.drain()
    assert (await play.read(job.job_id)).output == [2, "yes"]
    first, second = await play.engine.questions(TENANT, job.job_id)
    assert (first.answered_by, first.answer, second.answer) == ("key_1", {"take": 2}, "yes")


async def test_an_answer_must_fit_the_schema(play: Play) -> None:
    @play.kind("film")
    async def film(job: Job) -> Any:
        return (await job.ask("Which take?", schema=Choice)).take

    await play.begin()
    job = await play.run("film")
    with pytest.raises(InputError) as caught:
        await answered(play, job.job_id, {"take": "two"})
    assert caught.value.field == "answer.take"
    with pytest.raises(NotFoundError):
        await answered(play, job.job_id, {"take": 2}, "other")


async def test_an_answer_can_be_repeated_but_not_changed(play: Play) -> None:
    @play.kind("film")
    async def film(job: Job) -> Any:
        return await job.ask("Which take?")

    await play.begin()
    job = await play.run("film")
    assert await answered(play, job.job_id, 2) == "queued"
    assert await answered(play, job.job_id, 2) == "queued"
    with pytest.raises(AnswerUnavailableError):
        await answered(play, job.job_id, 3)
    await play.drain()
    assert (await play.read(job.job_id)).output == 2


@pytest.mark.parametrize("default", ["take one", None])
async def test_a_question_has_a_deadline_with_a_default(play: Play, default: str | None) -> None:
    @play.kind("film")
    async def film(job: Job) -> Any:
        return await job.ask("Which take?", within="2h", default=default)

    await play.begin()
    job = await play.run("film")
    async with play.working():
        await play.clock.advance(timedelta(hours=3))
        ended = await play.until_ended(job.job_id)
    assert (ended.outcome, ended.output) == ("succeeded", default)
    with pytest.raises(AnswerUnavailableError):
        await answered(play, job.job_id, 1)


async def test_without_a_default_an_unanswered_question_is_an_error(play: Play) -> None:
    @play.kind("film", price=3)
    async def film(job: Job) -> Any:
        return await job.ask("Which take?", within="2h")

    await play.begin(10)
    job = await play.run("film")
    async with play.working():
        await play.clock.advance(timedelta(hours=3))
        ended = await play.until_ended(job.job_id)
    assert (ended.outcome, ended.error["code"]) == ("failed", "unanswered")
    assert await play.held() == (10, 0)


async def test_the_plain_answer_verb_does_not_reach_a_question(play: Play) -> None:
    @play.kind("film")
    async def film(job: Job) -> Any:
        return await job.ask("Which take?")

    await play.begin()
    job = await play.run("film")
    with pytest.raises(AnswerUnavailableError):
        await play.engine.answer(TENANT, job.job_id, 2)


async def test_a_late_answer_is_refused(play: Play) -> None:
    """The job may have gone on with the default already."""

    @play.kind("film")
    async def film(job: Job) -> Any:
        return await job.ask("Which take?", within="2h", default="first")

    await play.begin()
    job = await play.run("film")
    await play.clock.advance(timedelta(hours=3))
    with pytest.raises(AnswerUnavailableError, match="deadline"):
        await answered(play, job.job_id, 1)
