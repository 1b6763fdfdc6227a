"""Findings: what a source may say of a project. A source is somebody else's, and may say very much."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from millpond import values

SIZE_MAX: Final = 64 * 1024
"""Bytes of JSON that one source may say: those of all sources stand together in the context of a project."""
_CUTS: Final = ((2_000, 60), (1_000, 30), (400, 15), (150, 8), (60, 4), (20, 2))
"""How long a text may be, and of how many parts the rest: each step is tried when the one before was not enough."""


def bounded(found: dict[str, Any], *, field: str) -> dict[str, Any]:
    """The same, cut down to what there is room for. What is too much is said shorter, never refused."""
    told = found
    for text_max, parts_max in _CUTS:
        if len(msgspec.json.encode(told)) <= SIZE_MAX:
            break
        told = {name: _cut(value, text_max, parts_max) for name, value in found.items()}
    values.encode(told, field=field, most=SIZE_MAX)
    return told


def _cut(value: Any, text_max: int, parts_max: int) -> Any:
    if isinstance(value, str):
        return _shortened(value, text_max)
    if isinstance(value, list):
        return [_cut(part, text_max, parts_max) for part in cast("list[Any]", value)[:parts_max]]
    if isinstance(value, dict):
        parts = list(cast("dict[str, Any]", value).items())[:parts_max]
        return {name: _cut(part, text_max, parts_max) for name, part in parts}
    return value


def _shortened(text: str, most: int) -> str:
    """An address that is cut leads elsewhere: that is left out."""
    if len(text) <= most:
        return text
    return "" if text.startswith(("http://", "https://")) else f"{text[: most - 1].rstrip()}…"
