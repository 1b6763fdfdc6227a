"""When a provider is not called: the breaker and the budget for retries, by a clock that the test turns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from millpond.engine.providers.breakers import (
    FAILURES_MAX,
    REST_MAX,
    REST_MIN,
    RETRIES_MIN,
    WINDOW,
    Breaker,
    RestingError,
)


@dataclass
class Turned:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Turned:
    return Turned()


@pytest.fixture
def breaker(clock: Turned) -> Breaker:
    return Breaker("replicate", clock)


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.enter()
        breaker.failed()


def test_a_few_failures_do_not_open_it(breaker: Breaker) -> None:
    fail(breaker, FAILURES_MAX - 1)
    breaker.enter()
    assert breaker.seconds_left == 0


def test_failures_that_are_few_among_many_do_not_open_it(breaker: Breaker) -> None:
    for _ in range(100):
        breaker.enter()
        breaker.passed()
    fail(breaker, FAILURES_MAX * 2)
    assert breaker.seconds_left == 0


def test_failures_of_long_ago_do_not_count(breaker: Breaker, clock: Turned) -> None:
    fail(breaker, FAILURES_MAX - 1)
    clock.now += WINDOW + 1
    fail(breaker, FAILURES_MAX - 1)
    assert breaker.seconds_left == 0


def test_many_failures_open_it_and_one_call_finds_out_whether_it_is_well(breaker: Breaker, clock: Turned) -> None:
    fail(breaker, FAILURES_MAX)
    with pytest.raises(RestingError) as resting:
        breaker.enter()
    assert resting.value.seconds == REST_MIN
    clock.now += REST_MIN
    breaker.enter()
    with pytest.raises(RestingError):  # one is enough to find out
        breaker.enter()
    breaker.passed()
    breaker.enter()
    breaker.enter()


def test_a_probe_that_fails_makes_it_rest_longer_and_longer(breaker: Breaker, clock: Turned) -> None:
    fail(breaker, FAILURES_MAX)
    rests: list[float] = []
    for _ in range(8):
        rests.append(breaker.seconds_left)
        clock.now += breaker.seconds_left
        fail(breaker)
    assert rests[:4] == [REST_MIN, REST_MIN * 2, REST_MIN * 4, REST_MIN * 8]
    assert rests[-1] == REST_MAX


def test_a_probe_that_is_given_up_lets_another_in(breaker: Breaker, clock: Turned) -> None:
    fail(breaker, FAILURES_MAX)
    clock.now += REST_MIN
    breaker.enter()
    breaker.dropped()
    breaker.enter()


def test_a_provider_that_says_when_is_left_alone_until_then(breaker: Breaker, clock: Turned) -> None:
    breaker.enter()
    breaker.failed(timedelta(seconds=30))
    assert breaker.seconds_left == 30
    clock.now += 29.9
    with pytest.raises(RestingError):
        breaker.enter()
    clock.now += 0.2
    breaker.enter()
    breaker.enter()  # it did not fail, it asked for time: there is no probing


def test_an_earlier_end_does_not_shorten_a_rest(breaker: Breaker) -> None:
    breaker.enter()
    breaker.enter()
    breaker.failed(timedelta(seconds=30))
    breaker.failed(timedelta(seconds=1))
    assert breaker.seconds_left == 30


def test_retries_are_a_tenth_of_the_calls_and_a_few(breaker: Breaker) -> None:
    retried = 0
    for _ in range(1_000):
        breaker.enter()
        breaker.passed()
        try:
            breaker.enter(is_retry=True)
            breaker.passed()
            retried += 1
        except RestingError:
            pass
    assert 100 <= retried <= 100 + RETRIES_MIN
