"""The errors of the client: those of the server, by code, and those about jobs that did not succeed.

MillpondError
├── JobEndedError            the job ended without success
│   ├── JobFailedError
│   ├── JobCanceledError
│   ├── JobExpiredError
│   └── JobBlockedError
├── WaitTimeoutError         the timeout passed before the job ended
└── UnreadableError          the response was not sent by Millpond
"""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import errors
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millpond.client.handles import Handle, KnownBatch


class JobEndedError(MillpondError):
    """The job did not succeed."""

    code = "job_ended"

    def __init__(self, message: str | None = None, *, job: Handle, **details: Any) -> None:
        super().__init__(message, **details)
        self.job = job


class JobFailedError(JobEndedError):
    """The job failed."""

    code = "job_failed"


class JobCanceledError(JobEndedError):
    """The job was canceled."""

    code = "job_canceled"


class JobExpiredError(JobEndedError):
    """The job expired."""

    code = "job_expired"


class JobBlockedError(JobEndedError):
    """The job was blocked: its content is not allowed."""

    code = "job_blocked"


class WaitTimeoutError(MillpondError, TimeoutError):
    """The job has not ended within the timeout. It continues to run."""

    code = "wait_timeout"
    status = 408
    retryable = True

    def __init__(self, message: str | None = None, *, job: Handle | KnownBatch, **details: Any) -> None:
        super().__init__(message, **details)
        self.job = job


class UnreadableError(MillpondError):
    """The response was not sent by Millpond."""

    code = "unreadable_answer"
    status = 502


_BY_OUTCOME: Final = {
    "failed": JobFailedError,
    "canceled": JobCanceledError,
    "expired": JobExpiredError,
    "blocked": JobBlockedError,
}


def check_outcome(job: Handle) -> None:
    """Raise the error for an ended job that did not succeed."""
    if job.outcome == "succeeded":
        return
    made = _BY_OUTCOME.get(str(job.outcome), JobEndedError)
    error = job.error or {}
    reason = error.get("message")
    message = f"{job.id} ({job.kind}) ended as {job.state}{f': {reason}' if reason else '.'}"
    raise made(message, job=job, field=error.get("field"), hint=error.get("hint"), error=error)


# From a response to an error


def _tree(top: type[MillpondError]) -> Iterator[type[MillpondError]]:
    yield top
    for below in top.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


_BY_CODE: Final = {made.code: made for made in _tree(MillpondError)}
# For the responses of a proxy, which have no code.
_BY_STATUS: Final[Mapping[int, type[MillpondError]]] = {
    400: errors.MalformedError,
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    405: errors.MethodNotAllowedError,
    406: errors.NotAcceptableError,
    408: errors.UnavailableError,
    413: errors.TooLargeError,
    415: errors.MediaTypeError,
    429: errors.RateLimitedError,
    502: errors.UnavailableError,
    503: errors.UnavailableError,
    504: errors.UnavailableError,
}
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
"""After these the same request may succeed, unless the response has a code that says otherwise."""
_STANDARD: Final = ("type", "title", "status", "code", "detail", "instance", "field", "hint", "retryable", "request_id")


def from_reply(status: int, headers: Mapping[str, str], body: bytes) -> MillpondError:
    """The error as raised by the server."""
    problem = _members(body)
    error = from_problem(problem, status) if "code" in problem else _from_status(status, headers)
    error.request_id = error.request_id or headers.get("request-id")
    return error


def from_problem(problem: Mapping[str, Any], status: int) -> MillpondError:
    """An RFC 9457 problem as the error with its code; unknown codes keep their name."""
    code = str(problem["code"])
    known = _BY_CODE.get(code)
    error = (known or MillpondError)(_text(problem, "detail") or _text(problem, "title"))
    error.field, error.hint, error.request_id = (_text(problem, name) for name in ("field", "hint", "request_id"))
    error.details.update({name: value for name, value in problem.items() if name not in _STANDARD})
    # The response takes precedence over the defaults of the class: a 503 that is not retryable is not repeated.
    retryable = problem.get("retryable", status in _PASSING if known is None else known.retryable) is True
    vars(error).update(code=code, status=status, retryable=retryable)
    return error


def _from_status(status: int, headers: Mapping[str, str]) -> MillpondError:
    if 300 <= status < 400:  # noqa: PLR2004 - the redirections of HTTP
        return UnreadableError(
            f"The server redirected the request to {headers.get('location', 'an unknown location')[:200]!r}.",
            hint="The client does not follow redirects, to protect the key. Set the URL to the server's own address.",
        )
    error = _BY_STATUS.get(status, MillpondError)(f"The server responded with HTTP {status} and no error message.")
    vars(error).update(status=status)
    return error


def retry_after(error: MillpondError, headers: Mapping[str, str]) -> float | None:
    """The seconds to wait before the next request, if the server states them."""
    for value in (headers.get("retry-after"), error.details.get("retry_after")):
        with suppress(TypeError, ValueError):
            seconds = float(cast("Any", value))
            return max(seconds, 0.0) if math.isfinite(seconds) else None
        with suppress(TypeError, ValueError):
            instant = parsedate_to_datetime(cast("Any", value))
            return max((instant.astimezone(UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    return None


def _members(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}


def _text(problem: Mapping[str, Any], name: str) -> str | None:
    value = problem.get(name)
    return None if value is None else str(value)
