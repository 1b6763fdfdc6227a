"""The errors that Millpond raises.

    MillpondError
    ├── InvalidError                 the request is wrong; nothing was written
    │   ├── UnknownKindError
    │   ├── UnknownRouteError
    │   ├── InputError               the input does not match the kind's schema or a limit
    │   ├── AmountError
    │   ├── IdempotencyKeyError      the key itself is malformed
    │   ├── TreeTooLargeError        a job has too many descendants
    │   ├── ChildCycleError          a child equals an ancestor
    │   ├── ArtifactMissingError     the uploaded file is not in storage
    │   ├── ArtifactMismatchError    the uploaded file differs from what was announced
    │   ├── OutboundRefusedError     a URL with a private or unknown address
    │   ├── ContentBlockedError      a gate rejects the input
    │   └── SettingsError
    ├── RequestError                 an HTTP request that cannot be processed
    │   ├── MalformedError           not JSON, or not valid HTTP/1.1
    │   ├── MethodNotAllowedError
    │   ├── NotAcceptableError
    │   ├── TooLargeError
    │   │   └── HeadTooLargeError    its headers are too large
    │   ├── TooSlowError
    │   ├── RangeError               the requested byte range does not exist
    │   └── MediaTypeError
    ├── UnauthorizedError            no key, or one that is invalid, expired or revoked
    │   ├── SessionMissingError      the browser has no dashboard session
    │   └── SessionExpiredError      the session has expired
    ├── ForbiddenError               a valid key without the required permission
    │   ├── CsrfError                a request that another website may have sent
    │   ├── WorkerRevokedError
    │   ├── WorkerUnapprovedError
    │   ├── BadSignatureError        a file URL or callback with an invalid signature
    │   ├── UrlExpiredError          a signed URL that has expired
    │   └── WebhookInvalidError      a webhook with an invalid signature or timestamp
    ├── RateLimitedError
    ├── NotFoundError                absent, or owned by another tenant
    ├── ConflictError                the request conflicts with the current state
    │   ├── ArtifactStoredError      a file that was uploaded before; stored files do not change
    │   ├── BatchClosedError         a batch that has all its jobs, or was canceled
    │   ├── IdempotencyConflictError
    │   ├── TransitionDeniedError          the lifecycle does not have this transition
    │   │   ├── CancelUnavailableError
    │   │   ├── RetryUnavailableError
    │   │   └── AnswerUnavailableError
    │   ├── RefundUnavailableError   no charge is left to refund
    │   ├── PriorityUnavailableError the job is no longer waiting
    │   ├── LeaseLostError           the worker must discard its result
    │   └── WorkerAliveError         a live worker has the same name
    ├── FleetFullError
    ├── ProviderMissingError         no provider is configured for the kind
    ├── GateMissingError             the gate of the kind is not declared
    ├── InsufficientCreditsError
    ├── TooManyActiveJobsError
    ├── LifecycleError               an invalid lifecycle or kind; raised at load
    ├── HandlerError                 raised by a job's code to end the job
    │   ├── TransientError           retry, optionally after a given time
    │   │   └── OutboundFailedError  a URL that could not be reached
    │   ├── PermanentError           do not retry
    │   ├── BlockedError             the content is not allowed
    │   ├── ChildFailedError         a child did not succeed
    │   ├── UnansweredError          a question was not answered in time
    │   ├── StepOrderError           an attempt did not repeat the recorded steps
    │   ├── CanceledError            raised at a checkpoint when the job must stop
    │   ├── TimeLimitError           the job exceeded its time limit
    │   ├── StalledError             the job reported no progress for too long
    │   ├── ProcessCrashedError      the process that ran the job ended
    │   ├── ResourceFailedError      a resource of the handler could not be created
    │   └── InterruptedJobError      the worker stopped
    └── StoreError
        ├── EmbeddedPostgresError
        ├── MigrationError
        ├── StorageUnavailableError  the file storage is unavailable
        ├── VaultError               the encryption key is missing or wrong
        ├── OverdueError             a statement exceeded its time limit
        └── UnavailableError         the database cannot be reached, or cannot write; safe to retry
            └── BusyError            another transaction holds a required lock

Each class has a stable ``code``, an HTTP ``status``, and ``retryable``, which states whether the same
call may succeed later. The docstring is the default message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from datetime import timedelta


class MillpondError(Exception):
    """An unexpected error occurred."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    request_id: str | None = None  # the id of the rejected request, if any

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
        """The error as stored on a job and returned to callers."""
        members = {"code": self.code, "message": self.message, "field": self.field, "hint": self.hint}
        return {name: value for name, value in members.items() if value is not None} | self.details


class InvalidError(MillpondError):
    """The request is not valid."""

    code = "invalid"
    status = 422


