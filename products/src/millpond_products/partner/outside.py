"""Errors of platforms in the terms of the contract: the platform, its code and its message."""

from __future__ import annotations

from typing import Any

from millpond.errors import PermanentError, TransientError


def trouble(
    error: PermanentError | TransientError, platform: str, code: str, detail: str | None = None
) -> PermanentError | TransientError:
    """The error with the details that the contract requires of a platform; a transient error stays transient."""
    message = error.message
    details: dict[str, Any] = {"platform": platform, "platformCode": code, "platformMessage": detail or message}
    if isinstance(error, TransientError):
        return TransientError(message, retry_after=error.retry_after, **details)
    return PermanentError(message, **details)
