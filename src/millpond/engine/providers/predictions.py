"""Predictions: what providers were asked to do for jobs.

A prediction is stored before the provider is asked, and kept until everything is done.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond.errors import LeaseLostError
from millpond.retry import Backoff
from millpond.store.db import new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.providers", "predictions")

LOOKS: Final = Backoff(first=timedelta(seconds=1), factor=1.5, longest=timedelta(seconds=30))
"""How long the reconciler waits after its first, second, … look."""
ABANDONED_AFTER: Final = timedelta(hours=1)
"""If predictions have been due for this long, their provider is configured in no process."""
MARK: Final = timedelta(seconds=60)
"""How long a prediction is claimed by a reconciler or its sender: longer than a call may take."""


@dataclass(frozen=True, slots=True)
class StartedPrediction:
    """The prediction that an attempt continues with: to be submitted, or already known to the provider."""

    id: UUID
    status: str
    external_id: str | None
    seconds_left: float
    """Until the deadline of the job."""
    looks: int
    kept: str | None
    """Its result, if an attempt has stored it."""


@dataclass(frozen=True, slots=True)
class DuePrediction:
    """A prediction that is due, with the state of its job."""

    id: UUID
    tenant: str
    job_id: UUID
    status: str
    external_id: str | None
    looks: int
    mark: datetime
    """Until when it is claimed by this process; another mark means that a look was requested meanwhile."""
    is_past: bool
    """Whether the job has reached its deadline."""
    is_ended: bool
    """Whether the job, or the run of it that this is for, has ended."""
    phase: str


async def begin(
    db: Database, tenant: str, job_id: UUID, epoch: int, provider: str, *, part: str = ""
) -> StartedPrediction:
    """The prediction of an attempt for a part of its job; raises if the attempt has lost its job."""
    row = await db.run(SQL["begin"], tenant, job_id, epoch, new_id(), provider, part, MARK)
    if row is None:
        raise LeaseLostError
    return StartedPrediction(*row)


async def sent(db: Database, prediction_id: UUID, external_id: str) -> str:
    """Store the external id of a prediction that the provider has accepted; return its status."""
    return str((await db.run(SQL["sent"], prediction_id, external_id, LOOKS.first))["status"])


async def hold(db: Database, begun: StartedPrediction, seconds: float) -> None:
    """Postpone a prediction that was not sent by this many seconds, or more, the more often it was held."""
    chance = random.random()  # noqa: S311 - jitter
    asked = timedelta(seconds=seconds * (1 + LOOKS.jitter * chance))
    await db.run(SQL["hold"], begun.id, max(asked, LOOKS.delay(begun.looks + 1, chance)))


async def refuse(db: Database, prediction_id: UUID) -> None:
    """Store that the provider rejects a prediction for good."""
    await db.run(SQL["refuse"], prediction_id)


async def keep(db: Database, prediction_id: UUID, made: str) -> str:
    """Store the result of a part; return the result that counts, which is the first one."""
    row = await db.run(SQL["keep"], prediction_id, made)
    if row is None:
        raise LeaseLostError
    return str(row["kept"])


async def poll_now(db: Database, job_id: UUID) -> None:
    """Have the reconciler look at the predictions of a job at once."""
    await db.run(SQL["poll_now"], job_id)


async def poll_finished_now(db: Database, job_id: UUID) -> None:
    """The same for predictions that are over, if the job was parked just now."""
    await db.run(SQL["poll_finished_now"], job_id)


async def take(db: Database, provider: str, limit: int) -> list[DuePrediction]:
    """Claim the due predictions of a provider, until the mark."""
    return [DuePrediction(*row) for row in await db.run(SQL["take"], provider, limit, MARK)]


async def later(db: Database, look: DuePrediction, after: timedelta) -> None:
    await db.run(SQL["later"], look.id, look.mark, after)


async def over(db: Database, look: DuePrediction) -> None:
    """Store that the provider is done with a prediction; its job is still to be answered."""
    await db.run(SQL["over"], look.id)


async def close(db: Database, look: DuePrediction) -> None:
    """Store that a prediction is finished, unless its external id became known meanwhile."""
    await db.run(SQL["close"], look.id, look.external_id)


async def strangers(db: Database, providers: Sequence[str]) -> list[str]:
    """The providers other than these whose predictions no process looks at."""
    return [str(row["provider"]) for row in await db.run(SQL["strangers"], list(providers), ABANDONED_AFTER)]


async def close_abandoned(db: Database, providers: Sequence[str], limit: int) -> int:
    """Close predictions that no process looks at, of other providers, if their job has ended; return how many."""
    return len(await db.run(SQL["close_abandoned"], list(providers), ABANDONED_AFTER, limit))


async def prune(db: Database, older: timedelta, limit: int) -> int:
    return len(await db.run(SQL["prune"], older, limit))
