"""Failures: extracts a message for users from the error that a worker reports."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

TEXT_MAX: Final = 500
FAILED: Final = "Processing failed."
_NAMES: Final = ("exception_message", "error_message")
_READ_MAX: Final = 256 * 1024
_DEPTH_MAX: Final = 8
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_NAMED: Final = re.compile(
    r"""["']?\b(?:exception_message|error_message)["']?\s*[:=]\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|["']?([^"',;}\]\n]+))"""
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def describe(error: Any) -> str:
    """One line: the message in JSON, else the message in text that resembles JSON, else the first line of the text."""
    text = _SURROGATE.sub("\ufffd", (error if isinstance(error, str) else str(error))[:_READ_MAX])
    return _clean(_in_json(error, text)) or _clean(_in_text(text)) or _clean(_first_line(error)) or FAILED


def _in_json(error: Any, text: str) -> str:
    if not isinstance(error, str):
        return _search(error, _DEPTH_MAX)
    try:
        return _search(msgspec.json.decode(text), _DEPTH_MAX)
    except (msgspec.DecodeError, RecursionError):
        return ""


def _search(given: Any, depth: int) -> str:
    if depth == 0:
        return ""
    if isinstance(given, dict):
        members = cast("dict[str, Any]", given)
        for name in _NAMES:
            if isinstance(members.get(name), str) and _clean(members[name]):
                return members[name]
        parts = list(members.values())
    else:
        parts = cast("list[Any]", given) if isinstance(given, list) else []
    return next((found for part in parts if (found := _search(part, depth - 1))), "")


def _in_text(text: str) -> str:
    found = _NAMED.search(text)
    if found is None:
        return ""
    return _ESCAPED.sub(_unescaped, found[1] or found[2] or found[3] or "")


def _unescaped(found: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r", "t": " "}.get(found[1], found[1])


def _first_line(error: Any) -> str:
    """The first line of a text. Structured errors without a known name are skipped: they would not help a user."""
    lines = error[:_READ_MAX].splitlines() if isinstance(error, str) else ()
    return next((line for line in lines if _clean(line)), "")


def _clean(text: str) -> str:
    line = next((part for part in text.splitlines() if part.strip()), "")
    clean = " ".join(_CONTROL.sub(" ", line).split())
    return clean if len(clean) <= TEXT_MAX else f"{clean[: TEXT_MAX - 1]}…"
