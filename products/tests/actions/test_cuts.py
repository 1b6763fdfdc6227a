"""Connections to the database that are cut while an action acts: what it has done is not undone by that."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx2
import pytest
from products.tests.actions.deployments import ENDED, Deployment, User, gate, running_deployment

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.databases import DatabaseServer

_CUT = """
select pg_terminate_backend(pid, 60000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
"""It waits for their end: otherwise they might be cut while the next test runs."""


@pytest.fixture(scope="module")
async def deployment(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Deployment]:
    """A server of its own: its connections are cut, and whoever comes next may hear of it."""
    async with server.database(template) as dsn, running_deployment(dsn) as running:
        yield running


async def cut(deployment: Deployment) -> None:
    """All connections but the one that cuts, as a database does that is restarted or fails over."""
    connection: Any = await asyncpg.connect(deployment.engine.db.dsn)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await connection.fetch(_CUT):  # those that were cut before may not be back yet
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def ended(user: User, job_id: str) -> dict[str, Any]:
    """A job at its end; whoever asks may be cut off too."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await user.send("GET", f"/api/jobs/{job_id}")
            if answer.status_code == 200 and answer.json()["state"] in ENDED:
                return answer.json()
            assert answer.status_code in (200, 503), answer.text
            assert "Connection" not in answer.text  # nothing of the driver's
            await asyncio.sleep(0.02)


async def lines_begun(user: User, job_id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await user.send("GET", f"/api/jobs/{job_id}/logs")
            if answer.status_code == 200 and answer.json()["data"]:
                return
            await asyncio.sleep(0.01)


async def test_a_command_whose_log_cannot_be_written_for_a_while_goes_on(deployment: Deployment, user: User) -> None:
    code = "import time\nfor n in range(3000):\n  print(n, flush=True)\n  if n % 100 == 0: time.sleep(0.02)"
    job_id = await user.submit("run-command", command="python", arguments=[code])
    await lines_begun(user, job_id)
    for _ in range(4):
        await cut(deployment)
        await asyncio.sleep(0.1)
    job = await ended(user, job_id)
    assert (job["state"], job["error"]) == ("success", None)
    assert await user.texts(job_id) == [str(n) for n in range(3000)]


async def test_what_an_action_says_at_once_is_reported_once_and_in_order(deployment: Deployment, user: User) -> None:
    job_id = await user.submit("chatter", name="cuts", times=1_500)
    await lines_begun(user, job_id)
    gate("cuts").set()
    for _ in range(4):
        await cut(deployment)
        await asyncio.sleep(0.02)
    assert (await ended(user, job_id))["state"] == "success"
    assert (await user.texts(job_id))[1:] == [f"line {n}" for n in range(1_500)]


@asynccontextmanager
async def listening(answer: Callable[[], Awaitable[object]]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that does something before it answers; and what it was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n")).split()[0])
        await answer()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/pay", heard


async def test_a_request_that_was_sent_is_reported_as_sent(deployment: Deployment, user: User) -> None:
    async with listening(lambda: cut(deployment)) as (url, heard):
        job_id = await user.submit("http-request", url=url, method="POST", body="x")
        job = await ended(user, job_id)
    assert (heard, job["state"], job["error"]) == ([b"POST"], "success", None)
    assert job["output"]["body"] == "ok"


async def test_what_the_driver_says_is_not_reported(deployment: Deployment, user: User) -> None:
    """Whoever is cut off himself is told in our words, if at all."""
    answers: list[httpx2.Response] = []
    for _ in range(3):
        await cut(deployment)
        answers += await asyncio.gather(*(user.send("GET", "/api/jobs") for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert not any("onnection" in answer.text for answer in answers)
