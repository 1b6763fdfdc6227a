"""`make demo` does what it says, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import av
import pytest
from PIL import Image

from tests.children import bound, running
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-m", "examples.postcards.demo"]
PRODUCTS = [sys.executable, "-m", "examples.products.demo"]
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
        assert re.search(r"kill -9 worker-1, with \d jobs in its hands", said)
        assert "All 100 cards are painted" in said
        assert re.search(r"requeued +lapse: Its worker fell silent\.", said)
        assert re.search(r"total +\+100 +0 +-100 +201", said)
        assert "verify: ok" in said
        assert "\x1b" not in said, "control codes, and nobody there to obey them"
        assert len(list((folder / "cards").glob("*.png"))) >= 100
        with Image.open(folder / "contact-sheet.png") as sheet:
            assert sheet.size == (1566, 1066)
        assert not (folder / "db").exists()
        assert _left_behind(folder) == []
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
    assert _left_behind(folder) == []


def test_the_second_act_has_a_real_job_of_each_product() -> None:
    done = subprocess.run(PRODUCTS, **bound(), cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    folder = Path(said.split()[-1])
    try:
        assert done.stderr == ""
        assert "\x1b" not in said, "control codes, and nobody there to obey them"
        assert "gpu-2 joins         gpu-1 was killed with -9, at work" in said
        assert "in:  Hi! I am Ada, write to [EMAIL], my card is [CARD]." in said
        assert "out: Thank you, Ada. Our staff key is [" in said
        assert re.search(r"actions +run-command +running +studio: [\d,]+ lines", said)
        assert "One ledger for all: 944 credits are left of 1000" in said
        assert "verify: ok" in said
        _assert_results(folder)
        assert not (folder / "data").exists()
        assert _left_behind(folder) == []
    finally:
        shutil.rmtree(folder)


def _assert_results(folder: Path) -> None:
    """What there is to look at, to hear and to read."""
    effects = folder / "effects"
    with Image.open(effects / "sea.png") as before, Image.open(effects / "inverted-sea.png") as after:
        assert after.convert("RGB").getpixel((2, 2)) == tuple(255 - band for band in _pixel(before))
    pictures = [*folder.glob("studio/*.png"), *folder.glob("partner/*.png")]
    films = [*folder.glob("*/*.mp4"), *folder.glob("studio/*.mp3")]
    assert (len(pictures), len(films)) == (2, 3)
    for picture in pictures:
        with Image.open(picture) as seen:
            assert min(seen.size) >= 512
    for film in films:
        with av.open(str(film)) as media:
            assert (media.duration or 0) > 1_000_000
    assert "[EMAIL]" in (folder / "guard" / "webhook.json").read_text()
    context = json.loads((folder / "partner" / "context.json").read_text())
    assert {"github", "website", "summary"} <= context.keys()
    assert "+++ b/" in next(folder.glob("partner/*.patch")).read_text()
    assert len((folder / "actions" / "count.log").read_text().splitlines()) == 5


def _pixel(picture: Image.Image) -> tuple[int, ...]:
    found = picture.convert("RGB").getpixel((2, 2))
    assert isinstance(found, tuple)
    return tuple(int(band) for band in found)


def _folder(said: str) -> Path:
    found = _FOLDER.search(said)
    assert found is not None, said
    return Path(found[1])


def _left_behind(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]
