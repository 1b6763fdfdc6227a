"""A round of faults in a small deployment. At full size: ``make faults``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.chaos.faults.__main__ import Plan, run


@pytest.mark.slow
async def test_no_acknowledged_request_is_lost_when_the_database_is_killed(anyio_backend: str) -> None:
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        Path(folder).chmod(0o711)
        plan = Plan(rounds=1, seconds=0.5, customers=2, faults=("kill_the_database",))
        report = await run(plan, Path(folder))
    assert report.complaints == []
    assert report.faults == {"kill_the_database": 1}
