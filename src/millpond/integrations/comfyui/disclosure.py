"""What a user may read of an error: one line, without the addresses and paths of the machines that ran the job.

The original text stays with the exception as a note, for the log and the traceback that operators see.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from millpond import values
from millpond.errors import MillpondError, TransientError

MESSAGE_MAX: Final = 500
_READ_MAX: Final = 8_192
_NAME_MAX: Final = 100
_DEPTH_MAX: Final = 8
_HIDDEN: Final = "(address)"

_URL: Final = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"`<>\])},;]+")
_IPV4: Final = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?!\.?\d)")
_IPV6: Final = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_LOCALHOST: Final = re.compile(r"\blocalhost(?::\d{1,5})?\b", re.IGNORECASE)
_ROOT: Final = r"(?:[A-Za-z]:[\\/]|\\\\|~?/)"
_QUOTED_PATH: Final = re.compile(rf"(?P<quote>['\"`]){_ROOT}(?P<path>[^'\"`]+)(?P=quote)")
_PART: Final = r"[^\s'\"`<>|:;,()\[\]{}\\/]"
_PATH: Final = re.compile(rf"(?<![\w./\\~-]){_ROOT}(?P<path>(?:{_PART}+[\\/])+{_PART}*)")


@dataclass(slots=True)
class Disclosure:
    """Removes what belongs to the operator from the errors of one job."""

    url: str
    """The address of ComfyUI."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The user's names of the files, by their names in ComfyUI."""

    def line(self, text: str, limit: int = MESSAGE_MAX) -> str:
        """The text in one line, with the user's names of files, and the last part of each path."""
        clean = values.printable(text[:_READ_MAX], _READ_MAX)
        clean = " ".join("".join(letter if letter.isprintable() else " " for letter in clean).split())
        for hidden in self._hidden:
            clean = clean.replace(hidden, _HIDDEN)
        for pattern in (_URL, _IPV4, _LOCALHOST):
            clean = pattern.sub(_HIDDEN, clean)
        clean = _IPV6.sub(lambda found: _HIDDEN if _is_address(found[0]) else found[0], clean)
        clean = _QUOTED_PATH.sub(lambda found: f"{found['quote']}{_last(found['path'])}{found['quote']}", clean)
        clean = _PATH.sub(lambda found: _last(found["path"]), clean)
        for name in sorted(self.files, key=len, reverse=True):
            clean = clean.replace(name, self.files[name])
        return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"

    def name(self, name: str, own: str) -> None:
        """Show ``own``, the user's name of a file, instead of its name in ComfyUI."""
        self.files[name] = " ".join(values.printable(own, _NAME_MAX).split())

    def apply(self, error: Exception) -> MillpondError:
        """The error as a user may see it. Its original text becomes a note of the exception."""
        if not isinstance(error, MillpondError):
            made = TransientError(self.line(f"{type(error).__name__}: {error}"), reason="worker")
            made.add_note(values.printable(f"{type(error).__name__}: {error}", _READ_MAX))
            return made
        message = self.line(error.message)
        if message != error.message:
            error.add_note(values.printable(error.message, _READ_MAX))
        error.message = message
        error.args = (message,)
        error.hint = None if error.hint is None else self.line(error.hint)
        error.details = cast("dict[str, Any]", self._shown(error.details))
        return error

    @property
    def _hidden(self) -> list[str]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        return [found for found in (self.url, parts.netloc, host if "." in host else "") if found]

    def _shown(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self.line(value)
        if depth > _DEPTH_MAX:
            return value
        if isinstance(value, dict):
            return {key: self._shown(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._shown(item, depth + 1) for item in cast("list[Any]", value)]
        return value


def notes(error: BaseException) -> str:
    """What only operators may read of an error."""
    return "\n".join(getattr(error, "__notes__", ()))


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return len(text) > len("::")


def _last(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name
