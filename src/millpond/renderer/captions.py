"""Captions: the words of a script in small groups, each lit up while it is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millpond.renderer.speech import Spoken

_WORDS_MAX: Final = 4
_LETTERS_MAX: Final = 20
_PAUSES: Final = ".!?,;:"


@dataclass(frozen=True, slots=True)
class Caption:
    """A few words that stand together, when each begins, and when the last one is over."""

    words: tuple[str, ...]
    starts: tuple[float, ...]
    end: float

    def said(self, at: float) -> int:
        """Which of them is being said."""
        return max(0, sum(start <= at for start in self.starts) - 1)


def captions(script: str, spoken: Spoken) -> list[Caption]:
    timed = _timed(script, spoken)
    groups: list[list[tuple[str, float]]] = []
    for word, start in timed:
        if groups and _belongs(groups[-1], word):
            groups[-1].append((word, start))
        else:
            groups.append([(word, start)])
    ends = [group[0][1] for group in groups[1:]] + [spoken.seconds]
    return [
        Caption(tuple(word for word, _ in group), tuple(start for _, start in group), end)
        for group, end in zip(groups, ends, strict=True)
    ]


def _belongs(group: list[tuple[str, float]], word: str) -> bool:
    letters = sum(len(each) + 1 for each, _ in group) + len(word)
    return len(group) < _WORDS_MAX and letters <= _LETTERS_MAX and group[-1][0][-1] not in _PAUSES


def _timed(script: str, spoken: Spoken) -> list[tuple[str, float]]:
    """Each word as it is written, with the second at which the voice comes to it."""
    found: list[tuple[str, float]] = []
    place, before = 0, 0.0
    for word in script.split():
        place = script.index(word, place)
        heard = [seconds for seconds, at, _ in spoken.words if place <= at < place + len(word)]
        before = max(before, heard[0]) if heard else before
        found.append((word, before))
        place += len(word)
    return found


def at(shown: list[Caption], seconds: float) -> Caption | None:
    """The one for a moment."""
    return next((each for each in shown if each.starts[0] <= seconds < each.end), None)
