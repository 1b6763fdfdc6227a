"""``millpond up`` as a newcomer runs it: one real process, real signals, a real database, plain HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from millpond.store.embedded import open_embedded
from tests.acceptance.processes import Shell, shell, until
from tests.cli.ups import SLOW, up, write_app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = {"url", "tenant", "account", "admin_key", "client_key", "fleet_secret", "files_url", "pid"}
PUBLIC = "0.0.0.0"  # noqa: S104 - that it is refused is the point


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Shell]:
    """A folder with nothing in it, and no database named."""
    with shell(tmp_path, None) as made:
        yield made


# The first minutes


async def test_from_an_empty_folder_to_a_finished_job_and_back(empty: Shell) -> None:
    """With the embedded database, which comes and goes with it."""
    server = await up(empty)
    assert set(server.ready) == FIELDS
    assert server.ready["pid"] == server.command.process.pid
    job = await server.until("ended", await server.submit("hello", {"name": "Ada"}))
    assert (job["outcome"], job["output"], job["captured"]) == ("succeeded", {"greeting": "Hello, Ada!"}, 1)
    wallet = (await server.request("GET", "/v1/wallet")).json()
    assert (wallet["available"], wallet["held"]) == (999, 0)
    server.command.terminate()
    assert server.command.wait() == 0
    assert not server.ready_file.exists()
    assert not (empty.folder / ".millpond" / "up.json").exists()
    with open_embedded(empty.folder / ".millpond") as postgres:
        assert postgres.is_owner


async def test_keys_are_kept_for_their_owner_alone_and_credits_are_given_once(sh: Shell) -> None:
    first = await up(sh)
    for name in ("keys.json", "client.header", "up.json"):
        assert stat.S_IMODE((sh.folder / ".millpond" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(first.ready_file.stat().st_mode) == 0o600
    first.command.terminate()
    assert first.command.wait() == 0
    second = await up(sh)
    secrets = FIELDS - {"url", "files_url", "pid"}
    assert {name: first.ready[name] for name in secrets} == {name: second.ready[name] for name in secrets}
    assert (await second.request("GET", "/v1/wallet")).json()["available"] == 1_000


async def test_keys_that_the_database_does_not_know_are_made_again(sh: Shell, empty_dsn: str) -> None:
    first = await up(sh)
    first.command.terminate()
    first.command.wait()
    sh.dsn = empty_dsn
    second = await up(sh)
    assert second.ready["client_key"] != first.ready["client_key"]
    assert (await second.request("GET", "/v1/wallet")).json()["available"] == 1_000


async def test_each_key_opens_what_it_is_for(sh: Shell) -> None:
    server = await up(sh)
    statuses = {
        key: (await server.request("GET", "/v1/keys", key=key)).status_code
        for key in ("admin_key", "client_key", "fleet_secret", "none")
    }
    assert statuses == {"admin_key": 200, "client_key": 403, "fleet_secret": 403, "none": 401}


async def test_the_lines_it_prints_work_when_they_are_pasted(sh: Shell) -> None:
    server = await up(sh)
    block = server.command.stderr[server.command.stderr.index("Millpond is up") :]
    (curl,) = [line.split(maxsplit=1)[1] for line in block.splitlines() if "curl" in line]
    done = subprocess.run(
        ["bash", "-c", f"{curl} -sS"], cwd=sh.folder, capture_output=True, check=True, timeout=PATIENCE
    )
    assert msgspec.json.decode(done.stdout)["kind"] == "hello"
    assert f"dashboard {server.url}/ui/\n" in block
    assert (await server.request("GET", "/ui/session", key="none")).json()["code"] == "session_missing"
    assert not any(server.ready[name] in server.command.stderr for name in ("admin_key", "client_key", "fleet_secret"))


async def test_it_serves_the_app_that_it_is_given(sh: Shell) -> None:
    server = await up(sh, write_app(sh.folder, SLOW))
    kinds = (await server.request("GET", "/v1/kinds")).json()["data"]
    assert [kind["name"] for kind in kinds] == ["slow"]
    job = await server.until("ended", await server.submit("slow", {"seconds": 0}))
    assert job["output"] == {"done": True}


async def test_without_a_worker_jobs_stay_in_line(sh: Shell) -> None:
    server = await up(sh, "--no-worker")
    job_id = await server.submit("hello")
    sh.run("worker", write_app(sh.folder, SLOW), "--drain")
    assert (await server.job(job_id))["phase"] == "ready"


# The end of it


async def test_what_is_killed_in_the_middle_goes_on_where_it_was(empty: Shell) -> None:
    app = write_app(empty.folder, SLOW)
    first = await up(empty, app)
    jobs = [await first.submit("slow", {"seconds": 0.5}) for _ in range(8)]
    jobs.append(await first.submit("slow", {"seconds": 6}))  # which is at work when we look, however slow we are
    await first.until("leased", jobs[-1])
    first.command.kill()
    first.command.wait()
    assert first.ready_file.exists()  # which says nothing, now
    second = await up(empty, app)
    ended = [await second.until("ended", job_id) for job_id in jobs]
    assert {job["outcome"] for job in ended} == {"succeeded"}
    assert (await second.request("GET", "/v1/wallet")).json()["available"] == 1_000 - len(jobs)
    verified = empty.run("verify", "--json")
    assert msgspec.json.decode(verified.stdout) == {"ok": True, "violations": []}


async def test_sigterm_lets_a_running_job_finish(sh: Shell) -> None:
    first = await up(sh)
    job_id = await first.submit("hello")
    await first.until("leased", job_id)
    first.command.terminate()
    assert first.command.wait() == 0
    second = await up(sh, "--no-worker")
    job = await second.job(job_id)
    assert (job["outcome"], job["attempts"]) == ("succeeded", 0)


async def test_what_does_not_finish_in_the_grace_goes_back_without_a_penalty(sh: Shell) -> None:
    first = await up(sh, write_app(sh.folder, SLOW), MILLPOND_GRACE="0.3s")
    job_id = await first.submit("slow")
    await first.until("leased", job_id)
    first.command.terminate()
    assert first.command.wait() == 0
    second = await up(sh, "app.py", "--no-worker")
    job = await second.job(job_id)
    assert (job["phase"], job["attempts"]) == ("ready", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(sh: Shell, number: signal.Signals) -> None:
    server = await up(sh, write_app(sh.folder, SLOW), MILLPOND_GRACE="1h")
    job_id = await server.submit("slow")
    await server.until("leased", job_id)
    server.command.process.send_signal(number)

    async def is_leaving() -> bool:
        return "worker.stopping" in server.command.stderr

    await until(is_leaving)
    server.command.process.send_signal(number)
    assert server.command.wait() == 1


async def test_streams_end_with_it_so_that_their_readers_come_again(sh: Shell) -> None:
    server = await up(sh, write_app(sh.folder, SLOW), MILLPOND_GRACE="0.3s")
    job_id = await server.submit("slow")
    headers = {"Authorization": f"Bearer {server.ready['client_key']}", "Accept": "text/event-stream"}
    async with (
        httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=PATIENCE) as http,
        http.stream("GET", f"/v1/jobs/{job_id}/stream") as stream,
    ):
        lines = stream.aiter_lines()
        while await anext(lines) != "event: submitted":
            pass
        server.command.terminate()
        async for _ in lines:
            pass
    assert server.command.wait() == 0


async def test_a_request_that_waits_is_answered_before_it_goes(sh: Shell) -> None:
    server = await up(sh, write_app(sh.folder, SLOW), MILLPOND_GRACE="0.3s")
    job_id = await server.submit("slow")
    headers = {"Authorization": f"Bearer {server.ready['client_key']}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=PATIENCE) as http:
        request = http.build_request("GET", f"/v1/jobs/{job_id}?wait=50")
        sending = asyncio.create_task(http.send(request))
        await server.until("leased", job_id)
        server.command.terminate()
        assert (await sending).status_code == 200
    assert server.command.wait() == 0


# Failures


def refused(sh: Shell, *words: str | Path) -> tuple[int, str]:
    """Its exit status, and the one line that it says."""
    command = sh.run("up", *words)
    (line,) = [line for line in command.stderr.splitlines() if not line.startswith("{")]
    assert command.stdout == ""
    return command.process.returncode, line


async def test_a_port_in_use_is_reported_in_one_line(sh: Shell) -> None:
    server = await up(sh)
    port = server.url.rpartition(":")[2]
    status, line = refused(sh, "--data-dir", "other", "--port", port)
    assert status == 5
    assert port in line
    assert "in use" in line


async def test_a_data_directory_in_use_is_reported_with_who_uses_it(sh: Shell) -> None:
    server = await up(sh)
    status, line = refused(sh, "--port", "0")
    assert status == 5
    assert server.url in line
    assert str(server.ready["pid"]) in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "The file 'app.py' does not exist."),
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("x = 1\n", "creates no Millpond() objects"),
    ],
)
def test_an_app_that_does_not_load_is_reported_in_one_line(sh: Shell, text: str | None, expected: str) -> None:
    if text is not None:
        (sh.folder / "app.py").write_text(text)
    status, line = refused(sh, "app.py")
    assert status == 5
    assert expected in line


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("--host", PUBLIC), 4, "--expose"),
        (("--product", "nothing"), 5, "There is no product 'nothing'"),
        (("--host", "no.such.host.invalid"), 5, "no.such.host.invalid"),
    ],
)
def test_what_it_will_not_do_is_reported_in_one_line(
    sh: Shell, words: tuple[str, ...], status: int, expected: str
) -> None:
    found, line = refused(sh, *words)
    assert found == status
    assert expected in line


async def test_a_public_address_is_served_when_that_is_meant(sh: Shell) -> None:
    server = await up(sh, "--host", PUBLIC, "--expose")
    assert server.url.startswith("http://127.0.0.1:")
    assert await server.is_serving()


def test_keys_that_cannot_be_read_are_reported_with_what_to_do(sh: Shell) -> None:
    (sh.folder / ".millpond").mkdir()
    (sh.folder / ".millpond" / "keys.json").write_text("{")
    status, line = refused(sh, "--port", "0")
    assert status == 5
    assert "Delete the file" in line


async def test_a_lock_whose_holder_died_does_not_keep_the_next_one_out(sh: Shell) -> None:
    first = await up(sh)
    os.kill(first.ready["pid"], signal.SIGKILL)
    first.command.wait()
    second = await up(sh)
    assert await second.is_serving()
