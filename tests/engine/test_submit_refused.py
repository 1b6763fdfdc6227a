"""Submits that can never be accepted end with an error, and write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond
from millpond.engine.engine import Engine
from millpond.errors import BusyError, UnknownKindError

if TYPE_CHECKING:
    from millpond.store.db import Database

MARY: dict[str, Any] = {"tenant": "acme", "account": "mary"}


async def test_a_kind_that_was_not_made_known_is_refused(db: Database) -> None:
    late = Millpond()
    late.kind("late", price=5)(lambda _job: None)
    engine = Engine(db, late)  # and not Engine.open, which makes its kinds known
    await engine.grant(**MARY, amount=10)
    with pytest.raises(UnknownKindError):
        await engine.submit("late", **MARY)
    wallet = await engine.balance(**MARY)
    assert (wallet.available, wallet.held, wallet.active) == (10, 0, 0)


async def test_what_is_never_accepted_is_not_tried_for_ever(engine: Engine, db: Database) -> None:
    await engine.grant(**MARY, amount=10)
    async with db.pool.acquire() as connection:
        await connection.execute(
            "create or replace function millpond.can_pay("
            "tenants text[], accounts text[], sums bigint[], counts integer[]"
            ") returns boolean language sql as 'select false'"
        )
    with pytest.raises(BusyError):
        await engine.submit("brief", **MARY)
