"""A command whose output cannot be written: it works, it counts the lost lines, and it stops when it is asked to."""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

from millpond.engine.engine import Engine
from tests.acceptance.processes import PRODUCT, until
from tests.acceptance.product import app
from tests.children import running
from tests.cli.families import MILLPOND
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from tests.acceptance.processes import Shell

MORE_THAN_A_PIPE_HOLDS = 400
"""Requests, each with lines of the log that are longer than 200 bytes."""


@pytest.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    opened = await Engine.open(dsn, app)
    await opened.grant("acme", "ann", 100)
    yield opened
    await opened.close()


@contextmanager
def full_pipe() -> Iterator[int]:
    """The end of a pipe into which nothing fits, and whose other end nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


@contextmanager
def full_disk() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("sink", [full_pipe, full_disk])
@pytest.mark.parametrize("verb", ["serve", "serve --processes 2", "up"])
async def test_output_that_cannot_be_written_stops_nothing(sh: Shell, sink: Any, verb: str) -> None:
    key = msgspec.json.decode(sh.run("keys", "create", "--scope", "admin", "--json").stdout)["key"]
    ready = sh.folder / "ready.json"
    words = [*MILLPOND, *verb.split(), "--json", "--port", "0", "--ready-file", ready]
    with sink() as output, running(words, **options(sh), stderr=output, stdout=output) as process:
        await until_ready(process, ready)
        url = msgspec.json.decode(ready.read_bytes())["url"]
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as http:
            for _ in range(MORE_THAN_A_PIPE_HOLDS):
                assert (await http.get("/v1/kinds")).status_code == 200
            if sink is full_disk:
                await until(lambda: counts_dropped_lines(http))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("sink", [full_pipe, full_disk])
async def test_a_worker_whose_output_cannot_be_written_runs_jobs(sh: Shell, engine: Engine, sink: Any) -> None:
    words = [*MILLPOND, "worker", PRODUCT, "--json"]
    with sink() as output, running(words, **options(sh), stderr=output, stdout=output) as process:
        for _ in range(3):
            job_id = (await engine.submit("quick", None, tenant="acme", account="ann")).job_id
            await until(lambda job_id=job_id: has_ended(engine, job_id))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def options(sh: Shell) -> dict[str, Any]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
    env = given | {"DATABASE_URL": sh.dsn or "", "MILLPOND_LOG_LEVEL": "debug", "MILLPOND_LOG_FORMAT": "json"}
    return {"env": env, "cwd": sh.folder}


async def has_ended(engine: Engine, job_id: UUID) -> bool:
    return (await engine.read("acme", job_id)).phase == "ended"


async def until_ready(process: subprocess.Popen[Any], ready: Path) -> None:
    async def is_ready() -> bool:
        assert process.poll() is None
        return ready.exists()

    await until(is_ready)


async def counts_dropped_lines(http: httpx2.AsyncClient) -> bool:
    text = (await http.get("/metrics")).text
    (line,) = [line for line in text.splitlines() if line.startswith("millpond_log_lines_dropped_total ")]
    return float(line.split()[1]) >= MORE_THAN_A_PIPE_HOLDS
