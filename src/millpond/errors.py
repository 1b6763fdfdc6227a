"""Every error Millpond raises on purpose.

    MillpondError
    ├── InvalidError                 the request is wrong; nothing was written
    │   ├── UnknownKindError
    │   ├── UnknownRouteError
    │   ├── InputError               the input fails the kind's schema or our limits
    │   ├── AmountError
    │   ├── IdempotencyKeyError      the key itself is malformed
    │   ├── ArtifactMissingError     what was to be uploaded is not in storage
    │   ├── ArtifactMismatchError    it is, but not as it was announced
    │   ├── OutboundRefusedError     a URL that leads inside, or nowhere
    │   ├── ContentBlockedError      a gate does not let the input pass
    │   └── SettingsError
    ├── RequestError                 an HTTP request that cannot be read or served as it is
    │   ├── MalformedError           not JSON, or not HTTP as we speak it
    │   ├── MethodNotAllowedError
    │   ├── NotAcceptableError
    │   ├── TooLargeError
    │   │   └── HeadTooLargeError    its headers are
    │   ├── TooSlowError
    │   ├── RangeError               the part of a file that is asked for is not there
    │   └── MediaTypeError
    ├── UnauthorizedError            no key, or one that is not good (any more)
    │   ├── SessionMissingError      nobody has signed in to the dashboard with this browser
    │   └── SessionExpiredError      somebody had
    ├── ForbiddenError               a good key, for something else
    │   ├── CsrfError                what another page may have sent in our operator's name
    │   ├── WorkerRevokedError
    │   ├── WorkerUnapprovedError
    │   ├── BadSignatureError        a URL of a file, or a callback, that was not signed so
    │   ├── UrlExpiredError          one that was good once
    │   └── WebhookInvalidError      a webhook that we did not send, or not now
    ├── RateLimitedError
    ├── NotFoundError                absent, or another tenant's: the two look alike
    ├── ConflictError                right request, wrong moment
    │   ├── IdempotencyConflictError
    │   ├── MoveDeniedError          the lifecycle has no such arrow
    │   │   ├── CancelUnavailableError
    │   │   ├── RetryUnavailableError
    │   │   └── AnswerUnavailableError
    │   ├── RefundUnavailableError   nothing is left of what the job cost
    │   ├── PriorityUnavailableError it has had its turn
    │   ├── LeaseLostError           the worker must drop its result
    │   └── WorkerAliveError         its name is taken by one that lives
    ├── FleetFullError
    ├── ProviderMissingError         nobody is there to run jobs of this kind
    ├── GateMissingError             nobody is there to look at their content
    ├── InsufficientCreditsError
    ├── TooManyActiveJobsError
    ├── LifecycleError               a lifecycle or kind that cannot work; raised at load
    ├── HandlerError                 what the code of a job may raise to say how it ended
    │   ├── TransientError           try again, perhaps after a given time
    │   │   └── OutboundFailedError  a call to a URL that brought no answer
    │   ├── PermanentError           trying again would not help
    │   ├── BlockedError             the content is not allowed
    │   ├── CanceledError            raised at a checkpoint when the job must stop
    │   ├── TimeLimitError           it ran longer than its kind allows
    │   ├── StalledError             it gave no sign for longer than its kind allows
    │   └── InterruptedJobError      its worker had to go
    └── StoreError
        ├── EmbeddedPostgresError
        ├── MigrationError
        ├── StorageUnavailableError  where files are kept
        ├── VaultError               what secrets are encrypted with is missing, or another
        ├── OverdueError             a statement took longer than it may, and was cut
        └── UnavailableError         the database could not be reached; safe to try again
            └── BusyError            another transaction holds on to what this needs

Each class states its ``code`` (stable, part of the contract), the HTTP ``status`` that answers it,
and whether the same call may succeed when ``retryable``. The docstring is the default message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from datetime import timedelta


class MillpondError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    request_id: str | None = None  # of the request that was refused, where there was one

    def __init__(
        self,
        message: str | None = None,
        *,
        field: str | None = None,
        hint: str | None = None,
        **details: Any,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.field = field
        self.hint = hint
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"

    def as_dict(self) -> dict[str, Any]:
        """The error as stored on a job and told to a caller."""
        told = {"code": self.code, "message": self.message, "field": self.field, "hint": self.hint}
        return {name: value for name, value in told.items() if value is not None} | self.details


class InvalidError(MillpondError):
    """The request is not valid."""

    code = "invalid"
    status = 422


class UnknownKindError(InvalidError):
    """There is no such kind of job."""

    code = "unknown_kind"


class UnknownRouteError(InvalidError):
    """There is no such route."""

    code = "unknown_route"


class InputError(InvalidError):
    """The input does not fit what the kind expects."""

    code = "invalid_input"


class AmountError(InvalidError):
    """The amount of credits is not a whole number within the limits."""

    code = "invalid_amount"


class IdempotencyKeyError(InvalidError):
    """The idempotency key is malformed."""

    code = "invalid_idempotency_key"


class ArtifactMissingError(InvalidError):
    """The file is not in storage."""

    code = "artifact_missing"


class ArtifactMismatchError(InvalidError):
    """The file is not what it was announced to be."""

    code = "artifact_mismatch"


class OutboundRefusedError(InvalidError):
    """The URL may not be called."""

    code = "url_refused"


class ContentBlockedError(InvalidError):
    """The content is not allowed, and nothing was charged."""

    code = "content_blocked"


class SettingsError(InvalidError):
    """The settings are not valid."""

    code = "invalid_settings"


class RequestError(MillpondError):
    """The request cannot be served as it is."""

    code = "bad_request"
    status = 400


class MalformedError(RequestError):
    """The request cannot be read."""

    code = "malformed"


class MethodNotAllowedError(RequestError):
    """There is something here, but not by this method."""

    code = "method_not_allowed"
    status = 405


class NotAcceptableError(RequestError):
    """What is here cannot be told in any form that the request accepts."""

    code = "not_acceptable"
    status = 406


class TooLargeError(RequestError):
    """The request is larger than the limit."""

    code = "too_large"
    status = 413


class HeadTooLargeError(TooLargeError):
    """The headers of the request are larger than the limit."""

    code = "head_too_large"
    status = 431


class TooSlowError(RequestError):
    """The request did not arrive in time."""

    code = "too_slow"
    status = 408
    retryable = True


class RangeError(RequestError):
    """The file has no such part."""

    code = "range_not_satisfiable"
    status = 416


class MediaTypeError(RequestError):
    """The body must be JSON."""

    code = "unsupported_media_type"
    status = 415


class UnauthorizedError(MillpondError):
    """A valid key is needed."""

    code = "unauthorized"
    status = 401


class SessionMissingError(UnauthorizedError):
    """Nobody is signed in to the dashboard here."""

    code = "session_missing"


class SessionExpiredError(UnauthorizedError):
    """The sign-in to the dashboard is over."""

    code = "session_expired"


class ForbiddenError(MillpondError):
    """The key does not allow this."""

    code = "forbidden"
    status = 403


class CsrfError(ForbiddenError):
    """The request does not come from a page of this dashboard."""

    code = "csrf"


class WorkerRevokedError(ForbiddenError):
    """The worker was revoked."""

    code = "worker_revoked"


class WorkerUnapprovedError(ForbiddenError):
    """The worker waits for an operator's approval."""

    code = "worker_unapproved"
    retryable = True