class UnknownKindError(InvalidError):
    """The kind does not exist."""

    code = "unknown_kind"


class UnknownRouteError(InvalidError):
    """The route does not exist."""

    code = "unknown_route"


class InputError(InvalidError):
    """The input does not match the schema of the kind."""

    code = "invalid_input"


class AmountError(InvalidError):
    """The amount of credits must be a whole number within the limits."""

    code = "invalid_amount"


class IdempotencyKeyError(InvalidError):
    """The idempotency key is malformed."""

    code = "invalid_idempotency_key"


class TreeTooLargeError(InvalidError):
    """The job has too many descendants, or they are nested too deeply."""

    code = "tree_too_large"


class ChildCycleError(InvalidError):
    """The child has the same kind and input as an ancestor, so it would submit children without end."""

    code = "child_cycle"


class ArtifactMissingError(InvalidError):
    """The file is not in storage."""

    code = "artifact_missing"


class ArtifactMismatchError(InvalidError):
    """The file does not match its announced size or checksum."""

    code = "artifact_mismatch"


class OutboundRefusedError(InvalidError):
    """The URL is not allowed."""

    code = "url_refused"


class ContentBlockedError(InvalidError):
    """The content is not allowed. Nothing was charged."""

    code = "content_blocked"


class SettingsError(InvalidError):
    """The settings are invalid."""

    code = "invalid_settings"


class RequestError(MillpondError):
    """The request cannot be processed."""

    code = "bad_request"
    status = 400


class MalformedError(RequestError):
    """The request cannot be parsed."""

    code = "malformed"


class MethodNotAllowedError(RequestError):
    """The resource does not support this method."""

    code = "method_not_allowed"
    status = 405


class NotAcceptableError(RequestError):
    """The resource is not available in any media type that the request accepts."""

    code = "not_acceptable"
    status = 406


class TooLargeError(RequestError):
    """The request is larger than the limit."""

    code = "too_large"
    status = 413


class HeadTooLargeError(TooLargeError):
    """The request headers are larger than the limit."""

    code = "head_too_large"
    status = 431


class TooSlowError(RequestError):
    """The request did not arrive in time."""

    code = "too_slow"
    status = 408
    retryable = True


class RangeError(RequestError):
    """The file does not contain the requested range."""

    code = "range_not_satisfiable"
    status = 416


class MediaTypeError(RequestError):
    """The body must be JSON."""

    code = "unsupported_media_type"
    status = 415


class UnauthorizedError(MillpondError):
    """The request requires a valid key."""

    code = "unauthorized"
    status = 401


class SessionMissingError(UnauthorizedError):
    """The browser has no dashboard session."""

    code = "session_missing"


class SessionExpiredError(UnauthorizedError):
    """The dashboard session has expired."""

    code = "session_expired"


class ForbiddenError(MillpondError):
    """The key does not permit this operation."""

    code = "forbidden"
    status = 403


class CsrfError(ForbiddenError):
    """The request was not sent by a page of this dashboard."""

    code = "csrf"


class WorkerRevokedError(ForbiddenError):
    """The worker was revoked."""

    code = "worker_revoked"


class WorkerUnapprovedError(ForbiddenError):
    """The worker is not approved by an operator yet."""

    code = "worker_unapproved"
    retryable = True


class BadSignatureError(ForbiddenError):
    """The signature of the URL is invalid."""

    code = "bad_signature"


class UrlExpiredError(ForbiddenError):
    """The URL has expired."""

    code = "url_expired"


class WebhookInvalidError(ForbiddenError):
    """The signature of the webhook is invalid, or its timestamp is outside the allowed window."""

    code = "webhook_invalid"
    status = 401


class RateLimitedError(MillpondError):
    """Too many requests."""

    code = "rate_limited"
    status = 429
    retryable = True


class NotFoundError(MillpondError):
    """The object does not exist, or belongs to another tenant."""

    code = "not_found"
    status = 404


class ConflictError(MillpondError):
    """The request conflicts with the current state of the object."""

    code = "conflict"
    status = 409


class ArtifactStoredError(ConflictError):
    """The file is already in storage, and a stored file cannot be replaced."""

    code = "artifact_stored"
    status = 412


class BatchClosedError(ConflictError):
    """The batch accepts no more jobs."""

    code = "batch_closed"


class IdempotencyConflictError(ConflictError):
    """The idempotency key was already used with a different request."""

    code = "idempotency_conflict"


class TransitionDeniedError(ConflictError):
    """The lifecycle does not allow this transition."""

    code = "transition_denied"


class CancelUnavailableError(TransitionDeniedError):
    """The job cannot be canceled in its current state."""

    code = "cancel_unavailable"


class RetryUnavailableError(TransitionDeniedError):
    """The job cannot be retried in its current state."""

    code = "retry_unavailable"


