"""What products start ends with its starter: the renderer and its presses, and the commands of actions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx2
import pytest
from products.tests.renderer.renderers import LONG, TOKEN

from tests.acceptance.processes import shell, until
from tests.children import living, running
from tests.cli.families import MILLPOND, all_gone, family_of, starter
from tests.cli.ups import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.processes import Command


async def paint(url: str) -> None:
    """Have a renderer begin a film that takes its time."""
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        answer = await http.post("/v1/models/millpond/ugc-video/predictions", json={"input": LONG})
        assert answer.status_code == 201, answer.text


async def renderer_of(command: Command) -> str:
    """Where it is, as it is told to who starts it: after the file says that all is ready."""
    reported: list[str] = []

    async def is_told() -> bool:
        reported.extend(re.findall(r"^ +renderer +(\S+),", command.stderr, re.MULTILINE))
        return bool(reported)

    await until(is_told)
    return reported[0]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["itself", "its starter"])
async def test_an_up_that_is_killed_takes_everything_along(tmp_path: Path, who: str) -> None:
    """Its database, its file server, its renderer and the press at work; so it does when its starter is killed."""
    file = tmp_path / "ready.json"
    options = ("--product", "all", "--port", "0", "--data-dir", tmp_path / "data", "--ready-file", file)
    words = (*MILLPOND, "up", *options)
    with shell(tmp_path, None) as sh:
        described = starter(words) if who == "its starter" else words
        command = sh.launch(*described, MILLPOND_RENDERER_TOKEN=TOKEN)
        await serving(command, file)
        await paint(await renderer_of(command))
        family = await family_of(command, "millpond files", "millpond_products.renderer.press", "postgres")
        command.kill()
        command.wait()
        await all_gone(*family)


async def test_a_renderer_ends_with_its_starter(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    words = starter([sys.executable, "-m", "millpond_products.renderer", "--port", "0", "--ready-file", file])
    with running(words, env=os.environ, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        started = living(int(first.stdout.readline()))

        async def is_ready() -> bool:
            return file.exists()

        await until(is_ready)
        assert started is not None
        assert started.is_alive
        first.kill()
        await all_gone(started)


COMMAND = """
import asyncio, pathlib, sys, uvloop
from millpond import lifeline
from millpond_products.actions import run_command
lifeline.stop_with_parent()

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
