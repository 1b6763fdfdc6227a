"""What ``serve``, ``worker`` and ``doctor`` report of the isolation of tenants, and what the production guide gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from millpond.store.embedded import open_embedded
from tests.acceptance.processes import shell
from tests.cli.ups import SLOW, up, write_app
from tests.databases import DatabaseServer, plain_user
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.processes import Shell

GUIDE = ROOT / "docs" / "how-to" / "run-in-production.md"


async def warnings(sh: Shell, *words: str, **environment: str) -> list[dict[str, Any]]:
    """What a server that starts and stops logs of it."""
    server = await up(sh, *words, verb="serve", **environment)
    server.command.terminate()
    assert server.command.wait() == 0
    return [line for line in server.command.log if line["event"].startswith("isolation.")]


async def test_serve_warns_on_every_start_while_row_level_security_is_missing(
    server: DatabaseServer, template: str, tmp_path: Path
) -> None:
    async with plain_user(server) as dsn:
        user = urlsplit(dsn).username
        with shell(tmp_path, dsn) as sh:
            for words in ((), ("--processes", "2", "--role", "worker")):
                (warning,) = await warnings(sh, *words)
                assert (warning["event"], warning["level"]) == ("isolation.incomplete", "warning")
                assert f'grant millpond_client to "{user}"' in warning["reason"]
            await server.order(f"grant millpond_client to {user}")
            assert await warnings(sh) == []


async def test_serve_warns_if_it_runs_as_a_superuser(sh: Shell) -> None:
    (warning,) = await warnings(sh)
    assert (warning["event"], warning["level"]) == ("isolation.superuser", "warning")


def test_a_worker_warns_if_it_runs_as_a_superuser(sh: Shell) -> None:
    worker = sh.run("worker", write_app(sh.folder, SLOW), "--drain")
    assert [line["event"] for line in worker.log if line["event"].startswith("isolation.")] == ["isolation.superuser"]


async def test_serve_warns_of_a_tenants_database(server: DatabaseServer, dsn: str, tmp_path: Path) -> None:
    async with plain_user(server) as own:
        with shell(tmp_path, dsn) as sh:
            databases = msgspec.json.encode({"acme": own}).decode()
            found = await warnings(sh, MILLPOND_TENANT_DATABASES=databases)
    assert [(line["event"], line["tenants"]) for line in found] == [
        ("isolation.superuser", None),
        ("isolation.incomplete", ["acme"]),
    ]


@pytest.fixture
def guide() -> list[str]:
    """The statements that the production guide tells an administrator to run."""
    (block,) = re.findall(r"```sql\n(create database.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    return [statement.strip() for statement in block.split(";") if statement.strip()]


async def test_the_production_guide_gives_both_mechanisms(guide: list[str], tmp_path: Path) -> None:
    with open_embedded(tmp_path / "server") as own:
        server = DatabaseServer(own.dsn)
        for statement in guide:
            await server.order(statement)
        parts = urlsplit(server.named("product"))
        netloc = f"product:secret@{parts.netloc.rpartition('@')[2]}"
        with shell(tmp_path, parts._replace(netloc=netloc).geturl()) as sh:
            assert sh.run("db", "migrate").process.returncode == 0
            assert await warnings(sh) == []
            doctor = sh.run("doctor", "--json")
            found = {each["name"]: each["is_well"] for each in msgspec.json.decode(doctor.stdout)["findings"]}
            assert (found["isolation"], found["role"]) == (True, True)
