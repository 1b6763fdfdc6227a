"""Gates: check a job's input before it is paid for, and its output before it is released."""

from __future__ import annotations

from typing import Any, Protocol


class Gate(Protocol):
    """Checks all text in a value, and returns the value with the changes that rules require.

    Raises :class:`~millpond.errors.BlockedError`, with the findings, if the value is not allowed.
    """

    async def inbound(self, tenant: str, given: Any) -> Any: ...

    async def outbound(self, tenant: str, given: Any) -> Any: ...
