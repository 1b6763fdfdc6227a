"""Composed jobs in the test kit: children run, time is moved for sleeps and deadlines, and questions are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import ChildFailedError, Job, Millpond, PermanentError
from millpond.engine.queue import registry
from millpond.errors import InputError, NotFoundError
from millpond.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.store.db import Database

app = Millpond()
calls: list[str] = []


class Choice(msgspec.Struct):
    take: int


@app.kind("shot", price=2)
async def shot(job: Job, n: int) -> dict[str, Any]:
    return {"url": f"{n}.png"}


@app.kind("film", price=1, budget=20)
async def film(job: Job, shots: int) -> dict[str, Any]:
    facts = await job.step("facts", read_page)
    made = await job.gather(*(job.child("shot", {"n": n}) for n in range(shots)))
    choice = await job.ask("Which take?", schema=Choice, who="operator", within="2d", default=Choice(0))
    await job.sleep("1h")
    return {"facts": facts, "url": made[choice.take].output["url"]}


@app.kind("nested", price=1)
async def nested(job: Job, shots: int) -> str:
    try:
        await job.child("film", {"shots": shots})
    except ChildFailedError as error:
        return error.details["outcome"]
    return "made"


@app.kind("survey")
async def survey(job: Job) -> list[str]:
    return [await job.ask("First?", name="first"), await job.ask("Second?", name="second")]


async def read_page() -> str:
    calls.append("read")
    return "a shoe"


@pytest.fixture
async def harness(db: Database) -> AsyncIterator[Harness]:
    calls.clear()
    await registry.register(db, app.kinds.values())
    made = Harness(db.dsn, app)
    made.wallet().grant(100)
    yield made
    made.assert_sound()
    made.close()


async def test_children_run_and_a_question_and_a_sleep_are_gone_through(harness: Harness) -> None:
    job = harness.submit("film", {"shots": 3})
    assert await harness.drain() == 2 + 3, "the film runs twice, and each shot once"
    assert [child.output["url"] for child in harness.children(job)] == ["0.png", "1.png", "2.png"]
    assert harness.job(job).waits_for == "question"
    (question,) = harness.questions(job)
    assert (question.question, question.who, question.is_open) == ("Which take?", "operator", True)
    with pytest.raises(InputError, match="take"):
        harness.answer(job, {"take": "two"})
    assert harness.answer(job, Choice(2)).phase == "ready"
    assert await harness.drain() == 1
    assert harness.job(job).waits_for == "time"
    assert await harness.drain(advance="59m") == 0
    assert await harness.drain(advance="2m") == 1
    assert harness.job(job).output == {"facts": "a shoe", "url": "2.png"}
    assert calls == ["read"], "a step is done once, however often the handler is called"
    budget = harness.budget(job)
    assert budget is not None
    assert (budget.amount, budget.spent, budget.reserved) == (20, 6, 0)
    assert (harness.wallet().available, harness.wallet().held) == (100 - 1 - 6, 0)


async def test_a_question_that_nobody_answers_has_its_default(harness: Harness) -> None:
    job = harness.submit("film", {"shots": 1})
    await harness.drain(advance="3d")
    assert harness.job(job).output["url"] == "0.png"
    assert harness.questions(job)[0].answered_at is None


async def test_a_child_can_be_made_to_fail(harness: Harness) -> None:
    job = harness.submit("nested", {"shots": 3})
    harness.fail_next("shot", PermanentError("No."))
    await harness.drain()
    assert harness.job(job).output == "failed"
    assert harness.assert_submitted("film").error["code"] == "child_failed"
    assert "failed" in [child.outcome for child in harness.children(harness.jobs("film")[0])]
    assert harness.wallet().held == 0


async def test_children_are_canceled_with_their_parent(harness: Harness) -> None:
    job = harness.submit("nested", {"shots": 1})
    await harness.drain()
    assert [child.waits_for for child in harness.children(job)] == ["question"]
    harness.cancel(job)
    await harness.drain()
    assert [child.outcome for child in harness.children(job)] == ["canceled"]


async def test_a_worker_that_dies_in_between_loses_no_step(harness: Harness) -> None:
    job = harness.submit("film", {"shots": 1})
    await harness.drain()
    harness.answer(job, {"take": 0})
    harness.lose_worker("film")
    await harness.drain(advance="2h")
    assert harness.job(job).outcome == "succeeded"
    assert calls == ["read"]


async def test_which_question_is_answered_is_clear(harness: Harness) -> None:
    job = harness.submit("survey")
    await harness.drain()
    with pytest.raises(NotFoundError, match="no question 'third'"):
        harness.answer(job, "a", question="third")
    harness.answer(job, "a", question="first")
    await harness.drain()
    harness.answer(job, "b")
    await harness.drain()
    assert harness.job(job).output == ["a", "b"]
    film = harness.submit("film", {"shots": 1})
    await harness.drain()
    harness.answer(film, Choice(0))
    await harness.drain()
    with pytest.raises(AssertionError, match=f"Open questions of {film.id}: none; expected one"):
        harness.answer(film, Choice(0))
