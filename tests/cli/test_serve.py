"""``millpond serve`` as an operator runs it: several processes on one socket, roles, and no open doors."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.acceptance.processes import until
from tests.cli.ups import SLOW, up, write_app

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up

MORE_THAN_A_PIPE_HOLDS = 200_000
CHATTY = f"""
@app.kind("chatty")
def chatty(job: Job) -> None:
    print("x" * {MORE_THAN_A_PIPE_HOLDS})
"""
PUBLIC = "0.0.0.0"  # noqa: S104 - that it is refused is the point
OWNER = ("--tenant", "acme", "--account", "mary")


async def serve(sh: Shell, *words: str, **environment: str) -> Up:
    server = await up(sh, *words, verb="serve", **environment)
    assert set(server.ready) == {"url", "pid"}
    return server


def give_key(sh: Shell, server: Up, scope: str = "client") -> None:
    made = sh.run("keys", "create", "--scope", scope, *OWNER, "--json")
    server.ready["client_key"] = msgspec.json.decode(made.stdout)["key"]
    sh.run("credits", "grant", *OWNER, "--amount", "100")


def children(server: Up) -> set[int]:
    """The processes that have said that they serve and have not been reported dead."""
    said = [line for line in server.command.log if line["event"] in {"server.started", "process.ended"}]
    started = {line["pid"] for line in said if line["event"] == "server.started"}
    return started - {line["pid"] for line in said if line["event"] == "process.ended"} - {server.ready["pid"]}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_one_process_serves_what_its_roles_say(sh: Shell) -> None:
    app = write_app(sh.folder, SLOW)
    server = await serve(sh, str(app))
    give_key(sh, server)
    job_id = await server.submit("slow", {"seconds": 0})
    worker = sh.start("serve", app, "--role", "worker")
    assert (await server.until("ended", job_id))["outcome"] == "succeeded"
    for command in (worker, server.command):
        command.terminate()
        assert command.wait() == 0
    assert not server.ready_file.exists()
    assert server.command.log[-1]["event"] == "server.stopped"


async def test_a_process_that_dies_is_started_again_and_the_socket_stays(sh: Shell) -> None:
    server = await serve(sh, "--processes", "2")
    before = children(server)
    assert len(before) == 2
    os.kill(min(before), signal.SIGKILL)

    async def is_whole_again() -> bool:
        assert await server.is_serving()
        return len(children(server)) == 2 and children(server) != before

    await until(is_whole_again)
    after = children(server)
    server.command.terminate()
    assert server.command.wait() == 0
    assert not any(map(is_alive, before | after))


async def test_processes_do_not_outlive_the_one_that_keeps_them(sh: Shell) -> None:
    server = await serve(sh, "--processes", "2")
    left = children(server)
    server.command.kill()
    server.command.wait()

    async def are_gone() -> bool:
        return not any(map(is_alive, left))

    await until(are_gone)


async def test_a_second_signal_ends_all_processes_at_once(sh: Shell) -> None:
    app = write_app(sh.folder, SLOW)
    server = await serve(sh, str(app), "--processes", "2", "--role", "api,services,worker", MILLPOND_GRACE="1h")
    give_key(sh, server)
    job_id = await server.submit("slow")
    await server.until("leased", job_id)
    left = children(server)
    server.command.terminate()

    async def is_leaving() -> bool:
        return "worker.stopping" in server.command.stderr

    await until(is_leaving)
    server.command.terminate()
    assert server.command.wait() == 1

    async def are_gone() -> bool:
        return not any(map(is_alive, left))

    await until(are_gone)


async def test_what_handlers_print_stops_no_process_and_is_not_lost(sh: Shell) -> None:
    server = await serve(sh, str(write_app(sh.folder, CHATTY)), "--processes", "2", "--role", "api,services,worker")
    give_key(sh, server)
    job_ids = [await server.submit("chatty") for _ in range(4)]
    for job_id in job_ids:
        assert (await server.until("ended", job_id))["outcome"] == "succeeded"
    server.command.terminate()
    assert server.command.wait() == 0
    assert server.command.stdout.count("x") == MORE_THAN_A_PIPE_HOLDS * len(job_ids)


async def test_a_process_that_cannot_begin_is_not_started_again_and_again(sh: Shell) -> None:
    (sh.folder / "app.py").write_text("1 / 0\n")
    command = sh.run("serve", "app.py", "--processes", "2", "--port", "0")
    assert command.process.returncode == 5
    assert "ZeroDivisionError" in command.stderr


async def test_a_public_address_needs_an_admin_key_and_no_keys_of_development(sh: Shell) -> None:
    words = ("--host", PUBLIC, "--port", "0")
    refused = sh.run("serve", *words, "--json")
    assert refused.process.returncode == 4
    assert "there is no admin key" in msgspec.json.decode(refused.stdout)["detail"]
    made = sh.run("keys", "create", "--scope", "admin", "--json")
    server = await serve(sh, "--host", PUBLIC)
    assert await server.is_serving()
    server.command.terminate()
    server.command.wait()
    developer = await up(sh)
    developer.command.terminate()
    developer.command.wait()
    refused = sh.run("serve", *words, "--json")
    assert refused.process.returncode == 4
    assert "3 development keys of `millpond up`" in msgspec.json.decode(refused.stdout)["detail"]
    server = await serve(sh, "--host", PUBLIC, "--expose")
    assert (await server.request("GET", "/v1/keys")).status_code == 401
    assert msgspec.json.decode(made.stdout)["scope"] == "admin"


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("--role", "api,king"), 2, "Roles: api, services, worker, files."),
        (("--role", ""), 2, "Roles:"),
        (("--role", "renderer"), 2, "Roles: api, services, worker, files."),
    ],
)
def test_a_role_that_does_not_exist_is_reported_with_those_that_do(
    sh: Shell, words: tuple[str, ...], status: int, expected: str
) -> None:
    command = sh.run("serve", *words)
    assert command.process.returncode == status
    assert expected in command.stderr


def test_it_needs_a_database_of_its_own(sh: Shell) -> None:
    sh.dsn = None
    command = sh.run("serve")
    assert command.process.returncode == 5
    assert "DATABASE_URL" in command.stderr
    assert not (sh.folder / ".millpond").exists()


async def test_the_service_manager_is_notified_that_it_serves(sh: Shell) -> None:
    address = sh.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        await serve(sh, NOTIFY_SOCKET=str(address))
        assert manager.recv(100) == b"READY=1"
