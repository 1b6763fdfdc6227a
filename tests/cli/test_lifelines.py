"""Whoever is killed with -9 takes along what it has started, and what that has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from millpond import lifeline
from millpond.api.server import listen
from tests.acceptance.processes import shell, until
from tests.children import descendants, living, running
from tests.cli.families import MILLPOND, all_gone, family_of, starter
from tests.cli.ups import SLOW, serving, up, write_app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell


@pytest.mark.slow
@pytest.mark.parametrize("who", ["itself", "its starter"])
async def test_an_up_that_is_killed_takes_everything_along(tmp_path: Path, who: str) -> None:
    """Its database and its file server; so it does when its starter is killed."""
    file = tmp_path / "ready.json"
    words = (*MILLPOND, "up", "--port", "0", "--data-dir", tmp_path / "data", "--ready-file", file)
    with shell(tmp_path, None) as sh:
        command = sh.launch(*(starter(words) if who == "its starter" else words))
        await serving(command, file)
        family = await family_of(command, "millpond files", "postgres")
        command.kill()
        command.wait()
        await all_gone(*family)


async def test_a_serve_that_is_killed_takes_its_processes_along(sh: Shell) -> None:
    app = write_app(sh.folder, SLOW)
    words = (app, "--role", "api,services,worker,files", "--processes", "2")
    server = await up(sh, *words, verb="serve", MILLPOND_STORAGE=str(sh.folder / "files"))
    family = await family_of(server.command, "millpond serve", "millpond files")
    assert len(family) == 3
    server.command.kill()
    server.command.wait()
    await all_gone(*family)


@pytest.mark.parametrize("verb", ["serve", "worker", "files"])
async def test_a_program_of_ours_ends_with_its_starter(sh: Shell, verb: str) -> None:
    app = write_app(sh.folder, SLOW)
    with listen("127.0.0.1", 0) as sock:
        words = {
            "serve": ("serve", app, "--port", "0", "--json"),
            "worker": ("worker", app, "--json"),
            "files": ("files", "--socket", str(sock.fileno())),
        }[verb]
        given = {"MILLPOND_STORAGE": str(sh.folder / "files"), "DATABASE_URL": sh.dsn or ""}
        command = starter((*MILLPOND, *words), pass_fds=[sock.fileno()])
        with running(command, env=os.environ | given, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as first:
            assert first.stdout is not None
            started = living(int(first.stdout.readline()))
            if verb == "files":
                assert httpx2.get(f"http://127.0.0.1:{sock.getsockname()[1]}/healthz", timeout=PATIENCE).text == "ok"
            else:
                assert first.stdout.readline().startswith(b"{")  # it is ready
            assert started is not None
            assert started.is_alive
            first.kill()
            await all_gone(started)


async def test_a_strange_program_ends_with_its_starter_and_so_does_its_group(tmp_path: Path) -> None:
    deaf = "trap '' TERM HUP INT; sleep 600 & echo $! >pid.new; mv pid.new pid; wait; sleep 600"
    words = starter(["/bin/sh", "-c", deaf], guarded=True, start_new_session=True, cwd=str(tmp_path))
    with running(words, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        leader = living(int(first.stdout.readline()))

        async def has_begun() -> bool:
            return (tmp_path / "pid").exists()

        await until(has_begun)
        member = living(int((tmp_path / "pid").read_text()))
        assert leader is not None
        assert member is not None
        assert leader.is_alive
        assert member.is_alive
        first.kill()
        await all_gone(leader, member)


async def test_an_up_of_a_user_outlives_the_shell_and_needs_no_standard_input(sh: Shell) -> None:
    """As `nohup millpond up <&- &` starts it, or a service manager."""
    file = sh.folder / "ready.json"
    words = (*MILLPOND, "up", "--no-worker", "--port", "0", "--ready-file", file)
    shell_words = ["sh", "-c", '"$@" <&- >/dev/null 2>&1 & echo $!', "sh", *words]
    done = subprocess.run(
        shell_words,
        cwd=sh.folder,
        env=os.environ | {"DATABASE_URL": sh.dsn or ""},
        capture_output=True,
        check=True,
        start_new_session=True,
    )
    daemon = living(int(done.stdout))
    assert daemon is not None
    try:

        async def serves() -> bool:
            assert daemon.is_alive
            return file.exists()

        await until(serves)
        assert (httpx2.get(f"{msgspec.json.decode(file.read_bytes())['url']}/healthz")).status_code == 200
        assert daemon.is_alive
    finally:
        family = [daemon, *descendants(daemon.pid)]
        os.kill(daemon.pid, 9)
        await all_gone(*family)


HEEDS = """
import os, sys
from millpond import lifeline
lifeline.stop_with_parent()
print(sorted(name for name in os.environ if "LIFELINE" in name), flush=True)
print(sys.stdin.read(), end="")
"""


@pytest.mark.parametrize("name", ["", "nonsense", "99:1", "0:1", "pipe"])
def test_a_lifeline_that_is_not_there_is_not_heeded(name: str) -> None:
    """Somebody between closed it: what has its number now is something else, and nothing of that is read."""
    other, writing = os.pipe()
    os.close(writing)
    fields = lifeline.environment() | {"_MILLPOND_LIFELINE": f"{other}:1" if name == "pipe" else name}
    words = [sys.executable, "-c", HEEDS]
    done = subprocess.run(
        words, env=fields, pass_fds=[other], input="all of it", capture_output=True, text=True, check=True
    )
    os.close(other)
    assert done.stdout == "[]\nall of it"


FORKS = """
import os, subprocess, sys
from millpond import lifeline
guard = lifeline.Guard()
print(subprocess.Popen(guard.words(["sleep", "600"]), pass_fds=[guard.descriptor], start_new_session=True,
    stdout=subprocess.DEVNULL).pid, flush=True)
if not os.fork():
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), 9)
"""


async def test_a_fork_does_not_keep_alive_what_its_parent_has_started() -> None:
    with running([sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        sleeper = living(int(first.stdout.readline()))
        assert first.wait() == -9
        assert sleeper is not None
        await all_gone(sleeper)
