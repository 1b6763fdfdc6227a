"""Killed with -9 at every step of a prediction, a callback and a collection: nothing is lost, nothing is paid twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.children import spawned
from tests.doubles.replicate import Replicate
from tests.factories import TENANT
from tests.providers.deployments import PAGES, PRICE, Deployment, running_deployment
from tests.providers.processes import STEPS

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from uuid import UUID

    from millpond.storage.local import Local

ROOT = Path(__file__).parent.parent.parent
CANCELED = ("cancel",)
"""The steps of a job that nobody wants any more."""


@pytest.mark.slow
async def test_a_process_may_die_at_any_step(dsn: str, files: Local, double: Replicate) -> None:
    """One process after the other dies; each finds what those before it left, and two jobs that are new.

    One of them has three parts.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    steps = list(STEPS)
    bare: dict[str, Any] = {"with_site": False, "with_worker": False, "with_services": False}
    async with (
        deployment_process(dsn, files, port, double) as process,
        running_deployment(dsn, files, double, **bare) as here,
    ):
        jobs: dict[str, UUID] = {}
        albums: dict[str, UUID] = {}
        for step in steps:
            is_canceled = step in CANCELED
            jobs[step] = await here.submit(seconds=3600 if is_canceled else 0.05, callbacks=2)
            albums[step] = await here.submit("album", seconds=0.05)
            await start(process, step)
            await died(here, process, jobs[step] if is_canceled else None)
        last = await start(process)
        for step in CANCELED:  # one that died of another's cancel
            await here.engine.cancel(TENANT, jobs[step])
        try:
            states = {step: (await here.ended_soon(job_id)).state for step, job_id in jobs.items()}
            made = {step: await here.ended_soon(job_id) for step, job_id in albums.items()}
            await here.settled()
        finally:
            os.kill(last, signal.SIGTERM)
            assert await reported(process) == 0
        canceled = set(CANCELED)
        assert {step for step, state in states.items() if state == "canceled"} == canceled
        assert {step for step, state in states.items() if state == "succeeded"} == set(steps) - canceled
        paid = len(steps) - len(canceled)
        assert await here.balance() == (PRICE * len(canceled), 0)
        for step, job_id in jobs.items():
            if step not in canceled:
                assert len(await here.engine.artifacts.of_job(TENANT, job_id)) == 1, step
        entries = [row["type"] for row in await here.rows("entries")]
        assert (entries.count("hold"), entries.count("capture"), entries.count("release")) == (
            len(steps) * 2,
            paid + len(steps),
            len(canceled),
        )
        predictions = await here.rows("predictions")
        for step, job in made.items():
            assert job.state == "succeeded", step
            found = await here.engine.artifacts.of_job(TENANT, albums[step])
            assert sorted(file.id for file in found) == sorted(job.output["files"]), step
            kept = [row["part"] for row in predictions if row["job_id"] == albums[step] and row["kept"]]
            assert sorted(kept) == sorted([*PAGES, "cover"]), step
        # Only where the answer to a prediction died with its process was a second prediction asked for.
        assert len(steps) * 4 <= len(double.predictions) <= len(predictions)


@contextlib.asynccontextmanager
async def deployment_process(dsn: str, files: Local, port: str, double: Replicate) -> AsyncIterator[Process]:
    words = [sys.executable, "-m", "tests.providers.processes", dsn, str(files.root), port, double.url]
    async with spawned(*words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def start(process: Process, step: str = "") -> int:
    """Have the next one started; tells its id."""
    assert process.stdin is not None
    process.stdin.write(f"{step}\n".encode())
    return await reported(process)


async def reported(process: Process) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return int(await process.stdout.readline())


async def died(here: Deployment, process: Process, canceling: UUID | None) -> None:
    """Wait for the kill; what is due some time is due now, so that nobody waits for a mark to run out."""
    ending = asyncio.ensure_future(reported(process))
    while not ending.done():
        await asyncio.sleep(0.05)
        await here.poll_now()
        if canceling is not None and (await here.read(canceling)).phase == "parked":
            await here.engine.cancel(TENANT, canceling)
    assert await ending == -signal.SIGKILL
