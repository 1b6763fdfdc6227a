"""Patterns: regular expressions of RE2, many of them at once.

One pass over the text determines which patterns match at all; only those are then searched one by one. RE2 never
backtracks, so a pass takes time proportional to the text. But it can also take time proportional to the pattern: with
``a[ab]{900}c``, RE2 follows 900 possible starts at once. And finding all matches of a pattern takes a pass for each
match, from the previous one on; a pattern like ``a.*b|a`` can make each of them read to the end. So a decision has a
budget, in bytes times steps of the patterns that may read them, counted as if each search read to the end. Most
searches cost a small part of that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from millpond.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORK_MAX: Final = 3_000_000_000
"""The budget of a decision in bytes times steps: at worst a minute of one thread, and usually far less."""
HITS_MAX: Final = 100_000
"""The number of matches that a decision may have."""
PROGRAM_MAX: Final = 3_000
"""Steps of one compiled pattern; a class like \\pL has 1,200."""
PROGRAMS_MAX: Final = 20_000
"""Steps of all patterns of a set."""
_RE2: Final = cast("Any", re2)
_MEMORY: Final = 8 * 1_048_576
SET_MEMORY: Final = 64 * 1_048_576
GIVEN_MEMORY: Final = 16 * 1_048_576
"""For a sieve of the patterns in rules: those of a tenant must not use up the memory."""
# The parts of a pattern that match no characters.
_NO_ROOM: Final = re.compile(r"\\[bBAzQE]|\(\?[a-zA-Z^-]*(?:P?<\w*>)?:?|[()^$|*+?]|\{[0-9,]*\}")
_BYTE: Final = re.compile(r"(?:[^\\]|^)(?:\\\\)*\\C")

Span = tuple[int, int]


class WorkBudget:
    """The work and the number of matches that a decision has left."""

    def __init__(self, work: int = WORK_MAX, hits: int = HITS_MAX) -> None:
        self.work = work
        self.hits = hits

    def take(self, work: int) -> bool:
        """Spend work. Returns whether there was enough left."""
        self.work -= work
        return self.work >= 0


def _options(memory: int, *, is_longest: bool = False) -> Any:
    options = cast("Any", re2.Options())
    options.log_errors = False
    options.max_mem = memory
    options.longest_match = is_longest
    return options


def expression(pattern: str, *, field: str | None = None, limit: int = PROGRAM_MAX, is_longest: bool = False) -> Any:
    """The compiled pattern; raises an error that says what is wrong. Built-in patterns have no field and no limit."""
    if _BYTE.search(pattern):
        raise InputError(
            "\\C matches a byte, which may be a part of a character.", field=field, hint="Use (?s:.) instead."
        )
    try:
        made: Any = _RE2.compile(pattern.encode("utf-8", "replace"), _options(_MEMORY, is_longest=is_longest))
    except _RE2.error as error:
        reason = bytes(error.args[0]).decode("utf-8", "replace")
        hint = "Use the syntax of RE2, which has no look-around and no back-references."
        raise InputError(f"The pattern is invalid: {reason}.", field=field, hint=hint) from None
    if field is not None and made.programsize > limit:
        raise InputError(
            f"The pattern compiles to {made.programsize:,} steps; the limit is {limit:,}.",
            field=field,
            hint="Shorten its repetitions, especially of classes like \\pL.",
        )
    if not _NO_ROOM.sub("", pattern):
        hint = "Add the characters to match."
        raise InputError("The pattern matches only positions between characters.", field=field, hint=hint)
    if made.fullmatch(b"") is not None:
        raise InputError("The pattern matches the empty text, and therefore every text.", field=field)
    return made


def places(pattern: Any, data: bytes, budget: WorkBudget | None = None) -> Iterator[Span]:
    """Every match of a pattern, from left to right. If the budget runs out, the rest of the text is the last one.

    Built-in patterns need no budget: they are written so that a search ends soon after its match.
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
    """Determines which of its patterns match a text, in one pass."""

    def __init__(self, patterns: Sequence[str], *, field: str = "rules", memory: int = SET_MEMORY) -> None:
        self._count = len(patterns)
        self._set: Any = None
        if not patterns:
            return
        made: Any = _RE2.Set.SearchSet(_options(memory))
        for pattern in patterns:
            made.Add(pattern)
        made.Add("")  # matches every text: if it does not, the pass has failed
        try:
            made.Compile()
        except _RE2.error:
            raise InputError("The patterns together are too large.", field=field) from None
        self._set = made

    def sift(self, data: bytes) -> Sequence[int]:
        """The patterns that match this text; all of them if the pass failed, so that each is searched."""
        if self._set is None:
            return ()
        found: list[int] = self._set.Match(data)
        if self._count not in found:
            return range(self._count)
        return sorted(number for number in found if number != self._count)
