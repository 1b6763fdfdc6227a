"""Timelines: the life of a job as spans of time, and its attempts, computed from its events.

An event has a time; a span lies between two events. If a job has more events than are read, those in the middle are
left out: both ends of the timeline are right, and it says how many events are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.lifecycle import LIFECYCLE_EVENTS, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

NOTES: Final = frozenset({"stage", "progress", "log", "text_started"})
"""The events that only the worker of a job writes."""
_MAY_WAIT: Final = frozenset({"submitted", "requeued", "retried"})
"""Events after which a job is ready at once, unless it has a start time in the future."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event, with as much of its data as a timeline needs."""

    seq: int
    at: datetime
    type: str
    stage: str | None = None
    cause: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The present state of a job, which determines its last span and the numbers of its attempts."""

    phase: str
    run: int
    epoch: int
    run_at: datetime | None = None


@dataclass(slots=True)
class Span:
    """A part of a job's life; without an end, it lasts until now."""

    phase: str
    stage: str | None
    attempt: int
    """The number of the attempt that it belongs to or follows; 0 before the first."""
    start: datetime
    end: datetime | None = None


@dataclass(slots=True)
class Attempt:
    """One attempt of a worker at a job, and what ended it."""

    number: int
    run: int
    start: datetime
    end: datetime | None = None
    outcome: str | None = None
    """An outcome of a job, or ``requeued``, ``parked``, ``delivering``; None while it lasts, or if its end was left
    out.
    """
    cause: str | None = None
    """Why it was requeued: attempt, interruption or lapse."""
    code: str | None = None
    worker: str | None = None


@dataclass(slots=True)
class Timeline:
    """How a job spent its time."""

    spans: list[Span] = field(default_factory=list[Span])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    left_out: int = 0
    """How many events in the middle were not read."""


def timeline(stance: Standing, events: Sequence[TimelineEvent]) -> Timeline:
    """The timeline of a job, from its events in order; there may be one gap in their numbers."""
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
    """Builds a timeline event by event, and keeps the open span and attempt."""

    def __init__(self, stance: Standing) -> None:
        self.timeline = Timeline()
        self._stance = stance
        self._number = 0
        self._run = 1
        self._span: Span | None = None
        self._attempt: Attempt | None = None

    def read(self, events: Sequence[TimelineEvent]) -> None:
        for place, event in enumerate(events):
            if event.type == "stage":
                self._enter_stage(event)
            elif event.type in LIFECYCLE_EVENTS:
                self._apply(event, self._phase_after(event, events[place + 1 :]))

    def jump(self, head: Sequence[TimelineEvent], tail: Sequence[TimelineEvent]) -> None:
        """Continue after a gap. What was open continues across it if it is the same attempt on both sides."""
        self.timeline.left_out = tail[0].seq - head[-1].seq - 1
        number = self._stance.epoch - sum(event.type == "started" for event in tail)
        run = self._stance.run - sum(event.type == "retried" for event in tail)
        is_held = tail[0].type in NOTES
        if self._attempt is not None and is_held and number == self._number:
            return
        self._end_span(head[-1].at)
        if self._attempt is not None:
            self._attempt.end = head[-1].at  # the last event before the gap
        self._attempt, self._number, self._run = None, number, run
        if is_held:
            self._attempt = self._begin_attempt(tail[0].at)
            self._begin_span("leased", tail[0].at)

    def close(self) -> None:
        """Leave the last span open until now, unless the job has ended."""
        if self._stance.phase == "ended":
            self._span = None

    def _apply(self, event: TimelineEvent, phase: str) -> None:
        if event.type == "answered" and self._attempt is not None:
            return  # its worker received the answer at once and kept the job
        if event.type == "retried":
            self._run += 1
        self._end_span(event.at)
        if self._attempt is not None:
            self._end_attempt(self._attempt, event)
        if phase == "leased":
            self._number += 1
            self._attempt = self._begin_attempt(event.at)
        if phase != "ended":
            self._begin_span(phase, event.at)

    def _phase_after(self, event: TimelineEvent, later: Sequence[TimelineEvent]) -> str:
        """The phase after an event. After one of ``_MAY_WAIT``, the job has waited if it is queued next."""
        if event.type not in _MAY_WAIT:
            return LIFECYCLE_EVENTS[event.type]
        events = (other.type for other in later if other.type in LIFECYCLE_EVENTS)
        waits = next(events, "queued" if self._stance.phase == "waiting" else None) == "queued"
        is_early = event.type == "submitted" and self._stance.run_at is not None and event.at < self._stance.run_at
        return "waiting" if waits or is_early else "ready"

    def _begin_attempt(self, at: datetime) -> Attempt:
        attempt = Attempt(self._number, self._run, at)
        self.timeline.attempts.append(attempt)
        return attempt

    def _end_attempt(self, attempt: Attempt, event: TimelineEvent) -> None:
        attempt.end, attempt.outcome, attempt.cause = event.at, event.type, event.cause
        attempt.code = event.code if event.type == "requeued" or event.type in OUTCOMES else None
        self._attempt = None

    def _enter_stage(self, event: TimelineEvent) -> None:
        if self._attempt is not None and self._span is not None and self._span.stage != event.stage:
            self._end_span(event.at)
            self._begin_span("leased", event.at, event.stage)

    def _begin_span(self, phase: str, at: datetime, stage: str | None = None) -> None:
        self._span = Span(phase, stage, self._number, at)
        self.timeline.spans.append(self._span)

    def _end_span(self, at: datetime) -> None:
        """End the open span. If a job could start at once, its waiting span is removed."""
        if self._span is None:
            return
        self._span.end = at
        if self._span.start == at and self._span.phase == "waiting":
            self.timeline.spans.remove(self._span)
        self._span = None
