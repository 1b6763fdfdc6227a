"""Findings: limits the facts that a source contributes to a project. Sources are external, and may be very large."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from millpond import values

SIZE_MAX: Final = 64 * 1024
"""The maximum size of one source's facts in bytes of JSON. A project's context contains those of all sources."""
_CUTS: Final = ((2_000, 60), (1_000, 30), (400, 15), (150, 8), (60, 4), (20, 2))
"""The maximum length of a text, and of a list or object. Each step is tried if the previous one was not enough."""


def bounded(found: dict[str, Any], *, field: str) -> dict[str, Any]:
    """The facts, cut to the maximum size. Facts that are too large are shortened, never refused."""
    facts = found
    for text_max, parts_max in _CUTS:
        if len(msgspec.json.encode(facts)) <= SIZE_MAX:
            break
        facts = {name: _cut(value, text_max, parts_max) for name, value in found.items()}
    values.encode(facts, field=field, limit=SIZE_MAX)
    return facts


def _cut(value: Any, text_max: int, parts_max: int) -> Any:
    if isinstance(value, str):
        return _shortened(value, text_max)
    if isinstance(value, list):
        return [_cut(part, text_max, parts_max) for part in cast("list[Any]", value)[:parts_max]]
    if isinstance(value, dict):
        parts = list(cast("dict[str, Any]", value).items())[:parts_max]
        return {name: _cut(part, text_max, parts_max) for name, part in parts}
    return value


def _shortened(text: str, limit: int) -> str:
    """The text, cut to ``limit`` characters. A URL is dropped instead: if it were cut, it would lead elsewhere."""
    if len(text) <= limit:
        return text
    return "" if text.startswith(("http://", "https://")) else f"{text[: limit - 1].rstrip()}…"
