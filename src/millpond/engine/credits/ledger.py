"""Ledger: the balances of accounts, their holds, and the entries that both result from.

Holds and settlements are not made here: they are written with their job, in the same commit.
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

    from millpond.store.db import Executor, Row

SQL: Final = queries("millpond.engine.credits", "ledger")

PAGE_MAX: Final = 1_000
_LAST: Final = 2**63 - 1
_REFERENCE_MAX: Final = 255
_DIGEST: Final = 32
REFUND: Final = "refund:"
"""The prefix of the references of refunds; no other reference may begin with it."""
ACTIVE_MAX: Final = 1_000_000


class Bill:
    """The cost of a batch of jobs: per account, ordered by name, and as running totals job by job."""

    __slots__ = ("counts", "holds", "names", "nths", "payers", "spents", "sums")

    def __init__(self, jobs: Iterable[tuple[str, str, int]]) -> None:
        charges = list(jobs)
        self.names = sorted({(tenant, account) for tenant, account, _ in charges})
        self.sums, self.counts, self.holds = ([0] * len(self.names) for _ in range(3))
        self.payers: list[int] = []
        """For each job the 1-based index of its account."""
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
    """The wallet of an account."""

    tenant: str
    account: str
    available: int
    held: int
    active: int
    active_max: int | None


@dataclass(frozen=True, slots=True)
class Refund:
    """A refund of a job: the amount, the account's balance after it, and the time."""

    job_id: UUID
    amount: int
    available: int
    at: datetime
    is_replay: bool


@dataclass(frozen=True, slots=True)
class RefundTarget:
    """The end of a job that a bulk operation refunds, identified by the job's run."""

    operation: str
    run: int

    def reference(self, job: str) -> str:
        """The reference of a refund by the bulk operation."""
        return f"{REFUND}{job}:{self.run}:{self.operation}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger: a change of available, held and outside, which adds up to zero."""

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
    db: Executor, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
) -> int:
    """Add credits to an account, once for each reference, and return the available balance."""
    values.check_amount(amount, field="amount", minimum=1)
    return await _post(db, "grant", tenant, account, amount, reference=reference, reason=reason)


async def adjust(
    db: Executor, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str
) -> int:
    """Correct a balance up or down, never below zero, and return the available balance."""
    if values.check_amount(amount, field="amount", minimum=-values.AMOUNT_MAX) == 0:
        raise AmountError("The amount must not be zero.", field="amount")
    return await _post(db, "adjust", tenant, account, amount, reference=reference, reason=reason)


async def refund(  # noqa: PLR0917 - the columns of its statement
    db: Executor,
    tenant: str,
    job_id: UUID | str,
    amount: int | None,
    key: str | None,
    reason: str,
    actor: str,
    seen: RefundTarget | None = None,
) -> Refund:
    """Refund what an ended job has cost: ``amount``, or all that has not been refunded yet.

    The remainder is refunded once, whoever requests it. A part is refunded once for each key; without a key, the amount
    and the reason identify it. A bulk operation refunds the end that it has seen, and recognises its own earlier
    refund.
    """
    number = ids.parse("job", job_id)
    if amount is not None:
        values.check_amount(amount, field="amount", minimum=1)
    _check_texts(reason=reason)
    if amount is not None:
        identity = f"{amount}:{reason}" if key is None else values.check_key(key)
        name = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST]
    else:
        name = None if seen is None else seen.operation
    run = None if seen is None else seen.run
    row = await db.run(SQL["refund"], tenant, number, amount, name, reason, actor, run)
    match row["verdict"]:
        case "posted" | "repeated":
            return Refund(number, row["given"], row["available"], row["at"], is_replay=row["verdict"] == "repeated")
        case "absent":
            raise NotFoundError(f"There is no job {ids.text('job', number)!r}.", field="id")
        case "running":
            raise RefundUnavailableError(
                "The job has not ended, and nothing was captured yet.",
                hint="Cancel the job, or wait until it has ended.",
            )
        case "passed":
            raise RefundUnavailableError("The job was retried after the end that the refund is for.")
        case "mismatch":
            raise ConflictError("The reference was already used for something else.", field="amount")
        case _:
            raise RefundUnavailableError(_left(row), captured=row["captured"], refunded=row["refunded"])


def _left(row: Row) -> str:
    if not row["captured"]:
        return "The job was not charged."
    left = row["captured"] - row["refunded"]
    return f"The job was charged {row['captured']} credits, of which {left} can still be refunded."


async def balance(db: Executor, tenant: str, account: str) -> Balance:
    """The wallet of an account; all zero if the account was never used."""
    row = await db.run(SQL["balance"], tenant, account)
    return Balance(**row) if row else Balance(tenant, account, 0, 0, 0, None)


async def entries(
    db: Executor, tenant: str, account: str, *, before: int | None = None, limit: int = 50
) -> list[Entry]:
    """One page of entries, the newest first."""
    values.check_limit(limit, PAGE_MAX)
    found = await db.run(SQL["entries"], tenant, account, _LAST if before is None else before, limit)
    return [Entry(**row) for row in found]


async def set_cap(db: Executor, tenant: str, account: str, active_max: int | None) -> Balance:
    """Limit how many jobs an account may have active at once."""
    values.check_name(tenant, field="tenant")
    values.check_name(account, field="account")
    check_cap(active_max)
    return Balance(**await db.run(SQL["set_cap"], tenant, account, active_max))


def check_cap(active_max: int | None) -> None:
    if active_max is not None and not 0 <= active_max <= ACTIVE_MAX:
        raise InvalidError(f"The limit must be from 0 to {ACTIVE_MAX:,}.", field="active_max")


async def open_accounts(db: Executor, names: Iterable[tuple[str, str]]) -> None:
    tenants, accounts = zip(*names, strict=True)
    await db.run(SQL["open_accounts"], list(tenants), list(accounts))


async def _post(
    db: Executor, entry_type: str, tenant: str, account: str, amount: int, *, reference: str | None, reason: str | None
) -> int:
    values.check_name(tenant, field="tenant")
    values.check_name(account, field="account")
    _check_texts(reference=reference, reason=reason)
    if reference is not None and reference.startswith(REFUND):
        raise InvalidError(
            f"References that begin with {REFUND!r} are reserved for refunds.",
            field="reference",
            hint="Use another reference. To return the charge of a job, refund the job.",
        )
    row = await db.run(SQL["post"], entry_type, tenant, account, amount, reference, reason)
    match row["verdict"]:
        case "mismatch":
            raise ConflictError("The reference was already used for something else.", field="reference")
        case "short":
            raise InsufficientCreditsError(
                f"The account has {row['available']} available credits.",
                required=-amount,
                available=row["available"],
            )
        case _:
            return int(row["available"])


def _check_texts(**texts: str | None) -> None:
    for field, given in texts.items():
        if given is not None and len(given) > _REFERENCE_MAX:
            raise InvalidError(f"The {field} may have at most {_REFERENCE_MAX} characters.", field=field)
        if given is not None:
            values.check(given, field=field)
