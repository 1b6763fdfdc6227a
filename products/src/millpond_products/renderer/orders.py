"""The messages between the server and a press: one line of JSON each."""

from __future__ import annotations

from typing import Any

import msgspec


class RenderOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction to render."""

    model: str
    input: dict[str, Any]
    seed: int
    image: str | None = None
    """The file with the image of the product."""
    target: str
    """The file to write, without its extension."""


class LogText(msgspec.Struct, frozen=True, tag="log"):
    """A line for the log of the prediction."""

    text: str


class Rendered(msgspec.Struct, frozen=True, kw_only=True, tag="made"):
    """The result: a file or an error."""

    path: str = ""
    content_type: str = ""
    error: str | None = None


class UnmakeableError(Exception):
    """The input is valid, but it cannot be rendered."""
