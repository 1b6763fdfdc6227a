"""The traceback of a handler's error, for operators: bounded, without the values of variables, and without secrets."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from millpond import values
from millpond.redaction import redact

LENGTH_MAX: Final = 16_000
"""In characters. Of a longer traceback, the middle is left out."""
_RAW_MAX: Final = 4 * LENGTH_MAX
"""How much is searched for secrets."""
_GAP: Final = "\n[… lines are left out …]\n"
_LINE_MAX: Final = 1_000
_FRAMES_MAX: Final = 50
"""Of each exception: the first and the last half of them."""
_OURS: Final = str(Path(__file__).parent)


def render(error: BaseException) -> str | None:
    """The traceback as text; None if no code of a handler has raised the error."""
    if error.__traceback__ is None:
        return None
    try:
        text = _raw(error)
    except Exception as failed:  # noqa: BLE001 - it calls methods of the error, which may raise anything
        text = f"{type(error).__name__} (its traceback cannot be rendered: {type(failed).__name__})"
    return stored(text)


def stored(text: str) -> str:
    """A traceback as it is stored, whoever has rendered it: shortened, and without secrets."""
    clean = redact(values.printable(_without_middle(text, _RAW_MAX), 2 * _RAW_MAX))
    clean = "\n".join(line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}…" for line in clean.split("\n"))
    return _without_middle(clean, LENGTH_MAX).strip("\n")


def _without_middle(text: str, limit: int) -> str:
    """A quarter of the limit from the beginning and the rest from the end, in whole lines: half a secret stays one."""
    if len(text) <= limit:
        return text
    head = text[: limit // 4].rpartition("\n")[0]
    tail = text[limit // 4 + len(_GAP) - limit :].partition("\n")[2]
    return f"{head}{_GAP}{tail}"


def _raw(error: BaseException) -> str:
    found = traceback.TracebackException.from_exception(error, lookup_lines=False, compact=True)
    found.stack = _of_handler(found.stack)
    return "".join(found.format())


def _of_handler(stack: traceback.StackSummary) -> traceback.StackSummary:
    """The frames from the handler on, without those of the worker that called it; at most ``_FRAMES_MAX``."""
    outside = [n for n, frame in enumerate(stack) if not _is_ours(frame.filename)]
    frames = list(stack)[outside[0] :] if outside else list(stack)
    half = _FRAMES_MAX // 2
    if len(frames) > _FRAMES_MAX:
        frames = frames[:half] + frames[-half:]
    return traceback.StackSummary.from_list(frames)


def _is_ours(filename: str) -> bool:
    """Whether this is code of the worker, or of asyncio, which the worker calls."""
    return filename.startswith(_OURS) or "/asyncio/" in filename.replace("\\", "/")
