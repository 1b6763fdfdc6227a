"""Holds: the credits that are held for jobs, the oldest first; and the wallets of all tenants.

A hold is as old as its job, unless the job was retried in place. So the dispatches, which contain every unended job in
the order of creation, also give the order of the holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond import values
from millpond.engine.credits.ledger import Balance
from millpond.engine.reads import health
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from millpond.engine.engine import Engine

SQL: Final = queries("millpond.engine.credits", "holds")

PAGE_MAX: Final = 200
AGES: Final = (60, 600, 3_600, 21_600, 86_400, 604_800, None)
"""The upper bounds of the age groups, in seconds; the last group has none."""
_STEP: Final = 1_000
"""How many jobs one statement examines to fill a page."""
_FIRST: Final = UUID(int=0)
_END: Final = "~"
"""Sorts after every name."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold of a job."""

    job_id: UUID
    tenant: str
    account: str
    kind: str
    state: str
    phase: str
    price: int
    held_at: datetime


@dataclass(slots=True)
class Age:
    """The holds of an age group: up to ``seconds`` old, and older than the group before."""

    seconds: int | None
    jobs: int = 0
    credits: int = 0


@dataclass(frozen=True, slots=True)
class HoldPage:
    """Some holds, the oldest first, and the id that the next page starts ``after``; none on the last page."""

    data: Sequence[Hold]
    after: UUID | None


@dataclass(frozen=True, slots=True)
class WalletPage:
    """Some wallets, and the tenant and account that the next page starts ``after``; none on the last page."""

    data: Sequence[Balance]
    after: tuple[str, str] | None


async def page(engine: Engine, tenant: str | None, *, after: UUID | None = None, limit: int = 50) -> HoldPage:
    """One page, the oldest first. A page can be short or empty without being the last: free jobs have no hold."""
    values.check_limit(limit, PAGE_MAX)
    found: list[Hold] = []
    stop = after or _FIRST
    for _ in range(health.COUNT_MAX // _STEP):
        own, stop = await _live(engine, tenant, stop, _STEP)
        rows = await engine.tenant_databases.gather(SQL["priced"], own, limit + 1) if own else ()
        found += sorted((Hold(*row) for row in rows), key=lambda hold: hold.job_id)
        if len(found) > limit or stop is None:
            break
    if len(found) > limit:
        found, stop = found[:limit], found[limit - 1].job_id
    return HoldPage(found, stop)


async def ages(engine: Engine, tenant: str | None) -> tuple[list[Age], bool]:
    """The holds of the oldest jobs by age, and whether there are more jobs than were examined."""
    found = [Age(seconds) for seconds in AGES]
    own, stop = await _live(engine, tenant, _FIRST, health.COUNT_MAX)
    if own:
        bounds = [float(seconds) for seconds in AGES if seconds is not None]
        for row in await engine.tenant_databases.gather(SQL["aged"], own, bounds):
            place: int = row["place"]
            age = found[place]
            age.jobs += row["jobs"]
            age.credits += row["credits"]
    return found, stop is not None


async def _live(engine: Engine, tenant: str | None, after: UUID, limit: int) -> tuple[list[UUID], UUID | None]:
    """The tenant's jobs among the next ``limit`` unended ones, and the id where the walk stopped; none at the end."""
    row = await engine.db.run(SQL["live"], after, tenant, limit)
    return row["job_ids"], row["stop"]


async def wallets(
    engine: Engine,
    tenant: str | None,
    *,
    prefix: str = "",
    after: tuple[str, str] | None = None,
    limit: int = 50,
) -> WalletPage:
    """One page, by tenant and account. ``prefix`` filters the accounts; without a tenant, the tenants."""
    values.check_limit(limit, PAGE_MAX)
    if tenant is None:
        low, high = (prefix, ""), (prefix + _END, "")
    else:
        low, high = (tenant, prefix), (tenant, prefix + _END)
    rows = await engine.tenant_databases.gather(SQL["wallets"], *low, *high, *(after or ("", "")), limit + 1)
    found = sorted((Balance(**row) for row in rows), key=lambda wallet: (wallet.tenant, wallet.account))
    if len(found) > limit:
        last = found[limit - 1]
        return WalletPage(found[:limit], (last.tenant, last.account))
    return WalletPage(found, None)
