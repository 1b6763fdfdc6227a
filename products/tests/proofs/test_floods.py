"""Bad readers and bad programs: precise refusals, bounded memory, nothing left behind, nothing lost for others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.actions.test_run_command import is_alive, until
from products.tests.proofs.floods import FLOOD, MIB, Deployment, files, memory, running_deployment
from products.tests.proofs.streams import HOST

from millpond_products.actions.lines import BYTES_MAX, LENGTH_MAX, LINES_MAX
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

ENDLESS = 10 * MIB
SILENT = 100
ROOM = 48 * MIB
"""How much a process may grow, whatever comes: far less than was written."""


@pytest.fixture(scope="module")
async def deployment(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    async with server.database(template) as dsn, running_deployment(dsn, tmp_path_factory.mktemp("floods")) as running:
        yield running


@pytest.fixture(scope="module")
async def three_lines(deployment: Deployment) -> dict[str, Any]:
    """A job that has said three lines."""
    return await deployment.python("print('one'); print('two'); print('three')")


async def _asked(deployment: Deployment, job_id: str, head: bytes) -> bytes:
    """The answer to a request for a stream with these very bytes in its head; of a stream, the beginning."""
    reader, writer = await asyncio.open_connection(HOST, deployment.port)
    try:
        path = f"/actions/api/jobs/{job_id}/stream"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode())
        writer.write(b"Authorization: Bearer %s\r\n%s\r\n" % (deployment.user.key.encode(), head))
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("given", "status", "lines"),
    [
        (b"", 200, 3),  # as a browser that has seen nothing
        (b"0", 200, 3),
        (b"LAST", 204, 0),
        (b"SECOND", 200, 1),
        (b"00SECOND", 200, 1),
        (b"FOREIGN", 409, 0),
        (b"FUTURE", 409, 0),
        (b"2147483647", 409, 0),
        (b"2147483648", 409, 0),
        (b"9223372036854775808", 422, 0),
        (b"18446744073709551616", 422, 0),
        (b"9" * 4_000, 422, 0),
        (b"-1", 422, 0),
        (b"-2147483648", 422, 0),
        (b"+3", 422, 0),
        (b"3.0", 422, 0),
        (b"1e1", 422, 0),
        (b"0x3", 422, 0),
        (b"1_0", 422, 0),
        (b"3 4", 422, 0),
        (b"3,4", 422, 0),
        (b"null", 422, 0),
        (b"NaN", 422, 0),
        (b"\xd9\xa3", 422, 0),  # a three, in Arabic
        (b"\xff\xfe", 422, 0),
        (b"job_01h455vb4pex5vsknk084sn02q", 422, 0),
        (b"' or 1=1 --", 422, 0),
    ],
)
async def test_a_last_event_id_is_a_line_of_this_job_or_is_refused(
    deployment: Deployment, three_lines: dict[str, Any], given: bytes, status: int, lines: int
) -> None:
    numbers = [line["seq"] for line in await deployment.user.lines(three_lines["id"])]
    words = {"LAST": numbers[2] + 1, "SECOND": numbers[1], "FUTURE": numbers[2] + 2, "FOREIGN": numbers[0] - 1}
    for word, number in words.items():
        given = given.replace(word.encode(), str(number).encode())
    answer = await _asked(deployment, three_lines["id"], b"Last-Event-ID: %s\r\n" % given)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert answer.count(b"event: log") == lines
    assert answer.count(b"event: status") == (status == 200)
    if status in {409, 422}:
        assert b'"field":"Last-Event-ID"' in answer
        assert b'"hint":' in answer


@pytest.mark.parametrize(
    "head",
    [
        b"Last-Event-ID: 3\r\nLast-Event-ID: -1\r\n",
        b"Last-Event-ID: " + b"9" * 200_000 + b"\r\n",
        b"Last-Event-ID: 3\x00\r\n",
        b"Last-Event-ID\r\n",
        b"Last-Event-ID: 3\n4\r\n",
    ],
)
async def test_a_head_that_is_none_is_never_an_error_of_ours(
    deployment: Deployment, three_lines: dict[str, Any], head: bytes
) -> None:
    answer = await _asked(deployment, three_lines["id"], head)
    assert answer == b"" or 200 <= int(answer.split(b" ", 2)[1]) < 500, answer[:300]
    assert len(await deployment.user.watched(three_lines["id"])) == 4, "others are served as before"


async def test_readers_that_never_read_cost_little_and_hold_nobody_up(deployment: Deployment, tmp_path: Path) -> None:
    """They have their stream opened and take nothing of it, while four megabytes are said; another reads it all."""
    go = tmp_path / "go"
    code = "import os,sys,time\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.02)\n" + FLOOD
    job_id = await deployment.user.submit("run-command", command="python", arguments=[code, "4", str(go)])
    before = memory(deployment.server, "VmRSS")
    silent = [_silent(deployment, job_id) for _ in range(SILENT)]
    try:
        reading = asyncio.create_task(deployment.user.watched(job_id))
        await deployment.user.until(job_id, "running")
        go.touch()
        found = await reading
        assert found[-1].event == "status"
        texts = [line["text"] for line in await deployment.user.lines(job_id)]
        assert [message.data["text"] for message in found[:-1]] == texts
        assert sum(map(len, texts)) > 4_000_000
        assert memory(deployment.server) - before < ROOM
    finally:
        for one in silent:
            one.close()


def _silent(deployment: Deployment, job_id: str) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.connect((HOST, deployment.port))
    key = deployment.user.key
    head = f"GET /actions/api/jobs/{job_id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    one.sendall(head.encode())
    return one


@pytest.mark.parametrize(
    "what",
    [b"x", b"\xff", b"\r", b"\x00"],
    ids=["letters", "no text", "returns", "nulls"],
)
async def test_ten_megabytes_without_a_line_end_are_cut_and_counted(deployment: Deployment, what: bytes) -> None:
    before = memory(deployment.worker, "VmRSS")
    code = f"import sys; sys.stdout.buffer.write({what!r} * {ENDLESS // len(what)})"
    job = await deployment.python(code)
    assert job["state"] == "success", job
    lines = await deployment.user.lines(job["id"])
    assert lines[-1]["level"] == "warning"
    texts = [line["text"] for line in lines[:-1]]
    assert max(map(len, texts)) <= LENGTH_MAX
    assert len(texts) <= LINES_MAX
    assert sum(len(text.encode()) for text in texts) <= BYTES_MAX + 3 * LENGTH_MAX
    assert job["output"]["droppedBytes"] > 0
    assert memory(deployment.worker) - before < ROOM


async def test_what_steers_a_terminal_is_left_out_of_however_many_megabytes(deployment: Deployment) -> None:
    before = memory(deployment.worker, "VmRSS")
    job = await deployment.python(f"import sys; sys.stdout.write('\\x1b]' * {MIB}); print('\\x1b[1mseen\\x1b[0m')")
    assert job["state"] == "success", job
    texts = await deployment.user.texts(job["id"])
    assert len(texts) <= 2 * MIB // LENGTH_MAX + 1
    assert "".join(texts) == "seen"
    assert memory(deployment.worker) - before < ROOM


async def test_much_output_is_read_to_its_end_and_costs_no_memory(deployment: Deployment) -> None:
    before = memory(deployment.worker, "VmRSS")
    job = await deployment.python(FLOOD, "64")
    assert job["state"] == "success", job
    kept = sum(len(line["text"]) + 1 for line in (await deployment.user.lines(job["id"]))[:-1])
    assert kept + job["output"]["droppedBytes"] == 64 * MIB
    assert memory(deployment.worker) - before < ROOM


DAEMON = """
import os, sys, time
heard, said = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(said, b".")
        while True:
            time.sleep(0.05)
            print("still here", flush=True)
    os._exit(0)
os.read(heard, 1)
"""


async def test_a_program_that_leaves_a_daemon_at_its_output_ends_all_the_same(deployment: Deployment) -> None:
    """It has left its group on purpose, and nobody can find it: but it holds neither the job nor a file of ours."""
    before = files(deployment.worker)
    found: list[int] = []
    try:
        for _ in range(3):
            job = await deployment.python(DAEMON)
            assert job["state"] == "success", job
            found += [int(line["text"]) for line in await deployment.user.lines(job["id"]) if line["text"].isdigit()]
        await until(lambda: files(deployment.worker) <= before + 2)
    finally:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert len(found) == 3


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        break
print(os.getpid(), flush=True)
time.sleep(600)
"""


async def test_a_crowd_that_ignores_being_asked_is_gone_after_a_cancel(deployment: Deployment) -> None:
    job_id = await deployment.user.submit("run-command", command="python", arguments=[STUBBORN])
    async with asyncio.timeout(PATIENCE):
        while len(response := await deployment.user.texts(job_id)) < 21:
            await asyncio.sleep(0.05)
    await deployment.user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert (await deployment.user.until(job_id, "cancelled", "failed", "success"))["state"] == "cancelled"
    await until(lambda: not any(is_alive(int(process)) for process in response))
