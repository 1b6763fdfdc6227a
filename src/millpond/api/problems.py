"""Problems: errors in the format of RFC 9457. They contain what a caller can act on, and no internals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import errors, wire
from millpond.errors import MillpondError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond.api.calls import Headers

MEDIA_TYPE: Final = b"application/problem+json"
DOCS: Final = "/docs/problems/"
_OURS: Final = 500  # from here on the server is at fault, and the response has no details
_RETRY_SECONDS: Final = {429: 1, 503: 1}
_RESERVED: Final = frozenset(wire.Problem.__struct_fields__)


def all_errors(top: type[MillpondError] = MillpondError) -> Iterator[type[MillpondError]]:
    """All errors with a documented code, beginning with the root of the tree."""
    yield top
    for below in top.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from all_errors(below)


def title(kind: type[MillpondError]) -> str:
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")


def describe(error: BaseException, *, request_id: str | None = None, root: str = "") -> dict[str, Any]:
    """The members of the problem of an error; an unexpected error is described without internals."""
    kind = _documented(error)
    problem = wire.Problem(
        type=f"{root}{DOCS}{kind.code}",
        title=title(kind),
        status=kind.status,
        code=kind.code,
        detail=f"{title(kind)}.",
        retryable=kind.retryable,
        request_id=request_id,
    )
    if not isinstance(error, MillpondError) or kind.status >= _OURS:
        return msgspec.to_builtins(problem)
    problem.detail, problem.field, problem.hint = error.message, error.field, error.hint
    details = {name: value for name, value in error.details.items() if name not in _RESERVED}
    return msgspec.to_builtins(problem) | msgspec.to_builtins(details)


def headers(error: BaseException, problem: dict[str, Any]) -> Headers:
    """The headers of a problem: the media type, how to authenticate, when to retry, the allowed methods."""
    made: Headers = [(b"content-type", MEDIA_TYPE), (b"cache-control", b"no-store")]
    status = problem["status"]
    if status == errors.UnauthorizedError.status:
        made.append((b"www-authenticate", b'Bearer realm="millpond"'))
    if "retry_after" in problem or (status in _RETRY_SECONDS and problem.get("retryable")):
        made.append((b"retry-after", b"%d" % problem.get("retry_after", _RETRY_SECONDS.get(status))))
    if isinstance(error, errors.MethodNotAllowedError):
        made.append((b"allow", str(problem["allow"]).encode()))
    return made


def _documented(error: BaseException) -> type[MillpondError]:
    """The nearest documented class."""
    for kind in type(error).__mro__:
        if issubclass(kind, MillpondError) and kind.__module__ == errors.__name__:
            return kind
    return MillpondError


def is_ours(error: BaseException) -> bool:
    """Whether the error must be logged: the server is at fault, and not only because the database is unavailable."""
    return not isinstance(error, MillpondError) or (error.status >= _OURS and not isinstance(error, StoreError))


def as_problem(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:  # noqa: ARG001 - given signature
    """The status and body of an error in the native API."""
    return problem["status"], problem
