"""Resources: created once in each process that needs them, closed in reverse order, and reported."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond
from millpond.errors import LifecycleError
from millpond.worker.resources import Resources
from tests.checks import until
from tests.process import apart
from tests.process.conftest import Site, working

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from millpond import Job
    from millpond.store.db import Database


def lines(events: Path, pid: int) -> list[str]:
    """What the resources of a process have written."""
    found = [line.rpartition(" ") for line in events.read_text().splitlines()]
    return [text for text, _, number in found if int(number) == pid]


# In a pool, and in the worker


async def test_a_process_creates_each_once_and_closes_them_in_reverse_order(
    db: Database, tmp_path: Path, events: Path
) -> None:
    async with working(db, tmp_path, slots=1) as site:
        jobs = [await site.run("pumps", {"word": f"{n}"}) for n in range(2)]
        jobs.append(await site.run("pumps_async", {"number": 3}))
        assert lines(events, jobs[0].output["pid"]) == ["open engine_room", "open pump"]
    pid = jobs[0].output["pid"]
    assert [job.output for job in jobs] == [
        {"pump": "pump of steam", "word": "0", "pid": pid},
        {"pump": "pump of steam", "word": "1", "pid": pid},
        {"pump": "pump of steam", "room": "steam", "number": 3, "pid": pid},
    ]
    assert lines(events, pid) == ["open engine_room", "open pump", "close pump", "close engine_room"]


async def test_a_worker_creates_each_once_for_jobs_that_run_in_it(db: Database, tmp_path: Path, events: Path) -> None:
    """Also if many need it at the same time."""
    async with working(db, tmp_path, slots=10) as site:
        jobs = [await site.submit("pumps_inline", {"word": "w"}) for _ in range(20)]
        outputs = [(await site.ended(job)).output for job in jobs]
        assert outputs == [{"pump": "pump of steam", "word": "w", "pid": os.getpid()}] * 20
    assert lines(events, os.getpid()) == ["open engine_room", "open pump", "close pump", "close engine_room"]


@pytest.mark.parametrize("kind", ["mended", "mended_inline"])
async def test_one_that_fails_fails_the_attempt_and_is_tried_again(site: Site, kind: str) -> None:
    job_id = await site.submit(kind)
    job = await site.ended(job_id)
    assert job.output == ["mended", 2]
    data_of = [event.data or {} for event in await site.engine.events("acme", job_id)]
    found = [data["error"] for data in data_of if "error" in data]
    assert found == [
        {
            "code": "resource_failed",
            "message": "The resource 'broken' could not be created: OSError: The card is gone.",
            "resource": "broken",
        }
    ]


async def test_one_that_ends_its_process_fails_the_attempt(site: Site) -> None:
    job = await site.run("doomed")
    assert job.error == {
        "code": "process_crashed",
        "message": "The process that ran the job exited with code 5.",
        "exit_code": 5,
    }
    assert (await site.run("pid")).error is None


async def test_what_is_loaded_is_reported(site: Site) -> None:
    async def loaded() -> Any:
        (view,) = await site.engine.workers.list()
        return view.capabilities.get("resources")

    async def is_reported() -> bool:
        return await loaded() == ["engine_room", "pump"]

    assert await loaded() is None
    pid = (await site.run("pumps", {"word": "w"})).output["pid"]
    await until(is_reported)
    os.kill(pid, 9)

    async def is_withdrawn() -> bool:
        return await loaded() is None

    await until(is_withdrawn)


async def test_a_job_goes_to_the_process_that_has_what_it_needs(site: Site, tmp_path: Path) -> None:
    go, files = tmp_path / "go", [tmp_path / "one", tmp_path / "two"]
    jobs = [await site.submit("waits", {"file": str(file), "go": str(go)}) for file in files]
    go.touch()
    for job in jobs:
        await site.ended(job)
    warm = (await site.run("pumps", {"word": "w"})).output["pid"]
    for _ in range(3):
        await site.run("pid")
        assert (await site.run("pumps", {"word": "w"})).output["pid"] == warm


async def test_an_eager_one_is_created_before_the_first_job(db: Database, tmp_path: Path) -> None:
    created: list[str] = []
    app = Millpond()

    @app.resource(eager=True)
    def model() -> str:
        created.append("model")
        return "a model"

    @app.resource
    def other() -> str:
        created.append("other")
        return "another"

    @app.kind("asks")
    def asks(job: Job, model: str, other: str = "") -> str:
        return model

    async with working(db, tmp_path, app) as site:

        async def is_created() -> bool:
            return created == ["model"]

        await until(is_created)
        assert (await site.run("asks")).output == "a model"
    assert created == ["model", "other"]


async def test_a_canceled_job_does_not_stop_what_others_wait_for() -> None:
    counts: Counter[str] = Counter()
    may_go = asyncio.Event()
    app = Millpond()

    @app.resource
    async def slow() -> str:
        counts["slow"] += 1
        await may_go.wait()
        return "here"

    resources = held()
    first = asyncio.create_task(resources.get([app.resources["slow"]]))
    second = asyncio.create_task(resources.get([app.resources["slow"]]))
    await asyncio.sleep(0)
    first.cancel()
    may_go.set()
    assert await second == {"slow": "here"}
    assert counts["slow"] == 1


async def test_one_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    closed: list[str] = []
    app = Millpond()

    @app.resource
    def first() -> Iterator[int]:
        yield 1
        closed.append("first")

    @app.resource
    async def second(first: int) -> AsyncIterator[int]:
        yield 2
        raise OSError("It is stuck.")

    @app.resource
    def third(second: int) -> Iterator[int]:
        yield 3
        yield 4

    failures: list[str] = []
    resources = held(failures)
    await resources.get([app.resources["third"]])
    assert resources.loaded == ["first", "second", "third"]
    await resources.close()
    assert closed == ["first"]
    assert failures == ["third: It yields more than once.", "second: It is stuck."]
    assert resources.loaded == []


def held(failures: list[str] | None = None) -> Resources:
    failed = [] if failures is None else failures
    return Resources(asyncio.to_thread, lambda: None, lambda name, error: failed.append(f"{name}: {error}"))


# Declarations


def test_a_resource_is_no_field_of_the_input() -> None:
    kind = apart.app.kinds["pumps"]
    assert list(kind.json_schema["$defs"]["pumps"]["properties"]) == ["word"]
    assert [resource.name for resource in kind.resources] == ["pump"]
    assert apart.app.kinds["pumps_async"].takes_whole_input


def declares_unknown(app: Millpond) -> None:
    @app.resource
    def pump(room: str) -> str:
        return room


def declares_cycle(app: Millpond) -> None:
    @app.resource
    def pump(pump: str) -> str:
        return pump


def declares_twice(app: Millpond) -> None:
    for _ in range(2):

        @app.resource
        def pump() -> str:
            return ""


def declares_below(app: Millpond) -> None:
    @app.kind("works")
    def works(job: Job, pump: str) -> None: ...

    @app.resource
    def pump() -> str:
        return ""


def declares_clash(app: Millpond) -> None:
    @app.resource
    def pump() -> str:
        return ""

    schema: Mapping[str, Any] = {"type": "object", "properties": {"pump": {"type": "string"}}}

    @app.kind("works", schema=schema)
    def works(job: Job, pump: str) -> None: ...


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (declares_unknown, "Resource 'pump' needs 'room', which is not declared."),
        (declares_cycle, "Resource 'pump' needs itself."),
        (declares_twice, "Resource 'pump' is declared more than once."),
        (declares_below, "Resource 'pump' is declared below kind 'works', which takes 'pump' as its input."),
        (declares_clash, "Kind 'works': 'pump' is both a field of its input and a resource."),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_wrong_declaration_is_refused_at_once(declare: Any, message: str) -> None:
    with pytest.raises(LifecycleError) as caught:
        declare(Millpond())
    assert caught.value.message == message
