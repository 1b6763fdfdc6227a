"""Lifecycles as data: what a table may say, and what comes out of it."""

from __future__ import annotations

from itertools import permutations
from textwrap import dedent

import pytest

from millpond.blueprints import LIFECYCLES
from millpond.errors import LifecycleError, MoveDeniedError
from millpond.lifecycle import MOMENTS, OUTCOMES, PHASES, STANDARD, Lifecycle, lifecycle

EVERY = [*LIFECYCLES, STANDARD]

GOOD = """
    *     -> new    submitted
    new   -> busy   started
    new   -> gone   canceled expired
    busy  -> done   succeeded
    busy  -> gone   failed expired
"""
ENDS = "done=succeeded gone=failed"


def each(*made: Lifecycle) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("made", made, ids=[one.name for one in made])


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


def test_a_moment_that_ends_nothing_and_is_not_drawn_keeps_the_state() -> None:
    made = lifecycle("small", GOOD, ends=ENDS)
    assert made.after("new", "queued") == "new"
    assert made.after("busy", "requeued") == "busy"
    assert made.after("busy", "parked") == "busy"


def test_an_end_that_is_not_drawn_is_refused() -> None:
    made = lifecycle("small", GOOD, ends=ENDS)
    with pytest.raises(MoveDeniedError, match="'blocked' is not possible in state 'busy'") as caught:
        made.after("busy", "blocked")
    assert caught.value.details == {"state": "busy", "moment": "blocked"}


def test_nothing_leaves_an_end_but_a_retry() -> None:
    made = lifecycle("small", GOOD + "gone -> new retried", ends=ENDS)
    assert made.after("gone", "retried") == "new"
    for moment in MOMENTS.keys() - {"retried"}:
        with pytest.raises(MoveDeniedError):
            made.after("gone", moment)


REFUSED = {
    "an arrow nobody can read": (GOOD + "new => busy started", ENDS, "cannot read the arrow 'new => busy started'"),
    "an arrow without a moment": (GOOD + "busy -> new", ENDS, "cannot read the arrow 'busy -> new'"),
    "a moment the engine does not know": (GOOD + "busy -> new bored", ENDS, "'bored' in .* is not a moment"),
    "a moment drawn twice": (GOOD + "new -> done started", ENDS, "'started' leaves 'new' twice"),
    "birth in the middle": (GOOD + "busy -> new submitted", ENDS, "'busy -> new submitted' misplaces birth"),
    "another moment at birth": (GOOD.replace("submitted", "queued"), ENDS, "misplaces birth"),
    "no birth": (GOOD.replace("* ", "old "), ENDS, "misplaces birth"),
    "two births": (GOOD + "* -> busy submitted", ENDS, "'submitted' leaves None twice"),
    "no arrow at all": ("", ENDS, "exactly one arrow must start at"),
    "an outcome nobody knows": (GOOD, "done=won gone=failed", "'won' of 'done' is not an outcome"),
    "an end without an outcome": (GOOD, "done gone=failed", "'' of 'done' is not an outcome"),
    "no end": (GOOD, "", "must not lead to"),
    "an end that is not declared": (GOOD, "gone=failed", "'succeeded' must not lead to 'done'"),
    "an end that is only declared": (GOOD, ENDS + " lost=failed", "no arrow leads to its end 'lost'"),
    "work that leads to an end": (GOOD + "busy -> gone parked", ENDS, "'parked' must not lead to 'gone'"),
    "an end that is left": (GOOD + "gone -> busy started", ENDS, "'gone' is left by 'started'"),
    "a retry of what has not ended": (GOOD + "busy -> new retried", ENDS, "'busy' is left by 'retried'"),
    "an arrow from nowhere": (GOOD + "lost -> done succeeded", ENDS, "'lost' is unreachable"),
    "an island": (GOOD + "a -> b started\n b -> a requeued\n a -> gone expired failed", ENDS, "unreachable"),
    "a trap": (GOOD + "busy -> stuck parked", ENDS, "'stuck' can never reach an end"),
    "a state that cannot expire": (GOOD + "busy -> idle parked\n idle -> done succeeded", ENDS, "'idle' cannot expire"),
    "work that cannot fail": (
        "* -> new submitted\n new -> gone expired\n new -> busy started\n busy -> gone expired",
        "gone=failed",
        "'busy' runs and cannot fail",
    ),
    "an answer that leads to work that cannot fail": (
        GOOD + "busy -> asking parked\n asking -> gone expired",
        ENDS,
        "'asking' runs and cannot fail",
    ),
    "a state in capitals": (GOOD.replace("busy", "Busy"), ENDS, "'Busy' is not a state's name"),
    "an endless name": (GOOD.replace("busy", "b" * 41), ENDS, "is not a state's name"),
}


