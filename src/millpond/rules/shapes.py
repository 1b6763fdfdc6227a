"""Shapes: what something looks like, and the code that tells whether it is what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from millpond.rules import patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millpond.rules.folding import View
    from millpond.rules.patterns import Span


def as_it_is(text: str, start: int, end: int) -> Iterator[Span]:  # noqa: ARG001 - as all that look closer
    yield start, end


_expression: Final = cache(patterns.expression)


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that costs little, and a closer look at what it finds."""

    label: str
    pattern: str
    look: Callable[[str, int, int], Iterator[Span]] = as_it_is
    """From the text and a place in it: the places that are really meant, which may reach beyond."""
    view: Literal["folded", "bare"] = "folded"

    @property
    def expression(self) -> Any:
        """Compiled when it is first wanted: most of them never are."""
        return _expression(self.pattern)

    def find(self, view: View) -> Iterator[Span]:
        """Where it is, in characters of the original. What was found already is not looked at again."""
        reached = 0
        for first, last in patterns.places(self.expression, view.data):
            start, end = view.char(first), view.char(last)
            if end <= reached:
                continue
            for begin, stop in self.look(view.text, start, end):
                reached = max(reached, stop)
                yield view.origin(begin, stop)
