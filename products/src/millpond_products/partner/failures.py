"""Failures: each has one of the contract's codes. There are no others, and their meanings never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from millpond import errors
from millpond_products.partner import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.kinds import Handler

LATE: Final = "The job did not end before its deadline. The credits were released."
OURS: Final = "The server failed. The credits were released."

_JOB_CODES: Final = frozenset(get_args(wire.JobCode))
_PLATFORM: Final = ("platform", "platformCode", "platformMessage", "retryAfterMs")
_TOO_LONG: Final = frozenset({"time_limit", "stalled", "expired"})
_INTENDED: Final = frozenset({"permanent", "transient"})
"""Errors with a message that a handler wrote. Other messages are of no use to partners, and may reveal internals."""


def to_wire(job: Mapping[str, Any]) -> wire.JobError:
    """Why a job has failed, from the engine's row."""
    error: dict[str, Any] = job["error"] or {}
    code: Any = error.get("code")
    message: str = error.get("message") or OURS
    if job["expires_at"] is not None and job["finished_at"] >= job["expires_at"]:
        return wire.JobError(code="TIMEOUT", message=LATE)
    if "platform" in error:
        details = {name: error.get(name) for name in _PLATFORM}
        return wire.JobError(code="PLATFORM_ERROR", message=message, details=details)
    if code in _JOB_CODES:
        details = {name: value for name, value in error.items() if name not in ("code", "message")}
        return wire.JobError(code=code, message=message, details=details)
    if code in _TOO_LONG:
        return wire.JobError(code="TIMEOUT", message=message)
    return wire.JobError(code="INTERNAL", message=message if code in _INTENDED else OURS)


def timed(handler: Handler) -> Handler:
    """Wrap a handler: if a platform has asked for a pause, its length is added to the error's details."""

    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        try:
            return await handler(job, given)
        except errors.TransientError as error:
            if error.retry_after is not None:
                error.details.setdefault("retryAfterMs", round(error.retry_after.total_seconds() * 1_000))
            raise

    return run


# Over HTTP

_STATUSES: Final[Mapping[int, wire.Code]] = {
    401: "UNAUTHENTICATED",
    402: "INSUFFICIENT_CREDITS",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "TIMEOUT",
    409: "CONFLICT",
    429: "RATE_LIMITED",
}
_SERVER_ERROR: Final = 500
_UNPROCESSABLE: Final = 422
_SUBCODES: Final = {"cancel_unavailable": "JOB_CANCEL_UNAVAILABLE"}
_FIELDS: Final = {"idempotency_key": "Idempotency-Key"}
_NOT_DETAILS: Final = frozenset({"type", "title", "status", "code", "detail", "request_id"})


def refuse(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:  # noqa: ARG001 - the signature of `refuse`
    """A problem in the contract's envelope. The native API's code is the subcode, because it is more specific."""
    status, name = problem["status"], problem["code"]
    code: wire.Code = _STATUSES.get(status) or ("INTERNAL" if status >= _SERVER_ERROR else "VALIDATION")
    if name == "idempotency_conflict":
        code = "IDEMPOTENCY_CONFLICT"
    envelope = wire.ErrorBody(
        error=wire.Trouble(
            code=code,
            message=problem["detail"],
            details={"subcode": _SUBCODES.get(name, name.upper()), **_details(problem)},
            request_id=problem.get("request_id") or "",
        )
    )
    return 400 if status == _UNPROCESSABLE else status, envelope


def _details(problem: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in problem.items() if name not in _NOT_DETAILS and value is not None}
    if "field" in found:
        found["field"] = _FIELDS.get(found["field"], found["field"])
    if "job_id" in found:
        prefix, _, letters = str(found["job_id"]).partition("_")
        found["job_id"] = f"{prefix}_{letters.upper()}"
    if "retry_after" in found:
        found["retry_after_ms"] = found.pop("retry_after") * 1_000
    return {_camel(name): value for name, value in found.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
