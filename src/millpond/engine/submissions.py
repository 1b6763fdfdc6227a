"""Submissions: what providers were asked to do for jobs. Written before they are asked, and kept until all is done."""

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

SQL: Final = queries("millpond.engine", "submissions")

LOOKS: Final = Backoff(first=timedelta(seconds=1), factor=1.5, longest=timedelta(seconds=30))
"""How long the reconciler waits after its first, second, … look."""
FORSAKEN: Final = timedelta(hours=1)
"""After so long without a look, nobody anywhere looks after the submissions of a provider."""
MARK: Final = timedelta(seconds=60)
"""For how long a submission is one reconciler's, or its sender's: longer than a call may take."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What an attempt goes on with: something to be sent, or what the provider has heard of."""

    id: UUID
    status: str
    prediction_id: str | None
    seconds_left: float
    """Until the deadline of the job."""
    looks: int
    kept: str | None
    """What came of it, where an attempt has collected that."""


@dataclass(frozen=True, slots=True)
class Look:
    """A submission that is due, with where its job is."""

    id: UUID
    tenant: str
    job_id: UUID
    status: str
    prediction_id: str | None
    looks: int
    mark: datetime
    """Until when it is ours; whoever finds another mark knows that it was hurried meanwhile."""
    is_past: bool
    """Whether the job has reached its deadline."""
    is_ended: bool
    """Whether the job, or the run of it that this is for, has ended."""
    phase: str


async def begin(db: Database, tenant: str, job_id: UUID, epoch: int, provider: str, *, part: str = "") -> Begun:
    """The submission of an attempt for a part of its job; raises where the attempt has lost that."""
    row = await db.run(SQL["begin"], tenant, job_id, epoch, new_id(), provider, part, MARK)
    if row is None:
        raise LeaseLostError
    return Begun(*row)


async def sent(db: Database, submission_id: UUID, prediction_id: str) -> str:
    """The provider has taken it; tells where it stands."""
    return str((await db.run(SQL["sent"], submission_id, prediction_id, LOOKS.first))["status"])


async def hold(db: Database, begun: Begun, seconds: float) -> None:
    """It was not sent, and is to be after so many seconds, or more: the more often it was held."""
    chance = random.random()  # noqa: S311 - jitter
    asked = timedelta(seconds=seconds * (1 + LOOKS.jitter * chance))
    await db.run(SQL["hold"], begun.id, max(asked, LOOKS.delay(begun.looks + 1, chance)))


async def refuse(db: Database, submission_id: UUID) -> None:
    """The provider will never take it."""
    await db.run(SQL["refuse"], submission_id)


async def keep(db: Database, submission_id: UUID, made: str) -> str:
    """What came of a part is in storage; tells what counts of it: the first that was kept."""
    row = await db.run(SQL["keep"], submission_id, made)
    if row is None:
        raise LeaseLostError
    return str(row["kept"])


async def hurry(db: Database, job_id: UUID) -> None:
    """Let the reconciler look at what was submitted for a job at once."""
    await db.run(SQL["hurry"], job_id)


async def hurry_over(db: Database, job_id: UUID) -> None:
    """The same for what the provider is done with, where the job was parked just now."""
    await db.run(SQL["hurry_over"], job_id)


async def take(db: Database, provider: str, most: int) -> list[Look]:
    """What is due of a provider; it is ours until the mark."""
    return [Look(*row) for row in await db.run(SQL["take"], provider, most, MARK)]


async def later(db: Database, look: Look, after: timedelta) -> None:
    await db.run(SQL["later"], look.id, look.mark, after)


async def over(db: Database, look: Look) -> None:
    """The provider is done with it; the job is still to be told."""
    await db.run(SQL["over"], look.id)


async def close(db: Database, look: Look) -> None:
    """There is no more to do, unless its name became known meanwhile."""
    await db.run(SQL["close"], look.id, look.prediction_id)


async def strangers(db: Database, providers: Sequence[str]) -> list[str]:
    """The providers beside these whose submissions nobody looks at."""
    return [str(row["provider"]) for row in await db.run(SQL["strangers"], list(providers), FORSAKEN)]


async def forsake(db: Database, providers: Sequence[str], most: int) -> int:
    """Close what none but these providers would have to be asked about, once its job has ended."""
    return len(await db.run(SQL["forsake"], list(providers), FORSAKEN, most))


async def prune(db: Database, older: timedelta, most: int) -> int:
    return len(await db.run(SQL["prune"], older, most))
