"""The second act of `make demo` does what it says, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import av
import pytest
from PIL import Image

from tests.children import bound
from tests.docs.blocks import ROOT
from tests.docs.test_demo import left_behind

pytestmark = pytest.mark.slow

PRODUCTS = [sys.executable, "-m", "examples.products.demo"]


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
        assert left_behind(folder) == []
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
