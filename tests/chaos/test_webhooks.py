from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.webhooks import Plan, run


@pytest.mark.slow
async def test_the_healthy_get_everything_whatever_the_sick_do_and_whoever_is_killed(tmp_path: Path) -> None:
    """`make chaos-webhooks` does it with two hundred receivers and twenty thousand events."""
    report = await run(Plan(receivers=26, events=351, kills=1, rate=60, timeout=1.0), tmp_path)
    assert report.complaints == []
    assert report.events == 351
    assert report.kills == 1
    assert report.received >= 13 * 6 * 3
