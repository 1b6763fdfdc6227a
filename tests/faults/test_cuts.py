"""Each verb with its connection cut before and after COMMIT, at every message: one effect, whatever was heard."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, get_args

import pytest

from millpond.engine.engine import Engine
from millpond.engine.queue.dispatches import Lanes
from millpond.errors import UnavailableError
from millpond.outbound import Outbound
from millpond.store.db import Database
from tests.checks import Snapshot, until
from tests.factories import MINUTE
from tests.faults.verbs import VERBS, Verb, begin, ending, undisturbed
from tests.faults.wire import When, Wire, wire
from tests.post import LOOPBACK, VAULT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.factories import Factory

pytestmark = pytest.mark.slow

ANSWERED_ALL_THE_SAME = {
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


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_a_cut_connection_never_makes_two_effects_of_one_call(make: Factory, verb: Verb, when: When) -> None:
    """A caller who hears nothing calls again, with the same key or the same lease, and there is one effect."""
    expected = await undisturbed(make, verb)
    await begin(make, verb)
    before = await ending(make, verb)
    async with wire(make.engine.db.dsn) as line:
        for number in count(1):
            given = await begin(make, verb)
            async with wired(line) as engine:
                line.cut_at(number, when)
                is_unheard = await is_unavailable(verb, engine, given)
                if not line.has_cut:
                    break
                assert not (is_unheard and verb.name in ANSWERED_ALL_THE_SAME), f"message {number}"
                await Aftermath(make, verb, engine, given, before, expected).check(is_unheard=is_unheard)
    assert number > 1, "a verb that sends nothing proves nothing"


@dataclass(slots=True)
class Aftermath:
    """What must be found, and what a caller must be able to do, after a cut."""

    make: Factory
    verb: Verb
    engine: Engine
    given: Any
    before: Snapshot
    expected: Snapshot

    async def check(self, *, is_unheard: bool) -> None:
        """However it ends, every invariant holds: :func:`ending` looks."""
        if is_unheard and not self.verb.is_repeatable:
            assert await self.ending() in (self.before, self.expected)
        elif self.verb.leaves_traces:
            await until(self.is_wholly_claimed)
            await self.ending()
        elif is_unheard and self.verb.passes_over:
            await until(self.is_done_by_another_call)
        else:
            if is_unheard:
                with suppress(*self.verb.refusals):
                    await self.verb.act(self.engine, self.given)
            assert await self.ending() == self.expected

    async def ending(self) -> Snapshot:
        return await ending(self.make, self.verb)

    async def is_done_by_another_call(self) -> bool:
        """The server takes a moment to notice that a client is gone, and keeps its locks so long."""
        await self.verb.act(self.engine, self.given)
        return await self.ending() == self.expected

    async def is_wholly_claimed(self) -> bool:
        """What nobody heard of went back into the line, to be claimed again."""
        await self.engine.claim(Lanes(["limited", "priced"]), 3, worker="w", duration=MINUTE)
        async with self.make.engine.db.transaction() as tx:
            return await tx.fetchval("select bool_and(phase = 'leased') from millpond.jobs")


@asynccontextmanager
async def wired(line: Wire) -> AsyncIterator[Engine]:
    """An engine whose every connection goes through the wire."""
    line.heal()
    db = await Database.open(line.dsn, size=2)
    try:
        engine = Engine(db, app, vault=VAULT, outbound=Outbound(LOOPBACK))
        yield engine
        await engine.outbound.close()
    finally:
        line.heal()
        await db.close()


async def is_unavailable(verb: Verb, engine: Engine, given: Any) -> bool:
    """Whether the call did not get its answer; it may end in no other error."""
    try:
        await verb.act(engine, given)
    except UnavailableError:
        return True
    return False
