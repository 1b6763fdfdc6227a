"""Ledger: what an account has, what is held for its jobs, and every entry that made it so.

Holds and settlements are not made here: they are written with the job they belong to, in its commit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, values
from millpond.errors import (
    AmountError,
    ConflictError,
    InsufficientCreditsError,
    InvalidError,
    NotFoundError,
    RefundUnavailableError,
)
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from millpond.store.db import Door, Row

SQL: Final = queries("millpond.engine", "ledger")

PAGE_MAX: Final = 1_000
_LAST: Final = 2**63 - 1
_REFERENCE_MAX: Final = 255
_DIGEST: Final = 32
REFUND: Final = "refund:"
"""What the references of refunds begin with; no other may."""
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
class Refund:
    """What was given back of a job's price, when, and what its account has after it."""

    job_id: UUID
    amount: int
    available: int
    at: datetime
    is_replay: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """Which end of a job is meant, by the run that ended so, and the errand that means it."""

    errand: str
    run: int

    def reference(self, job: str) -> str:
        """What a refund by the errand is known by."""
        return f"{REFUND}{job}:{self.run}:{self.errand}"


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


async def refund(  # noqa: PLR0917 - the columns of its statement
    db: Door,
    tenant: str,
    job_id: UUID | str,
    amount: int | None,
    key: str | None,
    reason: str,
    actor: str,
    seen: Seen | None = None,
) -> Refund:
    """Give back what an ended job has cost: so much of it, or all that is left.

    The rest is given back once, whoever asks for it. A part is, too, for each key: without one it is the amount and
    the reason that make it the same. An errand means the end that it has seen, and knows again what it gave back.
    """
    number = ids.parse("job", job_id)
    if amount is not None:
        values.check_amount(amount, field="amount", least=1)
    _check_words(reason=reason)
    if amount is not None:
        given = f"{amount}:{reason}" if key is None else values.check_key(key)
        named = hashlib.sha256(given.encode()).hexdigest()[:_DIGEST]
    else:
        named = None if seen is None else seen.errand
    run = None if seen is None else seen.run
    row = await db.run(SQL["refund"], tenant, number, amount, named, reason, actor, run)
    match row["verdict"]:
        case "posted" | "repeated":
            return Refund(number, row["given"], row["available"], row["at"], is_replay=row["verdict"] == "repeated")
        case "absent":
            raise NotFoundError(f"There is no job {ids.text('job', number)!r}.", field="id")
        case "running":
            raise RefundUnavailableError(
                "The job has not ended: nothing was captured yet.", hint="Cancel it, or wait for its end."
            )
        case "passed":
            raise RefundUnavailableError("The job was run again since: its end is not the one that was meant.")
        case "mismatch":
            raise ConflictError("The reference was used for something else.", field="amount")
        case _:
            raise RefundUnavailableError(_left(row), captured=row["captured"], refunded=row["refunded"])


def _left(row: Row) -> str:
    if not row["captured"]:
        return "The job has cost nothing."
    left = row["captured"] - row["refunded"]
    return f"Of the {row['captured']} credits that the job has cost, {left} are left to give back."


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
    _check_words(reference=reference, reason=reason)
    if reference is not None and reference.startswith(REFUND):
        raise InvalidError(
            f"References that begin with {REFUND!r} are those of refunds.",
            field="reference",
            hint="Use another one; to give back what a job has cost, refund the job.",
        )
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


def _check_words(**words: str | None) -> None:
    for field, given in words.items():
        if given is not None and len(given) > _REFERENCE_MAX:
            raise InvalidError(f"It may have at most {_REFERENCE_MAX} characters.", field=field)
        if given is not None:
            values.check(given, field=field)
