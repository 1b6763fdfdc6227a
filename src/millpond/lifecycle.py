"""A lifecycle: the states of a job and the transitions between them, as data.

The text table given to :func:`lifecycle` is the only definition of the transitions. The Python check, the rows used
by the database guard, the diagram and the exhaustive test are derived from it.

A transition is labelled with the engine *events* that trigger it, so that one engine serves every vocabulary: the
engine reports ``started``, and the table defines what that means for this product. An event without a transition
leaves the state unchanged, unless it would end the job: an end that the table does not define is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from millpond.errors import LifecycleError, TransitionDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

LIFECYCLE_EVENTS: Final[Mapping[str, Phase]] = MappingProxyType(
    {
        "submitted": "waiting",
        "queued": "ready",
        "started": "leased",
        "requeued": "ready",
        "parked": "parked",
        "answered": "ready",
        "resumed": "ready",
        "delivering": "delivering",
        "retried": "waiting",
        **dict.fromkeys(OUTCOMES, "ended"),
    }
)
"""A lifecycle event of a job, and the phase that it leads to."""

_KEEPS_STATE: Final = ("queued", "started", "requeued", "parked", "answered", "delivering")
_ARROW: Final = re.compile(r"(?P<source>\*|\w+)\s*->\s*(?P<target>\w+)\s+(?P<events>\w+(?:\s+\w+)*)")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition for one event; ``source`` is ``None`` for the creation of a job."""

    source: str | None
    event: str
    target: str


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """A state with the phase in which it begins, and the outcome if it is terminal."""

    name: str
    phase: Phase
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The states and transitions of a product's jobs, checked when it is created."""

    name: str
    initial: str
    states: Mapping[str, LifecycleState]
    transitions: tuple[Transition, ...]

    def after(self, state: str, event: str) -> str:
        """The state that the event leads to; raises an error if there is none."""
        for transition in self.transitions:
            if transition.source == state and transition.event == event:
                return transition.target
        raise TransitionDeniedError(
            f"The event {event!r} is not allowed in state {state!r} of lifecycle {self.name!r}.",
            state=state,
            event=event,
        )

    def allows(self, source: str, target: str) -> bool:
        return (source, target) in self.pairs

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Every transition between two states."""
        return frozenset(
            (transition.source, transition.target)
            for transition in self.transitions
            if transition.source is not None and transition.source != transition.target
        )

    @property
    def entries(self) -> frozenset[str]:
        """The states in which a job may be created: the initial state, and the one that ``queued`` leads to."""
        return frozenset({self.initial, self.after(self.initial, "queued")})

    def check(self, source: str, target: str) -> None:
        """Reject a change of state without a transition."""
        if not self.allows(source, target):
            raise TransitionDeniedError(
                f"Lifecycle {self.name!r} has no transition {source!r} -> {target!r}.",
                hint=f"Transitions from {source!r} lead to: {', '.join(self._targets(source)) or 'no state'}.",
                from_state=source,
                to_state=target,
            )

    def mermaid(self, here: str | None = None) -> str:
        """The diagram as Mermaid text, with the current state of a job marked."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {source} --> {target}: {label}" for source, target, label in self._labels()]
        lines += [f"    {state.name} --> [*]" for state in self.states.values() if state.outcome]
        if here is not None:
            lines += ["    classDef here stroke-width:3px", f"    class {here} here"]
        return "\n".join(lines) + "\n"

    def _targets(self, source: str) -> list[str]:
        return sorted(target for start, target in self.pairs if start == source)

    def _labels(self) -> Iterator[tuple[str, str, str]]:
        labels: dict[tuple[str, str], list[str]] = {}
        for transition in self.transitions:
            if transition.source is not None and transition.source != transition.target:
                labels.setdefault((transition.source, transition.target), []).append(transition.event)
        for events in labels.values():
            if {"answered", "resumed"} <= set(events):  # it has the same meaning for a reader
                events.remove("resumed")
        for (source, target), events in labels.items():
            yield source, target, ", ".join(events)


def lifecycle(name: str, transitions: str, *, ends: str) -> Lifecycle:
    """Parse a lifecycle from its text table; raises LifecycleError if it is invalid.

    ``transitions`` has one transition per line: ``source -> target event event …``; the source ``*`` creates the job.
    ``ends`` names the terminal states with their outcomes: ``done=succeeded gone=canceled``.
    """
    declared = tuple(_read_transitions(name, transitions))
    outcomes = dict(_read_ends(name, ends))
    states = _states(declared, outcomes)
    initial = [transition.target for transition in declared if transition.source is None]
    _require(len(initial) == 1, name, "exactly one transition must start at '*', with the event 'submitted'")
    for end in outcomes:
        _require(end in states, name, f"no transition leads to its terminal state {end!r}")
    made = Lifecycle(name, initial[0], MappingProxyType(states), (*declared, *_kept(declared, states)))
    _check(made)
    return made


def _read_transitions(name: str, text: str) -> Iterator[Transition]:
    seen: set[tuple[str | None, str]] = set()
    for line in filter(None, map(str.strip, text.splitlines())):
        arrow = _ARROW.fullmatch(line)
        if arrow is None:
            raise LifecycleError(f"Lifecycle {name!r}: cannot parse the transition {line!r}.")
        source = None if arrow["source"] == "*" else arrow["source"]
        for event in arrow["events"].split():
            _require(event in LIFECYCLE_EVENTS, name, f"{event!r} in {line!r} is not a lifecycle event")
            _require(
                (source, event) not in seen, name, f"there are two transitions for {event!r} from {arrow['source']!r}"
            )
            _require(
                (source is None) == (event == "submitted"),
                name,
                f"{line!r}: 'submitted' must start at '*', and no other event may",
            )
            seen.add((source, event))
            yield Transition(source, event, arrow["target"])


