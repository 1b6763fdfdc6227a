"""Which events a package writes to the log, as its sources have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_DECLARATIONS = {"logs.py", "log_events.py"}


def _sources(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.rglob("*.py") if path.name not in _DECLARATIONS]


def emitted(folder: Path) -> set[str]:
    """The events that are emitted by their own names; some are put together from an outcome."""
    return {name for text in _sources(folder) for name in re.findall(r'logs\.emit\(\s*"([^"]+)"', text)}


def not_emitted(events: Iterable[str], folder: Path) -> list[str]:
    """Those of these events that no source names."""
    texts = _sources(folder)
    return [event for event in events if not any(f'"{event}"' in text for text in texts)]
