"""What an error that a handler has raised means for its job; it can be sent to another process."""

from __future__ import annotations

from datetime import timedelta  # noqa: TC003 - msgspec reads the annotations
from typing import Any, Literal

import msgspec

from millpond import values
from millpond.errors import (
    BlockedError,
    CanceledError,
    InterruptedJobError,
    LeaseLostError,
    MillpondError,
    TransientError,
)
from millpond.redaction import redact
from millpond.worker import tracebacks
from millpond.worker.calls import describe

Verdict = Literal["lost", "canceled", "blocked", "interrupted", "failed", "attempt"]

_TEXT_MAX = 500


class Raised(msgspec.Struct, frozen=True):
    """An error that a handler has raised."""

    verdict: Verdict
    """Whether the lease is lost, how the job ends, or whether it returns to the queue: after an interruption, or as a
    failed attempt.
    """
    detail: dict[str, Any]
    """The error as stored with the job."""
    text: str
    """The error for the log."""
    traceback: str | None = None
    retry_after: timedelta | None = None


class HandlerRaisedError(Exception):
    """A handler in another process has raised an error."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.text)
        self.raised = raised


def raised_by(error: BaseException) -> Raised:
    if isinstance(error, HandlerRaisedError):
        return error.raised
    verdict = _verdict(error)
    is_failure = verdict in {"failed", "attempt"}
    return Raised(
        verdict,
        describe(error),
        f"{type(error).__name__}: {redact(values.printable(str(error), _TEXT_MAX))}",
        tracebacks.render(error) if is_failure else None,
        error.retry_after if isinstance(error, TransientError) else None,
    )


def _verdict(error: BaseException) -> Verdict:
    match error:
        case LeaseLostError():
            return "lost"
        case CanceledError():
            return "canceled"
        case BlockedError():
            return "blocked"
        case InterruptedJobError():
            return "interrupted"
        case MillpondError() if not error.retryable:
            return "failed"
        case _:
            return "attempt"
