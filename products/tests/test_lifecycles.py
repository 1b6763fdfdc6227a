"""The lifecycles of the products: what must hold for every lifecycle, and what their contracts draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond_products.lifecycles import LIFECYCLES
from tests.lifecycle_checks import IN_DATABASES, OF_LIFECYCLES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.lifecycle import Lifecycle
    from millpond.store.db import Database

each_lifecycle = pytest.mark.parametrize("made", LIFECYCLES, ids=[made.name for made in LIFECYCLES])


@each_lifecycle
@pytest.mark.parametrize("check", OF_LIFECYCLES, ids=lambda check: check.__name__)
def test_it_holds_for_every_lifecycle(made: Lifecycle, check: Callable[[Lifecycle], None]) -> None:
    check(made)


@pytest.mark.unsound
@each_lifecycle
@pytest.mark.parametrize("check", IN_DATABASES, ids=lambda check: check.__name__)
async def test_the_database_holds_it_too(
    db: Database, made: Lifecycle, check: Callable[[Database, Lifecycle], Awaitable[None]]
) -> None:
    await check(db, made)


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


@each_lifecycle
def test_a_product_draws_what_its_contract_says(made: Lifecycle) -> None:
    """Written a second time, by hand, from the contracts: the tables cannot drift unseen."""
    expected = {(source, target) for source, targets in CONTRACTS[made.name].items() for target in targets.split()}
    assert made.pairs == expected
