"""What the server and a press say to each other, a line of JSON at a time."""

from __future__ import annotations

from typing import Any

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work."""

    model: str
    input: dict[str, Any]
    seed: int
    image: str | None = None
    """The file with the picture of the product."""
    target: str
    """The file to write, without its ending."""


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A line for the log of the prediction."""

    text: str


class Made(msgspec.Struct, frozen=True, kw_only=True, tag="made"):
    """The end of it: a file, or an error."""

    path: str = ""
    content_type: str = ""
    error: str | None = None


class UnmakeableError(Exception):
    """The input is in order, and yet nothing can be made of it."""
