"""What the renderer answers when it does not do what it is asked, in the shape of Replicate's problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818 - it is an answer, and not a mishap
    """An answer that is not the one that was hoped for."""

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


def unknown(what: str) -> Refusal:
    """There is none, or there is none any more: a renderer that was started anew has forgotten everything."""
    return Refusal(404, "Not found", f"The requested {what} could not be found.")
