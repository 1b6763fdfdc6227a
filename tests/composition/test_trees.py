"""Random trees on workers that are killed: every child ends once, and is paid for once."""

from __future__ import annotations

import pytest

from tests.composition import trees


@pytest.mark.slow
async def test_random_trees_survive_the_death_of_workers(new_dsn: str) -> None:
    report = await trees.run(new_dsn, trees=12, workers=2, deaths=6, seed=3)
    assert report.complaints == []
    assert report.deaths == 6
