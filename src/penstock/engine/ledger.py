"""Ledger: what an account has, what is held for its jobs, and every entry that made it so.

Holds and settlements are not made here: they are written with the job they belong to, in its commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock import values
from penstock.errors import AmountError, ConflictError, InsufficientCreditsError, InvalidError
from penstock.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from penstock.store.db import Door

SQL: Final = queries("penstock.engine", "ledger")

PAGE_MAX: Final = 1_000
_LAST: Final = 2**63 - 1
_REFERENCE_MAX: Final = 255
ACTIVE_MAX: Final = 1_000_000


class Bill:
    """What a batch of jobs costs its accounts, these in the order of their names, and how it adds up job by job."""

    __slots__ = ("counts", "holds", "names", "nths", "payers", "spents", "sums")

    def __init__(self, jobs: Iterable[tuple[str, str, int]]) -> None:
        charges = list(jobs)
        self.names = sorted({(tenant, account) for tenant, account, _ in charges})
        self.sums, self.counts, self.holds = ([0] * len(self.names) for _ in range(3))
        self.payers: list[int] = []
        """For each job the place of its account, from 1 on."""
        self.nths: list[int] = []
        self.spents: list[int] = []
        places = {name: place for place, name in enumerate(self.names)}
        for tenant, account, price in charges:
            place = places[tenant, account]
            self.sums[place] += price
            self.counts[place] += 1
            self.holds[place] += price > 0
            self.payers.append(place + 1)
            self.nths.append(self.holds[place])
            self.spents.append(self.sums[place])

    def columns(self) -> list[list[Any]]:
        tenants, accounts = ([name[side] for name in self.names] for side in (0, 1))
        payers = [1] if len(self.names) == 1 else self.payers
        return [payers, self.nths, self.spents, tenants, accounts, self.sums, self.counts, self.holds]


@dataclass(frozen=True, slots=True)
class Balance:
    """What an account has and what is held for its jobs."""

    tenant: str
    account: str
    available: int
    held: int
    active: int
    active_max: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One balanced transaction over three purses: available, held, and outside."""

    seq: int
    at: datetime
    type: str
    available: int
    held: int
    outside: int
    available_after: int
    held_after: int
    job_id: UUID | None
    run: int | None
    reference: str | None
    reason: str | None


async def grant(
    db: Door, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
) -> int:
    """Top an account up; the same reference grants once. Tells what is available now."""
    values.check_amount(amount, field="amount", least=1)
    return await _post(db, "grant", tenant, account, amount, reference=reference, reason=reason)


async def adjust(db: Door, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str) -> int:
    """Put an account right, up or down, with the reason why; never below zero."""
    if values.check_amount(amount, field="amount", least=-values.AMOUNT_MAX) == 0:
        raise AmountError("It must not be zero.", field="amount")
    return await _post(db, "adjust", tenant, account, amount, reference=reference, reason=reason)


async def balance(db: Door, tenant: str, account: str) -> Balance:
    """What an account has; one that was never used has nothing."""
    row = await db.run(SQL["balance"], tenant, account)
    return Balance(**row) if row else Balance(tenant, account, 0, 0, 0, None)


async def entries(db: Door, tenant: str, account: str, *, before: int | None = None, limit: int = 50) -> list[Entry]:
    """One page of entries, the newest first."""
    values.check_limit(limit, PAGE_MAX)
    found = await db.run(SQL["entries"], tenant, account, _LAST if before is None else before, limit)
    return [Entry(**row) for row in found]


async def set_cap(db: Door, tenant: str, account: str, active_max: int | None) -> Balance:
    """Limit how many jobs an account may have active at once."""
    values.check_name(tenant, field="tenant")
    values.check_name(account, field="account")
    check_cap(active_max)
    return Balance(**await db.run(SQL["set_cap"], tenant, account, active_max))


def check_cap(active_max: int | None) -> None:
    if active_max is not None and not 0 <= active_max <= ACTIVE_MAX:
        raise InvalidError(f"It must be from 0 to {ACTIVE_MAX:,}.", field="active_max")


async def open_accounts(db: Door, names: Iterable[tuple[str, str]]) -> None:
    tenants, accounts = zip(*names, strict=True)
    await db.run(SQL["open_accounts"], list(tenants), list(accounts))


async def _post(
    db: Door, word: str, tenant: str, account: str, amount: int, *, reference: str | None, reason: str | None
) -> int:
    values.check_name(tenant, field="tenant")
    values.check_name(account, field="account")
    for field, given in (("reference", reference), ("reason", reason)):
        if given is not None and len(given) > _REFERENCE_MAX:
            raise InvalidError(f"It may have at most {_REFERENCE_MAX} characters.", field=field)
        if given is not None:
            values.check(given, field=field)
    row = await db.run(SQL["post"], word, tenant, account, amount, reference, reason)
    match row["verdict"]:
        case "mismatch":
            raise ConflictError("The reference was used for something else.", field="reference")
        case "short":
            raise InsufficientCreditsError(
                f"The account has {row['available']} credits available.",
                required=-amount,
                available=row["available"],
            )
        case _:
            return int(row["available"])
