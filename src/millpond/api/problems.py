"""Problems: errors as RFC 9457 tells them. What a caller can act on is told; what is inside stays inside."""

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
_OURS: Final = 500  # from here on it is our fault, and the caller is not told what broke
_RETRY_SECONDS: Final = {429: 1, 503: 1}
_RESERVED: Final = frozenset(wire.Problem.__struct_fields__)


def every_kind(top: type[MillpondError] = MillpondError) -> Iterator[type[MillpondError]]:
    """All errors that have a documented code, from the root of the tree on."""
    yield top
    for below in top.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from every_kind(below)


def title(kind: type[MillpondError]) -> str:
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")


def told(error: BaseException, *, request_id: str | None = None, root: str = "") -> dict[str, Any]:
    """An error as the members of a problem; one that is nobody's intention is told without any inside."""
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
    """The headers that go with a problem: what to send, when to come again, which methods there are."""
    made: Headers = [(b"content-type", MEDIA_TYPE), (b"cache-control", b"no-store")]
    status = problem["status"]
    if status == errors.UnauthorizedError.status:
        made.append((b"www-authenticate", b'Bearer realm="millpond"'))
    if status in _RETRY_SECONDS or "retry_after" in problem:
        made.append((b"retry-after", b"%d" % problem.get("retry_after", _RETRY_SECONDS.get(status))))
    if isinstance(error, errors.MethodNotAllowedError):
        made.append((b"allow", str(problem["allow"]).encode()))
    return made


def _documented(error: BaseException) -> type[MillpondError]:
    """The nearest class that the documentation knows."""
    for kind in type(error).__mro__:
        if issubclass(kind, MillpondError) and kind.__module__ == errors.__name__:
            return kind
    return MillpondError


def is_ours(error: BaseException) -> bool:
    """Whether it must be logged: something broke here, and the database's absence is not news each time."""
    return not isinstance(error, MillpondError) or (error.status >= _OURS and not isinstance(error, StoreError))
