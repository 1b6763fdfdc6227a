"""`make demo` does what it says, and leaves nothing behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.children import running
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-m", "examples.postcards.demo"]
_FOLDER = re.compile(r"embedded, in (\S+)/db;")


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    with running(DEMO, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as made:
        yield made


def test_it_shows_a_hundred_jobs_and_an_exact_ledger(demo: subprocess.Popen[str]) -> None:
    said, _ = demo.communicate(timeout=120)
    folder = _folder(said)
    try:
        assert demo.returncode == 0, said
        assert re.search(r"kill -9 worker-1, while it runs \d jobs", said)
        assert "All 100 cards are painted" in said
        assert re.search(r"requeued +lapse: The worker stopped sending heartbeats\.", said)
        assert re.search(r"total +\+100 +0 +-100 +201", said)
        assert "verify: ok" in said
        assert "\x1b" not in said, "control codes, and nobody there to obey them"
        assert len(list((folder / "cards").glob("*.png"))) >= 100
        with Image.open(folder / "contact-sheet.png") as sheet:
            assert sheet.size == (1566, 1066)
        assert not (folder / "db").exists()
        assert left_behind(folder) == []
    finally:
        shutil.rmtree(folder)


def test_a_ctrl_c_cleans_up(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    said = ""
    while "jobs are submitted" not in said:
        said += demo.stdout.readline()
        assert demo.poll() is None, said
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=60)
    folder = _folder(said)
    assert demo.returncode == 130, rest
    assert "Stopped." in rest
    assert not folder.exists()
    assert left_behind(folder) == []


def _folder(said: str) -> Path:
    found = _FOLDER.search(said)
    assert found is not None, said
    return Path(found[1])


def left_behind(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]
