"""What the database itself refuses, to hand-written SQL as to ours."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from asyncpg import CheckViolationError, UniqueViolationError

from millpond.errors import TransitionDeniedError
from millpond.lifecycle import STANDARD, Lifecycle
from millpond.store.db import APPEND_ONLY, TRANSITION_DENIED
from tests.checks import refused, unchanged
from tests.factories import MINUTE, TENANT
from tests.lifecycle_checks import (
    bear,
    jobs_are_born_in_entry_states,
    only_drawn_arrows_are_passed,
    row,
    sqlstate,
    walk,
    way,
)
from tests.lifecycles import LIFECYCLES

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

EVERY = [*LIFECYCLES, STANDARD]
each_lifecycle = pytest.mark.parametrize("made", EVERY, ids=[made.name for made in EVERY])


@pytest.mark.unsound
@each_lifecycle
async def test_sql_by_hand_transitions_a_job_along_the_drawn_arrows_and_no_other(db: Database, made: Lifecycle) -> None:
    await only_drawn_arrows_are_passed(db, made)


@each_lifecycle
async def test_a_job_is_born_only_in_an_entry_state(db: Database, made: Lifecycle) -> None:
    await jobs_are_born_in_entry_states(db, made)


async def test_a_state_of_another_lifecycle_or_of_none_is_no_state(db: Database) -> None:
    async with db.transaction() as tx:
        job_id = await bear(tx, STANDARD)
        for state in ("processing", "nonsense", "", "running "):
            assert (
                await sqlstate(tx, "update millpond.jobs set state = $2 where id = $1", job_id, state)
                == TRANSITION_DENIED
            )
        changed = "update millpond.jobs set lifecycle = 'restartable', state = 'failed' where id = $1"
        assert await sqlstate(tx, changed, job_id) == TRANSITION_DENIED


async def test_one_wrong_row_undoes_the_whole_statement(db: Database) -> None:
    async with db.transaction() as tx:
        good, bad = await bear(tx, STANDARD), await bear(tx, STANDARD)
        await walk(tx, bad, "canceled")
        statement = "update millpond.jobs set state = 'running' where id = any($1::uuid[])"
        assert await sqlstate(tx, statement, [good, bad]) == TRANSITION_DENIED
        assert (await row(tx, good))["state"] == "queued"


STICKY = {
    "its state": "state = 'running'",
    "its phase": "phase = 'ready', outcome = null, finished_at = null, captured = null",
    "its outcome": "outcome = 'failed'",
    "its output": """output = '{"better": 1}'""",
    "its time": "finished_at = finished_at + interval '1 hour'",
    "what was charged": "captured = 1",
}


@pytest.mark.parametrize("change", STICKY.values(), ids=STICKY)
async def test_what_has_ended_stays_as_it_is(db: Database, make: Factory, change: str) -> None:
    ended = await make.ended("priced")
    async with unchanged(db), db.transaction() as tx:
        assert await sqlstate(tx, f"update millpond.jobs set {change} where id = $1", ended.job_id) == TRANSITION_DENIED


async def test_no_job_is_ended_by_its_phase_alone(db: Database, make: Factory) -> None:
    lease = await make.leased("priced")
    ending = "phase = 'ended', outcome = 'succeeded', finished_at = now(), captured = 5"
    async with unchanged(db), db.transaction() as tx:
        assert await sqlstate(tx, f"update millpond.jobs set {ending} where id = $1", lease.job_id) == TRANSITION_DENIED


HISTORY = {
    "an event is not changed": "update millpond.events set type = 'other'",
    "an event is not deleted": "delete from millpond.events",
    "an entry is not changed": "update millpond.entries set reason = 'other'",
    "an entry is not deleted": "delete from millpond.entries",
    "the entries are not emptied": "truncate millpond.entries",
}


@pytest.mark.parametrize("statement", HISTORY.values(), ids=HISTORY)
async def test_history_is_append_only(db: Database, make: Factory, statement: str) -> None:
    await make.submitted("priced")
    async with unchanged(db), db.transaction() as tx:
        assert await sqlstate(tx, statement) == APPEND_ONLY


async def test_history_is_append_only_in_its_partitions_too(db: Database, make: Factory) -> None:
    await make.submitted()
    async with unchanged(db), db.transaction() as tx:
        part = await tx.fetchval("select tableoid::regclass::text from millpond.events limit 1")
        assert part != "millpond.events_default"
        assert await sqlstate(tx, f"update {part} set type = 'other'") == APPEND_ONLY
        assert await sqlstate(tx, f"delete from {part}") == APPEND_ONLY


# An entry like one that is there, but for a few columns.
ENTRY = (
    "insert into millpond.entries select tenant, account, 99, at, {}, held, outside, available_after, held_after, {}"
    " from millpond.entries where type = '{}'"
)
DISPATCH = (
    "insert into millpond.dispatches (job_id, tenant, account, kind, queue, phase, rank)"
    " select id, tenant, account, kind, queue, '{}', 0 from millpond.jobs"
)

JOB = "update millpond.jobs set {} where phase = 'leased'"

BROKEN = {
    "available below zero": ("update millpond.accounts set available = -1", CheckViolationError),
    "held below zero": ("update millpond.accounts set held = -1", CheckViolationError),
    "fewer than no active jobs": ("update millpond.accounts set active = -1", CheckViolationError),
    "a start before birth": (JOB.format("started_at = created_at - interval '1s'"), CheckViolationError),
    "an end before the start": (
        JOB.format("state = 'succeeded', finished_at = started_at - interval '1s'"),
        CheckViolationError,
    ),
    "more captured than the price": (JOB.format("state = 'succeeded', captured = price + 1"), CheckViolationError),
    "less captured than nothing": (JOB.format("state = 'succeeded', captured = -1"), CheckViolationError),
    "progress beyond one": (JOB.format("progress = 1.5"), CheckViolationError),
    "a second hold of a run": (ENTRY.format("'hold', available", "job_id, run", "hold"), UniqueViolationError),
    "a second settlement": (ENTRY.format("'release', available", "job_id, run", "capture"), UniqueViolationError),
    "an entry that does not balance": (ENTRY.format("type, available + 1", "null, null", "grant"), CheckViolationError),
    "a settlement without its job": (ENTRY.format("'release', available", "null, null", "grant"), CheckViolationError),
    "an event twice": ("insert into millpond.events select * from millpond.events", UniqueViolationError),
    "a lease without a token": (DISPATCH.format("leased"), CheckViolationError),
}


@pytest.mark.parametrize(("statement", "error"), BROKEN.values(), ids=BROKEN)
async def test_the_cheap_invariants_are_constraints(
    db: Database, make: Factory, statement: str, error: type[Exception]
) -> None:
    await make.ended("priced")
    await make.leased("priced")
    async with unchanged(db):
        with pytest.raises(error):
            async with db.transaction() as tx:
                await tx.execute(statement)


# The same pairs through the engine. A start is a worker's claim and a retry is a retry: neither is an operator's move.

TAKEN_BY = {"started": "a claim", "retried": "a retry"}


def transitioned_by_hand(made: Lifecycle, source: str, target: str) -> bool:
    """Whether some lifecycle event other than a start or a retry makes this change."""
    return any(
        transition.source == source and transition.target == target and transition.event not in TAKEN_BY
        for transition in made.transitions
    )


async def brought_to(make: Factory, engine: Engine, made: Lifecycle, state: str) -> UUID:
    """A job in a state, taken there by claims and moves along the drawn arrows."""
    kind = "brief" if made is STANDARD else made.name
    run_at = await make.clock.now() + MINUTE if state == made.initial else None
    submitted = await make.submitted(kind, run_at=run_at)
    source = submitted.state
    for target in way(made, source, state):
        if transitioned_by_hand(made, source, target):
            await engine.transition(TENANT, submitted.job_id, target)
        else:
            await make.claimed(kind, want=1_000)
        source = target
    assert (await make.read(submitted.job_id)).state == state
    return submitted.job_id


@each_lifecycle
async def test_the_engine_transitions_a_job_along_the_drawn_arrows_and_no_other(
    db: Database, engine: Engine, make: Factory, made: Lifecycle
) -> None:
    """Every ordered pair of distinct states, through the operator's verb; a refusal writes nothing."""
    for source, target in permutations(made.states, 2):
        job_id = await brought_to(make, engine, made, source)
        if transitioned_by_hand(made, source, target):
            assert await engine.transition(TENANT, job_id, target) == target
            job = await make.read(job_id)
            assert (job.state, job.outcome) == (target, made.states[target].outcome)
        else:
            async with refused(db, TransitionDeniedError) as denied:
                await engine.transition(TENANT, job_id, target)
            assert denied.value.details == {"from_state": source, "to_state": target}
