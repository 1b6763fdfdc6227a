"""How long to wait before the next try, as pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_EXPONENT_MAX: Final = 32
_DIGITS_MAX: Final = 9
"""The number of digits that are read of a number of seconds; nine are more than 30 years."""
_LONGEST: Final = timedelta(hours=1)
"""The longest pause, whatever a server asks for."""


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


DATABASE: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=3))
"""For all that needs the database: it continues within seconds after an outage, however long that was."""


def read_retry_after(text: str, now: datetime | None = None) -> timedelta | None:
    """The delay in a ``Retry-After`` header, which is a number of seconds or a date; None if it cannot be parsed.

    It is not limited: a caller that does not trust the server must limit it.
    """
    value = text.strip()
    whole, _, part = value.partition(".")
    if whole.isascii() and whole.isdecimal() and (not part or (part.isascii() and part.isdecimal())):
        return timedelta(seconds=float(f"{whole[:_DIGITS_MAX]}.{part[:_DIGITS_MAX] or 0}"))
    try:
        until = parsedate_to_datetime(value)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(until - (now or datetime.now(UTC)), timedelta(0))
    except (TypeError, ValueError, OverflowError):  # an impossible time zone or year
        return None


def read_pause(text: str) -> timedelta | None:
    """The delay in a ``Retry-After`` header, at most an hour."""
    delay = read_retry_after(text)
    return None if delay is None else min(delay, _LONGEST)
