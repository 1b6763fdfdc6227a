"""What must hold for every lifecycle: the standard one, those of the tests, and those of products."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from asyncpg import PostgresError

from millpond.errors import TransitionDeniedError
from millpond.lifecycle import LIFECYCLE_EVENTS, OUTCOMES, PHASES
from millpond.store.db import TRANSITION_DENIED

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.lifecycle import Lifecycle
    from millpond.store.db import Connection, Database


# Without a database


def the_check_passes_exactly_the_drawn_pairs(made: Lifecycle) -> None:
    """Every ordered pair of distinct states, through Python."""
    for source, target in permutations(made.states, 2):
        if (source, target) in made.pairs:
            made.check(source, target)
        else:
            with pytest.raises(TransitionDeniedError) as caught:
                made.check(source, target)
            assert caught.value.details == {"from_state": source, "to_state": target}
            assert f"Transitions from {source!r} lead to: " in str(caught.value.hint)
        assert made.allows(source, target) == ((source, target) in made.pairs)


def a_state_is_never_a_move_to_itself(made: Lifecycle) -> None:
    assert not any(made.allows(state, state) for state in made.states)


def words_of_the_engine_are_the_same_everywhere(made: Lifecycle) -> None:
    assert {state.phase for state in made.states.values()} <= set(PHASES)
    assert {state.outcome for state in made.states.values()} - {None} <= set(OUTCOMES)
    assert {transition.event for transition in made.transitions} <= set(LIFECYCLE_EVENTS)


def the_diagram_has_one_line_for_each_pair(made: Lifecycle) -> None:
    lines = made.mermaid().splitlines()
    drawn = [line.strip().partition(":")[0] for line in lines if "[*]" not in line and "-->" in line]
    assert sorted(drawn) == sorted(f"{source} --> {target}" for source, target in made.pairs)


OF_LIFECYCLES = (
    the_check_passes_exactly_the_drawn_pairs,
    a_state_is_never_a_move_to_itself,
    words_of_the_engine_are_the_same_everywhere,
    the_diagram_has_one_line_for_each_pair,
)


# In a database where the lifecycle is registered


async def the_tables_hold_what_the_lifecycle_says(db: Database, made: Lifecycle) -> None:
    async with db.transaction() as tx:
        states = await tx.fetch(
            "select state, phase, outcome from millpond.lifecycle_states where lifecycle = $1", made.name
        )
        transitions = await tx.fetch(
            "select from_state, event, to_state from millpond.lifecycle_transitions where lifecycle = $1", made.name
        )
    declared = {(state.name, state.phase, state.outcome) for state in made.states.values()}
    assert {tuple(found) for found in states} == declared
    assert {tuple(found) for found in transitions} == {
        (transition.source or "*", transition.event, transition.target) for transition in made.transitions
    }


async def only_drawn_arrows_are_passed(db: Database, made: Lifecycle) -> None:
    """Every ordered pair of distinct states: drawn, it passes and fills phase and end; else the row is untouched."""
    passed: set[tuple[str, str]] = set()
    async with db.transaction() as tx:
        for source, target in permutations(made.states, 2):
            job_id = await bear(tx, made)
            await walk(tx, job_id, *way(made, made.initial, source))
            before = await row(tx, job_id)
            answer = await sqlstate(tx, "update millpond.jobs set state = $2 where id = $1", job_id, target)
            after = await row(tx, job_id)
            if answer is None:
                passed.add((source, target))
                state = made.states[target]
                assert (after["state"], after["outcome"]) == (target, state.outcome)
                assert (after["phase"] == "ended") == (after["finished_at"] is not None) == (state.outcome is not None)
            else:
                assert answer == TRANSITION_DENIED
                assert after == before
    assert passed == made.pairs


async def jobs_are_born_in_entry_states(db: Database, made: Lifecycle) -> None:
    async with db.transaction() as tx:
        for state in made.states:
            if state in made.entries:
                await bear(tx, made, state)
            else:
                with pytest.raises(PostgresError) as caught:
                    async with tx.transaction():
                        await bear(tx, made, state)
                assert caught.value.sqlstate == TRANSITION_DENIED


IN_DATABASES = (
    the_tables_hold_what_the_lifecycle_says,
    only_drawn_arrows_are_passed,
    jobs_are_born_in_entry_states,
)


# Jobs by hand


def way(made: Lifecycle, start: str, target: str) -> list[str]:
    """The states to pass on the way from one to another, by drawn arrows."""
    ways: dict[str, list[str]] = {start: []}
    while target not in ways:
        for source, state in sorted(made.pairs):
            if source in ways:
                ways.setdefault(state, [*ways[source], state])
    return ways[target]


async def bear(connection: Connection, made: Lifecycle, state: str | None = None) -> UUID:
    """A job by hand, in its first state unless told."""
    return await connection.fetchval(
        "insert into millpond.jobs"
        " (id, tenant, account, kind, lifecycle, queue, state, phase, priority, events, price, created_at, input)"
        " values (millpond.uuid7(), 'acme', 'ann', 'free', $1, 'free', $2, 'waiting', 0, 1, 0, now(), '{}')"
        " returning id",
        made.name,
        state or made.initial,
    )


async def walk(connection: Connection, job_id: UUID, *states: str) -> None:
    for state in states:
        await connection.execute("update millpond.jobs set state = $2 where id = $1", job_id, state)


async def row(connection: Connection, job_id: UUID) -> dict[str, Any]:
    return dict(await connection.fetchrow("select * from millpond.jobs where id = $1", job_id) or {})


async def sqlstate(connection: Connection, statement: str, *arguments: Any) -> str | None:
    """How the database answers a statement, which leaves no trace if it fails."""
    try:
        async with connection.transaction():
            await connection.execute(statement, *arguments)
    except PostgresError as error:
        return error.sqlstate
    return None
