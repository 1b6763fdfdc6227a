"""Open streams: how many a key and an account may have at once in this process.

Each is a connection with a task and a buffer, and none of them counts as a request after it was opened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millpond.errors import RateLimitedError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from millpond.api.calls import Call, Reply
    from millpond.settings import Settings

PAUSE: Final = 5
"""After how many seconds a refused caller may try again."""
_OWNERS: Final = frozenset({"client", "job"})
"""The scopes whose streams count for the account of the job: those of operators do not."""


@dataclass(frozen=True, slots=True)
class StreamHolder:
    """A key or an account that streams are counted for."""

    what: str
    identity: tuple[Hashable, ...]


@dataclass(slots=True)
class OpenStreams:
    """The open streams of this process."""

    _open: Counter[StreamHolder] = field(default_factory=Counter[StreamHolder], init=False)

    @property
    def total(self) -> int:
        """How many are counted, for keys and accounts together."""
        return self._open.total()

    def open(self, call: Call, reply: Reply) -> tuple[StreamHolder, ...]:
        """Count a stream; raise if its key or account has too many."""
        limits = _limits(call, reply)
        for holder, limit in limits.items():
            if self._open[holder] >= limit:
                raise RateLimitedError(
                    f"The {holder.what} has {limit:,} open streams already.",
                    hint="Close one of them, or share one stream.",
                    retry_after=PAUSE,
                    limit=limit,
                )
        self._open.update(limits.keys())
        return tuple(limits)

    def close(self, holders: tuple[StreamHolder, ...]) -> None:
        """Uncount a stream."""
        for holder in holders:
            self._open[holder] -= 1
            if not self._open[holder]:
                del self._open[holder]


def _limits(call: Call, reply: Reply) -> Mapping[StreamHolder, int]:
    """The holders of a stream, with their limits."""
    principal, settings = call.principal, call.state.settings
    key = StreamHolder("key", (principal.actor, principal.tenant, principal.account, principal.job_id))
    return {key: settings.streams_per_key} | _account_limit(call, reply, settings)


def _account_limit(call: Call, reply: Reply, settings: Settings) -> dict[StreamHolder, int]:
    principal = call.principal
    owner = reply.owner or (principal.tenant, principal.account)
    if principal.scope not in _OWNERS or None in owner:
        return {}
    return {StreamHolder("account", owner): settings.streams_per_account}
