"""The file server beside ``millpond up`` and ``millpond serve``: a process of its own that is kept alive."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

from millpond.api.server import listen
from millpond.cli.deployment import bind_files
from millpond.cli.serve import _files
from millpond.errors import ConflictError, SettingsError
from millpond.settings import Settings
from millpond.storage import open_storage
from millpond.storage.local import Local
from tests.acceptance.processes import until
from tests.cli.ups import up
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up

MINUTE = timedelta(minutes=1)


def file_server_of(pid: int) -> int | None:
    """The process that serves the files of another."""
    said = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        own, parent, words = line.split(maxsplit=2)
        if int(parent) == pid and " millpond files " in words:
            return int(own)
    return None


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its status yet."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    return True


async def lives(url: str) -> bool:
    with suppress(httpx2.TransportError):
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            return (await http.get(f"{url}/healthz")).text == "ok"
    return False


def output_of(*words: str | Path, sh: Shell) -> dict[str, Any]:
    command = sh.run(*words, "--json")
    assert command.wait() == 0, command.stderr
    return msgspec.json.decode(command.stdout)


async def test_up_serves_files_in_a_process_that_is_kept_alive(sh: Shell) -> None:
    running = await up(sh)
    files_url: str = running.ready["files_url"]
    assert files_url != running.url
    assert f"files     {files_url}" in running.command.stderr
    await until(lambda: lives(files_url))
    picture = sh.folder / "cat.png"
    picture.write_bytes(os.urandom(100_000))
    made = output_of("artifacts", "upload", picture, sh=sh)
    assert made["download"]["url"].startswith(files_url)
    child = file_server_of(running.ready["pid"])
    assert child is not None
    os.kill(child, signal.SIGKILL)

    async def is_back() -> bool:
        assert await running.is_serving()
        return file_server_of(running.ready["pid"]) not in (None, child)

    await until(is_back)
    output_of("artifacts", "download", made["id"], "--to", sh.folder / "copy.png", sh=sh)  # who comes meanwhile waits
    assert (sh.folder / "copy.png").read_bytes() == picture.read_bytes()
    assert "process.ended" in {line["event"] for line in _events(running)}
    child = file_server_of(running.ready["pid"])
    assert child is not None
    running.command.kill()  # it cannot even say goodbye
    running.command.wait()

    async def is_over() -> bool:
        return is_gone(child)

    await until(is_over)
    assert not await lives(files_url)


def _events(running: Up) -> list[dict[str, str]]:
    lines = [line for line in running.command.stderr.splitlines() if line.startswith("{")]
    return [msgspec.json.decode(line) for line in lines]


async def test_files_alone_need_no_database(sh: Shell) -> None:
    folder = sh.folder / "kept"
    running = await up(sh, "--role", "files", verb="serve", MILLPOND_STORAGE=str(folder), DATABASE_URL="")
    store = Local(folder, running.url)
    signed = store.sign_put("a/b", lifetime=MINUTE, content_type="text/plain", size=2)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        assert (await http.put(signed.url, content=b"hi", headers=signed.headers)).status_code == 200
    assert await store.read("a/b") == b"hi"
    running.command.terminate()
    assert running.command.wait() == 0
    assert not running.ready_file.exists()


async def test_the_api_signs_for_the_files_that_are_served_beside_it(sh: Shell) -> None:
    words = ("--role", "api,files", "--processes", "2")
    running = await up(sh, *words, verb="serve", MILLPOND_STORAGE=str(sh.folder / "kept"))
    assert set(running.ready) == {"url", "pid", "files_url"}
    owner = ("--tenant", "acme", "--account", "mary")
    key = output_of("keys", "create", "--scope", "client", *owner, sh=sh)["key"]
    (sh.folder / "note.txt").write_text("hello")
    made = output_of("artifacts", "upload", sh.folder / "note.txt", "--url", running.url, "--key", key, sh=sh)
    assert made["download"]["url"].startswith(running.ready["files_url"])
    child = file_server_of(running.ready["pid"])
    assert child is not None
    running.command.terminate()
    assert running.command.wait() == 0
    assert is_gone(child)


def test_a_bucket_needs_no_file_server() -> None:
    bucket = Settings(storage="s3://pics?endpoint=http://127.0.0.1:9")
    with pytest.raises(SettingsError, match="which serves them itself"):
        _files(bucket)
    assert bind_files(bucket) is None
    with pytest.raises(SettingsError, match="is not a valid storage"):
        open_storage(Settings(storage="ftp://x"))


def test_files_are_served_on_the_port_after_the_apis_or_on_any() -> None:
    with listen("127.0.0.1", 0) as taken:
        settings = Settings(port=taken.getsockname()[1] - 1)
        other = bind_files(settings)
        assert other is not None
        with other:
            assert other.getsockname()[1] not in (settings.port, settings.port + 1)
        with pytest.raises(ConflictError):
            bind_files(settings, strict=True)
    with listen("127.0.0.1", 0) as api:
        after = bind_files(Settings(port=api.getsockname()[1]))
        assert after is not None
        after.close()
