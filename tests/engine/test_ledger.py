"""Ledger: what comes in, what is held, what is kept, and every entry that made it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.queue.leases import End
from millpond.errors import AmountError, ConflictError, InputError, InsufficientCreditsError, InvalidError
from tests.checks import refused, unchanged
from tests.factories import ACCOUNT, STRANGER, TENANT

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory


async def test_a_grant_opens_an_account_and_tops_it_up(engine: Engine) -> None:
    assert await engine.grant(TENANT, ACCOUNT, 10, reason="welcome") == 10
    assert await engine.grant(TENANT, ACCOUNT, 5) == 15
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held, balance.active, balance.active_max) == (15, 0, 0, None)


async def test_an_account_nobody_used_has_nothing(engine: Engine) -> None:
    balance = await engine.balance(STRANGER, "nobody")
    assert (balance.available, balance.held, balance.active) == (0, 0, 0)


async def test_accounts_of_the_same_name_in_two_tenants_are_two(engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, 10)
    assert (await engine.balance(STRANGER, ACCOUNT)).available == 0
    assert await engine.entries(STRANGER, ACCOUNT) == []


async def test_a_reference_is_granted_once(db: Database, engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, 10, reference="order-7")
    async with unchanged(db):
        assert await engine.grant(TENANT, ACCOUNT, 10, reference="order-7") == 10
    assert await engine.grant(TENANT, "bob", 10, reference="order-7") == 10


async def test_a_reference_with_another_amount_is_a_conflict(db: Database, engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, 10, reference="order-7")
    async with refused(db, ConflictError, field="reference"):
        await engine.grant(TENANT, ACCOUNT, 11, reference="order-7")


async def test_a_grant_and_an_adjustment_do_not_share_an_answer(db: Database, engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, 10, reference="order-7")
    async with refused(db, ConflictError, field="reference"):
        await engine.adjust(TENANT, ACCOUNT, 10, reference="order-7", reason="?")


async def test_an_adjustment_goes_up_or_down(engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, 10)
    assert await engine.adjust(TENANT, ACCOUNT, -4, reason="mistake") == 6
    assert await engine.adjust(TENANT, ACCOUNT, 1, reason="kindness") == 7
    entry, *_ = await engine.entries(TENANT, ACCOUNT)
    assert (entry.type, entry.available, entry.outside, entry.reason) == ("adjust", 1, -1, "kindness")


async def test_an_adjustment_never_goes_below_zero_nor_touches_what_is_held(
    db: Database, engine: Engine, make: Factory
) -> None:
    await make.credits(7)
    await make.submitted("priced")
    async with refused(db, InsufficientCreditsError) as caught:
        await engine.adjust(TENANT, ACCOUNT, -8, reason="too much")
    assert caught.value.details == {"required": 8, "available": 7}
    assert await engine.adjust(TENANT, ACCOUNT, -7, reason="all of it") == 0


async def test_nothing_can_be_taken_from_an_account_nobody_used(engine: Engine) -> None:
    with pytest.raises(InsufficientCreditsError):
        await engine.adjust(TENANT, ACCOUNT, -1, reason="nothing there")
    assert await engine.entries(TENANT, ACCOUNT) == []


@pytest.mark.parametrize("amount", [0, -1, 10**12 + 1, 0.5, "10", True, None])
async def test_a_bad_amount_is_not_granted(db: Database, engine: Engine, amount: Any) -> None:
    async with refused(db, AmountError, field="amount"):
        await engine.grant(TENANT, ACCOUNT, amount)


@pytest.mark.parametrize("amount", [0, -(10**12) - 1, 10**12 + 1, -0.5, None])
async def test_a_bad_adjustment_is_refused(db: Database, engine: Engine, amount: Any) -> None:
    async with refused(db, AmountError, field="amount"):
        await engine.adjust(TENANT, ACCOUNT, amount, reason="?")


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        ({"reference": "r" * 256}, InvalidError, "reference"),
        ({"reference": "a\x00"}, InputError, "reference"),
        ({"reason": "r" * 256}, InvalidError, "reason"),
        ({"reason": "\ud800"}, InputError, "reason"),
    ],
)
async def test_a_bad_reference_or_reason_is_refused(
    db: Database, engine: Engine, options: dict[str, str], error: type[InvalidError], field: str
) -> None:
    async with refused(db, error, field=field):
        await engine.grant(TENANT, ACCOUNT, 1, **options)


@pytest.mark.parametrize(("tenant", "account", "field"), [("", "a", "tenant"), ("a", "a b", "account")])
async def test_a_bad_name_opens_no_account(db: Database, engine: Engine, tenant: str, account: str, field: str) -> None:
    async with refused(db, InvalidError, field=field):
        await engine.grant(tenant, account, 1)
    async with refused(db, InvalidError, field=field):
        await engine.set_cap(tenant, account, 1)


@pytest.mark.parametrize("cap", [-1, 1_000_001])
async def test_a_cap_has_limits(db: Database, engine: Engine, cap: int) -> None:
    async with refused(db, InvalidError, field="active_max"):
        await engine.set_cap(TENANT, ACCOUNT, cap)


async def test_entries_report_the_whole_story(engine: Engine, make: Factory) -> None:
    """Each one balances, follows from the one before, and together they are the balance."""
    await make.credits(100)
    await make.finish(await make.leased("priced"))
    await make.finish(await make.leased("priced"), "failed")
    part = await make.leased("priced")
    await engine.finish(End(part, "succeeded", captured=2))
    entries = (await engine.entries(TENANT, ACCOUNT))[::-1]
    assert [entry.type for entry in entries if entry.type != "grant"] == [
        *("hold", "capture", "hold", "release", "hold", "capture"),
    ]
    available = held = 0
    for number, entry in enumerate(entries, start=1):
        assert entry.seq == number
        assert entry.available + entry.held + entry.outside == 0
        available, held = available + entry.available, held + entry.held
        assert (entry.available_after, entry.held_after) == (available, held)
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held) == (available, held) == (115 - 5 - 2, 0)


async def test_a_hold_of_nothing_is_no_entry_and_a_capture_of_nothing_is_a_release(
    engine: Engine, make: Factory
) -> None:
    await make.finish(await make.leased("free"))
    assert await engine.entries(TENANT, ACCOUNT) == []
    await engine.finish(End(await make.leased("priced"), "succeeded", captured=0))
    assert (await engine.entries(TENANT, ACCOUNT))[0].type == "release"


async def test_entries_come_in_pages_the_newest_first(engine: Engine) -> None:
    for amount in range(1, 6):
        await engine.grant(TENANT, ACCOUNT, amount)
    first = await engine.entries(TENANT, ACCOUNT, limit=2)
    second = await engine.entries(TENANT, ACCOUNT, limit=2, before=first[-1].seq)
    third = await engine.entries(TENANT, ACCOUNT, limit=2, before=second[-1].seq)
    assert [entry.available for entry in (*first, *second, *third)] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_a_page_of_entries_has_limits(db: Database, engine: Engine, limit: int) -> None:
    async with refused(db, InvalidError, field="limit"):
        await engine.entries(TENANT, ACCOUNT, limit=limit)
