"""A worker on a Spot instance: it is protected while it works, and when the machine is taken back no job is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond
from millpond.integrations.aws.machine import this_machine
from millpond.worker import RemoteSource, Worker
from tests.aws.amazon import until_protected
from tests.aws.system import ROUTE, SystemUnderTest
from tests.checks import until
from tests.children import spawned
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond import Job
    from tests.doubles.ec2_metadata import Machine


@pytest.fixture
def instance(system: SystemUnderTest, machine: Machine) -> str:
    """An instance of a group, whose metadata can be read."""
    (mine,) = system.amazon.make_group()
    machine.files["meta-data/instance-id"] = machine.instance_id = mine
    return mine


class Studio:
    """A handler that takes as long as the test wants."""

    def __init__(self) -> None:
        self.app = Millpond()
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.app.kind(ROUTE, runs="fleet", price=5)(self.film)

    async def film(self, job: Job, **_: Any) -> dict[str, Any]:  # noqa: ARG002 - the worker gives it
        """Make a film."""
        self.began.set()
        await self.may_end.wait()
        return {"film": "done"}


@asynccontextmanager
async def working(system: SystemUnderTest, studio: Studio, metadata_url: str) -> AsyncIterator[asyncio.Task[None]]:
    machine = await this_machine(metadata_url, endpoint_url=system.amazon.url)
    machine.notices.interval = 0.02
    source = RemoteSource(system.site.url, system.fleet_key, name=machine.instance_id, identify=machine.identify)
    hooks: dict[str, Any] = {"notices": machine.notices, "on_busy": machine.on_busy}
    worker = Worker(source, studio.app, slots=1, grace=timedelta(seconds=0.2), **hooks)
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield task
    finally:
        stop.set()
        await task
        await machine.close()


async def job(system: SystemUnderTest) -> dict[str, Any]:
    (found,) = await system.jobs()
    return found


async def workers(system: SystemUnderTest) -> list[str]:
    return [each["worker"] for each in await system.workers()]


async def test_efx_22_a_busy_machine_is_protected_and_what_the_notice_leaves_no_time_for_goes_back(
    system: SystemUnderTest, instance: str, machine: Machine, metadata_url: str
) -> None:
    studio = Studio()
    await system.submit(1)
    async with working(system, studio, metadata_url) as task:
        await asyncio.wait_for(studio.began.wait(), PATIENCE)
        assert await workers(system) == [instance]
        await until_protected(system.amazon, instance)
        machine.interrupt("terminate", seconds=1)
        await asyncio.wait_for(task, PATIENCE)
    found = await job(system)
    assert (found["phase"], found["attempts"], await workers(system)) == ("ready", 0, [])
    assert system.amazon.protected() == set()


async def test_efx_22_what_can_end_before_the_machine_goes_ends(
    system: SystemUnderTest, instance: str, machine: Machine, metadata_url: str, log: list[dict[str, Any]]
) -> None:
    studio = Studio()
    await system.submit(2)
    async with working(system, studio, metadata_url) as task:
        await asyncio.wait_for(studio.began.wait(), PATIENCE)
        machine.interrupt("terminate", seconds=120)

        async def has_heard() -> bool:
            return any(line["event"] == "worker.leaving" for line in log)

        await until(has_heard)
        studio.may_end.set()
        await asyncio.wait_for(task, PATIENCE)
    found = await system.jobs()
    assert sorted((each["phase"], each["outcome"]) for each in found) == [("ended", "succeeded"), ("ready", None)]
    assert await workers(system) == []
    assert system.amazon.protected() == set()


APP = f"""
import asyncio
from millpond import Job, Millpond

app = Millpond()


@app.kind("{ROUTE}", runs="fleet", price=5)
async def filmed(job: Job, **_) -> None:
    await asyncio.sleep(3600)
"""


async def test_efx_22_a_worker_process_that_is_terminated_leaves_nothing_behind(
    system: SystemUnderTest, instance: str, metadata_url: str, tmp_path: Path
) -> None:
    await system.submit(1)
    (tmp_path / "app.py").write_text(APP)
    fields = {"MILLPOND_EC2_METADATA": metadata_url, "MILLPOND_FLEET_SECRET": system.fleet_key}
    words = ["app.py", "--url", system.site.url, "--spot", "--grace", "100ms"]
    async with spawned(
        *[sys.executable, "-m", "millpond.worker", *words],
        env=os.environ | fields | {"AWS_ENDPOINT_URL": system.amazon.url},
        cwd=tmp_path,
    ) as process:
        await until_protected(system.amazon, instance)
        assert await workers(system) == [instance]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    found = await job(system)
    assert (found["phase"], found["attempts"], await workers(system)) == ("ready", 0, [])
    assert system.amazon.protected() == set()


async def test_elsewhere_than_on_ec2_a_worker_that_should_be_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    response = {"MILLPOND_EC2_METADATA": "http://127.0.0.1:9", "MILLPOND_FLEET_SECRET": "mp_worker_x"}
    async with spawned(
        *[sys.executable, "-m", "millpond.worker", "app.py", "--url", "http://127.0.0.1:9", "--spot"],
        env=os.environ | response,
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    ) as process:
        _, err = await process.communicate()
    assert (process.returncode, b"Check that this is an EC2 instance" in err) == (8, True)
