"""Breakers: when a provider is not called, for its sake and for ours.

Each process keeps one for each provider. A provider that says when to come again is left alone until then. One that
fails most of the time is left alone for a while, then tried with a single call. And what failed once may be tried again
only as often as there are calls that go well: a provider that is ill is not made worse by everybody who tries again.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

WINDOW: Final = 30.0
"""For how many seconds a failure counts."""
FAILURES_MAX: Final = 5
"""So many in the window open it, if they are no fewer than what went well."""
REST_MIN: Final = 2.0
REST_MAX: Final = 60.0
RETRY_SHARE: Final = 0.1
RETRIES_MIN: Final = 10.0
"""How many retries there may be at any time, beside their share of the calls."""
_SHORT: Final = 1.0


class RestingError(Exception):
    """The provider is not called now; ``seconds`` tells for how long. Nothing was sent."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"It is left alone for {seconds:.1f} s.")
        self.seconds = seconds


@dataclass(slots=True)
class Breaker:
    """Whether a provider is called. The caller says how each call went."""

    name: str
    clock: Callable[[], float] = time.monotonic
    _rests_until: float = 0.0
    _is_resting: bool = False
    """Whether it was said that it rests, and not yet that it is back."""
    _rest: float = REST_MIN
    _is_probed: bool = False
    _is_open: bool = False
    _tokens: float = RETRIES_MIN
    _past: deque[tuple[float, bool]] = field(default_factory=deque[tuple[float, bool]])
    """When calls ended, and whether they went well."""

    @property
    def is_probed(self) -> bool:
        """Whether a single call is under way that finds out if it is well again."""
        return self._is_probed

    @property
    def seconds_left(self) -> float:
        """For how long it is not called; 0 if it is."""
        return max(self._rests_until - self.clock(), 0.0)

    def enter(self, *, is_retry: bool = False) -> None:
        """Before a call; raises where there must be none."""
        if (left := self.seconds_left) > 0:
            raise RestingError(left)
        if self._is_open:
            if self._is_probed:  # one call at a time finds out whether it is well again
                raise RestingError(_SHORT)
            self._is_probed = True
        elif is_retry:
            if self._tokens < 1:
                raise RestingError(_SHORT)
            self._tokens -= 1
        else:
            self._tokens = min(self._tokens + RETRY_SHARE, RETRIES_MIN)

    def passed(self) -> None:
        """It answered: well, or with a refusal that is its last word."""
        self._count(is_good=True)
        self._is_open = self._is_probed = False
        self._rest = REST_MIN
        if self._is_resting:
            self._is_resting = False
            logs.emit("provider.back", provider=self.name)

    def failed(self, retry_after: timedelta | None = None, reason: str = "it asked for that") -> None:
        """It did not answer, or with something that will pass; ``reason`` is why it is left alone for a time."""
        self._count(is_good=False)
        if retry_after is not None:
            self._is_probed = False
            self._rest_for(retry_after.total_seconds(), reason)
            return
        bad = sum(not is_good for _, is_good in self._past)
        if self._is_open or (bad >= FAILURES_MAX and bad * 2 >= len(self._past)):
            self._is_open, self._is_probed = True, False
            self._rest_for(self._rest, "most calls fail")
            self._rest = min(self._rest * 2, REST_MAX)

    def dropped(self) -> None:
        """The call was given up here; nothing is known of the provider."""
        self._is_probed = False

    def _count(self, *, is_good: bool) -> None:
        now = self.clock()
        self._past.append((now, is_good))
        while self._past and self._past[0][0] < now - WINDOW:
            self._past.popleft()

    def _rest_for(self, seconds: float, reason: str) -> None:
        self._rests_until = max(self._rests_until, self.clock() + seconds)
        if not self._is_resting:
            self._is_resting = True
            logs.emit("provider.resting", provider=self.name, seconds=round(seconds, 1), reason=reason)
