"""Rounds of faults in a small deployment. At full size: ``make faults``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.faults.__main__ import Plan, run
from tests.chaos.faults.deployment import SKEW
from tests.chaos.faults.postgres import Postgres

FAULTS = ("block_a_log", "cut_the_workers", "kill_all_processes", "kill_the_database", "move_the_clocks")


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="faults-") as made:
        Path(made).chmod(0o711)  # for the account of PostgreSQL
        yield Path(made)


@pytest.mark.slow
async def test_no_acknowledged_request_is_lost_by_faults(anyio_backend: str, folder: Path) -> None:
    report = await run(Plan(rounds=3, seconds=0.5, customers=2, seed=5, faults=FAULTS), folder)
    assert report.complaints == []
    assert set(report.faults) == set(FAULTS)


@pytest.mark.slow
async def test_a_loss_is_found_if_commits_are_acknowledged_before_they_are_durable(
    anyio_backend: str, folder: Path
) -> None:
    plan = Plan(rounds=1, seconds=0.5, customers=2, faults=("kill_the_database",), is_durable=False)
    report = await run(plan, folder)
    assert "is lost" in "".join(report.complaints)


@pytest.mark.slow
async def test_a_killed_database_leaves_no_shared_memory_behind(anyio_backend: str, folder: Path) -> None:
    postgres = Postgres(folder / "data", folder / "postgres.log", is_durable=True)
    await postgres.start()
    segments = postgres.segments()
    await postgres.stop(signal.SIGKILL)
    assert segments
    assert not any(each.exists() for each in segments)


def test_all_clocks_of_a_process_under_fault_are_off_by_the_same(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("7200")
    program = (
        "import json, time; from datetime import UTC, datetime, date; import msgspec;"
        "now = msgspec.json.decode(msgspec.json.encode(datetime.now(UTC)), type=datetime);"
        "print(json.dumps([time.time(), time.time_ns() / 1e9, now.timestamp(), datetime.now().timestamp()]))"
    )
    env = {"PYTHONPATH": str(SKEW), "FAULTS_CLOCK": str(clock)}

    def read() -> list[float]:
        return json.loads(
            subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout
        )

    skewed = read()
    clock.write_text("0")
    right = read()
    assert [7_100 < late - early <= 7_200 for late, early in zip(skewed, right, strict=True)] == [True] * 4
