"""Dispatches: the queue's half of every verb is in the SQL file; here is where a claim begins to look.

A table that is inserted into at one end and deleted from at the other leaves dead rows at its head. Where an old
snapshot keeps them from being cleaned away, a claim that starts at the head walks over all of them, every time.
So each process remembers, for each queue and rank, the last place it claimed and begins there. What appears
behind that place (a job that went back, one whose transaction committed late, a rank never seen) is found by a
look at the whole line once a second, or less often where that look has become dear.
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

SQL: Final = queries("millpond.engine", "dispatches")

CANCEL_TOPIC: Final = "cancel:"
BACK_TOPIC: Final = "back:"

_RANK_MIN: Final = -32_768
_RANK_MAX: Final = 32_767
_START: Final = (-1, UUID(int=0))
_LOOK_EVERY: Final = 1.0
_DEAR: Final = 0.1
_LOOK_SHARE: Final = 20  # a look at the whole line may take one part in so many of the time


@dataclass(slots=True)
class Lanes:
    """Where to begin a claim, for each queue a worker serves."""

    queues: Sequence[str]
    marks: dict[tuple[str, int], tuple[int, UUID]] = field(default_factory=dict[tuple[str, int], tuple[int, UUID]])
    look_at: float = 0.0
    took: float = 0.0
    """How long the last look at the whole line took."""
    resting: frozenset[str] = frozenset()
    """Queues that are passed over for now."""

    def columns(self, now: float | None = None) -> tuple[bool, list[list[object]]]:
        """The lanes to claim from, as columns, and whether they are the whole line."""
        now = time.monotonic() if now is None else now
        whole = now >= self.look_at
        lanes: Iterable[tuple[object, ...]]
        if whole:
            self.look_at = now + _LOOK_EVERY
            lanes = [(queue, _RANK_MIN, _RANK_MAX, *_START) for queue in self.queues if queue not in self.resting]
        else:
            placed = sorted(self.marks.items())
            lanes = [(queue, rank, rank, *mark) for (queue, rank), mark in placed if queue not in self.resting]
        return whole, [list(column) for column in zip(*lanes, strict=True)]

    def claimed(self, rows: Sequence[Row], *, whole: bool, took: float) -> None:
        """Remember how far a claim came."""
        for row in rows:
            self.marks[row["queue"], row["rank"]] = (row["turn"], row["job_id"])
        if whole and not rows:
            self.marks.clear()
        self.took = took if whole else self.took
        if whole and self.look_at:  # unless it rang meanwhile
            self.look_at += took * _LOOK_SHARE

    def rung(self, queues: Iterable[str]) -> None:
        """Something joined these lines at their end: one we have no place in yet must be looked at from its head."""
        placed = {queue for queue, _ in self.marks}
        if not placed.issuperset(queues):
            self.look_at = 0.0

    def hurry(self) -> None:
        """Somebody goes away with nothing who does not wait: look at the whole line, unless that has become dear."""
        if self.took < _DEAR:
            self.look_at = 0.0

    def rung_back(self) -> None:
        """Something joined a line behind the place we came to."""
        self.look_at = 0.0
