"""How long to wait before the next try."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.retry import Backoff

chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1), (1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (10**9, 600)])
def test_the_wait_doubles_up_to_a_limit(failures: int, seconds: int) -> None:
    assert Backoff(jitter=0).delay(failures, 0.5) == timedelta(seconds=seconds)


@given(st.integers(1, 100), chances)
def test_the_jitter_spreads_it_on_both_sides_and_no_further(failures: int, chance: float) -> None:
    plain = Backoff(jitter=0).delay(failures, 0)
    assert 0.8 * plain <= Backoff().delay(failures, chance) <= 1.2 * plain


@given(st.integers(1, 100), chances)
def test_the_same_chance_gives_the_same_wait(failures: int, chance: float) -> None:
    assert Backoff().delay(failures, chance) == Backoff().delay(failures, chance)


@given(st.integers(1, 200), chances)
def test_it_never_shrinks_with_more_failures(failures: int, chance: float) -> None:
    assert Backoff().delay(failures, chance) <= Backoff().delay(failures + 1, chance)
