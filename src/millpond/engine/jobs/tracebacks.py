"""Tracebacks of attempts, for operators. Clients see the code and the message of an error only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.store.queries import queries
from millpond.worker import tracebacks

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.store.db import Executor
    from millpond.work import Lease

SQL: Final = queries("millpond.engine.jobs", "tracebacks")

KEPT: Final = 10
"""Of how many epochs of a job the tracebacks are kept."""


async def keep(db: Executor, lease: Lease, text: str) -> None:
    """Store the traceback of an attempt before its end is reported; does nothing if the lease is lost."""
    await db.run(SQL["keep"], lease.job_id, lease.epoch, tracebacks.stored(text), KEPT)


async def of_job(db: Executor, tenant: str, job_id: UUID) -> dict[int, str]:
    """The tracebacks of a job, by the epoch of the attempt."""
    return {row["epoch"]: str(row["text"]) for row in await db.run(SQL["of_job"], job_id, tenant)}
