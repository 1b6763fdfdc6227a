"""Patterns: regular expressions of RE2, many of them at once.

One pass over the text tells which patterns are in it at all; only those are then looked for one by one. RE2 never
backtracks, so a pass takes time in proportion to the text. But it can also take time in proportion to the pattern:
``a[ab]{900}c`` has RE2 follow 900 beginnings at once. And to look for all places of a pattern takes as many passes as
it has places, each from the last one on; a pattern like ``a.*b|a`` can make every one of them go to the end. So a
decision has a budget, in bytes times steps of the patterns that may look at them, counted as if each look went to the
end. Most looks cost a small part of that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from millpond.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORK_MAX: Final = 3_000_000_000
"""Bytes times steps that a decision may come to: at the very worst a minute of one thread, and mostly a moment."""
HITS_MAX: Final = 100_000
"""Places that a decision may come to."""
PROGRAM_MAX: Final = 3_000
"""Steps of one compiled pattern; a class like \\pL has 1,200."""
PROGRAMS_MAX: Final = 20_000
"""Steps of all patterns of a set."""
_RE2: Final = cast("Any", re2)
_MEMORY: Final = 8 * 1_048_576
SET_MEMORY: Final = 64 * 1_048_576
GIVEN_MEMORY: Final = 16 * 1_048_576
"""For a sieve of patterns that somebody gave: a tenant's rules must not take all there is."""
# What a pattern can be made of that takes no room in the text.
_NO_ROOM: Final = re.compile(r"\\[bBAzQE]|\(\?[a-zA-Z^-]*(?:P?<\w*>)?:?|[()^$|*+?]|\{[0-9,]*\}")
_BYTE: Final = re.compile(r"(?:[^\\]|^)(?:\\\\)*\\C")

Span = tuple[int, int]


class Budget:
    """What is left of the work that a decision may come to, and of the places it may find."""

    def __init__(self, work: int = WORK_MAX, hits: int = HITS_MAX) -> None:
        self.work = work
        self.hits = hits

    def take(self, work: int) -> bool:
        """Whether there is so much left; it is gone then."""
        self.work -= work
        return self.work >= 0


def _options(memory: int, *, is_longest: bool = False) -> Any:
    options = cast("Any", re2.Options())
    options.log_errors = False
    options.max_mem = memory
    options.longest_match = is_longest
    return options


def expression(pattern: str, *, field: str | None = None, most: int = PROGRAM_MAX, is_longest: bool = False) -> Any:
    """The compiled pattern, or the refusal that says what is wrong with it. Ours have no field, and no limit."""
    if _BYTE.search(pattern):
        raise InputError("\\C is a byte, and could be half a character.", field=field, hint="Use (?s:.) instead.")
    try:
        made: Any = _RE2.compile(pattern.encode("utf-8", "replace"), _options(_MEMORY, is_longest=is_longest))
    except _RE2.error as error:
        told = bytes(error.args[0]).decode("utf-8", "replace")
        hint = "It must be an expression of RE2, which has no look-around and no back-references."
        raise InputError(f"It cannot be read: {told}.", field=field, hint=hint) from None
    if field is not None and made.programsize > most:
        raise InputError(
            f"It comes to {made.programsize:,} steps; the limit is {most:,}.",
            field=field,
            hint="Make its repetitions shorter, above all those of classes like \\pL.",
        )
    if not _NO_ROOM.sub("", pattern):
        hint = "Add what stands there."
        raise InputError("It names only places between characters, and finds nothing.", field=field, hint=hint)
    if made.fullmatch(b"") is not None:
        raise InputError("It is found in the empty text, and so in every text.", field=field)
    return made


def places(pattern: Any, data: bytes, budget: Budget | None = None) -> Iterator[Span]:
    """Every place of a pattern, from left to right. Where the budget ends, all the rest of the text is the last one.

    Patterns of our own need none: they are written so that a look ends soon after the place it finds.
    """
    size, here = len(data), 0
    steps = 0 if budget is None else pattern.programsize
    while here <= size:
        found = pattern.search(data, here)
        if found is None:
            return
        start, end = found.span()
        if end > start:
            yield start, end
        if budget is not None and not budget.take((size - end) * steps):
            yield end, size
            return
        here = end if end > here else here + 1
        while here < size and data[here] & 0xC0 == 0x80:  # noqa: PLR2004 - inside of a character
            here += 1


class Sieve:
    """Tells which of its patterns are in a text, in one pass."""

    def __init__(self, patterns: Sequence[str], *, field: str = "rules", memory: int = SET_MEMORY) -> None:
        self._count = len(patterns)
        self._set: Any = None
        if not patterns:
            return
        made: Any = _RE2.Set.SearchSet(_options(memory))
        for pattern in patterns:
            made.Add(pattern)
        made.Add("")  # which is in every text: where it is not found, the pass has failed
        try:
            made.Compile()
        except _RE2.error:
            raise InputError("The patterns are too large together.", field=field) from None
        self._set = made

    def sift(self, data: bytes) -> Sequence[int]:
        """The patterns that are in this text. All of them, where that could not be told: they are then looked for."""
        if self._set is None:
            return ()
        found: list[int] = self._set.Match(data)
        if self._count not in found:
            return range(self._count)
        return sorted(number for number in found if number != self._count)
