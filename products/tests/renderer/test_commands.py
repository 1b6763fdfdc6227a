"""The command line: a renderer by hand, and one that begins when it is first spoken to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest

from millpond.app import Millpond
from millpond.errors import SettingsError
from millpond_products.renderer import companion
from millpond_products.settings import ProductSettings
from tests.children import running
from tests.waiting import PATIENCE


def renderer(*words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "millpond_products.renderer", *words]
    return running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_the_command_says_where_it_is_and_with_which_token(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with renderer("--port", "0", "--ready-file", str(file)) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line == json.loads(file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600, "there is a token in it"
        headers = {"Authorization": f"Bearer {line['token']}"}
        async with httpx2.AsyncClient(base_url=line["url"], headers=headers, timeout=PATIENCE) as http:
            assert (await http.get("/v1/models/millpond/tts")).status_code == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert not file.exists()


def test_a_ready_file_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "ready.json"
    with renderer("--port", "0", "--ready-file", str(file)) as process:
        said, why = process.communicate(timeout=60)
    assert (process.returncode, said) == (5, "")
    assert why.splitlines()[-1] == f"{file} cannot be written: No such file or directory."
    assert "Traceback" not in why


def test_a_port_that_is_taken_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with renderer("--port", str(port)) as process:
            _, why = process.communicate(timeout=60)
    assert process.returncode == 5
    (line,) = why.splitlines()
    assert line.startswith(f"Cannot listen on 127.0.0.1, port {port}: Address already in use.")


async def test_one_beside_others_begins_with_the_first_call_and_comes_back_when_it_dies() -> None:
    with companion.start(ProductSettings(), "") as started:
        settings = started.settings
        stop = asyncio.Event()
        kept = asyncio.ensure_future(started.run(stop, lambda: None))
        headers = {"Authorization": f"Bearer {settings.replicate_api_token}"}
        async with httpx2.AsyncClient(base_url=settings.replicate_url, headers=headers, timeout=60) as http:
            assert not _children()
            assert (await http.get("/v1/models")).status_code == 200
            (pid,) = _children()
            os.kill(pid, signal.SIGKILL)
            async with httpx2.AsyncClient(base_url=settings.replicate_url, headers=headers, timeout=60) as another:
                assert (await another.get("/v1/models")).status_code == 200
            assert _children() - {pid}
        stop.set()
        await asyncio.wait_for(kept, PATIENCE)


def _children() -> set[int]:
    """The renderers that this process keeps on a socket of its own."""
    found: set[int] = set()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = command.read_bytes().split(b"\0")
            parent = int((command.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and words[-3:-2] == [b"--socket"]:
                found.add(int(command.parent.name))
    return found


async def test_one_that_nobody_calls_ends_without_having_begun() -> None:
    with companion.start(ProductSettings(), "") as started:
        stop = asyncio.Event()
        stop.set()
        await asyncio.wait_for(started.run(stop, lambda: None), PATIENCE)


ANOTHER = (ProductSettings(replicate_api_token="r8_x"), ProductSettings(replicate_url="http://127.0.0.1:1"))


def test_one_is_wanted_where_there_are_kinds_for_it_and_nobody_else() -> None:
    from millpond_products.catalog import PRODUCTS  # noqa: PLC0415 - only here

    kinds = [kind for product in PRODUCTS for kind in product.kinds]
    assert companion.is_wanted(ProductSettings(), kinds)
    assert not companion.is_wanted(ProductSettings(), Millpond().kinds.values())
    for another in ANOTHER:
        assert not companion.is_wanted(another, kinds)


@pytest.mark.parametrize("settings", ANOTHER, ids=["token", "url"])
def test_beside_another_provider_it_is_refused(settings: ProductSettings) -> None:
    with pytest.raises(SettingsError, match="Another provider is already configured"), companion.start(settings, ""):
        pass


def test_tokens_are_not_shown() -> None:
    with companion.start(ProductSettings(renderer_token="mine"), "") as started:
        assert started.settings.replicate_api_token == "mine"
    with companion.start(ProductSettings(), "") as started:
        settings = started.settings
    assert settings.replicate_api_token
    assert settings.replicate_api_token not in repr(settings)
    assert settings.replicate_api_token not in str(started.lines)
