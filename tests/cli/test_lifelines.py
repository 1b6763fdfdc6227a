"""Whoever is killed with -9 takes along what it has started, and what that has started."""

from __future__ import annotations

import os
import re
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
from tests.children import Living, descendants, living, running
from tests.cli.ups import SLOW, serving, up, write_app
from tests.renderer.renderers import LONG, TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.acceptance.processes import Command, Shell

STARTER = """
import json, signal, subprocess, sys
from millpond import lifeline
lifeline.heed()
options = json.loads(sys.argv[1])
guard = lifeline.Guard()
words = guard.words(sys.argv[2:]) if options.pop("guarded", False) else sys.argv[2:]
options["env"] = lifeline.environment()
options["pass_fds"] = [*options.get("pass_fds", []), lifeline.descriptor(), guard.descriptor]
print(subprocess.Popen(words, **options).pid, flush=True)
signal.pause()
"""
"""Starts a program, tells its number, and lives until it is killed."""
MILLPOND = (sys.executable, "-m", "millpond")


def starter(words: Sequence[str | Path], **options: object) -> Sequence[str | Path]:
    return [sys.executable, "-c", STARTER, msgspec.json.encode(options).decode(), *words]


async def all_gone(*family: Living) -> None:
    assert family

    async def are_gone() -> bool:
        return not any(each.is_alive for each in family)

    await until(are_gone)


def parts_of(family: Sequence[Living]) -> set[str]:
    """Which programs they are."""
    known = ("millpond up", "millpond files", "millpond renderer", "millpond.renderer.press", "millpond serve")
    return {each for each in (*known, "postgres") for process in family if each in process.words}


async def paint(url: str) -> None:
    """Have a renderer begin a film that takes its time."""
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        answer = await http.post("/v1/models/millpond/ugc-video/predictions", json={"input": LONG})
        assert answer.status_code == 201, answer.text


async def renderer_of(command: Command) -> str:
    """Where it is, as it is told to who starts it: after the file says that all is ready."""
    told: list[str] = []

    async def is_told() -> bool:
        told.extend(re.findall(r"^ +ads +(\S+)", command.stderr, re.MULTILINE))
        return bool(told)

    await until(is_told)
    return told[0]


async def family_of(command: Command, *programs: str) -> list[Living]:
    """All that a command has started, once these are among it."""

    async def are_there() -> bool:
        assert command.is_running, command.stderr
        return parts_of(descendants(command.process.pid)) >= set(programs)

    await until(are_there)
    return descendants(command.process.pid)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["itself", "its starter"])
async def test_an_up_that_is_killed_takes_everything_along(tmp_path: Path, who: str) -> None:
    """Its database, its file server, its renderer and the press at work; so it does when its starter is killed."""
    file = tmp_path / "ready.json"
    words = (*MILLPOND, "up", "--port", "0", "--data-dir", tmp_path / "data", "--ready-file", file)
    with shell(tmp_path, None) as sh:
        told = starter(words) if who == "its starter" else words
        command = sh.launch(*told, MILLPOND_RENDERER_TOKEN=TOKEN)
        await serving(command, file)
        await paint(await renderer_of(command))
        family = await family_of(command, "millpond files", "millpond.renderer.press", "postgres")
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


@pytest.mark.parametrize("verb", ["serve", "worker", "files", "renderer"])
async def test_a_program_of_ours_ends_with_its_starter(sh: Shell, verb: str) -> None:
    app = write_app(sh.folder, SLOW)
    with listen("127.0.0.1", 0) as sock:
        words = {
            "serve": ("serve", app, "--port", "0", "--json"),
            "worker": ("worker", app, "--json"),
            "files": ("files", "--socket", str(sock.fileno())),
            "renderer": ("renderer", "--port", "0", "--json"),
        }[verb]
        given = {"MILLPOND_STORAGE": str(sh.folder / "files"), "DATABASE_URL": sh.dsn or ""}
        command = starter((*MILLPOND, *words), pass_fds=[sock.fileno()])
        with running(command, env=os.environ | given, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as first:
            assert first.stdout is not None
            started = living(int(first.stdout.readline()))
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


COMMAND = """
import asyncio, pathlib, sys, uvloop
from millpond import lifeline
from millpond.blueprints.actions import run_command
lifeline.heed()

async def main():
    async with run_command._started(["sleep", "600"], None, pathlib.Path(sys.argv[1])) as (process, *_):
        print(process.pid, flush=True)
        await process.wait()

(uvloop.run if sys.argv[2] == "uvloop" else asyncio.run)(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_command_ends_with_the_worker_that_runs_it(tmp_path: Path, loop: str) -> None:
    with running([sys.executable, "-c", COMMAND, tmp_path, loop], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        program = living(int(worker.stdout.readline()))
        assert program is not None
        assert program.is_alive
        worker.kill()
        await all_gone(program)


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
lifeline.heed()
print(sorted(name for name in os.environ if "LIFELINE" in name), flush=True)
print(sys.stdin.read(), end="")
"""


@pytest.mark.parametrize("name", ["", "nonsense", "99:1", "0:1", "pipe"])
def test_a_lifeline_that_is_not_there_is_not_heeded(name: str) -> None:
    """Somebody between closed it: what has its number now is something else, and nothing of that is read."""
    other, writing = os.pipe()
    os.close(writing)
    told = lifeline.environment() | {"_MILLPOND_LIFELINE": f"{other}:1" if name == "pipe" else name}
    words = [sys.executable, "-c", HEEDS]
    done = subprocess.run(
        words, env=told, pass_fds=[other], input="all of it", capture_output=True, text=True, check=True
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
