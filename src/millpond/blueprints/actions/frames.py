"""Frames: a job's log as server-sent events, and at the end how it ended.

What else happens to a job makes no frame. The end has the number of the job's last event as its id: a reader that comes
back with it has all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.api.streams import Form
from millpond.blueprints.actions.wire import Line, Status

if TYPE_CHECKING:
    from datetime import datetime

LOG: Final = "log"
_encode: Final = msgspec.json.Encoder().encode


def _frame(row: Any) -> bytes | None:
    if row["type"] != LOG:
        return None
    line = told(row["seq"], row["at"], row["data"])
    return b"id: %d\nevent: log\ndata: %s\n\n" % (line.seq, _encode(line))


def told(seq: int, at: datetime, data: str | None) -> Line:
    """A line of log, from its event."""
    said = msgspec.json.decode(data or "{}")
    return Line(seq=seq, at=at, level=str(said.get("level") or "info"), text=str(said.get("text") or ""))


def _end(row: Any) -> bytes:
    output = None if row["output"] is None else msgspec.Raw(row["output"].encode())
    status = _encode(Status(state=row["state"], output=output))
    return b"id: %d\nevent: status\ndata: %s\n\n" % (row["events"], status)


FORM: Final = Form(_frame, _end, tells_output=True)