class BadSignatureError(ForbiddenError):
    """The URL is not signed for this."""

    code = "bad_signature"


class UrlExpiredError(ForbiddenError):
    """The URL has expired."""

    code = "url_expired"


class WebhookInvalidError(ForbiddenError):
    """The webhook is not signed with this secret, or its time has passed."""

    code = "webhook_invalid"
    status = 401


class RateLimitedError(MillpondError):
    """Too many requests; slow down."""

    code = "rate_limited"
    status = 429
    retryable = True


class NotFoundError(MillpondError):
    """There is no such thing, or it is not yours."""

    code = "not_found"
    status = 404


class ConflictError(MillpondError):
    """The request does not fit the present state."""

    code = "conflict"
    status = 409


class IdempotencyConflictError(ConflictError):
    """The idempotency key was used before with another request."""

    code = "idempotency_conflict"


class MoveDeniedError(ConflictError):
    """The lifecycle does not allow this move."""

    code = "move_denied"


class CancelUnavailableError(MoveDeniedError):
    """The job cannot be canceled now."""

    code = "cancel_unavailable"


class RetryUnavailableError(MoveDeniedError):
    """The job cannot be retried now."""

    code = "retry_unavailable"


class AnswerUnavailableError(MoveDeniedError):
    """The job is not waiting for an answer."""

    code = "answer_unavailable"


