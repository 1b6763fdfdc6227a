"""What others did wrong, as the contract tells it: which platform it was, its code, its words."""

from __future__ import annotations

from typing import Any

from millpond.errors import PermanentError, TransientError


def trouble(
    error: PermanentError | TransientError, platform: str, code: str, said: str | None = None
) -> PermanentError | TransientError:
    """An error with what the contract wants to know of a platform; whether it may pass stays as it was."""
    message = error.message
    told: dict[str, Any] = {"platform": platform, "platformCode": code, "platformMessage": said or message}
    if isinstance(error, TransientError):
        return TransientError(message, retry_after=error.retry_after, **told)
    return PermanentError(message, **told)
