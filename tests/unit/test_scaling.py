"""How many workers a route should have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.scaling import Load, Policy, desired_workers

counts = st.integers(0, 10_000)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    least = draw(st.integers(0, 50))
    return Policy(least, draw(st.integers(least, 200)), draw(st.integers(1, 16)), draw(st.floats(0, 3600)))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    leased = draw(counts)
    seconds = draw(st.none() | st.floats(0.01, 3600))
    return Load(draw(counts), leased, draw(st.integers(0, min(leased, 300))), seconds)


@pytest.mark.parametrize(
    ("load", "policy", "workers"),
    [
        (Load(0, 0), Policy(), 0),
        (Load(0, 0), Policy(min=2), 2),
        (Load(1, 0, expected_seconds=1), Policy(), 1),
        (Load(0, 5, 5, expected_seconds=1), Policy(), 5),
        (Load(10, 0), Policy(target_wait=60), 10),
        (Load(10, 0, expected_seconds=30), Policy(target_wait=0), 10),
        (Load(12, 0, expected_seconds=20), Policy(target_wait=60), 3),
        (Load(12, 0, expected_seconds=60), Policy(target_wait=60), 6),
        (Load(10, 2, 2, expected_seconds=20), Policy(target_wait=60), 3),
        (Load(12, 0, expected_seconds=20), Policy(target_wait=60, jobs_per_worker=2), 2),
        (Load(0, 4, 4), Policy(jobs_per_worker=4), 4),
        (Load(1000, 0), Policy(max=7), 7),
        (Load(0, 9, 9), Policy(max=7), 9),
    ],
    ids=str,
)
def test_so_many_are_desired(load: Load, policy: Policy, workers: int) -> None:
    assert desired_workers(load, policy) == workers


@given(loads(), policies(), st.integers(1, 1000))
def test_more_jobs_never_want_fewer_workers(load: Load, policy: Policy, more: int) -> None:
    assert desired_workers(load, policy) <= desired_workers(replace(load, ready=load.ready + more), policy)
    assert desired_workers(load, policy) <= desired_workers(replace(load, leased=load.leased + more), policy)


@given(loads(), policies())
def test_the_busy_always_stay(load: Load, policy: Policy) -> None:
    assert desired_workers(load, policy) >= load.busy


@given(loads(), policies())
def test_the_limits_hold_except_for_the_busy(load: Load, policy: Policy) -> None:
    assert policy.min <= desired_workers(load, policy) <= max(policy.max, load.busy)


@given(loads(), policies(), st.floats(0, 3600))
def test_less_patience_never_wants_fewer_workers(load: Load, policy: Policy, wait: float) -> None:
    shorter = replace(policy, target_wait=min(wait, policy.target_wait))
    assert desired_workers(load, policy) <= desired_workers(load, shorter)


@given(loads(), policies())
def test_where_there_is_work_there_is_a_worker(load: Load, policy: Policy) -> None:
    if load.ready + load.leased and policy.max:
        assert desired_workers(load, policy) >= 1


@given(st.integers(1, 500), st.floats(0.1, 600), st.floats(0, 600), st.integers(1, 8))
def test_the_last_in_line_starts_in_time(ready: int, seconds: float, wait: float, slots: int) -> None:
    """Played: every slot takes a job whenever it is free."""
    workers = desired_workers(Load(ready, 0, 0, seconds), Policy(0, 10**6, slots, wait))
    rounds_before = (ready - 1) // (workers * slots)
    assert rounds_before * seconds <= wait + seconds
