"""What others did wrong, as the contract tells it: which platform it was, its code, its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from datetime import timedelta


def trouble(
    error: PermanentError | TransientError, platform: str, code: str, said: str | None = None
) -> PermanentError | TransientError:
    """An error with what the contract wants to know of a platform; whether it may pass stays as it was."""
    message = error.message
    told: dict[str, Any] = {"platform": platform, "platformCode": code, "platformMessage": said or message}
    if isinstance(error, TransientError):
        after = error.retry_after
        return TransientError(message, retry_after=after, retryAfterMs=_milliseconds(after), **told)
    return PermanentError(message, **told)


def _milliseconds(after: timedelta | None) -> int | None:
    return None if after is None else round(after.total_seconds() * 1_000)