class RefundUnavailableError(ConflictError):
    """The job has cost nothing that could be given back."""

    code = "refund_unavailable"


class PriorityUnavailableError(ConflictError):
    """The job does not wait for its turn any more."""

    code = "priority_unavailable"


class LeaseLostError(ConflictError):
    """The lease is no longer held; the result must be dropped."""

    code = "lease_lost"


class WorkerAliveError(ConflictError):
    """A worker of this name is registered and was heard from a moment ago."""

    code = "worker_alive"
    retryable = True


class FleetFullError(MillpondError):
    """The fleet has as many workers as it may have."""

    code = "fleet_full"
    status = 429
    retryable = True


class ProviderMissingError(MillpondError):
    """No provider is set up for this kind."""

    code = "provider_missing"
    status = 503


class GateMissingError(MillpondError):
    """The gate that this kind is behind is not there."""

    code = "gate_missing"
    status = 503


class InsufficientCreditsError(MillpondError):
    """The account has too few credits."""

    code = "insufficient_credits"
    status = 402


class TooManyActiveJobsError(MillpondError):
    """The account has as many active jobs as it may have."""

    code = "too_many_active_jobs"
    status = 429
    retryable = True


class LifecycleError(MillpondError):
    """The lifecycle or kind is declared in a way that cannot work."""

    code = "invalid_lifecycle"


class HandlerError(MillpondError):
    """The job's code failed."""

    code = "handler_failed"


class TransientError(HandlerError):
    """The job failed for a passing reason."""

    code = "transient"
    retryable = True

    def __init__(self, message: str | None = None, *, retry_after: timedelta | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class OutboundFailedError(TransientError):
    """The URL could not be called, or did not answer."""

    code = "outbound_failed"
    status = 502

    @property
    def reason(self) -> str:
        """What failed: dns, connect, tls, timeout, reset or protocol."""
        return self.details.get("reason", "connect")


class PermanentError(HandlerError):
    """The job failed, and trying again would not help."""

    code = "permanent"


class BlockedError(HandlerError):
    """The content is not allowed."""

    code = "blocked"


class CanceledError(HandlerError):
    """The job was canceled."""

    code = "canceled"


class TimeLimitError(HandlerError):
    """The job ran longer than its kind allows."""

    code = "time_limit"
    retryable = True


class StalledError(HandlerError):
    """The job gave no sign of going on for longer than its kind allows."""

    code = "stalled"
    retryable = True


class InterruptedJobError(HandlerError):
    """The worker had to go before the job was done."""

    code = "interrupted"


class StoreError(MillpondError):
    """The database cannot be used."""

    code = "store"
    status = 503


class EmbeddedPostgresError(StoreError):
    """The embedded PostgreSQL cannot be started."""

    code = "embedded_postgres"


class MigrationError(StoreError):
    """The database schema cannot be brought up to date."""

    code = "migration"


class StorageUnavailableError(StoreError):
    """The storage of files cannot be used now."""

    code = "storage_unavailable"
    retryable = True


class VaultError(StoreError):
    """Secrets cannot be kept: there is no key to encrypt them with, or another than they were encrypted with."""

    code = "vault_unavailable"
    status = 503


class OverdueError(StoreError):
    """The database needed longer than a statement may take here; ask for less, or try again."""

    code = "overdue"
    retryable = True


class UnavailableError(StoreError):
    """The database could not be reached; the call may be tried again."""

    code = "unavailable"
    retryable = True
    reason: str | None = None
    """What the driver said: for the log of an operator, and not for whoever called."""

    def __str__(self) -> str:
        return super().__str__() + (f" {self.reason}" if self.reason else "")


class BusyError(UnavailableError):
    """Another transaction holds on to what this needs; the call may be tried again."""

    code = "busy"
