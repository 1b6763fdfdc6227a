"""Every line once, over restarts: a server that is stopped, and one that is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.proofs.streams import Plan, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_thousand_readers_get_every_line_once_over_two_restarts(dsn: str, tmp_path: Path) -> None:
    """`python -m products.tests.proofs.streams` does it with as many readers as it is told, and says how long."""
    plan = Plan()
    report = await run(plan, dsn, tmp_path)
    assert report.complaints == []
    assert report.again > plan.readers // 2
    assert report.lines >= plan.readers * plan.lines
