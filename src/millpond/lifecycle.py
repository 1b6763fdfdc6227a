"""A lifecycle: the states of a job and the arrows between them, as data.

The text table given to :func:`lifecycle` is the only place where the arrows exist. From it come the
Python check, the rows that the database guard looks up, the diagram, and the exhaustive test.

An arrow is labelled with the engine *moments* that take it, so that one engine serves every
vocabulary: it says ``started`` and the table says what that means for this product.
A moment without an arrow leaves the state as it is, unless it would end the job: an end that the
table does not draw is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from millpond.errors import LifecycleError, MoveDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

MOMENTS: Final[Mapping[str, Phase]] = MappingProxyType(
    {
        "submitted": "waiting",
        "queued": "ready",
        "started": "leased",
        "requeued": "ready",
        "parked": "parked",
        "answered": "ready",
        "delivering": "delivering",
        "retried": "waiting",
        **dict.fromkeys(OUTCOMES, "ended"),
    }
)
"""What happens to a job, and the phase it is in afterwards."""

_KEEPS_STATE: Final = ("queued", "started", "requeued", "parked", "answered", "delivering")
_ARROW: Final = re.compile(r"(?P<source>\*|\w+)\s*->\s*(?P<target>\w+)\s+(?P<moments>\w+(?:\s+\w+)*)")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow for one moment; ``source`` is ``None`` for the birth of a job."""

    source: str | None
    moment: str
    target: str


