"""The error responses of the renderer, in the format of Replicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorResponse(Exception):  # noqa: N818 - it is a response, not a failure
    """An error response."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{title}: {detail}")
        self.status = status
        self.headers = dict(headers or {})
        self.body = {"title": title, "detail": detail, "status": status, **(more or {})}


def unknown(what: str) -> ErrorResponse:
    """The error for an object that does not exist, or no longer: a restarted renderer has lost everything."""
    return ErrorResponse(404, "Not found", f"The requested {what} could not be found.")
