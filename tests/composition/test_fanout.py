"""A parent with many children on workers that are killed. At full size: ``python -m tests.composition.fanout``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.composition.fanout.__main__ import Payer, Plan, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("payer", "is_remote"),
    [("budget", False), ("account", False), ("budget", True)],
    ids=["paid by the budget", "paid by the account", "over HTTP"],
)
async def test_children_end_once_and_are_paid_for_once_if_workers_are_killed(
    new_dsn: str, tmp_path: Path, payer: Payer, *, is_remote: bool
) -> None:
    plan = Plan(children=100, kills=3, seconds=0.05, payer=payer, is_remote=is_remote, seed=5)
    report = await run(new_dsn, tmp_path, plan)
    assert report.complaints == []
    assert report.kills > 0
