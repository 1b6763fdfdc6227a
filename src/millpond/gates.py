"""Gates: what a job's input must pass before it is paid for, and its output before it is released."""

from __future__ import annotations

from typing import Any, Protocol


class Gate(Protocol):
    """Looks at all text in a value. Gives it back, changed where a rule says so.

    Raises :class:`~millpond.errors.BlockedError` where it may not pass, with what was found.
    """

    async def inbound(self, tenant: str, given: Any) -> Any: ...

    async def outbound(self, tenant: str, given: Any) -> Any: ...