def _read_ends(name: str, text: str) -> Iterator[tuple[str, Outcome]]:
    for part in text.split():
        state, _, outcome = part.partition("=")
        for known in OUTCOMES:
            if known == outcome:
                yield state, known
                break
        else:
            raise LifecycleError(f"Lifecycle {name!r}: {outcome!r} of {state!r} is not an outcome.")


def _states(transitions: Iterable[Transition], outcomes: Mapping[str, Outcome]) -> dict[str, LifecycleState]:
    """The states, each with the phase of the first event that leads to it."""
    states: dict[str, LifecycleState] = {}
    for transition in transitions:
        outcome = outcomes.get(transition.target)
        phase: Phase = "ended" if outcome else LIFECYCLE_EVENTS[transition.event]
        states.setdefault(transition.target, LifecycleState(transition.target, phase, outcome))
    return states


def _kept(declared: Iterable[Transition], states: Mapping[str, LifecycleState]) -> Iterator[Transition]:
    """The events that do not change a state, because the table has no transition for them; and the event ``resumed``.

    Without a transition of its own, ``resumed`` leads where ``answered`` leads.
    """
    declared = list(declared)
    taken = {(transition.source, transition.event) for transition in declared}
    answered = {transition.source: transition.target for transition in declared if transition.event == "answered"}
    for state in states.values():
        if state.outcome is None:
            for event in _KEEPS_STATE:
                if (state.name, event) not in taken:
                    yield Transition(state.name, event, state.name)
            if (state.name, "resumed") not in taken:  # what a job waits for has come, as with an answer
                target = answered.get(state.name, state.name)
                yield Transition(state.name, "resumed", target)


def _check(made: Lifecycle) -> None:
    name, states = made.name, made.states
    _require(bool(_WORD.fullmatch(name)), name, "the name must be a lower-case word")
    for transition in made.transitions:
        source = states.get(transition.source) if transition.source else None
        _require(transition.source is None or source is not None, name, f"{transition.source!r} is unreachable")
        ends, ended = LIFECYCLE_EVENTS[transition.event] == "ended", states[transition.target].outcome is not None
        _require(ends == ended, name, f"{transition.event!r} must not lead to {transition.target!r}")
        leaves_end = source is not None and source.outcome is not None
        _require(
            leaves_end == (transition.event == "retried"),
            name,
            f"{transition.event!r} must not start at {transition.source!r}",
        )
    _check_ways(made)


def _check_ways(made: Lifecycle) -> None:
    """Every state is reachable, and every job can expire and fail."""
    reached = _closure({made.initial}, made.pairs)
    back = frozenset((target, source) for source, target in made.pairs)
    ends = {state.name for state in made.states.values() if state.outcome}
    ending = _closure(ends, back)
    _require(bool(ends), made.name, "there is no terminal state")
    for state in made.states.values():
        _require(bool(_WORD.fullmatch(state.name)), made.name, f"{state.name!r} is not a valid state name")
        _require(state.name in reached, made.name, f"{state.name!r} is unreachable")
        _require(state.name in ending, made.name, f"{state.name!r} cannot reach a terminal state")
        if state.outcome is None:
            _require(_has(made, state.name, "expired"), made.name, f"{state.name!r} cannot expire")
    for state in _running(made):
        _require(_has(made, state, "failed"), made.name, f"{state!r} is a running state and cannot fail")


def _running(made: Lifecycle) -> set[str]:
    """The states in which a worker may hold a job, also after a requeue, or after it was parked and answered."""
    queued = {name for name, state in made.states.items() if state.phase in ("waiting", "ready", "leased")}
    while True:
        running = {made.after(state, "started") for state in queued}
        parked = {made.after(state, "parked") for state in running}
        back = {made.after(state, "requeued") for state in running}
        back |= {made.after(state, event) for state in parked for event in ("answered", "resumed")}
        if back <= queued:
            return running
        queued |= back


def _has(made: Lifecycle, state: str, event: str) -> bool:
    return any(transition.source == state and transition.event == event for transition in made.transitions)


def _closure(start: set[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    pairs, found = tuple(pairs), set(start)
    while new := {target for source, target in pairs if source in found} - found:
        found |= new
    return found


def _require(holds: object, name: str, what: str) -> None:
    if not holds:
        raise LifecycleError(f"Lifecycle {name!r}: {what}.")


STANDARD: Final = lifecycle(
    "standard",
    """
    *       -> queued     submitted
    queued  -> running    started
    queued  -> canceled   canceled
    queued  -> expired    expired
    queued  -> failed     failed
    running -> queued     requeued
    running -> parked     parked
    running -> delivering delivering
    running -> succeeded  succeeded
    running -> failed     failed
    running -> canceled   canceled
    running -> expired    expired
    running -> blocked    blocked
    parked  -> queued     answered
    parked  -> succeeded  succeeded
    parked  -> failed     failed
    parked  -> canceled   canceled
    parked  -> expired    expired
    delivering -> succeeded succeeded
    delivering -> failed    failed
    delivering -> expired   expired
    """,
    ends="succeeded=succeeded failed=failed canceled=canceled expired=expired blocked=blocked",
)
"""The lifecycle of kinds that declare none."""
