"""Breakers: suspend calls to a provider that fails or requests a pause, for its sake and that of its callers.

Each process has one for each provider. A provider that says when to call again is not called until then. One that fails
most of the time is not called for a while, then probed with a single call. And the number of retries is limited to a
share of the other calls, so that retries do not make an outage worse.
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
"""This many failures in the window open the breaker, if they are at least half of the calls."""
REST_MIN: Final = 2.0
REST_MAX: Final = 60.0
RETRY_SHARE: Final = 0.1
RETRIES_MIN: Final = 10.0
"""How many retries are possible at any time; each call that is not a retry adds ``RETRY_SHARE`` of one, up to this."""
_SHORT: Final = 1.0


class RestingError(Exception):
    """Calls to the provider are suspended for ``seconds``. Nothing was sent."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Calls to the provider are suspended for {seconds:.1f} s.")
        self.seconds = seconds


@dataclass(slots=True)
class Breaker:
    """Decides whether a provider is called. The caller reports how each call ended."""

    name: str
    clock: Callable[[], float] = time.monotonic
    _rests_until: float = 0.0
    _is_resting: bool = False
    """Whether ``provider.suspended`` was logged, and ``provider.resumed`` not yet."""
    _rest: float = REST_MIN
    _is_probed: bool = False
    _is_open: bool = False
    _tokens: float = RETRIES_MIN
    _past: deque[tuple[float, bool]] = field(default_factory=deque[tuple[float, bool]])
    """When calls ended, and whether they succeeded."""

    @property
    def is_probed(self) -> bool:
        """Whether a probe is under way: a single call that finds out whether the provider works again."""
        return self._is_probed

    @property
    def seconds_left(self) -> float:
        """For how many seconds calls are suspended; 0 if they are not."""
        return max(self._rests_until - self.clock(), 0.0)

    def enter(self, *, is_retry: bool = False) -> None:
        """To be called before each call; raises if the call must not be made."""
        if (left := self.seconds_left) > 0:
            raise RestingError(left)
        if self._is_open:
            if self._is_probed:  # one probe at a time
                raise RestingError(_SHORT)
            self._is_probed = True
        elif is_retry:
            if self._tokens < 1:
                raise RestingError(_SHORT)
            self._tokens -= 1
        else:
            self._tokens = min(self._tokens + RETRY_SHARE, RETRIES_MIN)

    def passed(self) -> None:
        """The provider responded: with success, or with an error that is final."""
        self._count(is_good=True)
        self._is_open = self._is_probed = False
        self._rest = REST_MIN
        if self._is_resting:
            self._is_resting = False
            logs.emit("provider.resumed", provider=self.name)

    def failed(self, retry_after: timedelta | None = None, reason: str = "requested by the provider") -> None:
        """The provider did not respond, or with a transient error; ``reason`` is logged if calls are suspended."""
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
        """The call was canceled by this process, which says nothing about the provider."""
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
            logs.emit("provider.suspended", provider=self.name, seconds=round(seconds, 1), reason=reason)
