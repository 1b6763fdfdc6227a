"""How long to wait before the next try, as pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_EXPONENT_MAX: Final = 32
_DIGITS_MAX: Final = 9
"""Of a number of seconds; nobody is waited for longer."""
_LONGEST: Final = timedelta(hours=1)
"""More than that nobody is left alone, whatever it asks for."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, capped, with jitter: ``first``, ``first * factor``, … up to ``longest``."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=10)
    jitter: float = 0.2

    def delay(self, failures: int, chance: float) -> timedelta:
        """The wait after the n-th failure; ``chance`` in [0, 1) spreads it by the jitter."""
        exponent = min(max(failures - 1, 0), _EXPONENT_MAX)
        plain = min(self.first.total_seconds() * self.factor**exponent, self.longest.total_seconds())
        return timedelta(seconds=plain * (1 - self.jitter + 2 * self.jitter * chance))


def read_retry_after(text: str, now: datetime | None = None) -> timedelta | None:
    """What a ``Retry-After`` says: seconds, or a date; none where it says nothing that can be read.

    It is for the caller to bound it: whoever sends it may say what it likes.
    """
    said = text.strip()
    whole, _, part = said.partition(".")
    if whole.isascii() and whole.isdecimal() and (not part or (part.isascii() and part.isdecimal())):
        return timedelta(seconds=float(f"{whole[:_DIGITS_MAX]}.{part[:_DIGITS_MAX] or 0}"))
    try:
        until = parsedate_to_datetime(said)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(until - (now or datetime.now(UTC)), timedelta(0))
    except (TypeError, ValueError, OverflowError):  # a zone or a year that no date has
        return None


def read_pause(text: str) -> timedelta | None:
    """What a ``Retry-After`` says, and an hour at most."""
    asked = read_retry_after(text)
    return None if asked is None else min(asked, _LONGEST)