@pytest.mark.parametrize(("moves", "ends", "told"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_work_is_refused_at_load(moves: str, ends: str, told: str) -> None:
    with pytest.raises(LifecycleError, match=rf"^Lifecycle 'odd': .*{told}"):
        lifecycle("odd", moves, ends=ends)


def test_a_retry_may_lead_to_a_state_of_its_own() -> None:
    made = lifecycle("odd", GOOD + "gone -> again retried\n again -> gone expired failed", ends=ENDS)
    assert made.after("gone", "retried") == "again"


@pytest.mark.parametrize("name", ["Small", "", "two words", "1st", "x" * 41])
def test_the_name_is_a_lower_case_word(name: str) -> None:
    with pytest.raises(LifecycleError, match="the name must be a lower-case word"):
        lifecycle(name, GOOD, ends=ENDS)


@each(*EVERY)
def test_the_check_passes_exactly_the_drawn_pairs(made: Lifecycle) -> None:
    """Every ordered pair of distinct states, through Python."""
    for source, target in permutations(made.states, 2):
        if (source, target) in made.pairs:
            made.check(source, target)
        else:
            with pytest.raises(MoveDeniedError) as caught:
                made.check(source, target)
            assert caught.value.details == {"from_state": source, "to_state": target}
            assert f"From {source!r} it can go to: " in str(caught.value.hint)
        assert made.allows(source, target) == ((source, target) in made.pairs)


@each(*EVERY)
def test_a_state_is_never_a_move_to_itself(made: Lifecycle) -> None:
    assert not any(made.allows(state, state) for state in made.states)


@each(*EVERY)
def test_words_of_the_engine_are_the_same_everywhere(made: Lifecycle) -> None:
    assert {state.phase for state in made.states.values()} <= set(PHASES)
    assert {state.outcome for state in made.states.values()} - {None} <= set(OUTCOMES)
    assert {move.moment for move in made.moves} <= set(MOMENTS)


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


@each(*EVERY)
def test_the_diagram_has_one_line_for_each_pair(made: Lifecycle) -> None:
    lines = made.mermaid().splitlines()
    drawn = [line.strip().partition(":")[0] for line in lines if "[*]" not in line and "-->" in line]
    assert sorted(drawn) == sorted(f"{source} --> {target}" for source, target in made.pairs)


CONTRACTS = {
    "actions": {"pending": "running cancelled", "running": "success failed cancelled"},
    "effects": {
        "queued": "processing failed canceled expired",
        "processing": "queued completed failed canceled expired",
    },
    "guard": {
        "processing_inbound": "inbound_blocked awaiting_response processing_outbound expired",
        "awaiting_response": "processing_outbound expired",
        "processing_outbound": "outbound_blocked delivering expired",
        "delivering": "completed failed expired",
    },
    "partner": {"running": "completed failed canceled"},
    "studio": {
        "pending": "queued processing failed canceled",
        "queued": "processing failed canceled",
        "processing": "completed failed canceled expired",
        "failed": "pending",
        "expired": "pending",
    },
}


@each(*LIFECYCLES)
def test_the_blueprints_draw_what_their_contracts_say(made: Lifecycle) -> None:
    """Written a second time, by hand, from the contracts: the tables cannot drift unseen."""
    expected = {(source, target) for source, targets in CONTRACTS[made.name].items() for target in targets.split()}
    assert made.pairs == expected
