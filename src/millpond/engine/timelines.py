"""Timelines: the life of a job as stretches of time, and its attempts, read from what happened to it.

The events of a job say when something came to pass; a stretch is what lies between two of them. Where a job has more
events than are read, those in the middle are left out: what is said of the two ends is true, and that something is
missing is said too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.lifecycle import MOMENTS, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

NOTES: Final = frozenset({"stage", "progress", "log"})
"""What is written by whoever works on a job, and by nobody else."""
_MAY_WAIT: Final = frozenset({"submitted", "requeued", "retried"})
"""After which a job stands in line at once, unless its time has not come."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, with as much of its data as a timeline needs."""

    seq: int
    at: datetime
    type: str
    stage: str | None = None
    cause: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Stance:
    """Where a job stands now: what the last of its stretches is, and how its attempts are numbered."""

    phase: str
    run: int
    epoch: int
    run_at: datetime | None = None


@dataclass(slots=True)
class Span:
    """A stretch of a job's life; one without an end lasts until now."""

    phase: str
    stage: str | None
    attempt: int
    """The how manieth attempt it belongs to, or comes after; 0 before the first."""
    start: datetime
    end: datetime | None = None


@dataclass(slots=True)
class Attempt:
    """A worker's go at a job, and what ended it."""

    number: int
    run: int
    start: datetime
    end: datetime | None = None
    outcome: str | None = None
    """An outcome of a job, or requeued, parked, delivering; none while it lasts, or where its end was left out."""
    cause: str | None = None
    """Why it was requeued: attempt, interruption or lapse."""
    code: str | None = None
    worker: str | None = None


@dataclass(slots=True)
class Timeline:
    """All that is known of how a job spent its time."""

    spans: list[Span] = field(default_factory=list[Span])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    left_out: int = 0
    """How many events in the middle were not read."""


def timeline(stance: Stance, events: Sequence[Happening]) -> Timeline:
    """The stretches and attempts of a job, by its events in order; there may be one gap in their numbers."""
    made = _Maker(stance)
    cut = next((n for n in range(1, len(events)) if events[n].seq != events[n - 1].seq + 1), len(events))
    head, tail = events[:cut], events[cut:]
    made.read(head)
    if tail:
        made.jump(head, tail)
        made.read(tail)
    made.close()
    return made.timeline


class _Maker:
    """Reads events one after the other, and remembers what is open."""

    def __init__(self, stance: Stance) -> None:
        self.timeline = Timeline()
        self._stance = stance
        self._number = 0
        self._run = 1
        self._span: Span | None = None
        self._attempt: Attempt | None = None

    def read(self, events: Sequence[Happening]) -> None:
        for place, event in enumerate(events):
            if event.type == "stage":
                self._enter_stage(event)
            elif event.type in MOMENTS:
                self._pass(event, self._phase_after(event, events[place + 1 :]))

    def jump(self, head: Sequence[Happening], tail: Sequence[Happening]) -> None:
        """Go on behind a gap. What was under way goes on across it, where it is the same attempt on both sides."""
        self.timeline.left_out = tail[0].seq - head[-1].seq - 1
        number = self._stance.epoch - sum(event.type == "started" for event in tail)
        run = self._stance.run - sum(event.type == "retried" for event in tail)
        is_held = tail[0].type in NOTES
        if self._attempt is not None and is_held and number == self._number:
            return
        self._leave(head[-1].at)
        if self._attempt is not None:
            self._attempt.end = head[-1].at  # as far as anybody has read
        self._attempt, self._number, self._run = None, number, run
        if is_held:
            self._attempt = self._begun(tail[0].at)
            self._enter("leased", tail[0].at)

    def close(self) -> None:
        """What is open now is open until now; of a job that has ended, nothing is."""
        if self._stance.phase == "ended":
            self._span = None

    def _pass(self, event: Happening, phase: str) -> None:
        if event.type == "answered" and self._attempt is not None:
            return  # its worker had the answer at once, and did not let go
        if event.type == "retried":
            self._run += 1
        self._leave(event.at)
        if self._attempt is not None:
            self._end(self._attempt, event)
        if phase == "leased":
            self._number += 1
            self._attempt = self._begun(event.at)
        if phase != "ended":
            self._enter(phase, event.at)

    def _phase_after(self, event: Happening, later: Sequence[Happening]) -> str:
        """The phase that a moment leads to. What may have to wait for its time did so if it is queued next."""
        if event.type not in _MAY_WAIT:
            return MOMENTS[event.type]
        moments = (other.type for other in later if other.type in MOMENTS)
        waits = next(moments, "queued" if self._stance.phase == "waiting" else None) == "queued"
        is_early = event.type == "submitted" and self._stance.run_at is not None and event.at < self._stance.run_at
        return "waiting" if waits or is_early else "ready"

    def _begun(self, at: datetime) -> Attempt:
        attempt = Attempt(self._number, self._run, at)
        self.timeline.attempts.append(attempt)
        return attempt

    def _end(self, attempt: Attempt, event: Happening) -> None:
        attempt.end, attempt.outcome, attempt.cause = event.at, event.type, event.cause
        attempt.code = event.code if event.type == "requeued" or event.type in OUTCOMES else None
        self._attempt = None

    def _enter_stage(self, event: Happening) -> None:
        if self._attempt is not None and self._span is not None and self._span.stage != event.stage:
            self._leave(event.at)
            self._enter("leased", event.at, event.stage)

    def _enter(self, phase: str, at: datetime, stage: str | None = None) -> None:
        self._span = Span(phase, stage, self._number, at)
        self.timeline.spans.append(self._span)

    def _leave(self, at: datetime) -> None:
        """End what is open. A job that could start at once did not wait for its time at all."""
        if self._span is None:
            return
        self._span.end = at
        if self._span.start == at and self._span.phase == "waiting":
            self.timeline.spans.remove(self._span)
        self._span = None
