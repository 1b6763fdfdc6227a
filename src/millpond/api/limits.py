"""Rate limits: how many requests a key may send, kept in memory.

They use the generic cell rate algorithm: each request moves the theoretical arrival time of its key forward, and a
request that would move it further than the burst allows is refused. A key needs one number, and there is no window
boundary at which a client could send twice the limit.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.errors import RateLimitedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from millpond.api.calls import Headers

WINDOW: Final = 10
"""The burst, in seconds: the requests of this many seconds may be sent all at once."""
_KEYS_MAX: Final = 100_000


@dataclass(slots=True)
class Limiter:
    """The limits of all keys in this process; ``rate`` applies to keys without a limit of their own."""

    rate: int
    clock: Callable[[], float] = time.monotonic
    _arrivals: dict[Hashable, float] = field(default_factory=dict["Hashable", float], init=False)

    def take(self, key: Hashable, rate: int | None) -> Headers:
        """Count one request, and return the rate limit headers; raise if the limit is exceeded."""
        rate = rate or self.rate
        now = self.clock()
        ahead = max(self._arrivals.get(key, now), now) - now
        left = int((WINDOW - ahead) * rate + 1e-6)
        if left < 1:
            raise RateLimitedError(
                f"The limit of {rate:,} requests per second was exceeded.",
                retry_after=math.ceil(ahead + 1 / rate - WINDOW),
                limit=rate,
            )
        if len(self._arrivals) >= _KEYS_MAX:
            self._forget(now)
        self._arrivals[key] = now + ahead + 1 / rate
        return [_policy(rate), (b"ratelimit", b'"key";r=%d;t=%d' % (left - 1, math.ceil(ahead)))]

    def give_back(self, key: Hashable, rate: int) -> None:
        """Undo the count of one request."""
        if key in self._arrivals:
            self._arrivals[key] -= 1 / rate

    def refused(self, rate: int | None) -> Headers:
        return [_policy(rate or self.rate), (b"ratelimit", b'"key";r=0;t=%d' % WINDOW)]

    def _forget(self, now: float) -> None:
        """Drop the keys whose whole burst is available again: they are like new keys."""
        self._arrivals = {key: arrival for key, arrival in self._arrivals.items() if arrival > now}


def _policy(rate: int) -> tuple[bytes, bytes]:
    return b"ratelimit-policy", b'"key";q=%d;w=%d' % (rate * WINDOW, WINDOW)
