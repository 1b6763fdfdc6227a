"""Chunks: the text that running jobs emit, in pieces. They are deleted soon after the job has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond import logs
from millpond.errors import InvalidError, LeaseLostError
from millpond.store.queries import queries
from millpond.work import TEXT_MAX, Chunk, gated, too_long

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.store.db import Database, Executor, Row
    from millpond.work import Lease

SQL: Final = queries("millpond.engine.jobs", "chunks")

KEPT: Final = timedelta(minutes=5)
"""How long the chunks of an ended job are kept, for readers that are slow or have to reconnect."""


async def emit(db: Executor, groups: Sequence[Sequence[Chunk]]) -> list[bool | Exception]:
    """Write chunks of jobs: each group has those of one lease, which are all written, or none.

    Each result is whether the job must stop, or why the chunks were refused. Chunks that were written before are not
    written again.
    """
    chunks = [chunk for group in groups for chunk in group]
    found = await db.run(
        SQL["emit"],
        [chunk.lease.job_id for chunk in chunks],
        [chunk.lease.token for chunk in chunks],
        [chunk.number for chunk in chunks],
        [chunk.text for chunk in chunks],
        TEXT_MAX,
    )
    verdicts = {(row["job_id"], row["token"]): row for row in found}
    return [_result(verdicts.get((group[0].lease.job_id, group[0].lease.token)), group[0].lease) for group in groups]


async def prune(db: Database, limit: int) -> int:
    """Delete the chunks of jobs that have ended, and return their number. A statement looks at ``limit`` jobs."""
    pruned, last = 0, UUID(int=0)
    while last is not None:
        row = await db.run(SQL["prune"], KEPT, last, limit)
        pruned, last = pruned + int(row["jobs"]), row["last"]
    return pruned


def _result(verdict: Row | None, lease: Lease) -> bool | Exception:
    if verdict is None:
        logs.emit("lease.lost", job_id=lease.job_id)
        return LeaseLostError()
    match verdict["verdict"]:
        case "gap":
            following = verdict["last"] + 1
            return InvalidError(
                f"The next chunk of the job has number {following}: chunks are numbered without gaps.", field="number"
            )
        case "full":
            return too_long()
        case "gated":
            return gated(lease.kind)
        case _:  # written, or repeated
            return bool(verdict["is_canceling"])
