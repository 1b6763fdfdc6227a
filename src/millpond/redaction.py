"""Removes secrets from texts that are stored or logged: tracebacks, whose lines and messages may quote any value."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK: Final = "***"

_WORDS: Final = (
    "password|passwd|pwd|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential|authorization|cookie"
    "|signature|session[_-]?id|dsn|database_url"
)
_SECRET: Final = re.compile(_WORDS, re.IGNORECASE)
"""In the name of a value that is secret."""
# name='value', "name": "value", name=value in a query: a quoted value, or one without spaces. Its parts are matched
# possessively or are bounded: otherwise a long text that resembles names would take quadratic time.
_ASSIGNED: Final = re.compile(
    rf"(?<![\w.-])(?=[\w.-]{{0,60}}?(?:{_WORDS}))([\w.-]++['\"]?\s{{0,3}}[=:]\s{{0,3}}[bBrRuUfF]?)"
    r"(?:\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s'\",;&)}\]]++)",
    re.IGNORECASE,
)
_VALUE_MIN: Final = 6
"""Shorter values of the environment are not searched for: they would match ordinary text."""

_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        MASK,
    ),
    # user and password of a URL
    (re.compile(r"(?<=://)[^\s/@'\"]{1,500}@"), f"{MASK}@"),
    # Authorization: Bearer …
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # keys that are known by their beginning: Millpond, Stripe and OpenAI, AWS, GitHub, Slack, Replicate, JWT
    (
        re.compile(
            r"\b(?:mp[a-z]{0,2}_|whsec_|sk[-_]|rk_|pk_|gh[pousr]_|github_pat_|xox[a-z]-|r8_|hf_|glpat-|AIza)[\w-]{12,}"
            r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
        ),
        MASK,
    ),
)


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text without what looks like a secret, and without the values of secret environment variables."""
    for value in _secret_values(os.environ if environment is None else environment):
        text = text.replace(value, MASK)
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with the name of a secret, the longest first: one may contain another."""
    found = {
        value
        for name, value in environment.items()
        if len(value) >= _VALUE_MIN and (_SECRET.search(name) or name.upper().endswith("_KEY"))
    }
    return sorted(found, key=len, reverse=True)
