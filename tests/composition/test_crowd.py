"""Many workers under limits. At full size: ``python -m tests.composition.crowd``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.composition.crowd import Plan, run


@pytest.mark.slow
async def test_no_limit_is_exceeded_and_no_job_is_forgotten(new_dsn: str) -> None:
    plan = Plan(jobs=600, keys=20, workers=12, at_once=3, starts=40, per=timedelta(seconds=1), seconds=0.01)
    report = await run(new_dsn, plan)
    assert report.complaints == []
    assert report.at_once == plan.at_once, "the limit was reached"