class AnswerUnavailableError(TransitionDeniedError):
    """The job is not waiting for an answer."""

    code = "answer_unavailable"


class RefundUnavailableError(ConflictError):
    """The job has no charge left to refund."""

    code = "refund_unavailable"


class PriorityUnavailableError(ConflictError):
    """The job is no longer waiting to run."""

    code = "priority_unavailable"


class LeaseLostError(ConflictError):
    """The lease is no longer held; discard the result."""

    code = "lease_lost"


class WorkerAliveError(ConflictError):
    """A worker with this name is registered and sends heartbeats."""

    code = "worker_alive"
    retryable = True


class FleetFullError(MillpondError):
    """The fleet has reached its limit of workers."""

    code = "fleet_full"
    status = 429
    retryable = True


class ProviderMissingError(MillpondError):
    """No provider is configured for this kind."""

    code = "provider_missing"
    status = 503


class GateMissingError(MillpondError):
    """The gate of this kind is not declared."""

    code = "gate_missing"
    status = 503


class InsufficientCreditsError(MillpondError):
    """The account does not have enough credits."""

    code = "insufficient_credits"
    status = 402


class TooManyActiveJobsError(MillpondError):
    """The account has reached its limit of active jobs."""

    code = "too_many_active_jobs"
    status = 429
    retryable = True


class LifecycleError(MillpondError):
    """The declaration of the lifecycle or kind is invalid."""

    code = "invalid_lifecycle"


class HandlerError(MillpondError):
    """The job's code failed."""

    code = "handler_failed"


class TransientError(HandlerError):
    """The job failed temporarily."""

    code = "transient"
    retryable = True

    def __init__(self, message: str | None = None, *, retry_after: timedelta | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class OutboundFailedError(TransientError):
    """The URL could not be reached or did not respond."""

    code = "outbound_failed"
    status = 502

    @property
    def reason(self) -> str:
        """What failed: dns, connect, tls, timeout, reset or protocol."""
        return self.details.get("reason", "connect")


class PermanentError(HandlerError):
    """The job failed permanently."""

    code = "permanent"


class BlockedError(HandlerError):
    """The content is not allowed."""

    code = "blocked"


class ChildFailedError(HandlerError):
    """A child of the job did not succeed."""

    code = "child_failed"


class UnansweredError(HandlerError):
    """The question was not answered in time."""

    code = "unanswered"


class StepOrderError(HandlerError):
    """The code of the job did not repeat the steps that an earlier attempt recorded."""

    code = "step_order"


class CanceledError(HandlerError):
    """The job was canceled."""

    code = "canceled"


class TimeLimitError(HandlerError):
    """The job exceeded the time limit of its kind."""

    code = "time_limit"
    retryable = True


class StalledError(HandlerError):
    """The job did not report progress within the stall limit of its kind."""

    code = "stalled"
    retryable = True


class ProcessCrashedError(HandlerError):
    """The process that ran the job ended unexpectedly."""

    code = "process_crashed"
    retryable = True


class ResourceFailedError(HandlerError):
    """A resource of the handler could not be created."""

    code = "resource_failed"
    retryable = True


class InterruptedJobError(HandlerError):
    """The worker stopped before the job was done."""

    code = "interrupted"


class StoreError(MillpondError):
    """The database cannot be used."""

    code = "store"
    status = 503


class EmbeddedPostgresError(StoreError):
    """The embedded PostgreSQL cannot be started."""

    code = "embedded_postgres"


class MigrationError(StoreError):
    """The database schema cannot be migrated."""

    code = "migration"


class StorageUnavailableError(StoreError):
    """The file storage is unavailable."""

    code = "storage_unavailable"
    retryable = True


class VaultError(StoreError):
    """Secrets cannot be encrypted or decrypted: the encryption key is missing or differs from the one in use."""

    code = "vault_unavailable"
    status = 501  # a 503 would be retried, but the same request only succeeds once an operator has set the key


class OverdueError(StoreError):
    """The database statement exceeded its time limit. Request less, or try again."""

    code = "overdue"
    retryable = True


class UnavailableError(StoreError):
    """The database is temporarily unavailable. The request can be retried."""

    code = "unavailable"
    retryable = True
    state: str = "not reachable"
    """What is wrong with the database, in fixed words that everybody may read, such as read-only or disk full."""
    reason: str | None = None
    """The driver's message: for the operator's log, not for the caller."""
    is_unsent: bool = False
    """Whether the statement was certainly not sent, so that it can be run on another connection."""

    def __str__(self) -> str:
        return super().__str__() + (f" {self.reason}" if self.reason else "")


class BusyError(UnavailableError):
    """Another transaction holds a required lock. The request can be retried."""

    code = "busy"
