"""The registry: what the app declares, as the database sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.errors import TransitionDeniedError
from millpond.kinds import Kind
from millpond.lifecycle import STANDARD, lifecycle
from tests.checks import unchanged
from tests.factories import OWNER, TENANT
from tests.lifecycle_checks import the_tables_hold_what_the_lifecycle_says
from tests.lifecycles import LIFECYCLES
from tests.product import app

if TYPE_CHECKING:
    from millpond.store.db import Database

SMALL = """
    *   -> new  submitted
    new -> gone canceled expired failed
    new -> done succeeded
"""
ENDS = "done=succeeded gone=failed"


async def rows(db: Database, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with db.transaction() as tx:
        return [tuple(row) for row in await tx.fetch(statement, *arguments)]


@pytest.mark.parametrize("made", [*LIFECYCLES, STANDARD], ids=lambda made: made.name)
async def test_the_tables_hold_what_the_lifecycle_says(db: Database, made: Any) -> None:
    await the_tables_hold_what_the_lifecycle_says(db, made)


async def test_to_register_again_changes_nothing_that_matters(db: Database) -> None:
    await rows(db, "update millpond.kinds set registered_at = 'epoch' returning kind")
    async with unchanged(db):
        await registry.register(db, app.kinds.values(), LIFECYCLES)
        await rows(db, "update millpond.kinds set registered_at = 'epoch' returning kind")


async def test_a_new_lifecycle_is_guarded_at_once(db: Database) -> None:
    made = lifecycle("small", SMALL, ends=ENDS)
    engine = Engine(db, Millpond())
    engine.app.add(Kind(name="small", lifecycle=made))
    await registry.register(db, engine.app.kinds.values())
    submitted = await engine.submit("small", **OWNER)
    with pytest.raises(TransitionDeniedError, match="transition denied: new -> new2"):
        await rows(db, "update millpond.jobs set state = 'new2' returning id")
    assert await engine.transition(TENANT, submitted.job_id, "done") == "done"


async def test_a_changed_lifecycle_changes_the_guard(db: Database) -> None:
    for transitions in (SMALL, SMALL + "gone -> new retried"):
        await registry.register(db, lifecycles=[lifecycle("small", transitions, ends=ENDS)])
    engine = Engine(db, Millpond())
    engine.app.add(Kind(name="small", lifecycle=lifecycle("small", SMALL + "gone -> new retried", ends=ENDS)))
    await registry.register(db, engine.app.kinds.values())
    submitted = await engine.submit("small", **OWNER)
    await engine.cancel(TENANT, submitted.job_id)
    assert (await engine.retry(TENANT, submitted.job_id)).state == "new"


async def test_a_kind_may_change_its_mind(db: Database) -> None:
    for kind in (
        Kind(name="thing", stages=("a",)),
        Kind(name="thing", queue="things", stages=("a", "b"), lapses_max=7),
    ):
        await registry.register(db, [kind])
    found = await rows(db, "select stages, lapses_max, queue from millpond.kinds where kind = 'thing'")
    assert found == [(["a", "b"], 7, "things")]


async def test_a_paused_queue_stays_paused_when_its_kind_is_registered_again(db: Database) -> None:
    engine = Engine(db, app)
    await engine.pause("free")
    await registry.register(db, app.kinds.values())
    assert await rows(db, "select 1 from millpond.queues where queue = 'free' and paused_at is not null") == [(1,)]
