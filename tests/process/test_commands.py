"""Pools of real workers: of `millpond up`, and of the fleet with the SDK alone."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.processes import Command, Shell, shell
from tests.checks import until
from tests.cli.ups import Up, up
from tests.process.processes import begun, gone
from tests.waiting import PATIENCE
from tests.worker import bare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

APP = Path(__file__).with_name("far_apart.py")
CALM = {"MILLPOND_FLEET_HEARTBEAT": "0.5s", "MILLPOND_WORKER_SILENCE": "2s"}


@pytest.fixture(scope="module")
async def site(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("site"), dsn) as sh:
            yield await up(sh, APP, **CALM)


@pytest.fixture
def sh(tmp_path: Path) -> Any:
    with shell(tmp_path, None) as made:
        yield made


def hire(sh: Shell, at: Up, name: str) -> Command:
    """A worker of the fleet, in an environment that has the SDK alone."""
    secret = {"MILLPOND_FLEET_SECRET": at.ready["fleet_secret"]}
    words = ("--url", at.url, "--name", name, "--slots", "2")
    return sh.launch(sys.executable, Path(bare.__file__), "millpond.worker", APP, *words, **secret)


async def test_a_worker_of_the_fleet_runs_handlers_in_processes(site: Up, sh: Shell) -> None:
    worker = hire(sh, site, "one")
    fields = {
        "name": "words.txt",
        "content_type": "text/plain",
        "size": 5,
        "sha256": hashlib.sha256(b"quiet").hexdigest(),
    }
    made = (await site.request("POST", "/v1/artifacts", fields)).json()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        put = made["upload"]
        assert (await http.request(put["method"], put["url"], headers=put["headers"], content=b"quiet")).is_success
        job = await site.until("ended", await site.submit("shout", {"words": made["id"]}))
        assert job["error"] is None
        assert (job["output"]["child"], job["stage"]) == (7, "shouting")
        kept = (await site.request("GET", f"/v1/artifacts/{job['output']['file']}")).json()
        assert (await http.get(kept["download"]["url"])).content == b"QUIET"
    lines = (await site.request("GET", f"/v1/jobs/{job['id']}/logs")).json()["data"]
    assert [line["text"] for line in lines] == ["on L4"]
    assert job["output"]["pid"] != worker.process.pid

    async def is_reported() -> bool:
        workers = (await site.request("GET", "/v1/workers", key="admin_key")).json()["data"]
        return [each["capabilities"].get("resources") for each in workers if each["worker"] == "one"] == [["card"]]

    await until(is_reported)
    crashed = await site.until("ended", await site.submit("crashes"))
    assert (crashed["error"]["code"], crashed["error"]["exit_code"]) == ("process_crashed", 3)


async def test_a_cancel_over_http_kills(site: Up, sh: Shell, tmp_path: Path) -> None:
    hire(sh, site, "two")
    job_id = await site.submit("matches", {"file": str(tmp_path / "begun")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    await site.request("POST", f"/v1/jobs/{job_id}/cancel")
    assert (await site.until("ended", job_id))["outcome"] == "canceled"
    await gone(pid)


async def test_a_worker_that_is_killed_takes_its_processes_with_it(site: Up, sh: Shell, tmp_path: Path) -> None:
    worker = hire(sh, site, "three")
    job_id = await site.submit("matches", {"file": str(tmp_path / "begun")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    worker.kill()
    await gone(pid)
    await site.request("POST", f"/v1/jobs/{job_id}/cancel")


async def test_a_server_that_is_killed_takes_its_processes_with_it(
    server: DatabaseServer, sh: Shell, tmp_path: Path
) -> None:
    async with server.database() as dsn:
        sh.dsn = dsn
        at = await up(sh, APP)
        await at.submit("matches_here", {"file": str(tmp_path / "begun")})
        pid = (await begun(tmp_path / "begun"))["pid"]
        at.command.kill()
        await gone(pid)
        at.command.wait()
