"""Each verb with its n-th statement failing, n = 1, 2, 3 … until none fails: all or nothing, and again is once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from asyncpg import PostgresError

from millpond.engine.verify import verify
from millpond.errors import StoreError, UnavailableError
from tests.checks import snapshot
from tests.faults.statement_faults import DATA_CORRUPTED, SERIALIZATION_FAILURE, SHUTDOWN
from tests.faults.verbs import VERBS, Verb, begin, ending, undisturbed

if TYPE_CHECKING:
    from tests.factories import Factory
    from tests.faults.statement_faults import StatementFaults

pytestmark = pytest.mark.slow

EVERY_VERB = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
RETRIED_BY_THE_ENGINE = {
    "abandon",
    "finish_and_deliver",
    "finish_failed",
    "finish_succeeded",
    "finish_three",
    "finish_with_a_part_captured",
    "submit_by_a_stranger",
    "submit_many",
    "submit_with_a_key",
    "submit_without_a_key",
}
RETRIED_BY_NOBODY = {"register"}  # an app that cannot register does not start; who starts it again starts it whole


@EVERY_VERB
async def test_a_verb_that_fails_has_written_nothing_and_succeeds_when_called_again(
    make: Factory, statement_faults: StatementFaults, verb: Verb
) -> None:
    """Whatever statement fails, COMMIT among them, the database is as before; the next call has the whole effect."""
    expected = await undisturbed(make, verb)
    for number in count(1):
        given = await begin(make, verb)
        before = await snapshot(make.engine.db)
        await statement_faults.plan(number, DATA_CORRUPTED)
        failed = await fails(verb, make, given, PostgresError)
        if await statement_faults.stop() < number:
            assert not failed
            break
        assert failed, f"statement {number} failed and nobody was told"
        if verb.is_atomic:
            assert await snapshot(make.engine.db) == before, f"statement {number} failed and left something behind"
        else:
            assert await verify(make.engine.db) == []
        await verb.act(make.engine, given)
        assert await ending(make, verb) == expected, (
            f"after statement {number} had failed, the second call did something else"
        )
    assert await ending(make, verb) == expected
    assert number > 1, "a verb without a statement proves nothing"


@EVERY_VERB
async def test_a_transaction_that_the_database_gives_up_is_run_again(
    make: Factory, statement_faults: StatementFaults, verb: Verb
) -> None:
    """A deadlock or a serialization failure is the database's to resolve: the caller sees one effect and no error."""
    expected = await undisturbed(make, verb)
    for number in count(1):
        given = await begin(make, verb)
        await statement_faults.plan(number, SERIALIZATION_FAILURE)
        failed = await fails(verb, make, given, StoreError)
        if await statement_faults.stop() < number:
            break
        assert failed == (verb.name in RETRIED_BY_NOBODY), f"statement {number}"
        if failed:
            await verb.act(make.engine, given)
        assert await ending(make, verb) == expected, f"statement {number}"


@EVERY_VERB
async def test_a_server_that_goes_away_in_the_middle_leaves_one_effect_or_none(
    make: Factory, statement_faults: StatementFaults, verb: Verb
) -> None:
    """Where the engine knows how to ask what became of a call it tries again by itself; elsewhere it says so."""
    expected = await undisturbed(make, verb)
    for number in count(1):
        given = await begin(make, verb)
        await statement_faults.plan(number, SHUTDOWN)
        failed = await fails(verb, make, given, UnavailableError)
        if await statement_faults.stop() < number:
            break
        assert not (failed and verb.name in RETRIED_BY_THE_ENGINE), f"statement {number}"
        assert await verify(make.engine.db) == []
        if failed:
            await verb.act(make.engine, given)
        assert await ending(make, verb) == expected, f"statement {number}"


@EVERY_VERB
async def test_a_server_that_stays_away_is_reported_and_nothing_is_written(
    make: Factory, statement_faults: StatementFaults, verb: Verb
) -> None:
    """Tries have an end: the caller is told, and may come back when the server has."""
    expected = await undisturbed(make, verb)
    given = await begin(make, verb)
    before = await snapshot(make.engine.db)
    await statement_faults.plan(1, SHUTDOWN, lasting=True)
    failed = await fails(verb, make, given, UnavailableError)
    await statement_faults.stop()
    assert failed or verb.name == "abandon"  # which leaves it to the lease to run out
    assert await snapshot(make.engine.db) == before
    await verb.act(make.engine, given)
    assert await ending(make, verb) == expected


async def fails(verb: Verb, make: Factory, given: Any, error: type[Exception]) -> bool:
    """Whether the call raised this error; any other is a surprise."""
    try:
        await verb.act(make.engine, given)
    except error:
        return True
    return False
