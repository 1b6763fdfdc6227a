"""``millpond db``: the schema, and whether the database is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from millpond.store.migrate import migrations
from tests.acceptance.processes import PRODUCT, Shell, shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millpond.engine.engine import Engine
    from millpond.store.db import Database

NUMBERS = [migration.number for migration in migrations()]


@pytest.fixture
def empty(tmp_path: Path, empty_dsn: str) -> Iterator[Shell]:
    with shell(tmp_path, empty_dsn) as made:
        yield made


def test_migrate_brings_an_empty_database_up_to_date_once(empty: Shell) -> None:
    assert empty.run("db", "migrate", "--check").process.returncode == 1
    command = empty.run("db", "migrate", "--json")
    assert (command.process.returncode, msgspec.json.decode(command.stdout)) == (0, {"applied": NUMBERS})
    command = empty.run("db", "migrate", "--json")
    assert (command.process.returncode, msgspec.json.decode(command.stdout)) == (0, {"applied": []})
    assert empty.run("db", "migrate", "--check").process.returncode == 0


async def test_many_may_migrate_at_once(empty: Shell) -> None:
    """Every machine of a deployment does so when it starts."""
    commands = [empty.start("db", "migrate", "--json") for _ in range(4)]
    applied = [msgspec.json.decode(command.stdout)["applied"] for command in commands if command.wait() == 0]
    assert sorted(applied) == [[], [], [], NUMBERS]


def test_the_check_reports_what_is_applied_and_what_is_missing(empty: Shell) -> None:
    command = empty.run("db", "migrate", "--check", "--json")
    decoded = msgspec.json.decode(command.stdout)
    assert (command.process.returncode, decoded["is_current"], decoded["pending"]) == (1, False, NUMBERS)
    empty.run("db", "migrate")
    command = empty.run("db", "migrate", "--check", "--json")
    decoded = msgspec.json.decode(command.stdout)
    assert (command.process.returncode, decoded["is_current"], decoded["applied"]) == (0, True, NUMBERS)
    command = empty.run("db", "migrate", "--check")
    assert command.stderr == ""
    assert "functions  current" in command.stdout


async def test_a_schema_that_a_newer_version_broke_is_not_touched(engine: Engine, db: Database, sh: Shell) -> None:
    async with db.transaction() as tx:
        await tx.execute("insert into millpond.migrations values (9999, 'later', true, 'x')")
    command = sh.run("db", "migrate")
    assert command.process.returncode == 8
    (line,) = command.stderr.splitlines()
    assert "9999" in line
    assert sh.run("worker", PRODUCT).process.returncode == 8


async def test_the_doctor_finds_a_healthy_database_healthy(engine: Engine, sh: Shell) -> None:
    command = sh.run("doctor", "--json")
    decoded = msgspec.json.decode(command.stdout)
    assert (command.process.returncode, decoded["ok"]) == (0, True)
    assert {finding["name"] for finding in decoded["findings"]} >= {"server", "schema", "durability", "services"}
    command = sh.run("doctor")
    assert (command.process.returncode, command.stderr) == (0, "")
    assert all(line.startswith("ok ") for line in command.stdout.splitlines())


async def test_the_doctor_finds_what_no_service_sees_to(engine: Engine, db: Database, sh: Shell) -> None:
    submitted = await engine.submit("asking", tenant="acme", account="ann", expires_in=3600)
    async with db.transaction() as tx:
        await tx.execute("update millpond.dispatches set wakes_at = wakes_at - interval '1 day'")
        await tx.execute(
            "insert into millpond.counter_changes select t.* from millpond.counter_changes t, generate_series(1, 50000)"
        )
    command = sh.run("doctor", "--json")
    decoded = msgspec.json.decode(command.stdout)
    assert (command.process.returncode, decoded["ok"]) == (1, False)
    assert [finding["name"] for finding in decoded["findings"] if not finding["is_well"]] == [
        "services",
        "counters",
    ]
    assert submitted
    async with db.transaction() as tx:
        await tx.execute("truncate millpond.counter_changes")
    assert msgspec.json.decode(sh.run("db", "recount", "--json").stdout) == {"mended": 1}
    assert await engine.verify() == []


def test_the_doctor_finds_a_schema_that_is_out_of_date(empty: Shell) -> None:
    command = empty.run("doctor")
    assert command.process.returncode == 1
    assert "run: millpond db migrate" in command.stdout


@pytest.mark.parametrize("words", [("db", "migrate"), ("db", "migrate", "--check"), ("verify",)])
def test_a_database_that_is_not_there_is_reported_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    with shell(tmp_path, "postgresql://nobody@/nothing?host=%2Fnowhere") as sh:
        command = sh.run(*words)
    assert command.process.returncode == 8
    assert len(command.stderr.splitlines()) == 1


def test_settings_that_do_not_exist_are_reported_with_what_was_meant(sh: Shell) -> None:
    command = sh.run("db", "migrate", "--check", MILLPOND_LEESE="3s", MILLPOND_SLOTS="many")
    assert command.process.returncode == 5
    assert "Did you mean MILLPOND_LEASE?" in command.stderr
    assert "MILLPOND_SLOTS" in command.stderr


def test_without_an_address_the_embedded_database_is_used(tmp_path: Path) -> None:
    with shell(tmp_path, None) as sh:
        assert sh.run("db", "migrate", "--data-dir", tmp_path / "data").process.returncode == 0
        assert sh.run("db", "migrate", "--check", MILLPOND_DATA_DIR=str(tmp_path / "data")).process.returncode == 0
        assert sh.run("verify", "--data-dir", tmp_path / "data").process.returncode == 0