@dataclass(frozen=True, slots=True)
class State:
    """A state with its home phase, and the outcome if it is an ended one."""

    name: str
    phase: Phase
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """States and moves of one product's jobs, checked when it is made."""

    name: str
    initial: str
    states: Mapping[str, State]
    moves: tuple[Move, ...]

    def after(self, state: str, moment: str) -> str:
        """The state that ``moment`` leads to, or the refusal."""
        for move in self.moves:
            if move.source == state and move.moment == moment:
                return move.target
        raise MoveDeniedError(
            f"{moment!r} is not possible in state {state!r} of lifecycle {self.name!r}.",
            state=state,
            moment=moment,
        )

    def allows(self, source: str, target: str) -> bool:
        return (source, target) in self.pairs

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Every change of state that some moment makes."""
        return frozenset(
            (move.source, move.target) for move in self.moves if move.source is not None and move.source != move.target
        )

    @property
    def entries(self) -> frozenset[str]:
        """The states a job may be born in: the initial one, and where the queue takes it at once."""
        return frozenset({self.initial, self.after(self.initial, "queued")})

    def check(self, source: str, target: str) -> None:
        """Refuse a change of state that has no arrow."""
        if not self.allows(source, target):
            raise MoveDeniedError(
                f"{source!r} -> {target!r} is not a move of lifecycle {self.name!r}.",
                hint=f"From {source!r} it can go to: {', '.join(self._targets(source)) or 'nowhere'}.",
                from_state=source,
                to_state=target,
            )

    def mermaid(self, here: str | None = None) -> str:
        """The diagram as Mermaid text, with the state a job is in marked."""
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
        for move in self.moves:
            if move.source is not None and move.source != move.target:
                labels.setdefault((move.source, move.target), []).append(move.moment)
        for (source, target), moments in labels.items():
            yield source, target, ", ".join(moments)


def lifecycle(name: str, moves: str, *, ends: str) -> Lifecycle:
    """Read a lifecycle from its text table and refuse one that cannot work.

    ``moves`` has one arrow a line: ``source -> target  moment moment …``; ``*`` is birth.
    ``ends`` names the ended states with their outcome: ``done=succeeded gone=canceled``.
    """
    drawn = tuple(_read_moves(name, moves))
    outcomes = dict(_read_ends(name, ends))
    states = _states(drawn, outcomes)
    born = [move.target for move in drawn if move.source is None]
    _require(len(born) == 1, name, "exactly one arrow must start at '*', with the moment 'submitted'")
    for end in outcomes:
        _require(end in states, name, f"no arrow leads to its end {end!r}")
    made = Lifecycle(name, born[0], MappingProxyType(states), (*drawn, *_kept(drawn, states)))
    _check(made)
    return made


def _read_moves(name: str, text: str) -> Iterator[Move]:
    seen: set[tuple[str | None, str]] = set()
    for line in filter(None, map(str.strip, text.splitlines())):
        arrow = _ARROW.fullmatch(line)
        if arrow is None:
            raise LifecycleError(f"Lifecycle {name!r}: cannot read the arrow {line!r}.")
        source = None if arrow["source"] == "*" else arrow["source"]
        for moment in arrow["moments"].split():
            _require(moment in MOMENTS, name, f"{moment!r} in {line!r} is not a moment of the engine")
            _require((source, moment) not in seen, name, f"{moment!r} leaves {source!r} twice")
            _require((source is None) == (moment == "submitted"), name, f"{line!r} misplaces birth")
            seen.add((source, moment))
            yield Move(source, moment, arrow["target"])


def _read_ends(name: str, text: str) -> Iterator[tuple[str, Outcome]]:
    for part in text.split():
        state, _, outcome = part.partition("=")
        for known in OUTCOMES:
            if known == outcome:
                yield state, known
                break
        else:
            raise LifecycleError(f"Lifecycle {name!r}: {outcome!r} of {state!r} is not an outcome.")


def _states(moves: Iterable[Move], outcomes: Mapping[str, Outcome]) -> dict[str, State]:
    """Each state with its home phase: that of the first moment drawn into it."""
    states: dict[str, State] = {}
    for move in moves:
        outcome = outcomes.get(move.target)
        phase: Phase = "ended" if outcome else MOMENTS[move.moment]
        states.setdefault(move.target, State(move.target, phase, outcome))
    return states


def _kept(drawn: Iterable[Move], states: Mapping[str, State]) -> Iterator[Move]:
    """The moments that leave a state as it is, because the table draws no arrow for them."""
    taken = {(move.source, move.moment) for move in drawn}
    for state in states.values():
        if state.outcome is None:
            for moment in _KEEPS_STATE:
                if (state.name, moment) not in taken:
                    yield Move(state.name, moment, state.name)


def _check(made: Lifecycle) -> None:
    name, states = made.name, made.states
    _require(bool(_WORD.fullmatch(name)), name, "the name must be a lower-case word")
    for move in made.moves:
        source = states.get(move.source) if move.source else None
        _require(move.source is None or source is not None, name, f"{move.source!r} is unreachable")
        ends, ended = MOMENTS[move.moment] == "ended", states[move.target].outcome is not None
        _require(ends == ended, name, f"{move.moment!r} must not lead to {move.target!r}")
        leaves_end = source is not None and source.outcome is not None
        _require(leaves_end == (move.moment == "retried"), name, f"{move.source!r} is left by {move.moment!r}")
    _check_ways(made)


def _check_ways(made: Lifecycle) -> None:
    """Every state can be reached, and every job can be ended by its deadline and by its failure."""
    reached = _closure({made.initial}, made.pairs)
    back = frozenset((target, source) for source, target in made.pairs)
    ends = {state.name for state in made.states.values() if state.outcome}
    ending = _closure(ends, back)
    _require(bool(ends), made.name, "it has no ended state")
    for state in made.states.values():
        _require(bool(_WORD.fullmatch(state.name)), made.name, f"{state.name!r} is not a state's name")
        _require(state.name in reached, made.name, f"{state.name!r} is unreachable")
        _require(state.name in ending, made.name, f"{state.name!r} can never reach an end")
        if state.outcome is None:
            _require(_has(made, state.name, "expired"), made.name, f"{state.name!r} cannot expire")
    for state in _running(made):
        _require(_has(made, state, "failed"), made.name, f"{state!r} runs and cannot fail")


def _running(made: Lifecycle) -> set[str]:
    """The states in which a worker may hold a job, also after it went back, or was parked and answered."""
    queued = {name for name, state in made.states.items() if state.phase in ("waiting", "ready", "leased")}
    while True:
        running = {made.after(state, "started") for state in queued}
        parked = {made.after(state, "parked") for state in running}
        back = {made.after(state, "requeued") for state in running}
        back |= {made.after(state, "answered") for state in parked}
        if back <= queued:
            return running
        queued |= back


def _has(made: Lifecycle, state: str, moment: str) -> bool:
    return any(move.source == state and move.moment == moment for move in made.moves)


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
"""The lifecycle of a kind that names none."""
