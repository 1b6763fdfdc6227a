"""The examples do what they say: a program for each product, and a product from nothing, on one `millpond up`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import av
import pytest
from PIL import Image

from tests.acceptance.processes import shell
from tests.cli.ups import Up, up
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
HELLO = EXAMPLES / "hello" / "app.py"
LINES_MAX = 70


@pytest.fixture(scope="module")
async def running(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    folder = tmp_path_factory.mktemp("examples")
    settings = {"MILLPOND_COMMANDS": json.dumps({"count": ["seq"]}), "MILLPOND_STORAGE": str(folder / "files")}
    async with server.database(template) as dsn:
        with shell(folder, dsn) as sh:
            yield await up(sh, HELLO, "--product", "all", **settings)


def run(name: str, served: Up, folder: Path, *arguments: str, **more: str) -> str:
    """What a program says that is run as its first lines tell, in a folder of its own."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")}
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        cwd=folder,
        env=inherited | {"MILLPOND_URL": served.url, "MILLPOND_API_KEY": served.ready["client_key"], **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_actions_shows_the_lines_of_a_command(running: Up, tmp_path: Path) -> None:
    said = run("actions", running, tmp_path, "count", "3")
    assert re.fullmatch(r"job_\w{26} is pending\n1\n2\n3\nsuccess: \{.*'exitStatus': 0.*\}\n", said)


def test_effects_uploads_a_picture_and_gets_it_back_inverted(running: Up, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (250, 200, 10)).save(tmp_path / "sun.png")
    said = run("effects", running, tmp_path, "sun.png", MILLPOND_FLEET_SECRET=running.ready["fleet_secret"])
    assert "sun.png is ordered: queued\nworked: completed\n" in said
    with Image.open(tmp_path / "inverted.png") as picture:
        assert picture.getpixel((2, 2)) == (5, 55, 245)


def test_guard_filters_a_message_and_checks_who_says_so(running: Up, tmp_path: Path) -> None:
    operator = {"ADMIN_KEY": running.ready["admin_key"], "TENANT": running.ready["tenant"]}
    said = run("guard", running, tmp_path, "I am bob@example.com.", **operator)
    assert said == "job.inbound_completed: I am [EMAIL].\njob.completed: You said: I am [EMAIL].\n"


def test_partner_polls_cancels_and_gets_a_picture_and_a_film(running: Up, tmp_path: Path) -> None:
    said = run("partner", running, tmp_path)
    assert said.startswith("Fell Kettle")
    assert re.search(r"'accepted': True\}\njob_\w{26}: canceled\n", said)
    (picture,) = tmp_path.glob("*.png")
    (film,) = tmp_path.glob("*.mp4")
    with Image.open(picture) as seen, av.open(str(film)) as media:
        assert min(seen.size) >= 512
        assert (media.duration or 0) > 1_000_000


def test_studio_makes_an_ad(running: Up, tmp_path: Path) -> None:
    said = run("studio", running, tmp_path)
    assert said.startswith("Fell Kettle, 49.00 USD\n")
    assert len(list(tmp_path.iterdir())) == 2
    assert re.search(r"\d+ credits are left\.\n$", said)


def test_they_are_short() -> None:
    programs = [path for path in EXAMPLES.glob("*.py") if "MILLPOND_API_KEY" in path.read_text("utf-8")]
    assert {path.stem for path in programs} == {"actions", "effects", "guard", "partner", "studio"}
    assert all(len(path.read_text("utf-8").splitlines()) < LINES_MAX for path in programs)
