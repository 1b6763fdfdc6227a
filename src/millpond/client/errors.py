"""What the client raises: the server's own errors, by their codes, and how a job can disappoint its caller.

MillpondError
├── JobEndedError            the job ended otherwise than its caller hoped
│   ├── JobFailedError
│   ├── JobCanceledError
│   ├── JobExpiredError
│   └── JobBlockedError
├── WaitTimeoutError         the caller's patience ended before the job did
└── UnreadableError          something answered, but not as Millpond does
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

    from millpond.client.handles import Handle


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
    """The job has not ended in the time that was given; it goes on."""

    code = "wait_timeout"
    status = 408
    retryable = True

    def __init__(self, message: str | None = None, *, job: Handle, **details: Any) -> None:
        super().__init__(message, **details)
        self.job = job


class UnreadableError(MillpondError):
    """The answer is not one of Millpond's."""

    code = "unreadable_answer"
    status = 502


_BY_OUTCOME: Final = {
    "failed": JobFailedError,
    "canceled": JobCanceledError,
    "expired": JobExpiredError,
    "blocked": JobBlockedError,
}


def check_outcome(job: Handle) -> None:
    """Raise what fits an ended job that did not succeed."""
    if job.outcome == "succeeded":
        return
    made = _BY_OUTCOME.get(str(job.outcome), JobEndedError)
    told = job.error or {}
    reason = told.get("message")
    message = f"{job.id} ({job.kind}) ended as {job.state}{f': {reason}' if reason else '.'}"
    raise made(message, job=job, field=told.get("field"), hint=told.get("hint"), error=told)


# From an answer to an error


def _tree(top: type[MillpondError]) -> Iterator[type[MillpondError]]:
    yield top
    for below in top.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


_BY_CODE: Final = {made.code: made for made in _tree(MillpondError)}
# What a proxy says in the server's place, without a code.
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
_TOLD: Final = ("type", "title", "status", "code", "detail", "instance", "field", "hint", "retryable", "request_id")


def from_reply(status: int, headers: Mapping[str, str], body: bytes) -> MillpondError:
    """The error that the server raised, as it was raised there."""
    told = _members(body)
    error = from_problem(told, status) if "code" in told else _from_status(status, headers)
    error.request_id = error.request_id or headers.get("request-id")
    return error


def from_problem(told: Mapping[str, Any], status: int) -> MillpondError:
    """A problem of RFC 9457 as the error of its code; a code we do not know keeps its name."""
    code = str(told["code"])
    error = _BY_CODE.get(code, MillpondError)(_text(told, "detail") or _text(told, "title"))
    error.field, error.hint, error.request_id = (_text(told, name) for name in ("field", "hint", "request_id"))
    error.details.update({name: value for name, value in told.items() if name not in _TOLD})
    # What this answer says goes before what its class says.
    vars(error).update(code=code, status=status, retryable=told.get("retryable", error.retryable) is True)
    return error


def _from_status(status: int, headers: Mapping[str, str]) -> MillpondError:
    if 300 <= status < 400:  # noqa: PLR2004 - the redirections of HTTP
        return UnreadableError(
            f"The server sends the request elsewhere: {headers.get('location', 'it does not say where')[:200]!r}.",
            hint="The key is not sent after it; set the URL to where the server is.",
        )
    error = _BY_STATUS.get(status, MillpondError)(f"The answer was HTTP {status}, without a word of why.")
    vars(error).update(status=status)
    return error


def retry_after(error: MillpondError, headers: Mapping[str, str]) -> float | None:
    """How many seconds the server wants us to stay away, if it says so."""
    for said in (headers.get("retry-after"), error.details.get("retry_after")):
        with suppress(TypeError, ValueError):
            seconds = float(cast("Any", said))
            return max(seconds, 0.0) if math.isfinite(seconds) else None
        with suppress(TypeError, ValueError):
            moment = parsedate_to_datetime(cast("Any", said))
            return max((moment.astimezone(UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    return None


def _members(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}


def _text(told: Mapping[str, Any], name: str) -> str | None:
    value = told.get(name)
    return None if value is None else str(value)
