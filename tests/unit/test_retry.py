"""How long to wait before the next try."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.retry import Backoff, read_retry_after

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


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        (" 0 ", 0),
        ("2.5", 2.5),
        ("9" * 5_000, 999_999_999),
        ("1." + "3" * 5_000, 1.333333),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("", None),
        ("-1", None),
        ("1e9", None),
        ("nan", None),
        ("²", None),
        ("tomorrow", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
        ("Thu, 01 Jan 2026 00:00:00 +9999", None),
    ],
)
def test_what_a_server_asks_for_is_read_whatever_it_says(text: str, seconds: float | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert read_retry_after(text, NOW) == expected


@given(st.text(max_size=50))
def test_nothing_that_a_server_says_is_too_much(text: str) -> None:
    asked = read_retry_after(text, NOW)
    assert asked is None or asked >= timedelta(0)
