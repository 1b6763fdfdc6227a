"""Captions: the words of a script in small groups. Each word is highlighted while it is spoken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millpond_products.renderer.speech import Spoken

_WORDS_MAX: Final = 4
_LETTERS_MAX: Final = 20
_PAUSES: Final = ".!?,;:"


@dataclass(frozen=True, slots=True)
class Caption:
    """A few words that are shown together, with the start of each and the end of the last."""

    words: tuple[str, ...]
    starts: tuple[float, ...]
    end: float

    def spoken_at(self, at: float) -> int:
        """The index of the word that is being spoken."""
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
    """Each word as written, with the second at which it is spoken."""
    found: list[tuple[str, float]] = []
    place, before = 0, 0.0
    for word in script.split():
        place = script.index(word, place)
        times = [seconds for seconds, at, _ in spoken.words if place <= at < place + len(word)]
        before = max(before, times[0]) if times else before
        found.append((word, before))
        place += len(word)
    return found


def at(shown: list[Caption], seconds: float) -> Caption | None:
    """The caption at a time."""
    return next((each for each in shown if each.starts[0] <= seconds < each.end), None)
