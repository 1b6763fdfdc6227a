"""Folders of work: gone when it is over, and when whoever did it was killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.jobs import folders
from millpond.engine.jobs.folders import Folders
from tests.children import running
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "millpond-test-"
OTHER = """
import asyncio, sys
from millpond import lifeline
from millpond.engine.jobs.folders import Folders

async def main():
    lifeline.stop_with_parent()
    async with Folders(sys.argv[1]).new() as folder:
        (folder / "file").write_text("x")
        print(folder, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_a_folder_is_removed_beside_the_loop_also_when_its_job_is_cut_off(
    temp_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a million files in it; every other job of the worker would wait."""
    threads: list[int] = []
    may_remove = threading.Event()
    remove = folders._remove

    def slowly(*given: Any) -> None:
        threads.append(threading.get_ident())
        may_remove.wait(PATIENCE)
        remove(*given)

    async def use() -> None:
        async with Folders(PREFIX).new() as folder:
            (folder / "file").write_text("x")

    monkeypatch.setattr(folders, "_remove", slowly)
    using = asyncio.ensure_future(use())
    async with asyncio.timeout(PATIENCE):
        while not threads:
            await asyncio.sleep(0.02)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        may_remove.set()
        while list(temp_folder.iterdir()):
            await asyncio.sleep(0.02)
    assert threads[0] != threading.get_ident()


async def test_what_a_killed_worker_has_left_behind_is_removed_before_the_next_begins(
    temp_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = temp_folder / "other"
    other.mkdir()
    words = [sys.executable, "-c", OTHER, PREFIX]
    with running(words, env={"TMPDIR": str(temp_folder)}, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        left = worker.stdout.readline().strip()
        monkeypatch.setattr(folders, "YOUNG", -1.0)
        Folders(PREFIX).sweep()
        assert left in map(str, temp_folder.iterdir())  # it is in use
        worker.send_signal(signal.SIGKILL)
    monkeypatch.setattr(folders, "YOUNG", 60.0)
    Folders(PREFIX).sweep()
    assert left in map(str, temp_folder.iterdir())  # it may be another's who has yet to lock it
    monkeypatch.setattr(folders, "YOUNG", -1.0)
    async with Folders(PREFIX).new() as used:
        Folders(PREFIX).sweep()
        assert sorted(temp_folder.iterdir()) == sorted([used, other])
