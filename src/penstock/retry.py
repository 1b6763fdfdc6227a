"""How long to wait before the next try, as a pure function."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_EXPONENT_MAX: Final = 32


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
