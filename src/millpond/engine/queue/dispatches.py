"""Dispatches: the SQL file has the queue's half of every verb; this module decides where a claim starts to search.

A table with inserts at one end and deletes at the other collects dead rows at its head. While an old snapshot keeps
vacuum from removing them, a claim that starts at the head scans all of them, every time. So each process remembers, for
each queue and rank, the last position that it claimed, and starts there. A job behind that position (a requeued job,
one whose transaction committed late, a new rank) is found by a scan of the whole queue once a second, or less often if
that scan has become slow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.store.db import Row

SQL: Final = queries("millpond.engine.queue", "dispatches")

CANCEL_TOPIC: Final = "cancel:"
BACK_TOPIC: Final = "back:"

_RANK_MIN: Final = -32_768
_RANK_MAX: Final = 32_767
_START: Final = (-1, UUID(int=0))
_SCAN_EVERY: Final = 1.0
_SLOW: Final = 0.1
_SCAN_SHARE: Final = 20  # scans of whole queues may take one part in 20 of the time


@dataclass(slots=True)
class Lanes:
    """Where a claim starts in each queue that a worker serves."""

    queues: Sequence[str]
    marks: dict[tuple[str, int], tuple[int, UUID]] = field(default_factory=dict[tuple[str, int], tuple[int, UUID]])
    look_at: float = 0.0
    took: float = 0.0
    """How many seconds the last scan of the whole queues took."""
    resting: frozenset[str] = frozenset()
    """Queues that are skipped for now."""
    is_full: bool = False
    """Whether the last claim ended early: there may be more jobs, also behind the position that it reached."""

    def columns(self, now: float | None = None) -> tuple[bool, list[list[object]]]:
        """Whether these lanes are the whole queues, and the lanes as columns."""
        now = time.monotonic() if now is None else now
        whole = now >= self.look_at
        lanes: Iterable[tuple[object, ...]]
        if whole:
            self.look_at = now + _SCAN_EVERY
            lanes = [(queue, _RANK_MIN, _RANK_MAX, *_START) for queue in self.queues if queue not in self.resting]
        else:
            placed = sorted(self.marks.items())
            lanes = [(queue, rank, rank, *mark) for (queue, rank), mark in placed if queue not in self.resting]
        return whole, [list(column) for column in zip(*lanes, strict=True)]

    def claimed(self, rows: Sequence[Row], *, whole: bool, took: float, is_full: bool = False) -> None:
        """Remember the positions that a claim reached."""
        for row in rows:
            self.marks[row["queue"], row["rank"]] = (row["turn"], row["job_id"])
        if whole and not rows:
            self.marks.clear()
        self.took = took if whole else self.took
        if whole and self.look_at:  # unless a notification came meanwhile
            self.look_at += took * _SCAN_SHARE
        self.is_full = is_full
        if is_full:
            self.rescan()

    def notified(self, queues: Iterable[str]) -> None:
        """Jobs were added at the end of these queues. A queue without a position is scanned from its head."""
        placed = {queue for queue, _ in self.marks}
        if not placed.issuperset(queues):
            self.look_at = 0.0

    def poll_all_soon(self) -> None:
        """A poll that does not wait got nothing: scan the whole queues next, unless that has become slow."""
        if self.took < _SLOW:
            self.look_at = 0.0

    def rescan(self) -> None:
        """Jobs were added to a queue behind the position that was reached."""
        self.look_at = 0.0
