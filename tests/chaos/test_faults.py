"""Rounds of faults in a small deployment. At full size: ``make faults``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import pytest

from millpond.ids import text
from tests.chaos.faults import schedules, trees
from tests.chaos.faults.__main__ import Plan, run
from tests.chaos.faults.app import EVERY
from tests.chaos.faults.deployment import SKEW
from tests.chaos.faults.load import Order
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


def test_a_child_that_is_missing_surplus_or_foreign_is_found() -> None:
    def job(kind: str, n: int, parent: int | None = None, outcome: str = "succeeded") -> dict[str, Any]:
        return {"kind": kind, "n": n, "parent_id": parent and UUID(int=parent), "outcome": outcome}

    def found(*rows: dict[str, Any]) -> int:
        return len(list(trees.complaints({UUID(int=number): row for number, row in enumerate(rows, 1)})))

    family = [job("family", 5), *(job("leaf", n, 1) for n in (5, 6, 7))]
    assert found(*family) == 0
    assert found(*family[:-1]) == 1
    assert found(*family, job("leaf", 7, 1)) == 1
    assert found(*family, job("leaf", 8, 1)) == 1
    assert found(*family, job("leaf", 5, 99)) == 1
    grove = [job("grove", 5, outcome="canceled"), job("endless", 5, 1, "canceled")]
    assert found(*grove) == 0
    assert found(*grove, grove[1]) == 1


def test_a_due_time_without_a_job_or_with_two_is_found() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + EVERY * n for n in range(3)]

    def found(*due: datetime) -> int:
        rows = {uuid4(): {"kind": "tick", "due": time.isoformat()} for time in due}
        return len(list(schedules.wrong_due_times(Counter(times), rows)))

    assert found(*times) == 0
    assert found(*times[:2]) == 1
    assert found(*times, times[0]) == 1


def test_a_run_that_is_lost_or_done_twice_is_found() -> None:
    fire_id, job_id = uuid4(), uuid4()
    fire = {"id": fire_id, "outcome": "submitted", "job_id": job_id}
    order = Order("order-1", "report", 1, fire_id=text("fire", fire_id))
    jobs = {job_id: {"kind": "report"}}

    def found(fires: list[Any], known: dict[UUID, Any], *orders: Order) -> int:
        return len(list(schedules.wrong_runs(fires, known, orders)))

    assert found([fire], jobs, order) == 0
    assert found([], {}, order) == 1
    assert found([fire], {}, order) == 1
    assert found([fire], jobs | {uuid4(): {"kind": "report"}}, order) == 1
    assert found([fire], jobs) == 1
    assert found([fire], jobs, order, order) == 1
    assert found([fire, fire | {"id": uuid4()}], jobs, order) == 2


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
