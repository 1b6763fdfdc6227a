"""The product of `examples/hello` as somebody else would publish it: a wheel of its own, from another folder."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.acceptance.processes import shell
from tests.checks import submitted_jobs
from tests.cli.ups import Up, up
from tests.docs.blocks import ROOT, blocks
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

HELLO = ROOT / "examples" / "hello" / "app.py"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "greetings-product"
version = "1.0"
dependencies = ["millpond[server]"]

[project.entry-points."millpond.products"]
greetings = "greetings_product:product"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the product's wheel is installed in."""
    source, target = tmp_path_factory.mktemp("greetings"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PROJECT, "utf-8")
    (source / "greetings_product").mkdir()
    (source / "greetings_product" / "__init__.py").write_text(HELLO.read_text("utf-8"), "utf-8")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    # An environment that uv created has no pip; a wheel of Python alone is installed by unpacking it.
    zipfile.ZipFile(wheel).extractall(target)
    return target


@pytest.fixture(scope="module")
async def running(
    anyio_backend: str, installed: Path, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH", ""))))
    async with server.database(template) as dsn:
        with shell(folder, dsn) as sh:
            yield await up(sh, "--product", "greetings", PYTHONPATH=path)


async def send(served: Up, method: str, path: str, key: str | None = None, *, who: str = "client") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {served.ready[f'{who}_key']}"} | ({"Idempotency-Key": key} if key else {})
    async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=PATIENCE) as http:
        return await http.request(method, path)


async def test_a_product_in_a_wheel_of_its_own_has_all_that_others_have(running: Up) -> None:
    first, replay = [await send(running, "POST", "/greetings/to/Ada", "ada") for _ in range(2)]
    assert (first.status_code, replay.status_code, replay.content) == (202, 202, first.content)
    assert (first.json()["status"], first.json()["coins"]) == ("asked", 2)
    assert "idempotency-replayed" not in first.headers
    assert replay.headers["idempotency-replayed"] == "true"
    assert first.headers["location"] == replay.headers["location"] == f"/greetings/{first.json()['greeting']}"
    assert submitted_jobs((await send(running, "GET", "/metrics", who="admin")).text) == {"greeting": 1}
    other = await send(running, "POST", "/greetings/to/Grace", "ada")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")

    job = await running.until("ended", first.json()["greeting"])
    assert (job["state"], job["captured"], job["output"]) == ("said", 2, {"text": "Hello, Ada!"})
    response = (await send(running, "GET", first.headers["location"])).json()
    assert response == {"greeting": first.json()["greeting"], "status": "said", "coins": 2, "words": "Hello, Ada!"}
    document = (await send(running, "GET", "/greetings/openapi.json")).json()
    assert document["info"]["title"] == "Greetings"
    assert set(document["paths"]) >= {"/to/{whom}", "/{id}"}


async def test_its_read_route_knows_its_own_jobs_alone(running: Up) -> None:
    for path in ("/greetings/job_01h455vb4pex5vsknk084sn02q", "/greetings/nothing"):
        assert (await send(running, "GET", path)).status_code == 404


def test_it_imports_from_the_public_kit_alone() -> None:
    found = [node for node in ast.walk(ast.parse(HELLO.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in found} == {"millpond", "millpond.product"}


def test_the_page_shows_the_example() -> None:
    page = ROOT / "docs" / "how-to" / "make-a-product.md"
    (shown,) = [block.text for block in blocks(page) if block.file_name == "app.py"]
    assert shown == f"# app.py\n{HELLO.read_text('utf-8')}"


def test_it_is_short() -> None:
    assert sum(bool(line.strip()) for line in HELLO.read_text("utf-8").splitlines()) < 40
