from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.fleet import Plan, run


@pytest.mark.slow
async def test_every_job_ends_once_whatever_happens_to_its_workers(tmp_path: Path) -> None:
    """`make chaos` does it with a hundred workers and ten thousand jobs."""
    report = await run(Plan(workers=9, jobs=250, seconds=0.3, lease=2.0), tmp_path)
    assert report.complaints == []
    assert report.fates == {"killed": 3, "interrupted": 3, "paused": 1}
    assert report.again > 0
