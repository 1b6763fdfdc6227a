"""Lifecycles as data: what a table may say, and what comes out of it."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from millpond.errors import LifecycleError, TransitionDeniedError
from millpond.lifecycle import LIFECYCLE_EVENTS, STANDARD, lifecycle
from tests.lifecycle_checks import OF_LIFECYCLES
from tests.lifecycles import LIFECYCLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.lifecycle import Lifecycle

GOOD = """
    *     -> new    submitted
    new   -> busy   started
    new   -> gone   canceled expired
    busy  -> done   succeeded
    busy  -> gone   failed expired
"""
ENDS = "done=succeeded gone=failed"


def test_a_table_becomes_states_with_phases_and_outcomes() -> None:
    made = lifecycle("small", GOOD, ends=ENDS)
    assert made.initial == "new"
    assert {s.name: (s.phase, s.outcome) for s in made.states.values()} == {
        "new": ("waiting", None),
        "busy": ("leased", None),
        "gone": ("ended", "failed"),
        "done": ("ended", "succeeded"),
    }
    assert made.pairs == {("new", "busy"), ("new", "gone"), ("busy", "done"), ("busy", "gone")}


def test_an_event_that_ends_nothing_and_is_not_drawn_keeps_the_state() -> None:
    made = lifecycle("small", GOOD, ends=ENDS)
    assert made.after("new", "queued") == "new"
    assert made.after("busy", "requeued") == "busy"
    assert made.after("busy", "parked") == "busy"


def test_an_end_that_is_not_drawn_is_refused() -> None:
    made = lifecycle("small", GOOD, ends=ENDS)
    with pytest.raises(TransitionDeniedError, match="'blocked' is not allowed in state 'busy'") as caught:
        made.after("busy", "blocked")
    assert caught.value.details == {"state": "busy", "event": "blocked"}


def test_nothing_leaves_an_end_but_a_retry() -> None:
    made = lifecycle("small", GOOD + "gone -> new retried", ends=ENDS)
    assert made.after("gone", "retried") == "new"
    for event in LIFECYCLE_EVENTS.keys() - {"retried"}:
        with pytest.raises(TransitionDeniedError):
            made.after("gone", event)


REFUSED = {
    "an arrow nobody can read": (
        GOOD + "new => busy started",
        ENDS,
        "cannot parse the transition 'new => busy started'",
    ),
    "an arrow without a lifecycle event": (GOOD + "busy -> new", ENDS, "cannot parse the transition 'busy -> new'"),
    "a lifecycle event the engine does not know": (
        GOOD + "busy -> new bored",
        ENDS,
        "'bored' in .* is not a lifecycle event",
    ),
    "a lifecycle event drawn twice": (GOOD + "new -> done started", ENDS, "two transitions for 'started' from 'new'"),
    "birth in the middle": (
        GOOD + "busy -> new submitted",
        ENDS,
        "'busy -> new submitted': 'submitted' must start at",
    ),
    "another lifecycle event at birth": (GOOD.replace("submitted", "queued"), ENDS, ": 'submitted' must start at"),
    "no birth": (GOOD.replace("* ", "old "), ENDS, ": 'submitted' must start at"),
    "two births": (GOOD + "* -> busy submitted", ENDS, "two transitions for 'submitted' from '*'"),
    "no arrow at all": ("", ENDS, "exactly one transition must start at"),
    "an outcome nobody knows": (GOOD, "done=won gone=failed", "'won' of 'done' is not an outcome"),
    "an end without an outcome": (GOOD, "done gone=failed", "'' of 'done' is not an outcome"),
    "no end": (GOOD, "", "must not lead to"),
    "an end that is not declared": (GOOD, "gone=failed", "'succeeded' must not lead to 'done'"),
    "an end that is only declared": (GOOD, ENDS + " lost=failed", "no transition leads to its terminal state 'lost'"),
    "work that leads to an end": (GOOD + "busy -> gone parked", ENDS, "'parked' must not lead to 'gone'"),
    "an end that is left": (GOOD + "gone -> busy started", ENDS, "'started' must not start at 'gone'"),
    "a retry of what has not ended": (GOOD + "busy -> new retried", ENDS, "'retried' must not start at 'busy'"),
    "an arrow from nowhere": (GOOD + "lost -> done succeeded", ENDS, "'lost' is unreachable"),
    "an island": (GOOD + "a -> b started\n b -> a requeued\n a -> gone expired failed", ENDS, "unreachable"),
    "a trap": (GOOD + "busy -> stuck parked", ENDS, "'stuck' cannot reach a terminal state"),
    "a state that cannot expire": (GOOD + "busy -> idle parked\n idle -> done succeeded", ENDS, "'idle' cannot expire"),
    "work that cannot fail": (
        "* -> new submitted\n new -> gone expired\n new -> busy started\n busy -> gone expired",
        "gone=failed",
        "'busy' is a running state and cannot fail",
    ),
    "an answer that leads to work that cannot fail": (
        GOOD + "busy -> asking parked\n asking -> gone expired",
        ENDS,
        "'asking' is a running state and cannot fail",
    ),
    "a state in capitals": (GOOD.replace("busy", "Busy"), ENDS, "'Busy' is not a valid state name"),
    "an endless name": (GOOD.replace("busy", "b" * 41), ENDS, "is not a valid state name"),
}


@pytest.mark.parametrize(("transitions", "ends", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_work_is_refused_at_load(transitions: str, ends: str, expected: str) -> None:
    with pytest.raises(LifecycleError, match=rf"^Lifecycle 'odd': .*{expected}"):
        lifecycle("odd", transitions, ends=ends)


def test_a_retry_may_lead_to_a_state_of_its_own() -> None:
    made = lifecycle("odd", GOOD + "gone -> again retried\n again -> gone expired failed", ends=ENDS)
    assert made.after("gone", "retried") == "again"


@pytest.mark.parametrize("name", ["Small", "", "two words", "1st", "x" * 41])
def test_the_name_is_a_lower_case_word(name: str) -> None:
    with pytest.raises(LifecycleError, match="the name must be a lower-case word"):
        lifecycle(name, GOOD, ends=ENDS)


@pytest.mark.parametrize("made", [*LIFECYCLES, STANDARD], ids=lambda made: made.name)
@pytest.mark.parametrize("check", OF_LIFECYCLES, ids=lambda check: check.__name__)
def test_it_holds_for_every_lifecycle(made: Lifecycle, check: Callable[[Lifecycle], None]) -> None:
    check(made)


def test_the_diagram_shows_birth_arrows_ends_and_where_a_job_is() -> None:
    assert lifecycle("small", GOOD, ends=ENDS).mermaid(here="busy") == dedent("""\
        stateDiagram-v2
            [*] --> new
            new --> busy: started
            new --> gone: canceled, expired
            busy --> done: succeeded
            busy --> gone: failed, expired
            gone --> [*]
            done --> [*]
            classDef here stroke-width:3px
            class busy here
        """)
