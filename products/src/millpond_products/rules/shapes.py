"""Shapes: a pattern for candidates, and the code that verifies each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from millpond_products.rules import patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millpond_products.rules.folding import View
    from millpond_products.rules.patterns import Span


def as_it_is(text: str, start: int, end: int) -> Iterator[Span]:  # noqa: ARG001 - the signature of `look`
    yield start, end


_expression: Final = cache(patterns.expression)


@dataclass(frozen=True, slots=True)
class Shape:
    """A cheap pattern, and a function that verifies its matches."""

    label: str
    pattern: str
    look: Callable[[str, int, int], Iterator[Span]] = as_it_is
    """Returns the verified places for a match in a text; they may extend beyond the match."""
    view: Literal["folded", "bare"] = "folded"

    @property
    def expression(self) -> Any:
        """Compiled when it is first used; most are never used."""
        return _expression(self.pattern)

    def find(self, view: View) -> Iterator[Span]:
        """Where it is, in characters of the original. Matches within an earlier place are skipped."""
        reached = 0
        for first, last in patterns.places(self.expression, view.data):
            start, end = view.char(first), view.char(last)
            if end <= reached:
                continue
            for begin, stop in self.look(view.text, start, end):
                reached = max(reached, stop)
                yield view.origin(begin, stop)
